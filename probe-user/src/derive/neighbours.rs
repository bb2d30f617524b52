//! Noisy neighbours: containers that run worse than usual because of others. [`Neighbours::judge`]
//! returns a [`NeighbourVerdict`] for each of them.
//!
//! A window is worse if the container is two standard deviations worse than in its own calm
//! windows. A verdict starts once three of the last five windows are worse, and ends once at most
//! one of them is worse. There are two detections:
//!
//! - at the memory: a window is worse if the container's instructions per cycle are low while its
//!   socket is under pressure (memory traffic above 80% of the peak). Windows without pressure are
//!   calm. Suspects own most of that traffic. They are a hint, not a proof: their shares are not
//!   validated here.
//! - on the CPUs: a window is worse if the container waits behind others for a large part of its
//!   time. Other windows are calm. Suspects ran while it waited. Windows in which a quota throttled
//!   it are not judged.

mod cpu;
mod memory;
#[cfg(test)]
mod tests;
mod usual;

use std::collections::{BTreeMap, HashSet};

pub use self::memory::MemoryNeighbours;
pub(super) use self::memory::bytes_per_unit;
use self::{cpu::CpuNeighbours, memory::add_suspects};
use super::{Estimate, MetricInfo, Report, ReportSection, Series, Subject, Value};
use crate::join::{Entity, WaitRows};

/// The most suspects of a verdict.
const SUSPECTS: usize = 3;

/// A metric of verdicts: its name and help.
type VerdictMetric = (&'static str, &'static str);

const MEMORY: VerdictMetric = (
    "noisy_neighbour_memory",
    "Whether the container runs worse than it usually does while its socket's memory is under \
     pressure (1) or not (0)",
);
const CPU: VerdictMetric = (
    "noisy_neighbour_cpu",
    "Whether the container waits for CPUs behind others for longer than it usually does (1) or not \
     (0)",
);

/// The result of one detection for a window.
#[derive(Default)]
struct Judgement {
    /// The containers that can be judged, and whether each suffers.
    judged: BTreeMap<Entity, bool>,
    verdicts: Vec<NeighbourVerdict>,
}

/// State of the detection from window to window.
#[derive(Debug)]
pub struct Neighbours {
    memory: Option<MemoryNeighbours>,
    cpu: CpuNeighbours,
}

/// A container that suffers.
#[derive(Clone, Debug, PartialEq)]
pub struct NeighbourVerdict {
    /// The container.
    pub victim: Entity,
    /// The evidence of the verdict.
    pub evidence: NeighbourEvidence,
    /// What is compared with its calm windows: instructions per cycle, or the part of its time that
    /// it waited behind others.
    pub value: f64,
    /// Mean and standard deviation of `value` in calm windows.
    pub usual: (f64, f64),
    /// Other owners, largest first: those with most of the socket's memory traffic (in bytes per
    /// second), or those that ran most while the victim waited (as parts of its waits).
    pub suspects: Vec<(Entity, f64)>,
    /// Whether the verdict starts in this window.
    pub begins: bool,
}

/// The evidence of a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NeighbourEvidence {
    /// Fewer instructions per cycle while the memory of a socket is under pressure.
    Memory {
        /// The socket.
        socket: u32,
        /// The part of its peak bandwidth that it used in this window.
        pressure: f64,
    },
    /// Waits for CPUs behind others.
    Cpu,
}

impl Neighbours {
    /// Prepares the detection on the CPUs, and at the memory if `memory` is given.
    #[must_use]
    pub fn new(memory: Option<MemoryNeighbours>) -> Self {
        Self {
            memory,
            cpu: CpuNeighbours::default(),
        }
    }

    /// Judges a window. Adds to its report the verdict on each container that can be judged, and
    /// the memory traffic of suspects. Returns the current verdicts. `waits`: None if the session
    /// keeps none.
    pub fn judge(
        &mut self,
        report: &mut Report,
        waits: Option<&WaitRows>,
    ) -> Vec<NeighbourVerdict> {
        let memory = self.memory.as_mut().map(|memory| memory.judge(report));
        let cpu = waits.map(|waits| self.cpu.judge(report, waits));
        let [memory, cpu] = [memory, cpu].map(Option::unwrap_or_default);
        add_verdicts(report, [(MEMORY, &memory.judged), (CPU, &cpu.judged)]);
        if !memory.judged.is_empty() {
            add_suspects(report, &memory.verdicts);
        }
        [memory.verdicts, cpu.verdicts].concat()
    }

    /// Forgets containers that ended.
    pub fn forget(&mut self, running: &HashSet<Entity>) {
        let memory = self.memory.as_mut().map(|memory| &mut memory.histories);
        let all = memory.into_iter().chain([&mut self.cpu.histories]);
        all.for_each(|histories| histories.forget(running));
    }
}

/// The value of a metric for each container that has one.
fn container_values(report: &Report, metric: &str) -> BTreeMap<Entity, f64> {
    let rows = report
        .groups()
        .filter(|group| group.section == ReportSection::Rows);
    let of_row = |group: super::SubjectSeries<'_>| {
        let Subject::Entity(entity @ (Entity::Container { .. } | Entity::Pod(_))) = group.subject
        else {
            return None;
        };
        let series = group
            .series
            .iter()
            .find(|series| report.metric(series).name == metric)?;
        Some((entity.clone(), series.estimate()?.value))
    };
    rows.filter_map(of_row).collect()
}

/// The owners other than the victim with the largest parts of traffic or waits, largest first.
fn suspects<'a>(
    owners: impl Iterator<Item = (&'a Entity, f64)>,
    victim: &Entity,
) -> Vec<(Entity, f64)> {
    let others =
        owners.filter(|(owner, part)| *owner != victim && **owner != Entity::Others && *part > 0.0);
    let mut others: Vec<_> = others.map(|(owner, part)| (owner.clone(), part)).collect();
    others.sort_by(|a, b| b.1.total_cmp(&a.1));
    others.truncate(SUSPECTS);
    others
}

/// Adds the verdicts to each judged row.
fn add_verdicts(report: &mut Report, verdicts: [(VerdictMetric, &BTreeMap<Entity, bool>); 2]) {
    let judged = { verdicts.into_iter() }.filter(|(_, judged)| !judged.is_empty());
    let judged: Vec<_> = judged
        .map(|((name, help), judged)| {
            let metric = report.add_metric(MetricInfo::gauge(name, help, ""));
            (metric, judged)
        })
        .collect();
    if judged.is_empty() {
        return;
    }
    let mut added = Vec::new();
    for group in report
        .groups()
        .filter(|group| group.section == ReportSection::Rows)
    {
        let Subject::Entity(entity) = group.subject else {
            continue;
        };
        for (metric, judged) in &judged {
            if let Some(suffers) = judged.get(entity) {
                let value = Estimate::exact(f64::from(u8::from(*suffers)));
                added.push(Series {
                    subject: group.series[0].subject,
                    metric: *metric,
                    // Index 0 has no attributes.
                    attributes: 0,
                    value: Ok(Value::Gauge(value)),
                    total: None,
                });
            }
        }
    }
    report.add_to_rows(added.into_iter());
}
