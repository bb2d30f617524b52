//! Noisy neighbours: containers that run worse than they usually do while the memory of their
//! socket is under pressure, and who has most of its traffic then.
//!
//! A container suffers where its instructions per cycle are two standard deviations below those of
//! its own windows without pressure, in three of the last five windows in which it ran on a socket
//! under pressure. A socket is under pressure where its memory traffic is above 80% of its peak.
//! The suspects are a hint, not a proof: their shares of the traffic are not validated here.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use super::{Attributes, Estimate, Metric, Part, Report, Series, Subject, Value};
use crate::{
    catalogue::Apportion,
    join::Entity,
    plan::{Plan, PlannedMetric, PlannedMetrics},
};

/// The part of its peak above which a socket's memory is under pressure.
const PRESSURE: f64 = 0.8;

/// Windows without pressure that are remembered of a container, and how many say what is usual.
const REMEMBERED: usize = 60;
const USUAL: usize = 10;

/// Windows that are judged together: so many low ones begin a verdict, and so few end it.
const JUDGED: usize = 5;
const BEGINS: usize = 3;
const ENDS: usize = 1;

/// How many standard deviations are low.
const SIGMAS: f64 = 2.0;

/// A fall by less than this part is no reason to act, however steady a container is.
const SMALLEST: f64 = 0.01;

/// Windows after which a container that did not run is forgotten.
const FORGOTTEN: u64 = 360;

/// How many suspects are named.
const SUSPECTS: usize = 3;

/// The metric that says how well a container runs.
const IPC: &str = "ipc";

/// What is remembered of containers from window to window.
#[derive(Debug)]
pub struct Neighbours {
    /// Bytes per second that the memory of a socket can move.
    peak: f64,
    /// The metrics that are a socket's memory traffic.
    traffic: Vec<String>,
    windows: u64,
    histories: BTreeMap<Entity, History>,
}

/// A container that suffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The container.
    pub victim: Entity,
    /// The socket under pressure.
    pub socket: u32,
    /// The part of its peak that the memory of that socket moved in this window.
    pub pressure: f64,
    /// Its instructions per cycle in this window.
    pub ipc: f64,
    /// Mean and standard deviation of the windows without pressure.
    pub usual: (f64, f64),
    /// Who else has most of the socket's memory traffic, in bytes per second.
    pub suspects: Vec<(Entity, f64)>,
    /// Whether this window began it.
    pub begins: bool,
}

#[derive(Debug, Default)]
struct History {
    /// Of windows without pressure, the oldest first.
    calm: VecDeque<f64>,
    /// Whether it was low under pressure, in the last windows in which it ran.
    low: VecDeque<bool>,
    suffers: bool,
    seen: u64,
}

/// What a report says of a socket.
#[derive(Debug, Default)]
struct Socket {
    /// Bytes per second of each metric of traffic, one value for each that has one.
    moved: BTreeMap<String, f64>,
    /// The same by who caused them.
    shares: BTreeMap<Entity, f64>,
}

impl Neighbours {
    /// Judges by the metrics of this plan, where a socket's memory can move `peak` bytes per
    /// second.
    ///
    /// # Errors
    ///
    /// What the plan does not count, without which nothing can be judged.
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

    /// Judges a window: adds `noisy_neighbour` of every container that can be judged to its report,
    /// and what the suspects of a verdict move. Returns the verdicts that hold.
    pub fn judge(&mut self, report: &mut Report) -> Vec<Verdict> {
        self.windows += 1;
        let sockets = self.sockets(report);
        let ran = rates(report);
        let mut judged = BTreeMap::new();
        let mut verdicts = Vec::new();
        for (entity, ipc) in ran {
            // The worst of the sockets on which it ran; where one was not measured, nothing is
            // known.
            let here = sockets
                .iter()
                .filter(|(_, it)| it.shares.contains_key(&entity));
            let pressures = here.map(|(socket, it)| Some((it.pressure(self)?, *socket)));
            let Some(pressures) = pressures.collect::<Option<Vec<_>>>() else {
                continue;
            };
            let worst = pressures.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
            let Some((pressure, socket)) = worst else {
                continue;
            };
            let history = self.histories.entry(entity.clone()).or_default();
            history.seen = self.windows;
            let began = history.suffers;
            let Some(suffers) = history.add(ipc, pressure > PRESSURE) else {
                continue;
            };
            judged.insert(entity.clone(), suffers);
            if suffers {
                verdicts.push(Verdict {
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
            .retain(|_, history| now - history.seen < FORGOTTEN);
        add(report, &judged, &verdicts);
        verdicts
    }

    /// What the report says of each socket's memory.
    fn sockets(&self, report: &Report) -> BTreeMap<u32, Socket> {
        let mut sockets: BTreeMap<u32, Socket> = BTreeMap::new();
        for group in report.groups() {
            for series in group.series {
                let metric = report.metric(series);
                let value = series.estimate().map(|it| it.value);
                match (group.part, group.subject) {
                    (Part::Places, Subject::Place(place, _)) if self.is_traffic(&metric.name) => {
                        let Some((socket, value)) = place.socket.zip(value) else {
                            continue;
                        };
                        let moved = &mut sockets.entry(socket).or_default().moved;
                        let sum = moved.entry(metric.name.clone()).or_default();
                        *sum += value * bytes(&metric.unit);
                    }
                    (Part::Shares, Subject::Entity(entity)) => {
                        let shared = metric.name.strip_suffix(super::shares::APPORTIONED);
                        let socket = report.attributes(series).socket;
                        let Some(socket) =
                            socket.filter(|_| shared.is_some_and(|it| self.is_traffic(it)))
                        else {
                            continue;
                        };
                        // Who ran there and caused nothing that was counted has a row too.
                        let share = value.map_or(0.0, |value| value * bytes(&metric.unit));
                        let shares = &mut sockets.entry(socket).or_default().shares;
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

impl Socket {
    /// The part of its peak that it moved; None where a metric of its traffic has no value.
    fn pressure(&self, of: &Neighbours) -> Option<f64> {
        let whole = self.moved.len() == of.traffic.len();
        whole.then(|| self.moved.values().sum::<f64>() / of.peak)
    }

    /// Who else moved most, the largest first.
    fn suspects(&self, victim: &Entity) -> Vec<(Entity, f64)> {
        let others = self.shares.iter();
        let mut others: Vec<_> = others
            .filter(|(entity, moved)| *entity != victim && **moved > 0.0)
            .map(|(entity, moved)| (entity.clone(), *moved))
            .collect();
        others.sort_by(|a, b| b.1.total_cmp(&a.1));
        others.truncate(SUSPECTS);
        others
    }
}

impl History {
    /// Takes a window in: whether the container suffers; None while it is not known what is usual.
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

/// The metrics that together are what CPUs read from and write to a socket's memory: by the memory
/// that answered, else by the CPUs that asked.
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

/// The instructions per cycle of every container that ran, where they are known.
fn rates(report: &Report) -> BTreeMap<Entity, f64> {
    let rows = report.groups().filter(|group| group.part == Part::Rows);
    let of_row = |group: super::Group<'_>| {
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

/// Bytes per second of one of a unit.
pub(super) fn bytes(unit: &str) -> f64 {
    match unit {
        "GB/s" => 1e9,
        "MB/s" => 1e6,
        _ => 1.0,
    }
}

/// Adds to each row whether it suffers, and to the shares what suspects move.
fn add(report: &mut Report, judged: &BTreeMap<Entity, bool>, verdicts: &[Verdict]) {
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
    .map(|(name, help, unit)| report.add_metric(Metric::gauge(name, help, unit)));
    let series = |ids: [u32; 3], value: f64| Series {
        subject: ids[0],
        metric: ids[1],
        attributes: ids[2],
        value: Ok(Value::Gauge(Estimate::exact(value))),
        total: None,
    };
    let mut of_rows = Vec::new();
    for group in report.groups().filter(|group| group.part == Part::Rows) {
        if let Subject::Entity(entity) = group.subject
            && let Some(suffers) = judged.get(entity)
        {
            of_rows.push((group.series[0].subject, f64::from(u8::from(*suffers))));
        }
    }
    report.add_to_rows(of_rows.into_iter().map(|(subject, value)| {
        // The first attributes are those of no attribute.
        series([subject, suffers, 0], value)
    }));
    // A container may be a suspect of several victims.
    let suspects = verdicts.iter().flat_map(|verdict| {
        let suspects = verdict.suspects.iter();
        suspects.map(|(entity, moved)| ((verdict.socket, entity), *moved))
    });
    let suspects: BTreeMap<(u32, &Entity), f64> = suspects.collect();
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
