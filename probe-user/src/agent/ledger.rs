//! The [`Ledger`]: exported totals, which continue from session to session.
//!
//! The totals in a report are those of one session, by row. The ledger adds up their gains, so that
//! an exported total never decreases: not with a new session, and not when a row is folded into the
//! row of others or shown alone again.

mod amount;
mod numbering;
mod saved;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use self::{
    amount::{Amount, EstimateSum, RawCount, write_total},
    numbering::Numbering,
};
use super::folded::Folded;
use crate::{
    derive::{Attributes, MetricInfo, Report, Series, Subject, Value},
    join::{Entity, WaitedFor},
};

/// Everything that was exported so far.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Ledger {
    metrics: Numbering<(String, String)>,
    attributes: Numbering<Attributes>,
    /// Groups of counters by their events. Counts and times of a group belong together only while
    /// its events are the same: another set of events is another group.
    groups: Numbering<Vec<String>>,
    #[serde(with = "saved::accounts")]
    accounts: HashMap<Subject, LedgerAccount>,
    /// Unix time at which the programs' clock was 0, as first reported: a total whose start changes
    /// would look like a counter reset.
    pub(super) boot_time: Option<Duration>,
    /// The exported number of each group of the plan, in the plan's order.
    #[serde(skip)]
    group_numbers: Vec<u32>,
    /// Whether the current session continues the totals of the previous one. False from its first
    /// report on.
    #[serde(skip)]
    resumed: bool,
}

/// The most exported totals of waits that a row keeps, one for each entity that it waited for. A
/// window names three of these entities at a time.
const MOST_WAITS: usize = 16;

/// The ledger's numbers of a counter's metric and attributes.
type SeriesKey = (u32, u32);

/// The counters of a subject.
#[derive(Default, Serialize, Deserialize)]
struct LedgerAccount {
    /// Totals of this session in the last report.
    session: Vec<(SeriesKey, Amount)>,
    /// Exported raw counts, by group.
    counts: Vec<(SeriesKey, RawCount)>,
    /// Exported estimates, over all groups.
    sums: Vec<(SeriesKey, EstimateSum)>,
    /// Whether the subject was in the last report.
    #[serde(skip)]
    in_report: bool,
}

impl LedgerAccount {
    /// Adds a counter's gain: its raw count by group, its estimate over all groups. Returns the new
    /// totals.
    fn add(
        &mut self,
        [counted, estimated]: [SeriesKey; 2],
        gain: &Amount,
    ) -> (RawCount, EstimateSum) {
        let count = entry(&mut self.counts, counted);
        count.add(&gain.count);
        let sum = entry(&mut self.sums, estimated);
        sum.add(&gain.sum);
        (*count, *sum)
    }

    /// Drops this session's totals of the `waits` that are no longer `named`, since a wait that is
    /// named again begins at 0. Keeps the exported totals of these waits while there are few.
    fn forget_waits(&mut self, waits: &HashSet<u32>, named: &HashSet<u32>) {
        let keeps = |(_, attributes): SeriesKey| {
            !waits.contains(&attributes) || named.contains(&attributes)
        };
        self.session.retain(|(key, _)| keeps(*key));
        let exported =
            { self.counts.iter() }.filter(|((_, attributes), _)| waits.contains(attributes));
        if exported.count() > MOST_WAITS {
            self.counts.retain(|(key, _)| keeps(*key));
            self.sums.retain(|(key, _)| keeps(*key));
        }
    }

    /// The time enabled and running of the counter group with these attributes, in nanoseconds: the
    /// longest of its counters. A counter lacks the time of sessions that did not know its count.
    fn group_time(&self, attributes: u32) -> (u64, u64) {
        let of_group = self
            .counts
            .iter()
            .filter(|((_, own), _)| *own == attributes);
        let times = of_group.map(|(_, count)| count.time);
        times.max().unwrap_or_default()
    }
}

impl Ledger {
    /// Begins a session with these groups of events. Its totals begin at 0, unless it continues the
    /// totals of the previous session (`resumed`).
    pub(super) fn begin_session(&mut self, groups: Vec<Vec<String>>, resumed: bool) {
        let mut repeats: HashMap<Vec<String>, usize> = HashMap::new();
        let number = |mut events: Vec<String>| {
            // A second group with the same events gets a number of its own.
            let nth = repeats.entry(events.clone()).or_default();
            if *nth > 0 {
                events.push(nth.to_string());
            }
            *nth += 1;
            self.groups.number(events)
        };
        self.group_numbers = groups.into_iter().map(number).collect();
        self.resumed = resumed;
        if !resumed {
            for account in self.accounts.values_mut() {
                account.session = Vec::new();
            }
        }
    }

    /// Replaces a report's totals by the exported ones, and folds the rows of `folded` into one.
    /// Rows that are left out are removed from the report, but their totals are still added up.
    /// False if the report lacks subjects that were exported before.
    pub(super) fn apply_totals(&mut self, report: &mut Report, folded: &Folded) -> bool {
        let behind_others = (!folded.rows.is_empty()).then(|| {
            report.add_attributes(Attributes {
                behind: Some(WaitedFor::Entity(Entity::Others)),
                ..Attributes::default()
            })
        });
        let keys = self.keys(report);
        let resumed = mem::take(&mut self.resumed);
        for account in self.accounts.values_mut() {
            account.in_report = false;
            if resumed {
                // A counter that this session lacks begins at 0 if it is counted again.
                account.session.retain(|(key, _)| keys.has_estimate(*key));
            }
        }
        let others = Subject::Entity(Entity::Others);
        let mut fold = FoldedGains::default();
        for series in &mut report.series {
            let subject = &report.subjects[series.subject as usize];
            let is_folded =
                matches!(subject, Subject::Entity(entity) if folded.rows.contains(entity));
            let Some(total) = series.total.map(|at| &mut report.totals[at as usize]) else {
                let is_share = report.attributes[series.attributes as usize]
                    .method
                    .is_share();
                if is_folded && is_share {
                    add_share(&mut fold.shares, series);
                }
                continue;
            };
            let [_, session] = keys.for_series((series.metric, series.attributes));
            // Folded rows together wait for too many entities to name, so all of these count as
            // others.
            let is_wait = report.attributes[series.attributes as usize]
                .behind
                .is_some();
            let attributes = match behind_others.filter(|_| is_folded && is_wait) {
                Some(behind_others) => behind_others,
                None => series.attributes,
            };
            let indices = (series.metric, attributes);
            let key = keys.for_series(indices);
            let account = self.accounts.entry(subject.clone()).or_default();
            account.in_report = true;
            let last = entry(&mut account.session, session);
            let gain = last.advance(Amount::from_counter(total));
            let account = match is_folded {
                true => {
                    fold.gains.entry(indices).or_default().add(&gain);
                    self.accounts.entry(others.clone()).or_default()
                }
                false => account,
            };
            account.in_report = true;
            let (count, sum) = account.add(key, &gain);
            write_total(&count, &sum, total);
        }
        self.forget_waits(report, &keys);
        remove_hidden(report, folded);
        if !folded.rows.is_empty() || self.accounts.contains_key(&others) {
            self.add_folded_row(report, &keys, fold);
        }
        self.write_group_times(report, &keys);
        for attributes in &mut report.attributes {
            attributes.group = attributes.group.map(|group| self.group_number(group));
        }
        self.accounts.values().all(|account| account.in_report)
    }

    /// Drops totals of waits that a row no longer names. A row names few waits at a time, but waits
    /// for many entities over its life.
    fn forget_waits(&mut self, report: &Report, keys: &ReportKeys) {
        let mut named: HashMap<&Subject, HashSet<u32>> = HashMap::new();
        for series in report.series.iter().filter(|it| it.total.is_some()) {
            if names_wait(&report.attributes[series.attributes as usize]) {
                let subject = &report.subjects[series.subject as usize];
                let [(_, number), _] = keys.for_series((series.metric, series.attributes));
                named.entry(subject).or_default().insert(number);
            }
        }
        let waits = self.attributes.iter().filter(|(it, _)| names_wait(it));
        let mut waits: HashSet<u32> = waits.map(|(_, number)| number).collect();
        for (subject, account) in &mut self.accounts {
            if let Some(named) = named.get(subject) {
                account.forget_waits(&waits, named);
            }
        }
        for account in self.accounts.values() {
            let keys = account.session.iter().map(|(key, _)| key);
            for (_, number) in keys.chain(account.counts.iter().map(|(key, _)| key)) {
                waits.remove(number);
            }
        }
        self.attributes.retain(|number| !waits.contains(&number));
    }

    /// Sets the time of each counter to the time of its group.
    fn write_group_times(&self, report: &mut Report, keys: &ReportKeys) {
        let in_group = |series: &&Series| {
            let attributes = &report.attributes[series.attributes as usize];
            attributes.group.is_some()
        };
        for series in report.series.iter().filter(in_group) {
            let total = series.total.map(|at| &mut report.totals[at as usize]);
            let account = self.accounts.get(&report.subjects[series.subject as usize]);
            if let (Some(time), Some(account)) = (total.and_then(|it| it.time.as_mut()), account) {
                let [(_, attributes), _] = keys.for_series((series.metric, series.attributes));
                (time.enabled, time.running) = account.group_time(attributes);
            }
        }
    }

    /// Adds the row of others, which replaces the folded ones.
    fn add_folded_row(&mut self, report: &mut Report, keys: &ReportKeys, mut fold: FoldedGains) {
        let others = Subject::Entity(Entity::Others);
        let Some(account) = self.accounts.get_mut(&others) else {
            return;
        };
        account.in_report = true;
        let subject = report.subject(others.clone());
        // Metrics that are no longer counted are not shown.
        let exported = { account.counts.iter() }.filter_map(|(key, _)| keys.indices(*key));
        let shown: BTreeSet<_> = exported.chain(fold.gains.keys().copied()).collect();
        for (metric, attributes) in shown {
            let [counted, estimated] = keys.for_series((metric, attributes));
            let gain = fold.gains.remove(&(metric, attributes)).unwrap_or_default();
            let count = entry(&mut account.counts, counted);
            let sum = entry(&mut account.sums, estimated);
            let mut counter = gain.count.counter(&gain.sum);
            counter.start = report.start;
            let total = count.counter(sum);
            let value = Value::Counter(counter);
            report.push([subject, metric, attributes], Ok(value), Some(total));
        }
        if !fold.shares.is_empty() {
            let subject = report.subject(others);
            for share in fold.shares {
                report.push([subject, share.metric, share.attributes], share.value, None);
            }
        }
    }

    /// The exported number of a group of the plan.
    fn group_number(&self, group: u32) -> u32 {
        let number = self.group_numbers.get(group as usize);
        number.copied().unwrap_or(group)
    }

    fn keys(&mut self, report: &Report) -> ReportKeys {
        let name = |it: &MetricInfo| (it.name.clone(), it.unit.clone());
        let metrics = { report.metrics.iter() }
            .map(|it| self.metrics.number(name(it)))
            .collect();
        let with_and_without_group = |it: &Attributes| {
            [it.group.map(|group| self.group_number(group)), None].map(|group| Attributes {
                group,
                ..it.clone()
            })
        };
        let attributes: Vec<_> = { report.attributes.iter() }
            .map(with_and_without_group)
            .collect();
        ReportKeys {
            metrics,
            attributes: { attributes.into_iter() }
                .map(|both| both.map(|it| self.attributes.number(it)))
                .collect(),
        }
    }

    /// Ids of the exported processes.
    pub(super) fn processes(&self) -> HashSet<u32> {
        let subjects = self.accounts.keys();
        let processes = subjects.filter_map(|subject| match subject {
            Subject::Entity(Entity::ProcessOf { tgid, .. }) => Some(*tgid),
            _ => None,
        });
        processes.collect()
    }

    /// Drops totals of subjects that are not in the last report: of containers, pods and cgroups
    /// that are not in `running`, of top processes for which `is_running` is false, and of rows by
    /// process or without a name.
    pub(super) fn forget(&mut self, running: &HashSet<Entity>, is_running: impl Fn(u32) -> bool) {
        self.accounts.retain(|subject, account| match subject {
            _ if account.in_report => true,
            // It may be among the top processes again.
            Subject::Entity(Entity::ProcessOf { tgid, .. }) => is_running(*tgid),
            Subject::Entity(
                entity @ (Entity::Container { .. } | Entity::Pod(_) | Entity::Cgroup(_)),
            ) => running.contains(entity),
            Subject::Entity(Entity::Process { .. } | Entity::Unnamed(_)) => false,
            _ => true,
        });
    }
}

/// Whether a series with these attributes counts waits for an entity that its row names.
fn names_wait(attributes: &Attributes) -> bool {
    { attributes.behind.as_ref() }
        .is_some_and(|behind| *behind != WaitedFor::Entity(Entity::Others))
}

/// Removes folded and left-out rows from a report.
fn remove_hidden(report: &mut Report, folded: &Folded) {
    if *folded == Folded::default() {
        return;
    }
    let is_hidden = |subject: &Subject| match subject {
        Subject::Entity(it) => folded.rows.contains(it) || folded.left_out.contains(it),
        _ => false,
    };
    let hidden: Vec<bool> = report.subjects.iter().map(is_hidden).collect();
    report
        .series
        .retain(|series| !hidden[series.subject as usize]);
}

/// The gains and shares of the folded rows in a window.
#[derive(Default)]
struct FoldedGains {
    /// By the report's indices of metric and attributes.
    gains: HashMap<(u32, u32), Amount>,
    shares: Vec<Series>,
}

/// The ledger's numbers of a report's metrics and attributes, by the report's indices.
struct ReportKeys {
    metrics: Vec<u32>,
    /// With the group, and without it.
    attributes: Vec<[u32; 2]>,
}

impl ReportKeys {
    /// The keys of the raw count and of the estimate, for the report's metric and attributes.
    fn for_series(&self, (metric, attributes): (u32, u32)) -> [SeriesKey; 2] {
        let metric = self.metrics[metric as usize];
        self.attributes[attributes as usize].map(|it| (metric, it))
    }

    /// The report's metric and attributes of a raw count.
    fn indices(&self, key: SeriesKey) -> Option<(u32, u32)> {
        let metric = self.metrics.iter().position(|it| *it == key.0)?;
        let counted = |[counted, _]: &[u32; 2]| *counted == key.1;
        let attributes = self.attributes.iter().position(counted)?;
        Some((u32::try_from(metric).ok()?, u32::try_from(attributes).ok()?))
    }

    /// Whether the report has this metric, and these attributes of an estimate.
    fn has_estimate(&self, key: SeriesKey) -> bool {
        let mut attributes = self.attributes.iter();
        self.metrics.contains(&key.0) && attributes.any(|[_, estimated]| *estimated == key.1)
    }
}

/// The value of a key, which is added if it is missing.
fn entry<T: Default>(list: &mut Vec<(SeriesKey, T)>, key: SeriesKey) -> &mut T {
    let position = list.iter().position(|(known, _)| *known == key);
    let at = position.unwrap_or_else(|| {
        list.push((key, T::default()));
        list.len() - 1
    });
    &mut list[at].1
}

/// Adds a share to the sum of its metric and attributes. The sum is unknown if one of its shares
/// is unknown.
fn add_share(sums: &mut Vec<Series>, share: &Series) {
    let kind = |it: &Series| (it.metric, it.attributes);
    let Some(sum) = sums.iter_mut().find(|sum| kind(sum) == kind(share)) else {
        return sums.push(share.clone());
    };
    match (&mut sum.value, &share.value) {
        (Ok(Value::Gauge(sum)), Ok(Value::Gauge(share))) => {
            sum.value += share.value;
            sum.running_ratio = sum.running_ratio.min(share.running_ratio);
            sum.spread = sum.spread.combine(share.spread);
        }
        (sum @ Ok(_), Err(reason)) => drop(mem::replace(sum, Err(reason.clone()))),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
