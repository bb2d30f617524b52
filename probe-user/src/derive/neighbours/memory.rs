//! Memory contention between containers: detects containers whose IPC drops while their socket's
//! memory bandwidth is near its peak.

use std::collections::BTreeMap;

use super::{
    Judgement, NeighbourEvidence, NeighbourVerdict, container_values, suspects,
    usual::{Histories, tolerance},
};
use crate::{
    catalogue::Apportion,
    derive::{
        Attributes, Estimate, MetricInfo, Report, ReportSection, Series, Subject, Value,
        shares::APPORTIONED,
    },
    join::Entity,
    plan::{Plan, PlannedMetric, PlannedMetrics},
};

/// Memory pressure threshold: fraction of the socket's peak bandwidth.
const PRESSURE: f64 = 0.8;

/// The smallest relative drop that counts, however steady a container is.
const LEAST_DROP: f64 = 0.01;

/// The metric that measures how well a container runs.
pub(super) const IPC: &str = "ipc";

/// Detects containers that suffer from others at the memory of their socket.
#[derive(Debug)]
pub struct MemoryNeighbours {
    /// Peak memory bandwidth of a socket, in bytes per second.
    peak: f64,
    /// Metrics of a socket's memory traffic.
    traffic: Vec<String>,
    pub(super) histories: Histories,
}

/// Memory traffic of a socket in a report.
#[derive(Debug, Default)]
struct SocketTraffic {
    /// Bytes per second by traffic metric, for metrics with a value.
    by_metric: BTreeMap<String, f64>,
    /// Bytes per second by owner.
    by_owner: BTreeMap<Entity, f64>,
}

impl MemoryNeighbours {
    /// Prepares the detection for a plan and a peak memory bandwidth of a socket, in bytes per
    /// second.
    ///
    /// # Errors
    ///
    /// The detection needs a metric that the plan lacks.
    pub fn new(plan: &Plan, peak: f64) -> Result<Self, String> {
        let traffic = traffic(&plan.metrics);
        if traffic.is_empty() {
            return Err(
                "no memory-bandwidth metric with per-container shares is counted".to_owned(),
            );
        }
        let counted = |metric: &PlannedMetric| metric.metric.name == IPC && metric.sources.is_ok();
        if !plan.metrics.list.iter().any(counted) {
            return Err(format!("the metric {IPC} is not counted"));
        }
        Ok(Self {
            peak,
            traffic,
            histories: Histories::default(),
        })
    }

    /// Judges a window.
    pub(super) fn judge(&mut self, report: &Report) -> Judgement {
        let sockets = self.sockets(report);
        let mut judgement = Judgement::default();
        for (entity, ipc) in container_values(report, IPC) {
            // A container is judged by its socket with the highest pressure, or not at all if one
            // of its sockets was not measured.
            let here = sockets
                .iter()
                .filter(|(_, it)| it.by_owner.contains_key(&entity));
            let pressures = here.map(|(socket, it)| Some((it.pressure(self)?, *socket)));
            let Some(pressures) = pressures.collect::<Option<Vec<_>>>() else {
                continue;
            };
            let worst = pressures.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
            let Some((pressure, socket)) = worst else {
                continue;
            };
            let history = self.histories.entry(&entity);
            let usual = history.usual();
            let is_calm = pressure <= PRESSURE;
            if is_calm {
                history.add_calm(ipc);
            }
            let Some(usual) = usual else {
                continue;
            };
            let (mean, _) = usual;
            let is_low = ipc < mean - tolerance(usual, LEAST_DROP * mean);
            let outcome = history.judge(is_low && !is_calm, usual);
            judgement.judged.insert(entity.clone(), outcome.suffers);
            if outcome.suffers {
                let owners = sockets[&socket].by_owner.iter();
                judgement.verdicts.push(NeighbourVerdict {
                    suspects: suspects(
                        owners.map(|(owner, bandwidth)| (owner, *bandwidth)),
                        &entity,
                    ),
                    evidence: NeighbourEvidence::Memory { socket, pressure },
                    value: ipc,
                    usual: outcome.usual,
                    begins: outcome.begins,
                    victim: entity,
                });
            }
        }
        judgement
    }

    /// The memory traffic of each socket.
    fn sockets(&self, report: &Report) -> BTreeMap<u32, SocketTraffic> {
        let mut sockets: BTreeMap<u32, SocketTraffic> = BTreeMap::new();
        for group in report.groups() {
            for series in group.series {
                let metric = report.metric(series);
                let value = series.estimate().map(|it| it.value);
                match (group.section, group.subject) {
                    (ReportSection::Uncore, Subject::Place(place, _))
                        if self.is_traffic(&metric.name) =>
                    {
                        let Some((socket, value)) = place.socket.zip(value) else {
                            continue;
                        };
                        let bandwidths = &mut sockets.entry(socket).or_default().by_metric;
                        let sum = bandwidths.entry(metric.name.clone()).or_default();
                        *sum += value * bytes_per_unit(&metric.unit);
                    }
                    (ReportSection::Shares, Subject::Entity(entity)) => {
                        let shared = metric.name.strip_suffix(APPORTIONED);
                        let socket = report.attributes(series).socket;
                        let Some(socket) =
                            socket.filter(|_| shared.is_some_and(|it| self.is_traffic(it)))
                        else {
                            continue;
                        };
                        // An owner without a known share is listed with 0: it ran on the socket.
                        let share = value.map_or(0.0, |value| value * bytes_per_unit(&metric.unit));
                        let shares = &mut sockets.entry(socket).or_default().by_owner;
                        *shares.entry(entity.clone()).or_default() += share;
                    }
                    _ => {}
                }
            }
        }
        sockets
    }

    fn is_traffic(&self, metric: &str) -> bool {
        self.traffic.iter().any(|name| name == metric)
    }
}

impl SocketTraffic {
    /// The traffic as a part of the peak; None if one of the traffic metrics has no value.
    fn pressure(&self, detector: &MemoryNeighbours) -> Option<f64> {
        let is_complete = self.by_metric.len() == detector.traffic.len();
        is_complete.then(|| self.by_metric.values().sum::<f64>() / detector.peak)
    }
}

/// Metrics whose sum is the CPU traffic to a socket's memory. Prefers counts at the memory, of CPUs
/// of any socket, to counts at the socket's CPUs, of any memory.
fn traffic(metrics: &PlannedMetrics) -> Vec<String> {
    let names = |wanted: [Apportion; 2]| {
        let counted = metrics
            .list
            .iter()
            .filter(|metric| metric.sources.is_ok() && wanted.contains(&metric.metric.apportion));
        counted
            .map(|metric| metric.metric.name.clone())
            .collect::<Vec<_>>()
    };
    let by_memory = names([Apportion::CpuRead, Apportion::CpuWrite]);
    if by_memory.is_empty() {
        return names([Apportion::CpuReadSource, Apportion::CpuWriteSource]);
    }
    by_memory
}

/// Bytes per second in one unit.
pub(in crate::derive) fn bytes_per_unit(unit: &str) -> f64 {
    match unit {
        "GB/s" => 1e9,
        "MB/s" => 1e6,
        _ => 1.0,
    }
}

/// Adds the traffic of suspects to the shares.
pub(super) fn add_suspects(report: &mut Report, verdicts: &[NeighbourVerdict]) {
    let (name, help, unit) = (
        "noisy_neighbour_memory_suspect_bandwidth",
        "Memory bandwidth of a suspect: one of the largest consumers on a socket where another \
         container is slowed down; not validated on this machine if by a weight alone",
        "GB/s",
    );
    let metric = report.add_metric(MetricInfo::gauge(name, help, unit));
    // A container may be a suspect for several victims.
    let suspects: BTreeMap<(u32, &Entity), f64> = verdicts
        .iter()
        .filter_map(|verdict| match verdict.evidence {
            NeighbourEvidence::Memory { socket, .. } => Some((socket, &verdict.suspects)),
            NeighbourEvidence::Cpu => None,
        })
        .flat_map(|(socket, suspects)| {
            let suspects = suspects.iter();
            suspects.map(move |(entity, bandwidth)| ((socket, entity), *bandwidth))
        })
        .collect();
    let mut added = Vec::new();
    for ((socket, entity), bandwidth) in suspects {
        let attributes = report.add_attributes(Attributes {
            socket: Some(socket),
            ..Attributes::default()
        });
        added.push(Series {
            subject: report.subject(Subject::Entity(entity.clone())),
            metric,
            attributes,
            value: Ok(Value::Gauge(Estimate::exact(bandwidth / 1e9))),
            total: None,
        });
    }
    report.add_to_shares(added);
}
