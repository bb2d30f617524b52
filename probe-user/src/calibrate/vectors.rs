//! Computes the vectors of a calibration, the counts of each pattern, from the runs of kernels.

use super::CalibrateError;
use crate::calibration::{CalibratedTraffic, Pattern};

/// An event is left out if it counts accesses that are not of the traffic, such as reads within the
/// caches, at more than this part of its largest rate.
const COUNTS_WITHOUT_TRAFFIC: f64 = 0.02;

/// A kernel does not move a metric's traffic if it moves at most this part of what another kernel
/// moves on as many CPUs: most kernels only read, or only write.
const MOVES_NONE: f64 = 0.005;

/// The largest part of a kernel's traffic that other programs may move.
const MAX_OTHERS: f64 = 0.02;

/// What one kernel did in one measurement, minus the counts while nothing ran.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) seconds: f64,
    /// The metric's traffic, in its counts.
    pub(super) traffic: f64,
    /// The counts of each event. With two sockets, then those of each event for the memory that the
    /// kernel does not use.
    pub(super) counts: Vec<f64>,
}

/// The runs of a kernel on a number of CPUs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KernelRuns {
    pub(super) name: String,
    /// Whether the kernel moves memory.
    pub(super) moves: bool,
    /// The CPUs that it ran on.
    pub(super) threads: usize,
    /// What other programs moved per second before or after the kernel ran, whichever is more.
    pub(super) others: f64,
    pub(super) runs: Vec<Run>,
}

impl KernelRuns {
    fn sum(&self, value: impl Fn(&Run) -> f64) -> f64 {
        self.runs.iter().map(value).sum()
    }

    pub(super) fn traffic_per_second(&self) -> f64 {
        self.sum(|run| run.traffic) / self.sum(|run| run.seconds)
    }

    /// Counts of an event per second.
    fn rate(&self, event: usize) -> f64 {
        self.sum(|run| run.counts[event]) / self.sum(|run| run.seconds)
    }

    /// Counts of an event for each count of traffic.
    pub(super) fn per_traffic(&self, event: usize) -> f64 {
        (self.sum(|run| run.counts[event]) / self.sum(|run| run.traffic)).max(0.0)
    }

    /// The relative standard deviation of one run around [`Self::per_traffic`]. It includes the
    /// error of that mean of the runs.
    #[expect(clippy::cast_precision_loss, reason = "some runs")]
    fn spread(&self, event: usize) -> f64 {
        let each = self.runs.iter().map(|run| run.counts[event] / run.traffic);
        let mean = self.per_traffic(event);
        if mean == 0.0 || self.runs.len() < 2 {
            return 0.0;
        }
        let squares: f64 = each.map(|it| (it / mean - 1.0).powi(2)).sum();
        let runs = self.runs.len() as f64;
        (squares / (runs - 1.0) * (1.0 + runs.recip())).sqrt()
    }
}

/// The kernels that move the metric's traffic.
fn moving<'a>(
    metric: &str,
    kernels: &'a [KernelRuns],
) -> Result<Vec<&'a KernelRuns>, CalibrateError> {
    let candidates = || kernels.iter().filter(|it| it.moves);
    let largest = |threads: usize| {
        let alike = candidates().filter(|it| it.threads == threads);
        alike
            .map(KernelRuns::traffic_per_second)
            .fold(0.0, f64::max)
    };
    let moves = |it: &&KernelRuns| it.traffic_per_second() > MOVES_NONE * largest(it.threads);
    let moving: Vec<&KernelRuns> = candidates().filter(moves).collect();
    if moving.is_empty() {
        return Err(CalibrateError::NoTraffic(metric.to_owned()));
    }
    let part_of_others = |it: &KernelRuns| it.others / it.traffic_per_second();
    match moving.iter().find(|it| part_of_others(it) > MAX_OTHERS) {
        Some(kernel) => Err(CalibrateError::Busy {
            metric: metric.to_owned(),
            kernel: kernel.name.clone(),
            percent: part_of_others(kernel) * 100.0,
        }),
        None => Ok(moving),
    }
}

/// The calibration of a metric, and the events that are left out since they count accesses that are
/// not of its traffic. `by_place`: the runs with the memory of the own socket, and on machines with
/// two sockets those with the memory of the other one.
pub(super) fn calibrated_for_sockets(
    metric: &str,
    events: &[String],
    by_place: &[Vec<KernelRuns>],
) -> Result<(CalibratedTraffic, Vec<String>), CalibrateError> {
    let mut places = by_place.iter();
    let local = places.next().map_or(&[][..], Vec::as_slice);
    let (mut traffic, mut left_out) = calibrated(metric, events, local)?;
    if let Some(remote) = places.next() {
        let (mut remote, also_left_out) = calibrated(metric, events, remote)?;
        remove_events(&mut traffic, &also_left_out);
        remove_events(&mut remote, &left_out);
        left_out.extend(also_left_out);
        left_out.sort();
        left_out.dedup();
        if traffic.events.is_empty() {
            return Err(CalibrateError::NoEvent {
                metric: metric.to_owned(),
                events: left_out.join(", "),
            });
        }
        let spreads = traffic.spreads.iter().zip(remote.spreads);
        traffic.spreads = spreads.map(|(a, b)| a.max(b)).collect();
        traffic.remote = remote.patterns;
    }
    Ok((traffic, left_out))
}

/// Removes these events.
fn remove_events(traffic: &mut CalibratedTraffic, without: &[String]) {
    let kept: Vec<bool> = (traffic.events.iter())
        .map(|event| !without.contains(event))
        .collect();
    let retain = |values: &mut Vec<f64>| {
        let mut kept = kept.iter();
        values.retain(|_| kept.next() == Some(&true));
    };
    retain(&mut traffic.spreads);
    let patterns = traffic.patterns.iter_mut();
    patterns.for_each(|pattern| retain(&mut pattern.counts));
    traffic.events.retain(|event| !without.contains(event));
}

/// As [`calibrated_for_sockets`], for the memory of one socket.
fn calibrated(
    metric: &str,
    events: &[String],
    kernels: &[KernelRuns],
) -> Result<(CalibratedTraffic, Vec<String>), CalibrateError> {
    let moving = moving(metric, kernels)?;
    let is_moving = |kernel: &KernelRuns| moving.iter().any(|it| it.name == kernel.name);
    // With two sockets, an event that also counts accesses to the other memory is of no use.
    let elsewhere = |event: usize| {
        let at = events.len() + event;
        let counted = moving
            .iter()
            .filter(|it| it.runs.iter().all(|run| at < run.counts.len()));
        counted.map(|it| it.rate(at)).fold(0.0, f64::max)
    };
    let counts_only_traffic = |event: &usize| {
        let most = moving.iter().map(|it| it.rate(*event)).fold(0.0, f64::max);
        if elsewhere(*event) > COUNTS_WITHOUT_TRAFFIC * most {
            return false;
        }
        let others = kernels.iter().filter(|it| !is_moving(it));
        let largest = others.map(|it| it.rate(*event)).fold(0.0, f64::max);
        largest <= COUNTS_WITHOUT_TRAFFIC * most
    };
    let (included, dropped): (Vec<usize>, Vec<usize>) =
        (0..events.len()).partition(counts_only_traffic);
    let names = |at: &[usize]| at.iter().map(|at| events[*at].clone()).collect::<Vec<_>>();
    if included.is_empty() {
        return Err(CalibrateError::NoEvent {
            metric: metric.to_owned(),
            events: events.join(", "),
        });
    }
    let spread = |event: &usize| {
        // Counts near 0 vary more, and are left out since they do not matter.
        let per_traffic = moving.iter().map(|it| it.per_traffic(*event));
        let most = per_traffic.fold(0.0, f64::max);
        let counting = moving
            .iter()
            .filter(|it| it.per_traffic(*event) > most / 100.0);
        counting.map(|it| it.spread(*event)).fold(0.0, f64::max)
    };
    let patterns = moving.iter().map(|kernel| Pattern {
        name: kernel.name.clone(),
        counts: included
            .iter()
            .map(|event| kernel.per_traffic(*event))
            .collect(),
    });
    let traffic = CalibratedTraffic {
        metric: metric.to_owned(),
        events: names(&included),
        spreads: included.iter().map(spread).collect(),
        patterns: patterns.collect(),
        remote: Vec::new(),
    };
    Ok((traffic, names(&dropped)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, moves: bool, runs: &[(f64, [f64; 2])]) -> KernelRuns {
        let run = |(traffic, counts): &(f64, [f64; 2])| Run {
            seconds: 1.0,
            traffic: *traffic,
            counts: counts.to_vec(),
        };
        KernelRuns {
            name: name.to_owned(),
            moves,
            threads: 1,
            others: 0.0,
            runs: runs.iter().map(run).collect(),
        }
    }

    fn events() -> Vec<String> {
        ["misses", "refills"].map(str::to_owned).to_vec()
    }

    #[test]
    fn counts_are_per_traffic_and_spread_over_runs() {
        let kernels = [
            kernel(
                "stream",
                true,
                &[(100.0, [30.0, 98.0]), (100.0, [30.0, 102.0])],
            ),
            kernel("chase", true, &[(10.0, [10.0, 10.0])]),
            kernel("cached", false, &[(0.1, [0.0, 0.5])]),
        ];
        let (traffic, dropped) = calibrated("read", &events(), &kernels).unwrap();
        assert_eq!(traffic.patterns[0].counts, [0.3, 1.0]);
        assert_eq!(traffic.patterns[1].counts, [1.0, 1.0]);
        assert_eq!(traffic.patterns.len(), 2);
        assert_eq!(traffic.spreads[0], 0.0);
        assert!(
            (traffic.spreads[1] - 0.02 * 2_f64.sqrt() * 1.5_f64.sqrt()).abs() < 1e-9,
            "{traffic:?}"
        );
        assert_eq!(dropped, Vec::<String>::new());
    }

    #[test]
    fn events_that_count_cached_reads_are_left_out() {
        let stream = kernel("stream", true, &[(100.0, [30.0, 100.0])]);
        let cached = kernel("cached", false, &[(0.1, [0.0, 300.0])]);
        let (traffic, dropped) = calibrated("read", &events(), &[stream.clone(), cached]).unwrap();
        assert_eq!(
            (traffic.events, dropped),
            (vec!["misses".to_owned()], vec!["refills".to_owned()])
        );
        let both = kernel("cached", false, &[(0.1, [9.0, 300.0])]);
        let refused = calibrated("read", &events(), &[stream, both]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "read: every event also counts accesses that are not of its traffic (misses, refills): \
             it cannot be divided here"
        );
    }

    /// An event is left out if it counts cached reads of either memory.
    #[test]
    fn patterns_of_both_memories_have_the_same_events() {
        let of_place = |cached: [f64; 2], factor: f64| {
            let counts = [30.0 * factor, 100.0 * factor];
            let stream = kernel("stream", true, &[(100.0, counts), (100.0, counts)]);
            vec![stream, kernel("cached", false, &[(0.1, cached)])]
        };
        let quiet = [of_place([0.0, 0.5], 1.0), of_place([0.0, 0.5], 2.0)];
        let (traffic, left_out) = calibrated_for_sockets("read", &events(), &quiet).unwrap();
        assert_eq!(left_out, Vec::<String>::new());
        assert_eq!(traffic.patterns[0].counts, [0.3, 1.0]);
        assert_eq!(traffic.remote[0].counts, [0.6, 2.0]);
        for busy in [
            [of_place([0.0, 90.0], 1.0), of_place([0.0, 0.5], 2.0)],
            [of_place([0.0, 0.5], 1.0), of_place([0.0, 90.0], 2.0)],
        ] {
            let (traffic, left_out) = calibrated_for_sockets("read", &events(), &busy).unwrap();
            assert_eq!(
                (left_out, traffic.events),
                (vec!["refills".into()], vec!["misses".into()])
            );
            assert_eq!(traffic.spreads.len(), 1);
            assert_eq!(
                (&traffic.patterns[0].counts, &traffic.remote[0].counts),
                (&vec![0.3], &vec![0.6])
            );
        }
        let neither = [of_place([90.0, 0.5], 1.0), of_place([0.0, 90.0], 2.0)];
        let refused = calibrated_for_sockets("read", &events(), &neither).unwrap_err();
        assert!(
            matches!(refused, CalibrateError::NoEvent { .. }),
            "{refused}"
        );
    }

    /// With two sockets, the last two counts are those for the memory that is not used.
    #[test]
    fn events_that_count_the_other_memory_are_left_out() {
        let place = |elsewhere: [f64; 2]| {
            let run = Run {
                seconds: 1.0,
                traffic: 100.0,
                counts: [30.0, 100.0].into_iter().chain(elsewhere).collect(),
            };
            let mut stream = kernel("stream", true, &[]);
            stream.runs = vec![run.clone(), run];
            vec![stream]
        };
        let apart = [place([0.1, 1.0]), place([0.0, 0.0])];
        let (traffic, _) = calibrated_for_sockets("read", &events(), &apart).unwrap();
        assert_eq!(traffic.events, events());
        let mixed = [place([0.1, 1.0]), place([0.0, 5.0])];
        let (traffic, left_out) = calibrated_for_sockets("read", &events(), &mixed).unwrap();
        assert_eq!(
            (traffic.events, left_out),
            (vec!["misses".into()], vec!["refills".into()])
        );
    }

    /// As on a Xeon: a stream of reads writes next to nothing, and other programs write as much.
    #[test]
    fn kernels_that_only_read_are_no_patterns_of_writes() {
        let mut read = kernel("read-stream", true, &[(0.2, [0.0, 90.0])]);
        read.others = 0.2;
        let copy = kernel("copy", true, &[(100.0, [100.0, 100.0])]);
        let zero = kernel("zero", true, &[(200.0, [200.0, 0.0])]);
        let kernels = [read, copy, zero.clone()];
        let (traffic, dropped) = calibrated("write", &events(), &kernels).unwrap();
        let names: Vec<&str> = traffic.patterns.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["copy", "zero"]);
        // Reads move none of the traffic, so an event must not count them.
        assert_eq!(
            (traffic.events, dropped),
            (vec!["misses".into()], vec!["refills".into()])
        );

        let mut busy = zero.clone();
        busy.others = 5.0;
        let refused = calibrated("write", &events(), &[busy])
            .unwrap_err()
            .to_string();
        assert!(
            refused.starts_with("write: others moved 2.5% of what zero did"),
            "{refused}"
        );
        let nothing = kernel("zero", true, &[(0.0, [1.0, 1.0])]);
        let refused = calibrated("write", &events(), &[nothing])
            .unwrap_err()
            .to_string();
        assert!(refused.starts_with("write: the socket counted nothing while the kernels ran"));
    }
}
