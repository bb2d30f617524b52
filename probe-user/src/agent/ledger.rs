//! Ledger: what is exported of a report, with totals that go on whatever happens to the session.
//!
//! Totals in a report are those of a session, by row. The ledger adds up what they gain, so that
//! they neither step back where the session ends and another begins, nor where a row joins others
//! or leaves them.

use std::{
    collections::{HashMap, HashSet},
    mem,
    time::Duration,
};

use crate::{
    derive::{Attributes, Counter, Estimate, LiveTime, Metric, Report, Series, Subject, Value},
    join::Entity,
};

/// What was exported so far.
#[derive(Default)]
pub(super) struct Ledger {
    metrics: Names<(String, String)>,
    attributes: Names<Attributes>,
    accounts: HashMap<Subject, Account>,
}

/// Numbers of things, from 0 on.
struct Names<T>(HashMap<T, u32>);

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + std::hash::Hash> Names<T> {
    fn number(&mut self, of: T) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(of).or_insert(next)
    }
}

/// Metric and attributes of a counter.
type Key = (u32, u32);

/// The counters of a subject.
#[derive(Default)]
struct Account {
    /// In this session, as of the last report.
    session: Vec<(Key, Amount)>,
    /// Exported.
    exported: Vec<(Key, Amount)>,
    /// Whether the last report had it.
    seen: bool,
}

/// What a counter counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Amount {
    /// When it began.
    start: Duration,
    raw: u64,
    estimate: f64,
    /// Of the estimate.
    variance: f64,
    /// Nanoseconds enabled, running.
    time: (u64, u64),
}

impl Ledger {
    /// Another session begins: its totals begin at nothing.
    pub(super) fn begin(&mut self) {
        for account in self.accounts.values_mut() {
            account.session = Vec::new();
        }
    }

    /// Puts the exported totals into a report, and the rows of `folded` together into one. False
    /// where subjects were counted before that the report has not.
    pub(super) fn settle(&mut self, report: &mut Report, folded: &HashSet<Entity>) -> bool {
        let keys = self.keys(report);
        for account in self.accounts.values_mut() {
            account.seen = false;
        }
        let others = Subject::Entity(Entity::Others);
        let mut fold = Fold::default();
        for series in &mut report.series {
            let subject = &report.subjects[series.subject as usize];
            let folds = matches!(subject, Subject::Entity(entity) if folded.contains(entity));
            let Some(total) = series.total.map(|at| &mut report.totals[at as usize]) else {
                let is_share = report.attributes[series.attributes as usize]
                    .method
                    .is_share();
                if folds && is_share {
                    add_share(&mut fold.shares, series);
                }
                continue;
            };
            let key = (
                keys.metrics[series.metric as usize],
                keys.attributes[series.attributes as usize],
            );
            let account = self.accounts.entry(subject.clone()).or_default();
            account.seen = true;
            let gain = Amount::of(total).since(entry(&mut account.session, key));
            *entry(&mut account.session, key) = Amount::of(total);
            let account = match folds {
                true => {
                    entry(&mut fold.gains, key).add(&gain);
                    self.accounts.entry(others.clone()).or_default()
                }
                false => account,
            };
            account.seen = true;
            let exported = entry(&mut account.exported, key);
            exported.add(&gain);
            exported.put(total);
        }
        if !folded.is_empty() || self.accounts.contains_key(&others) {
            self.fold(report, &keys, folded, fold);
        }
        self.accounts.values().all(|account| account.seen)
    }

    /// Takes the folded rows out of a report and puts one row in their place.
    fn fold(&mut self, report: &mut Report, keys: &Keys, folded: &HashSet<Entity>, mut fold: Fold) {
        let folds: Vec<bool> = report
            .subjects
            .iter()
            .map(|subject| matches!(subject, Subject::Entity(entity) if folded.contains(entity)))
            .collect();
        report
            .series
            .retain(|series| !folds[series.subject as usize]);
        let others = Subject::Entity(Entity::Others);
        let Some(account) = self.accounts.get_mut(&others) else {
            return;
        };
        account.seen = true;
        let subject = report.subject(others.clone());
        for (key, amount) in &account.exported {
            // A metric that is counted no more is shown no more.
            let metric = keys.metrics.iter().position(|it| *it == key.0);
            let attributes = keys.attributes.iter().position(|it| *it == key.1);
            let (Some(metric), Some(attributes)) = (metric, attributes) else {
                continue;
            };
            let index = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            let value = Value::Counter(entry(&mut fold.gains, *key).counter(report.start));
            let total = amount.counter(report.began);
            report.push(
                [subject, index(metric), index(attributes)],
                Ok(value),
                Some(total),
            );
        }
        if !fold.shares.is_empty() {
            let subject = report.subject(others);
            for share in fold.shares {
                report.push([subject, share.metric, share.attributes], share.value, None);
            }
        }
    }

    fn keys(&mut self, report: &Report) -> Keys {
        let metrics = report.metrics.iter();
        let name = |it: &Metric| (it.name.clone(), it.unit.clone());
        let attributes = report.attributes.iter();
        // A counter goes on in another group.
        let of = |it: &Attributes| Attributes {
            group: None,
            ..it.clone()
        };
        Keys {
            metrics: metrics.map(|it| self.metrics.number(name(it))).collect(),
            attributes: attributes
                .map(|it| self.attributes.number(of(it)))
                .collect(),
        }
    }

    /// Closes the accounts of entities that the last report had not and that are not `live`.
    pub(super) fn forget(&mut self, live: &HashSet<Entity>) {
        self.accounts.retain(|subject, account| match subject {
            Subject::Entity(
                entity @ (Entity::Container { .. } | Entity::Pod(_) | Entity::Cgroup(_)),
            ) => account.seen || live.contains(entity),
            Subject::Entity(Entity::Process { .. } | Entity::Unnamed(_)) => account.seen,
            _ => true,
        });
    }
}

/// What rows that are put together gained in a window.
#[derive(Default)]
struct Fold {
    gains: Vec<(Key, Amount)>,
    shares: Vec<Series>,
}

/// The numbers of a report's metrics and attributes.
struct Keys {
    metrics: Vec<u32>,
    attributes: Vec<u32>,
}

fn entry(list: &mut Vec<(Key, Amount)>, key: Key) -> &mut Amount {
    let at = list.iter().position(|(known, _)| *known == key);
    let at = at.unwrap_or_else(|| {
        list.push((key, Amount::default()));
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
            let errors = sum.error.zip(share.error);
            sum.error = errors.map(|(a, b)| a.hypot(b));
            sum.interval = None;
        }
        (sum @ Ok(_), Err(reason)) => drop(mem::replace(sum, Err(reason.clone()))),
        _ => {}
    }
}

impl Amount {
    fn of(counter: &Counter) -> Self {
        let time = counter.time.unwrap_or_default();
        Self {
            start: counter.start,
            raw: counter.raw,
            estimate: counter.estimate.value,
            variance: counter.estimate.error.unwrap_or(0.0).powi(2),
            time: (time.enabled, time.running),
        }
    }

    /// What came since; all of it, where the counter began anew.
    fn since(&self, before: &Self) -> Self {
        if self.start != before.start || self.raw < before.raw || self.time.0 < before.time.0 {
            return *self;
        }
        Self {
            start: self.start,
            raw: self.raw - before.raw,
            estimate: (self.estimate - before.estimate).max(0.0),
            variance: (self.variance - before.variance).max(0.0),
            time: (
                self.time.0 - before.time.0,
                self.time.1.saturating_sub(before.time.1),
            ),
        }
    }

    fn add(&mut self, gain: &Self) {
        self.raw = self.raw.saturating_add(gain.raw);
        self.estimate += gain.estimate;
        self.variance += gain.variance;
        self.time.0 = self.time.0.saturating_add(gain.time.0);
        self.time.1 = self.time.1.saturating_add(gain.time.1);
    }

    /// A counter of this that began at `start`.
    fn counter(&self, start: Duration) -> Counter {
        let mut counter = Counter {
            start,
            raw: 0,
            estimate: Estimate {
                error: (self.variance > 0.0).then_some(0.0),
                ..Estimate::exact(0.0)
            },
            time: (self.time.0 > 0).then(LiveTime::default),
        };
        self.put(&mut counter);
        counter
    }

    /// Makes it the total of a counter.
    fn put(&self, total: &mut Counter) {
        total.raw = self.raw;
        let estimate = &mut total.estimate;
        // An interval keeps its distance from the estimate.
        let moved = self.estimate - estimate.value;
        estimate.interval = estimate
            .interval
            .map(|(low, high)| (low + moved, high + moved));
        estimate.value = self.estimate;
        estimate.error = estimate.error.map(|_| self.variance.sqrt());
        if let Some(time) = &mut total.time {
            (time.enabled, time.running) = self.time;
        }
    }
}

#[cfg(test)]
mod tests;
