//! Simulated windows of owners, and how often the true bytes are within the stated error.

use test_support::Random;

use super::super::*;
use crate::calibration::Pattern;

/// Patterns with two events: misses without prefetches, and refills with prefetches. Both count
/// lines of 64 bytes.
pub(super) fn patterns() -> CalibratedTraffic {
    let pattern = |name: &str, misses: f64, refills: f64| Pattern {
        name: name.to_owned(),
        counts: vec![misses / 64.0, refills / 64.0],
    };
    CalibratedTraffic {
        metric: "reads".into(),
        events: vec!["misses".into(), "refills".into()],
        spreads: vec![0.01, 0.01],
        patterns: vec![
            pattern("read-stream", 0.35, 1.0),
            pattern("copy", 0.5, 0.98),
            pattern("triad", 0.45, 1.02),
            pattern("strided", 0.9, 1.15),
            pattern("chase", 1.0, 1.0),
            pattern("random-update", 1.03, 0.97),
        ],
        remote: Vec::new(),
    }
}

/// The same with the first event only.
pub(super) fn one_event() -> CalibratedTraffic {
    only_event(0)
}

/// The same with one event only.
pub(super) fn only_event(at: usize) -> CalibratedTraffic {
    let mut calibrated = patterns();
    calibrated.events = vec![calibrated.events.swap_remove(at)];
    calibrated.spreads = vec![calibrated.spreads[at]];
    for pattern in &mut calibrated.patterns {
        pattern.counts = vec![pattern.counts[at]];
    }
    calibrated
}

/// The counts of an owner that moves these bytes of each pattern, with a random error of counting
/// and of the patterns.
pub(super) fn counts(
    calibrated: &CalibratedTraffic,
    bytes: &[f64],
    random: &mut Random,
) -> OwnerCounts {
    let count = |event: usize| -> f64 {
        let parts = calibrated.patterns.iter().zip(bytes);
        parts
            .map(|(pattern, bytes)| pattern.counts[event] * bytes)
            .sum()
    };
    let counts = (0..calibrated.events.len()).map(|event| {
        let exact = count(event);
        let error = hypot(exact.sqrt(), calibrated.spreads[event] * exact);
        (exact + error * normal(random)).max(0.0)
    });
    local(counts.collect(), vec![0.0; calibrated.events.len()])
}

/// The counts of an owner on a machine with one socket.
pub(super) fn local(counts: Vec<f64>, variances: Vec<f64>) -> OwnerCounts {
    OwnerCounts {
        local: EventCounts { counts, variances },
        remote: None,
    }
}

/// A nearly normal number with mean 0 and deviation 1: the sum of twelve uniform numbers minus 6.
pub(super) fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0
}

/// How an owner draws its patterns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// One pattern.
    Pure,
    /// Any mixture.
    Mixed,
    /// The first owner chases pointers, the others stream.
    Unlike,
}

/// The bytes of an owner, by pattern. Their sum varies over three decades.
pub(super) fn draw(kind: Kind, owner: usize, patterns: usize, random: &mut Random) -> Vec<f64> {
    let sum = 10_f64.powf(7.0 + 3.0 * random.uniform());
    let mut parts = vec![0.0; patterns];
    match kind {
        Kind::Pure => parts[usize::try_from(random.below(patterns as u64)).unwrap()] = sum,
        Kind::Mixed => parts
            .iter_mut()
            .for_each(|part| *part = sum * random.uniform()),
        Kind::Unlike => parts[if owner == 0 { 4 } else { 0 }] = sum,
    }
    parts
}

/// The number of windows of each case.
pub(super) const RUNS: usize = 250;

/// How often the stated bytes of owners are within one error of the truth, and within two errors.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Owners of all windows, whether their bytes are stated or not.
    owners: usize,
    pub(super) stated: usize,
    within_one: usize,
    within_two: usize,
    /// Stated errors, relative to the stated bytes.
    pub(super) errors: Vec<f64>,
    /// Why bytes are not stated.
    pub(super) reasons: Vec<NoPart>,
    /// Windows without an estimate.
    pub(super) unknown: usize,
}

/// A window with the bytes that owners moved, and what was counted.
pub(super) struct TrueWindow {
    /// The bytes of each owner.
    pub(super) truths: Vec<f64>,
    pub(super) counts: Vec<Option<OwnerCounts>>,
    /// What the socket counted.
    pub(super) moved: f64,
    /// How much more or less may have been moved in the time of the counts, as a part of `moved`.
    pub(super) apart: f64,
}

impl TrueWindow {
    /// From the bytes of each owner by pattern, all of which the socket counts.
    pub(super) fn new(bytes: &[Vec<f64>], counts: Vec<OwnerCounts>) -> Self {
        let truths: Vec<f64> = bytes.iter().map(|it| it.iter().sum()).collect();
        Self {
            moved: truths.iter().sum(),
            // As in a window of a second whose counters are read within a millisecond.
            apart: 0.001,
            truths,
            counts: counts.into_iter().map(Some).collect(),
        }
    }
}

impl Coverage {
    /// The coverage of estimates by `calibrated`, if the events really count as `truth`
    /// says. `only`: the only owner that is checked; None: all owners.
    pub(super) fn of(
        [calibrated, truth]: [&CalibratedTraffic; 2],
        owners: usize,
        only: Option<usize>,
        mut draw: impl FnMut(usize, &mut Random) -> Vec<f64>,
    ) -> Self {
        Self::over_windows(calibrated, only, |random| {
            let bytes: Vec<_> = (0..owners).map(|it| draw(it, random)).collect();
            let counts = bytes.iter().map(|bytes| counts(truth, bytes, random));
            TrueWindow::new(&bytes, counts.collect())
        })
    }

    /// The coverage over [`RUNS`] windows. `only`: the only owner that is checked; None: all.
    pub(super) fn over_windows(
        calibrated: &CalibratedTraffic,
        only: Option<usize>,
        mut window: impl FnMut(&mut Random) -> TrueWindow,
    ) -> Self {
        let mut random = Random(7);
        let mut coverage = Self::default();
        for _ in 0..RUNS {
            let TrueWindow {
                truths,
                counts,
                moved,
                apart,
            } = window(&mut random);
            let Ok(found) = calibrated.estimate(&counts, moved, apart * moved) else {
                coverage.unknown += 1;
                continue;
            };
            let known: f64 = found.iter().flatten().map(|it| it.traffic).sum();
            assert!(known <= moved * (1.0 + 1e-9), "{known} of {moved}");
            for (owner, (stated, truth)) in found.iter().zip(&truths).enumerate() {
                if only.is_none_or(|only| only == owner) {
                    coverage.add(*stated, *truth);
                }
            }
        }
        coverage.errors.sort_by(f64::total_cmp);
        coverage
    }

    pub(super) fn add(&mut self, stated: Result<OwnerPart, NoPart>, truth: f64) {
        self.owners += 1;
        match stated {
            Ok(stated) => {
                let errors = (stated.traffic - truth).abs() / stated.error.all();
                self.stated += 1;
                self.within_one += usize::from(errors <= 1.0);
                self.within_two += usize::from(errors <= 2.0);
                self.errors.push(stated.error.all() / stated.traffic);
            }
            Err(why) => self.reasons.push(why),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    pub(super) fn assert(&self, what: &str) {
        let part = |count: usize| count as f64 / self.stated.max(1) as f64;
        println!(
            "{what}: {} of {} stated, {:.3} within the error, {:.3} within twice, median {:?}",
            self.stated,
            self.owners,
            part(self.within_one),
            part(self.within_two),
            self.errors.get(self.errors.len() / 2),
        );
        let none = self.stated == 0;
        assert!(none || part(self.within_one) >= 0.95, "{what}");
        assert!(none || part(self.within_two) >= 0.99, "{what}");
    }
}

/// The bytes of three owners, by pattern.
pub(super) fn three_owners(calibrated: &CalibratedTraffic, random: &mut Random) -> Vec<Vec<f64>> {
    let kinds = [Kind::Pure, Kind::Mixed, Kind::Pure];
    let all = kinds.iter().enumerate();
    all.map(|(owner, kind)| draw(*kind, owner, calibrated.patterns.len(), random))
        .collect()
}
