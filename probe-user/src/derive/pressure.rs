//! Pressure, throttling, I/O and memory events of entities.

use super::{
    CounterValue, Estimate, FindingKind, FindingSubject, MetricInfo, MetricKind, Reason, Report,
    ReportFinding, Value, sources::ReportedRows,
};
use crate::{
    join::{Entity, EntityPressure, PressureRows},
    machine::pressure::CgroupCounter,
    plan::Plan,
    window::{Window, float},
};

/// The reason in place of pressure.
const NO_PRESSURE: &str = "this kernel has no pressure stall information: boot it with psi=1, \
                           which needs CONFIG_PSI";

/// Name, unit and description of the metric of each counter, in the order of
/// [`CgroupCounter::ALL`]. Pressure is a share of the window.
const METRICS: [(&str, &str, &str); CgroupCounter::ALL.len()] = [
    (
        "cpu_pressure_some",
        "%",
        "Share of the window in which a task waited for a CPU, averaged over busy CPUs",
    ),
    (
        "cpu_pressure_full",
        "%",
        "Share of the window in which no task made progress for want of CPU",
    ),
    (
        "memory_pressure_some",
        "%",
        "Share of the window in which a task waited for memory, averaged over busy CPUs",
    ),
    (
        "memory_pressure_full",
        "%",
        "Share of the window in which no task made progress for want of memory",
    ),
    (
        "io_pressure_some",
        "%",
        "Share of the window in which a task waited for I/O, averaged over busy CPUs",
    ),
    (
        "io_pressure_full",
        "%",
        "Share of the window in which no task made progress for want of I/O",
    ),
    (
        "cpu_quota_periods",
        "",
        "Periods of its CPU quota in which it had something to run",
    ),
    (
        "cpu_throttled_periods",
        "",
        "Periods in which its CPU quota throttled it",
    ),
    (
        "cpu_throttled",
        "ns",
        "Time for which its CPU quota throttled it, added up over CPUs",
    ),
    (
        "memory_high_events",
        "",
        "Times that it was throttled because it used more than memory.high",
    ),
    (
        "memory_max_events",
        "",
        "Times that it was about to use more than memory.max",
    ),
    (
        "memory_oom_events",
        "",
        "Times that an allocation was about to fail",
    ),
    ("oom_kills", "", "Processes killed for want of memory"),
    (
        "memory_refaults",
        "",
        "Pages read back after they were evicted",
    ),
    (
        "io_read_bytes",
        "B",
        "Bytes that it read from block devices",
    ),
    (
        "io_write_bytes",
        "B",
        "Bytes that it wrote to block devices",
    ),
    ("io_read_operations", "", "Reads of block devices"),
    ("io_write_operations", "", "Writes to block devices"),
];

/// The metrics of an entity: their indices in a report.
pub(super) struct PressureMetrics {
    /// In the order of [`CgroupCounter::ALL`].
    counters: [u32; METRICS.len()],
    quota: u32,
    throttled_above: u32,
    /// Throttled entities: nanoseconds throttled by their own quota and by that of a cgroup above,
    /// the index of their subject, and the sentence of their finding.
    throttled: Vec<([u64; 2], u32, String)>,
}

impl ReportedRows for PressureRows {
    type Metrics = PressureMetrics;

    fn metrics(&self, report: &mut Report) -> PressureMetrics {
        let mut counters = [0; METRICS.len()];
        for ((index, (name, unit, help)), counter) in
            counters.iter_mut().zip(METRICS).zip(CgroupCounter::ALL)
        {
            *index = report.add_metric(MetricInfo {
                kind: match counter.is_pressure() {
                    true => MetricKind::Gauge,
                    false => MetricKind::Counter,
                },
                ..MetricInfo::gauge(name, help, unit)
            });
        }
        PressureMetrics {
            counters,
            quota: report.add_metric(MetricInfo::gauge(
                "cpu_quota",
                "The least CPU quota of the cgroup and those above it",
                "CPU",
            )),
            throttled_above: report.add_metric(MetricInfo::gauge(
                "cpu_throttled_above",
                "Time in the window for which a cgroup above it was throttled, added up over CPUs",
                "ns",
            )),
            throttled: Vec::new(),
        }
    }

    fn entities(&self) -> Vec<&Entity> {
        self.entities.keys().collect()
    }

    fn add_row(
        &self,
        metrics: &mut PressureMetrics,
        report: &mut Report,
        subject: u32,
        entity: Option<&Entity>,
    ) {
        let Some(entity) = entity else {
            for (counter, metric) in CgroupCounter::ALL.into_iter().zip(metrics.counters) {
                if let Some(micros) = self.machine.get(counter) {
                    let value = self.share(micros);
                    report.push([subject, metric, 0], value, None);
                }
            }
            return;
        };
        let Some(row) = self.entities.get(entity) else {
            return;
        };
        let counts = &row.counts;
        // A session of waits reads only a few counters. Other counters get no reason for their
        // absence, and a throttled time of 0 gets no column.
        let reads_all = !self.beside_waits;
        for (counter, metric) in CgroupCounter::ALL.into_iter().zip(metrics.counters) {
            let counted = |start, raw| CounterValue {
                start,
                raw,
                estimate: Estimate::exact(float(raw)),
                time: None,
            };
            let total = counts.total.get(counter);
            let total = total.map(|total| counted(counts.since, total));
            let (value, total) = match counts.delta.get(counter) {
                Some(micros) if counter.is_pressure() => (self.share(micros), None),
                Some(count) => (Ok(Value::Counter(counted(report.start, count))), total),
                None if counter.is_pressure() && reads_all && self.lacks_pressure() => {
                    (Err(Reason::NotPlanned(NO_PRESSURE.to_owned())), None)
                }
                None if total.is_some() && !counter.is_pressure() => {
                    (Err(Reason::NotMeasured), total)
                }
                None => continue,
            };
            report.push([subject, metric, 0], value, total);
        }
        let throttled_above = row.throttled_above.filter(|time| reads_all || *time > 0);
        let throttled_above = throttled_above.map(float);
        for (metric, value) in [
            (metrics.quota, row.quota),
            (metrics.throttled_above, throttled_above),
        ] {
            if let Some(value) = value {
                let value = Value::Gauge(Estimate::exact(value));
                report.push([subject, metric, 0], Ok(value), None);
            }
        }
        let time = counts.delta.get(CgroupCounter::Throttled).unwrap_or(0);
        let times = [time, row.throttled_above.unwrap_or(0)];
        let sentence = sentence(row);
        metrics
            .throttled
            .extend(sentence.map(|sentence| (times, subject, sentence)));
    }

    fn add_findings(
        &self,
        metrics: PressureMetrics,
        report: &mut Report,
        _: &Plan,
        _: &Window,
        _machine: u32,
    ) {
        let mut throttled = metrics.throttled;
        throttled.sort_by_key(|(times, ..)| *times);
        let longest = throttled.into_iter().rev();
        let finding = |(_, subject, text)| ReportFinding {
            kind: FindingKind::Throttling,
            about: FindingSubject::Subject(subject),
            text,
            named: None,
        };
        report.findings.extend(longest.map(finding));
    }
}

impl PressureRows {
    /// Whether this kernel has no pressure stall information. Otherwise a missing value means
    /// several cgroups in one row, or pressure that is off for this cgroup.
    fn lacks_pressure(&self) -> bool {
        CgroupCounter::ALL
            .iter()
            .all(|it| self.machine.get(*it).is_none())
    }

    /// Microseconds in percent of the time between two readings. At most 100: cgroups are read one
    /// after the other, so the microseconds of one may cover a longer time.
    fn share(&self, micros: u64) -> Result<Value, Reason> {
        let length = self.length.as_secs_f64();
        match length > 0.0 {
            true => {
                let share = 100.0 * float(micros) / 1e6 / length;
                Ok(Value::Gauge(Estimate::exact(share.min(100.0))))
            }
            false => Err(Reason::NotMeasured),
        }
    }
}

/// The sentence of a finding, such as `its CPU quota throttled it in 17 of 20 periods, for 1.20 s
/// added up over CPUs`. None if nothing throttled it.
fn sentence(row: &EntityPressure) -> Option<String> {
    let get = |counter| row.counts.delta.get(counter);
    let seconds = |nanos| float(nanos) / 1e9;
    let own = || {
        let time = get(CgroupCounter::Throttled).filter(|time| *time > 0)?;
        Some(format!(
            "its CPU quota throttled it in {} of {} periods, for {:.2} s added up over CPUs",
            get(CgroupCounter::ThrottledPeriods)?,
            get(CgroupCounter::Periods)?,
            seconds(time)
        ))
    };
    let above = || {
        let time = row.throttled_above.filter(|time| *time > 0)?;
        Some(format!(
            "a CPU quota above it throttled that cgroup for {:.2} s added up over CPUs",
            seconds(time)
        ))
    };
    match (own(), above()) {
        (Some(own), Some(above)) => Some(format!("{own}; {above}")),
        (own, above) => own.or(above),
    }
}

#[cfg(test)]
mod tests;
