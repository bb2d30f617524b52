//! Bytes of memory traffic per access that the CPUs counted, for each socket with both counts. No
//! other source gives the bytes of a core's access.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{
    Attributes, Estimate, MetricInfo, Report, Subject, Value, ValueMethod, metrics,
};
use crate::{
    catalogue::Apportion,
    derive::neighbours::bytes_per_unit,
    join::{
        EntityShares, Joined,
        share::{self, SocketWeights, Weight, Weights},
    },
    plan::Plan,
    window::{Owner, RunningTime, Window, float},
};

/// The metric group that needs bytes per access to convert a core's accesses to bytes.
const WANTED_BY: &str = "intensity";

/// The suffix of the names of these metrics.
const PER_ACCESS: &str = "_bytes_per_access";

/// Adds the bytes per access of each metric that is shared by counted weights, if the session
/// counts metrics of [`WANTED_BY`].
pub(super) fn add(report: &mut Report, plan: &Plan, window: &Window, joined: &Joined) {
    let mut metrics = plan.metrics.list.iter();
    if !metrics.any(|planned| planned.metric.is_in(WANTED_BY)) {
        return;
    }
    let mut weights_by_index: BTreeMap<usize, Weights> = BTreeMap::new();
    for shared in &joined.shares {
        let Some((weight, method)) = weight_of(plan, shared) else {
            continue;
        };
        let weights = weights_by_index
            .entry(weight)
            .or_insert_with(|| Weights::counted(&plan.weights[weight], window));
        let planned = &plan.metrics.list[shared.by_owner.metric];
        let Some(value) = value(plan, window, shared, weights) else {
            continue;
        };
        let metric = report.add_metric(MetricInfo::gauge(
            format!("{}{PER_ACCESS}", planned.metric.name),
            format!(
                "{}: bytes for each access that the CPUs counted, measured",
                planned.metric.title
            ),
            "B/access",
        ));
        let attributes = report.add_attributes(Attributes {
            method: ValueMethod::Apportioned(method),
            ..Attributes::default()
        });
        let source = planned.sources.iter().flatten().nth(shared.by_owner.source);
        let mut place = source.map(|it| it.place.clone()).unwrap_or_default();
        place.socket.get_or_insert(shared.by_owner.socket);
        let subject = report.subject(Subject::Place(place, Vec::new()));
        report.push([subject, metric, attributes], Ok(Value::Gauge(value)), None);
    }
}

/// The counted weight of a shared metric, if any.
fn weight_of(plan: &Plan, shared: &EntityShares) -> Option<(usize, share::Method)> {
    let method = &shared.by_owner.shares.as_ref().ok()?.method;
    let share::Method::Counted { weight, .. } = method else {
        return None;
    };
    let traffic = plan.metrics.list[shared.by_owner.metric]
        .metric
        .apportion
        .needs()?;
    let mut weights = plan.weights.iter();
    let at = weights.position(|planned| planned.name == *weight && planned.of == traffic)?;
    Some((at, method.clone()))
}

fn value(
    plan: &Plan,
    window: &Window,
    shared: &EntityShares,
    weights: &Weights,
) -> Option<Estimate> {
    let by_owner = &shared.by_owner;
    let planned = &plan.metrics.list[by_owner.metric];
    let shares = by_owner.shares.as_ref().ok()?;
    let rate = metrics::at_socket(plan, planned, by_owner.source, window, by_owner.socket)?.ok()?;
    // Devices cause traffic without an access of a CPU.
    let by_cpus = 1.0 - shares.errors().fraction(shares.io);
    let per_second = rate.value * bytes_per_unit(&planned.metric.unit) * by_cpus;
    let accesses = accesses(planned.metric.apportion, weights, by_owner.socket, window)?;
    (accesses.count > 0.0).then(|| Estimate {
        running_ratio: rate.running_ratio.min(accesses.time.running_ratio()),
        ..Estimate::exact(per_second * window.length.as_secs_f64() / accesses.count)
    })
}

/// Counted accesses, and the time in which they were counted.
#[derive(Default)]
struct AccessCount {
    count: f64,
    time: RunningTime,
}

impl AccessCount {
    fn add(&mut self, weights: &BTreeMap<Owner, Weight>) {
        for weight in weights.values() {
            self.count += float(weight.weight);
            self.time.add(weight.time);
        }
    }
}

/// The accesses that make up a socket's traffic; None if some of them were not counted.
fn accesses(
    apportion: Apportion,
    weights: &Weights,
    socket: u32,
    window: &Window,
) -> Option<AccessCount> {
    let if_complete = |socket: u32| -> Option<&SocketWeights> {
        let of_socket = weights.sockets.get(&socket)?;
        let all_seen = of_socket.unseen.values().all(|time| *time == 0);
        (all_seen && !of_socket.rotated_out && !of_socket.saturated).then_some(of_socket)
    };
    let own = if_complete(socket)?;
    let mut sum = AccessCount::default();
    let mut others = sockets(weights, window);
    others.remove(&socket);
    match apportion {
        Apportion::CpuReadRemote if own.apart => sum.add(&own.remote),
        Apportion::CpuReadSource | Apportion::CpuWriteSource => {
            sum.add(&own.local);
            if own.apart {
                sum.add(&own.remote);
            }
        }
        Apportion::CpuRead | Apportion::CpuWrite => {
            sum.add(&own.local);
            // With more than two sockets, the destination of a remote access is unknown.
            match (others.pop_first(), others.is_empty()) {
                (None, _) if own.apart => sum.add(&own.remote),
                (None, _) => {}
                (Some(other), true) if own.apart => sum.add(&if_complete(other)?.remote),
                (Some(_), _) => return None,
            }
        }
        _ => return None,
    }
    Some(sum)
}

/// The sockets with a count of an uncore event or of a weight.
fn sockets(weights: &Weights, window: &Window) -> BTreeSet<u32> {
    let uncore = window.uncore.iter().map(|reading| reading.socket);
    uncore.chain(weights.sockets.keys().copied()).collect()
}

#[cfg(test)]
mod tests {
    use probe_common::UsageRow;

    use super::super::tests::{plan, window};
    use super::*;
    use crate::{catalogue::Chip, derive::ReportSection, join::View, window::GroupCounts};

    /// The values of the metric: socket, bytes per access in thousandths, and the label `method`.
    fn bytes_per_access(plan: &Plan, window: &Window) -> Vec<(u32, i64, String)> {
        let joined = View::default().join(plan, window, None);
        let report = Report::new(plan, window, &joined, &View::default());
        let places = report
            .groups()
            .filter(|group| group.section == ReportSection::Uncore);
        let series =
            places.flat_map(|group| group.series.iter().map(move |it| (group.subject, it)));
        let own = series.filter(|(_, series)| report.metric(series).name.ends_with(PER_ACCESS));
        own.map(|(subject, series)| {
            let Subject::Place(place, _) = subject else {
                panic!("{subject:?}")
            };
            #[expect(clippy::cast_possible_truncation, reason = "a value of some thousands")]
            let value = (series.estimate().unwrap().value * 1000.0).round() as i64;
            let ValueMethod::Apportioned(method) = &report.attributes(series).method else {
                panic!("no method")
            };
            (place.socket.unwrap(), value, method.to_string())
        })
        .collect()
    }

    fn grace() -> Plan {
        let chip = Chip::named("grace-cpu-superchip").unwrap();
        plan("grace", chip, "cmem_read_bandwidth,flops")
    }

    /// The memory of socket 0 moves 32e9 bytes in the second, for 300 M local reads of its own CPUs
    /// and 200 M remote reads of socket 1's CPUs. The memory of socket 1 moves 16e9 bytes for 250 M
    /// reads, none of them from socket 0.
    #[test]
    fn bytes_are_divided_by_the_accesses_to_that_memory() {
        let plan = grace();
        let uncore = |event: &str, socket| match (event.contains("remote"), socket) {
            (false, 0) => 1_000_000_000,
            (false, _) => 500_000_000,
            (true, 0) => 0,
            (true, _) => 250_000_000,
        };
        let weights = [
            (0, 7, [200_000_000, 0]),
            (0, 8, [100_000_000, 0]),
            (1, 7, [450_000_000, 200_000_000]),
        ];
        let counted = window(&plan, &uncore, &weights);
        let method = "llc_read_misses".to_owned();
        assert_eq!(
            bytes_per_access(&plan, &counted),
            [(0, 64_000, method.clone()), (1, 64_000, method)]
        );
        let chip = Chip::named("grace-cpu-superchip").unwrap();
        let without = super::super::tests::plan("grace", chip, "cmem_read_bandwidth");
        let counted = window(&without, &uncore, &weights);
        assert_eq!(
            bytes_per_access(&without, &counted),
            [],
            "nobody asked for it"
        );
    }

    #[test]
    fn without_accesses_or_with_some_unseen_there_is_no_value() {
        let plan = grace();
        let uncore = |_: &str, _| 1_000_000;
        // Nothing is counted on socket 1.
        assert_eq!(bytes_per_access(&plan, &window(&plan, &uncore, &[])), []);
        let none = [(0, 7, [0, 0]), (1, 7, [0, 0])];
        assert_eq!(bytes_per_access(&plan, &window(&plan, &uncore, &none)), []);
        let weights = [(0, 7, [1000, 0]), (0, 8, [10, 0]), (1, 7, [1000, 0])];
        let mut counted = window(&plan, &uncore, &weights);
        assert_eq!(bytes_per_access(&plan, &counted).len(), 2);
        // An owner on socket 0 ran only while the counters were rotated out.
        for ((socket, owner), usage) in &mut counted.on_socket {
            if (*socket, owner.cgroup.0) == (0, 8) {
                for row in usage.iter_mut().flatten() {
                    *row = GroupCounts::of(&UsageRow {
                        enabled: row.enabled,
                        ..UsageRow::ZERO
                    });
                }
            }
        }
        // That owner may have read the memory of socket 1 too.
        assert_eq!(bytes_per_access(&plan, &counted), []);
    }
}
