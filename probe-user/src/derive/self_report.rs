//! Self-counters: the cost of counting, and what could not be counted.

use std::time::Duration;

use probe_common::spe::{BadKind, Unattributed};

use super::{
    AgentHealth, CounterSource, CounterValue, Estimate, MetricInfo, MetricKind, Reason, Report,
    Subject, Value,
    self_counters::{AGENT, COUNTING, FUNCTIONS, NAMING, SAMPLED, SAMPLING, SelfCounter},
};
use crate::{
    snapshot::{Hook, SpeHealth},
    window::{Window, float},
};

const HOOKS: &[&str] = &["sched-switch", "cgroup-switches"];

/// Adds the self-counters, which count since the session began.
pub(super) fn add(report: &mut Report, window: &Window) {
    let subject = report.subject(Subject::Pmuscope);
    let began = window.began;
    let mut series = SelfReport {
        report,
        subject,
        began,
    };
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    let build = Ok(Value::Info(version));
    series.add(("build", "", "This program"), MetricKind::Info, build);
    let hook = match window.health.hook {
        Hook::SchedSwitch => HOOKS[0],
        Hook::CgroupSwitches => HOOKS[1],
    };
    let state = Ok(Value::State(hook, HOOKS));
    let help = "The kernel hook that accounts";
    series.add(("hook", "", help), MetricKind::State, state);
    series.add_table(COUNTING, &window.health);
    if let Some(names) = &window.health.names {
        series.add_table(NAMING, names);
    }
    let spe = (window.samples.as_ref()).and_then(|samples| samples.spe.as_deref());
    if let Some(health) = spe {
        series.add_table(SAMPLING, health);
        for (name, count) in composed_counters(health) {
            let described = (
                name.as_str(),
                "",
                "Of sampling: see docs/reference/self-counters.md",
            );
            series.add_number(described, MetricKind::Counter, Some(count));
        }
    }
    if let Some(sampled) = window.event_samples() {
        series.add_table(SAMPLED, &sampled.events);
        if let Some(names) = &sampled.names {
            series.add_table(FUNCTIONS, names);
        }
    }
}

impl AgentHealth {
    /// The most series that [`Self::add_to`] adds.
    pub const MAX_SERIES: usize = AGENT.len();

    /// Adds the self-counters to a report.
    pub fn add_to(&self, report: &mut Report) {
        let subject = report.subject(Subject::Pmuscope);
        let mut series = SelfReport {
            report,
            subject,
            began: self.began,
        };
        series.add_table(AGENT, self);
    }
}

/// Name, unit and help.
type MetricText<'a> = (&'a str, &'a str, &'a str);

struct SelfReport<'a> {
    report: &'a mut Report,
    subject: u32,
    /// Start of the counters.
    began: Duration,
}

impl SelfReport<'_> {
    fn add_table<T>(&mut self, table: &[SelfCounter<T>], health: &T) {
        for counter in table {
            let described = (counter.name, counter.unit, counter.help);
            self.add_number(described, counter.kind, (counter.value)(health));
        }
    }

    fn add_number(&mut self, described: MetricText<'_>, kind: MetricKind, value: Option<u64>) {
        let value = value.ok_or(Reason::NotMeasured).map(|raw| {
            let estimate = Estimate::exact(float(raw));
            match kind {
                MetricKind::Counter => Value::Counter(CounterValue {
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

    fn add(
        &mut self,
        (name, unit, help): MetricText<'_>,
        kind: MetricKind,
        value: Result<Value, Reason>,
    ) {
        let metric = self.report.add_metric(MetricInfo {
            name: name.to_owned(),
            help: help.to_owned(),
            unit: unit.to_owned(),
            kind,
            counting: CounterSource::All,
        });
        let total = match &value {
            Ok(Value::Counter(counter)) => Some(*counter),
            _ => None,
        };
        self.report.push([self.subject, metric, 0], value, total);
    }
}

/// Counters of SPE whose names have variable parts: counts of sampling by the cores themselves,
/// undecodable records by kind of damage, and unattributed records by reason.
fn composed_counters(health: &SpeHealth) -> impl Iterator<Item = (String, u64)> {
    let sampler = health
        .sampler
        .iter()
        .map(|(name, count)| (format!("spe_{name}"), *count));
    let bad = BadKind::ALL
        .iter()
        .zip(health.sum.bad)
        .map(|(kind, count)| (format!("spe_bad_records_{}", kind.name()), count));
    let unattributed = Unattributed::ALL
        .iter()
        .zip(health.sum.unattributed)
        .map(|(kind, count)| (format!("spe_unattributed_{}", kind.name()), count));
    sampler.chain(bad).chain(unattributed)
}
