//! Noisy neighbours: containers that run worse than usual while the memory of their socket is under
//! pressure, and the owners of most of its traffic. [`Neighbours::judge`] returns a
//! [`NeighbourVerdict`] for each such container.
//!
//! A container suffers if its instructions per cycle are two standard deviations below its own
//! windows without pressure, in three of the last five windows in which it ran on a socket under
//! pressure. A socket is under pressure if its memory traffic exceeds 80% of its peak. Suspects are
//! a hint, not a proof: their shares of the traffic are not validated here.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use super::{Attributes, Estimate, MetricInfo, Report, ReportSection, Series, Subject, Value};
use crate::{
    catalogue::Apportion,
    join::Entity,
    plan::{Plan, PlannedMetric, PlannedMetrics},
};

/// The part of its peak above which the memory of a socket is under pressure.
const PRESSURE: f64 = 0.8;

/// Windows without pressure that are kept of a container, and the fewest that establish its usual
/// performance.
const REMEMBERED: usize = 60;
const USUAL: usize = 10;

/// Windows judged together: this many low windows start a verdict, and this few end it.
const JUDGED: usize = 5;
const BEGINS: usize = 3;
const ENDS: usize = 1;

/// Standard deviations below the mean that are low.
const SIGMAS: f64 = 2.0;

/// A smaller relative drop is no reason to act, however steady a container is.
const SMALLEST: f64 = 0.01;

/// Windows after which an idle container is removed.
const FORGOTTEN: u64 = 360;

/// The most suspects of a verdict.
const SUSPECTS: usize = 3;

/// The metric that measures how well a container runs.
const IPC: &str = "ipc";

/// State of the detection from window to window.
#[derive(Debug)]
pub struct Neighbours {
    /// Peak memory bandwidth of a socket, in bytes per second.
    peak: f64,
    /// Metrics of a socket's memory traffic.
    traffic: Vec<String>,
    windows: u64,
    histories: BTreeMap<Entity, ContainerHistory>,
}

/// A container that suffers.
#[derive(Clone, Debug, PartialEq)]
pub struct NeighbourVerdict {
    /// The container.
    pub victim: Entity,
    /// The socket under pressure.
    pub socket: u32,
    /// The part of its peak bandwidth that the socket used in this window.
    pub pressure: f64,
    /// Instructions per cycle of the container in this window.
    pub ipc: f64,
    /// Mean and standard deviation of its instructions per cycle in windows without pressure.
    pub usual: (f64, f64),
    /// Other owners of most of the socket's memory traffic, in bytes per second.
    pub suspects: Vec<(Entity, f64)>,
    /// Whether the verdict starts in this window.
    pub begins: bool,
}

#[derive(Debug, Default)]
struct ContainerHistory {
    /// Instructions per cycle in windows without pressure, oldest first.
    calm: VecDeque<f64>,
    /// Whether it was low under pressure, for the last windows in which it ran.
    low: VecDeque<bool>,
    suffers: bool,
    last_window: u64,
}

/// Memory traffic of a socket in a report.
#[derive(Debug, Default)]
struct SocketTraffic {
    /// Bytes per second by traffic metric, for metrics with a value.
    by_metric: BTreeMap<String, f64>,
    /// Bytes per second by owner.
    by_owner: BTreeMap<Entity, f64>,
}

impl Neighbours {
    /// Prepares the detection for a plan and a peak memory bandwidth of a socket, in bytes per
    /// second.
    ///
    /// # Errors
    ///
    /// A metric that the plan lacks and the detection needs.
    pub fn new(plan: &Plan, peak: f64) -> Result<Self, String> {
        let traffic = traffic(&plan.metrics);
        if traffic.is_empty() {
            return Err("no memory bandwidth is counted that is shared out".to_owned());
        }
        let counted = |metric: &PlannedMetric| metric.metric.name == IPC && metric.sources.is_ok();
        if !plan.metrics.list.iter().any(counted) {
            return Err(format!("the metric {IPC} is not counted"));
        }
        Ok(Self {
            peak,
            traffic,
            windows: 0,
            histories: BTreeMap::new(),
        })
    }

    /// Judges a window: adds `noisy_neighbour` of each container that can be judged to its report,
    /// and the traffic of the suspects. Returns the current verdicts.
    pub fn judge(&mut self, report: &mut Report) -> Vec<NeighbourVerdict> {
        self.windows += 1;
        let sockets = self.sockets(report);
        let ran = container_ipc(report);
        let mut judged = BTreeMap::new();
        let mut verdicts = Vec::new();
        for (entity, ipc) in ran {
            // The socket with the highest pressure counts. If one of its sockets was not measured,
            // the container cannot be judged.
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
            let history = self.histories.entry(entity.clone()).or_default();
            history.last_window = self.windows;
            let began = history.suffers;
            let Some(suffers) = history.add(ipc, pressure > PRESSURE) else {
                continue;
            };
            judged.insert(entity.clone(), suffers);
            if suffers {
                verdicts.push(NeighbourVerdict {
                    suspects: sockets[&socket].suspects(&entity),
                    usual: history.usual(),
                    victim: entity,
                    socket,
                    pressure,
                    ipc,
                    begins: !began,
                });
            }
        }
        let now = self.windows;
        self.histories
            .retain(|_, history| now - history.last_window < FORGOTTEN);
        add(report, &judged, &verdicts);
        verdicts
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
                        let moved = &mut sockets.entry(socket).or_default().by_metric;
                        let sum = moved.entry(metric.name.clone()).or_default();
                        *sum += value * bytes_per_unit(&metric.unit);
                    }
                    (ReportSection::Shares, Subject::Entity(entity)) => {
                        let shared = metric.name.strip_suffix(super::shares::APPORTIONED);
                        let socket = report.attributes(series).socket;
                        let Some(socket) =
                            socket.filter(|_| shared.is_some_and(|it| self.is_traffic(it)))
                        else {
                            continue;
                        };
                        // An owner that ran on the socket without counted traffic has a row too.
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
    /// The used part of the peak; None if one of the traffic metrics has no value.
    fn pressure(&self, of: &Neighbours) -> Option<f64> {
        let whole = self.by_metric.len() == of.traffic.len();
        whole.then(|| self.by_metric.values().sum::<f64>() / of.peak)
    }

    /// The other owners with most traffic, largest first.
    fn suspects(&self, victim: &Entity) -> Vec<(Entity, f64)> {
        let mut others: Vec<_> = self
            .by_owner
            .iter()
            .filter(|(entity, moved)| *entity != victim && **moved > 0.0)
            .map(|(entity, moved)| (entity.clone(), *moved))
            .collect();
        others.sort_by(|a, b| b.1.total_cmp(&a.1));
        others.truncate(SUSPECTS);
        others
    }
}

impl ContainerHistory {
    /// Adds a window and returns whether the container suffers; None while its usual performance is
    /// unknown.
    fn add(&mut self, ipc: f64, under_pressure: bool) -> Option<bool> {
        let low = (self.calm.len() >= USUAL).then(|| {
            let (mean, deviation) = self.usual();
            ipc < mean - (SIGMAS * deviation).max(SMALLEST * mean)
        });
        if !under_pressure {
            if self.calm.len() == REMEMBERED {
                self.calm.pop_front();
            }
            self.calm.push_back(ipc);
        }
        let low = low? && under_pressure;
        if self.low.len() == JUDGED {
            self.low.pop_front();
        }
        self.low.push_back(low);
        let lows = self.low.iter().filter(|low| **low).count();
        self.suffers = if self.suffers {
            lows > ENDS
        } else {
            lows >= BEGINS
        };
        Some(self.suffers)
    }

    /// Mean and standard deviation of the windows without pressure.
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    fn usual(&self) -> (f64, f64) {
        let n = self.calm.len() as f64;
        let mean = self.calm.iter().sum::<f64>() / n;
        let squares = self.calm.iter().map(|ipc| (ipc - mean).powi(2));
        (mean, (squares.sum::<f64>() / (n - 1.0).max(1.0)).sqrt())
    }
}

/// The metrics that together are the reads and writes of CPUs at a socket's memory: counted at the
/// memory, else at the CPUs.
fn traffic(metrics: &PlannedMetrics) -> Vec<String> {
    let of = |wanted: [Apportion; 2]| {
        let counted = metrics
            .list
            .iter()
            .filter(|metric| metric.sources.is_ok() && wanted.contains(&metric.metric.apportion));
        counted
            .map(|metric| metric.metric.name.clone())
            .collect::<Vec<_>>()
    };
    let by_memory = of([Apportion::CpuRead, Apportion::CpuWrite]);
    if by_memory.is_empty() {
        return of([Apportion::CpuReadSource, Apportion::CpuWriteSource]);
    }
    by_memory
}

/// The instructions per cycle of each container that ran, if known.
fn container_ipc(report: &Report) -> BTreeMap<Entity, f64> {
    let rows = report
        .groups()
        .filter(|group| group.section == ReportSection::Rows);
    let of_row = |group: super::SubjectSeries<'_>| {
        let Subject::Entity(entity @ (Entity::Container { .. } | Entity::Pod(_))) = group.subject
        else {
            return None;
        };
        let ipc = group
            .series
            .iter()
            .find(|series| report.metric(series).name == IPC)?;
        Some((entity.clone(), ipc.estimate()?.value))
    };
    rows.filter_map(of_row).collect()
}

/// Bytes per second in one unit.
pub(super) fn bytes_per_unit(unit: &str) -> f64 {
    match unit {
        "GB/s" => 1e9,
        "MB/s" => 1e6,
        _ => 1.0,
    }
}

/// Adds the verdict to each judged row, and the traffic of suspects to the shares.
fn add(report: &mut Report, judged: &BTreeMap<Entity, bool>, verdicts: &[NeighbourVerdict]) {
    if judged.is_empty() {
        return;
    }
    let [suffers, moves] = [
        (
            "noisy_neighbour",
            "Whether the container runs worse than it usually does while its socket's memory is \
             under pressure (1) or not (0)",
            "",
        ),
        (
            "noisy_neighbour_suspect_bandwidth",
            "Memory traffic of a container that has most of it on a socket where another one \
             suffers; not validated here",
            "GB/s",
        ),
    ]
    .map(|(name, help, unit)| report.add_metric(MetricInfo::gauge(name, help, unit)));
    let series = |ids: [u32; 3], value: f64| Series {
        subject: ids[0],
        metric: ids[1],
        attributes: ids[2],
        value: Ok(Value::Gauge(Estimate::exact(value))),
        total: None,
    };
    let mut of_rows = Vec::new();
    for group in report
        .groups()
        .filter(|group| group.section == ReportSection::Rows)
    {
        if let Subject::Entity(entity) = group.subject
            && let Some(suffers) = judged.get(entity)
        {
            of_rows.push((group.series[0].subject, f64::from(u8::from(*suffers))));
        }
    }
    report.add_to_rows(of_rows.into_iter().map(|(subject, value)| {
        // Index 0 has no attributes.
        series([subject, suffers, 0], value)
    }));
    // A container may be a suspect for several victims.
    let suspects: BTreeMap<(u32, &Entity), f64> = verdicts
        .iter()
        .flat_map(|verdict| {
            let suspects = verdict.suspects.iter();
            suspects.map(|(entity, moved)| ((verdict.socket, entity), *moved))
        })
        .collect();
    let mut of_shares = Vec::new();
    for ((socket, entity), moved) in suspects {
        let attributes = report.add_attributes(Attributes {
            socket: Some(socket),
            ..Attributes::default()
        });
        let subject = report.subject(Subject::Entity(entity.clone()));
        of_shares.push(series([subject, moves, attributes], moved / 1e9));
    }
    report.add_to_shares(of_shares);
}
