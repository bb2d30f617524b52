//! This program's account of itself: what counting costs, and what could not be counted.

use std::time::Duration;

use probe_common::spe::{BadKind, Unattributed};

use super::{
    AgentHealth, Counter, Counting, Estimate, Kind, Metric, Reason, Report, Subject, Value,
    self_counters::{AGENT, COUNTING, FUNCTIONS, NAMING, SAMPLED, SAMPLING, SelfCounter},
};
use crate::{
    snapshot::{Hook, SpeHealth},
    window::{Sampler, Window, float},
};

const HOOKS: &[&str] = &["sched-switch", "cgroup-switches"];

/// Adds it. Counters are since the session began.
pub(super) fn add(report: &mut Report, window: &Window) {
    let subject = report.subject(Subject::Pmuscope);
    let began = window.began;
    let mut own = Own {
        report,
        subject,
        began,
    };
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    let version = Ok(Value::Info(version));
    own.add(("build", "", "This program"), Kind::Info, version);
    let hook = match window.health.hook {
        Hook::SchedSwitch => HOOKS[0],
        Hook::CgroupSwitches => HOOKS[1],
    };
    let hook = Ok(Value::State(hook, HOOKS));
    let help = "The kernel hook that accounts";
    own.add(("hook", "", help), Kind::State, hook);
    own.add_table(COUNTING, &window.health);
    if let Some(names) = &window.health.names {
        own.add_table(NAMING, names);
    }
    if let Some(Sampler::Spe(health)) = window.samples.as_ref().map(|it| &it.sampler) {
        own.add_table(SAMPLING, health);
        for (name, count) in families(health) {
            let described = (name.as_str(), "", "Of sampling: see docs/self.md");
            own.add_number(described, Kind::Counter, Some(count));
        }
    }
    if let Some(sampled) = &window.sampled {
        own.add_table(SAMPLED, &sampled.events);
        if let Some(names) = &sampled.names {
            own.add_table(FUNCTIONS, names);
        }
    }
}

impl Report {
    /// How many series an agent says of itself, at most.
    pub const SERIES_OF_AGENT: usize = AGENT.len();

    /// A report of nothing but what an agent says of itself, which is to be added.
    #[must_use]
    pub fn of_agent() -> Self {
        let mut report = Self::default();
        report.clear(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        report
    }

    /// Adds what an agent says of itself.
    pub fn add_agent(&mut self, health: &AgentHealth) {
        let subject = self.subject(Subject::Pmuscope);
        let mut own = Own {
            report: self,
            subject,
            began: health.began,
        };
        own.add_table(AGENT, health);
    }
}

/// Name, unit and help.
type Described<'a> = (&'a str, &'a str, &'a str);

struct Own<'a> {
    report: &'a mut Report,
    subject: u32,
    /// When its counters began.
    began: Duration,
}

impl Own<'_> {
    fn add_table<T>(&mut self, table: &[SelfCounter<T>], health: &T) {
        for counter in table {
            let described = (counter.name, counter.unit, counter.help);
            self.add_number(described, counter.kind, (counter.value)(health));
        }
    }

    fn add_number(&mut self, described: Described<'_>, kind: Kind, value: Option<u64>) {
        let value = value.ok_or(Reason::NotMeasured).map(|raw| {
            let estimate = Estimate::exact(float(raw));
            match kind {
                Kind::Counter => Value::Counter(Counter {
                    start: self.began,
                    raw,
                    estimate,
                    time: None,
                }),
                _ => Value::Gauge(estimate),
            }
        });
        self.add(described, kind, value);
    }

    fn add(&mut self, (name, unit, help): Described<'_>, kind: Kind, value: Result<Value, Reason>) {
        let metric = self.report.add_metric(Metric {
            name: name.to_owned(),
            help: help.to_owned(),
            unit: unit.to_owned(),
            kind,
            counting: Counting::All,
        });
        let total = match &value {
            Ok(Value::Counter(counter)) => Some(*counter),
            _ => None,
        };
        self.report.push([self.subject, metric, 0], value, total);
    }
}

/// Counts of sampling with composed names: the cores' own counts, and records by kind of damage.
fn families(health: &SpeHealth) -> impl Iterator<Item = (String, u64)> {
    let sampler = health.sampler.iter();
    let sampler = sampler.map(|(name, count)| (format!("spe_{name}"), *count));
    let bad = BadKind::ALL.iter().zip(health.sum.bad);
    let bad = bad.map(|(kind, count)| (format!("spe_bad_records_{}", kind.name()), count));
    let unattributed = Unattributed::ALL.iter().zip(health.sum.unattributed);
    let unattributed =
        unattributed.map(|(kind, count)| (format!("spe_unattributed_{}", kind.name()), count));
    sampler.chain(bad).chain(unattributed)
}
