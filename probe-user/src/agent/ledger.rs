//! Ledger: the exported totals of a report. They go on when a session ends and another begins.
//!
//! Totals in a report are those of a session, by row. The ledger adds up what they gain, so that
//! exported totals never step back: not with another session, and not where a row joins others or
//! leaves them.

mod amount;
mod saved;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::Hash,
    mem,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use self::amount::{Amount, Count, Sum, put};
use super::folded::Folded;
use crate::{
    derive::{Attributes, Metric, Report, Series, Subject, Value},
    join::Entity,
};

/// What was exported so far.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Ledger {
    metrics: Names<(String, String)>,
    attributes: Names<Attributes>,
    /// Groups of counters by their events. Counts and times of a group belong together only as long
    /// as its events are the same: another set of them is another group.
    groups: Names<Vec<String>>,
    #[serde(with = "saved::accounts")]
    accounts: HashMap<Subject, Account>,
    /// Unix time at which the programs' clock was 0, as it was when the ledger began: a receiver
    /// takes another start of a total for a total that began anew.
    pub(super) boot_time: Option<Duration>,
    /// The number of each group of the plan, in its order.
    #[serde(skip)]
    numbers: Vec<u32>,
    /// A session began that goes on with the totals of the one before.
    #[serde(skip)]
    resumed: bool,
}

/// Numbers of things, from 0 on.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de> + Eq + Hash"))]
struct Names<T>(HashMap<T, u32>);

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + Hash> Names<T> {
    fn number(&mut self, of: T) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(of).or_insert(next)
    }
}

/// Metric and attributes of a counter.
type Key = (u32, u32);

/// The counters of a subject.
#[derive(Default, Serialize, Deserialize)]
struct Account {
    /// In this session, as of the last report.
    session: Vec<(Key, Amount)>,
    /// Exported as counted, by group.
    counts: Vec<(Key, Count)>,
    /// Exported estimates, whatever the group.
    sums: Vec<(Key, Sum)>,
    /// Whether the last report had it.
    #[serde(skip)]
    seen: bool,
}

impl Account {
    /// Adds what a counter gained; it counts in its group, and is estimated in any.
    fn add(&mut self, [counted, estimated]: [Key; 2], gain: &Amount) -> (Count, Sum) {
        let count = entry(&mut self.counts, counted);
        count.add(&gain.count);
        let sum = entry(&mut self.sums, estimated);
        sum.add(&gain.sum);
        (*count, *sum)
    }
}

impl Ledger {
    /// Another session begins, with these groups of events: its totals begin at nothing, unless it
    /// goes on with those of the one before (`resumed`).
    pub(super) fn begin(&mut self, groups: Vec<Vec<String>>, resumed: bool) {
        let mut alike: HashMap<Vec<String>, usize> = HashMap::new();
        let number = |mut events: Vec<String>| {
            // Groups of the same events have a number each.
            let nth = alike.entry(events.clone()).or_default();
            if *nth > 0 {
                events.push(nth.to_string());
            }
            *nth += 1;
            self.groups.number(events)
        };
        self.numbers = groups.into_iter().map(number).collect();
        self.resumed = resumed;
        if !resumed {
            for account in self.accounts.values_mut() {
                account.session = Vec::new();
            }
        }
    }

    /// Puts the exported totals into a report, and puts the rows of `folded` together into one.
    /// Rows that are left out are taken out of the report, and their totals go on like all others.
    /// False where the report lacks subjects that were counted before.
    pub(super) fn settle(&mut self, report: &mut Report, folded: &Folded) -> bool {
        let keys = self.keys(report);
        let resumed = mem::take(&mut self.resumed);
        for account in self.accounts.values_mut() {
            account.seen = false;
            if resumed {
                // What this session does not count begins at nothing if it is counted again.
                account.session.retain(|(key, _)| keys.has(*key));
            }
        }
        let others = Subject::Entity(Entity::Others);
        let mut fold = Fold::default();
        for series in &mut report.series {
            let subject = &report.subjects[series.subject as usize];
            let folds = matches!(subject, Subject::Entity(entity) if folded.rows.contains(entity));
            let Some(total) = series.total.map(|at| &mut report.totals[at as usize]) else {
                let is_share = report.attributes[series.attributes as usize]
                    .method
                    .is_share();
                if folds && is_share {
                    add_share(&mut fold.shares, series);
                }
                continue;
            };
            let places = (series.metric, series.attributes);
            let key @ [_, session] = keys.of(places);
            let account = self.accounts.entry(subject.clone()).or_default();
            account.seen = true;
            let last = entry(&mut account.session, session);
            let gain = last.advance(Amount::of(total));
            let account = match folds {
                true => {
                    fold.gains.entry(places).or_default().add(&gain);
                    self.accounts.entry(others.clone()).or_default()
                }
                false => account,
            };
            account.seen = true;
            let (count, sum) = account.add(key, &gain);
            put(&count, &sum, total);
        }
        take_out(report, folded);
        if !folded.rows.is_empty() || self.accounts.contains_key(&others) {
            self.fold(report, &keys, fold);
        }
        for attributes in &mut report.attributes {
            attributes.group = attributes.group.map(|group| self.number(group));
        }
        self.accounts.values().all(|account| account.seen)
    }

    /// Puts one row in the place of the folded ones.
    fn fold(&mut self, report: &mut Report, keys: &Keys, mut fold: Fold) {
        let others = Subject::Entity(Entity::Others);
        let Some(account) = self.accounts.get_mut(&others) else {
            return;
        };
        account.seen = true;
        let subject = report.subject(others.clone());
        // A metric that is counted no more is shown no more.
        let shown = account
            .counts
            .iter()
            .filter_map(|(key, _)| keys.place(*key));
        let shown: BTreeSet<_> = shown.chain(fold.gains.keys().copied()).collect();
        for (metric, attributes) in shown {
            let [counted, estimated] = keys.of((metric, attributes));
            let gain = fold.gains.remove(&(metric, attributes)).unwrap_or_default();
            let count = entry(&mut account.counts, counted);
            let sum = entry(&mut account.sums, estimated);
            let mut value = gain.count.counter(&gain.sum);
            value.start = report.start;
            let total = count.counter(sum);
            let value = Value::Counter(value);
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
    fn number(&self, group: u32) -> u32 {
        let number = self.numbers.get(group as usize);
        number.copied().unwrap_or(group)
    }

    fn keys(&mut self, report: &Report) -> Keys {
        let metrics = report.metrics.iter();
        let name = |it: &Metric| (it.name.clone(), it.unit.clone());
        let metrics = metrics.map(|it| self.metrics.number(name(it))).collect();
        let of = |it: &Attributes| {
            [it.group.map(|group| self.number(group)), None].map(|group| Attributes {
                group,
                ..it.clone()
            })
        };
        let attributes: Vec<_> = report.attributes.iter().map(of).collect();
        let numbers = attributes.into_iter();
        Keys {
            metrics,
            attributes: numbers
                .map(|both| both.map(|it| self.attributes.number(it)))
                .collect(),
        }
    }

    /// The processes that were exported.
    pub(super) fn processes(&self) -> HashSet<u32> {
        let subjects = self.accounts.keys();
        let processes = subjects.filter_map(|subject| match subject {
            Subject::Entity(Entity::ProcessOf { tgid, .. }) => Some(*tgid),
            _ => None,
        });
        processes.collect()
    }

    /// Closes the accounts of entities that the last report had not and that are not `live`; of
    /// processes `lives` tells.
    pub(super) fn forget(&mut self, live: &HashSet<Entity>, lives: impl Fn(u32) -> bool) {
        self.accounts.retain(|subject, account| match subject {
            // It may be among those with most again.
            Subject::Entity(Entity::ProcessOf { tgid, .. }) => account.seen || lives(*tgid),
            Subject::Entity(
                entity @ (Entity::Container { .. } | Entity::Pod(_) | Entity::Cgroup(_)),
            ) => account.seen || live.contains(entity),
            Subject::Entity(Entity::Process { .. } | Entity::Unnamed(_)) => account.seen,
            _ => true,
        });
    }
}

/// Takes out of a report what it is not to show.
fn take_out(report: &mut Report, folded: &Folded) {
    if *folded == Folded::default() {
        return;
    }
    let goes = |subject: &Subject| match subject {
        Subject::Entity(it) => folded.rows.contains(it) || folded.left_out.contains(it),
        _ => false,
    };
    let goes: Vec<bool> = report.subjects.iter().map(goes).collect();
    report
        .series
        .retain(|series| !goes[series.subject as usize]);
}

/// What rows that are put together gained in a window.
#[derive(Default)]
struct Fold {
    /// By metric and attributes of the report.
    gains: HashMap<(u32, u32), Amount>,
    shares: Vec<Series>,
}

/// The numbers of a report's metrics and attributes.
struct Keys {
    metrics: Vec<u32>,
    /// With the group, and whatever the group is.
    attributes: Vec<[u32; 2]>,
}

impl Keys {
    /// Of a metric and attributes of the report: what is counted, and what is estimated.
    fn of(&self, (metric, attributes): (u32, u32)) -> [Key; 2] {
        let metric = self.metrics[metric as usize];
        self.attributes[attributes as usize].map(|it| (metric, it))
    }

    /// Where the report has what is counted.
    fn place(&self, key: Key) -> Option<(u32, u32)> {
        let metric = self.metrics.iter().position(|it| *it == key.0)?;
        let mut attributes = self.attributes.iter();
        let attributes = attributes.position(|[counted, _]| *counted == key.1)?;
        Some((u32::try_from(metric).ok()?, u32::try_from(attributes).ok()?))
    }

    /// Whether the report may have what is estimated.
    fn has(&self, key: Key) -> bool {
        let mut attributes = self.attributes.iter();
        self.metrics.contains(&key.0) && attributes.any(|[_, estimated]| *estimated == key.1)
    }
}

fn entry<T: Default>(list: &mut Vec<(Key, T)>, key: Key) -> &mut T {
    let at = list.iter().position(|(known, _)| *known == key);
    let at = at.unwrap_or_else(|| {
        list.push((key, T::default()));
        list.len() - 1
    });
    &mut list[at].1
}

/// Adds a share to that of the others of the same kind. Of a sum with a part that is not known
/// nothing is known.
fn add_share(sums: &mut Vec<Series>, share: &Series) {
    let kind = |it: &Series| (it.metric, it.attributes);
    let Some(sum) = sums.iter_mut().find(|sum| kind(sum) == kind(share)) else {
        return sums.push(share.clone());
    };
    match (&mut sum.value, &share.value) {
        (Ok(Value::Gauge(sum)), Ok(Value::Gauge(share))) => {
            sum.value += share.value;
            sum.live = sum.live.min(share.live);
            sum.spread = sum.spread.of_sum(share.spread);
        }
        (sum @ Ok(_), Err(reason)) => drop(mem::replace(sum, Err(reason.clone()))),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
