//! Each owner's part of a socket's traffic, with its error, by calibrated patterns.

use libm::hypot;
use serde::Serialize;

use super::{
    CalibratedTraffic, Pattern,
    fit::{traffic_per_event, weighted_sum},
    mixtures::{MixtureRange, Mixtures},
};

/// The counts of an owner in a window, by event of the calibration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventCounts {
    /// Counts, estimated for the whole time if events are multiplexed.
    pub counts: Vec<f64>,
    /// The variances of `counts`, which come from their estimated part.
    pub variances: Vec<f64>,
}

/// The counts of an owner for its accesses to the memory of one socket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnerCounts {
    /// Of accesses by the CPUs of that socket.
    pub local: EventCounts,
    /// Of accesses by the CPUs of the other socket; `None` on machines with one socket.
    pub remote: Option<EventCounts>,
}

impl OwnerCounts {
    fn are_all_0(&self) -> bool {
        let remote = self.remote.iter().flat_map(|it| &it.counts);
        self.local.counts.iter().chain(remote).all(|it| *it == 0.0)
    }
}

/// An owner's part of the traffic, in its counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnerPart {
    /// The estimate.
    pub traffic: f64,
    /// Its error.
    pub error: PartError,
}

/// The error of an owner's part by cause, in counts of the traffic. All causes together make the
/// distance to the farther end of what the counts allow. The causes are taken away one after the
/// other; the square of each is the amount by which the squared distance shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PartError {
    /// Traffic that was moved in the window of the counts and not in that of the traffic, or the
    /// reverse.
    pub skew: f64,
    /// The errors of the counts: those of events that happen by chance, and of multiplexing.
    pub counting: f64,
    /// The errors of the patterns: how their counts differ between runs, and what they leave
    /// unexplained.
    pub calibration: f64,
    /// Patterns that move different amounts and have the same counts.
    pub mixture: f64,
    /// Error beyond these causes, which a comparison with the hardware's monitors showed; 0 without
    /// monitors.
    pub residual: f64,
}

impl PartError {
    /// All of the error: the root of the sum of the squares. The true part is within it in at least
    /// 95 of 100 windows.
    #[must_use]
    pub fn all(&self) -> f64 {
        let counted = hypot(self.skew, self.counting);
        let known = hypot(self.calibration, self.mixture);
        hypot(hypot(counted, known), self.residual)
    }

    /// The same error, raised to `least` by its residual if it is smaller.
    #[must_use]
    pub fn at_least(&self, least: f64) -> Self {
        let lacking = (least.powi(2) - self.all().powi(2)).max(0.0).sqrt();
        Self {
            residual: hypot(self.residual, lacking),
            ..*self
        }
    }

    /// The error of the sum of two parts: the sum of their errors. Both are taken as fully
    /// correlated, also where their causes differ.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        let by_cause = Self {
            skew: self.skew + other.skew,
            counting: self.counting + other.counting,
            calibration: self.calibration + other.calibration,
            mixture: self.mixture + other.mixture,
            residual: self.residual + other.residual,
        };
        match by_cause.all() {
            0.0 => by_cause,
            sum => by_cause.scale((self.all() + other.all()) / sum),
        }
    }

    /// The error in another unit.
    #[must_use]
    pub fn scale(&self, by: f64) -> Self {
        Self {
            skew: self.skew * by,
            counting: self.counting * by,
            calibration: self.calibration * by,
            mixture: self.mixture * by,
            residual: self.residual * by,
        }
    }
}

/// Why an owner's part is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPart {
    /// The owner's counts are unknown.
    Unseen,
    /// The owner's counts are all 0: it moved nothing, or only what no event counts.
    NoCounts,
    /// No mixture of the calibrated patterns gives the owner's counts.
    NoMixture,
    /// The owner's counts fit mixtures that move very different amounts.
    TooWide,
}

/// Why no owner's part is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEstimate {
    /// The owners' counts stand for more than was moved, whatever the mixture.
    MoreThanMoved,
    /// More was moved than the counts explain, whatever the mixture.
    Unexplained,
}

/// Errors above this part of a share are too wide, unless they are below [`NEGLIGIBLE`].
const WIDE: f64 = 0.5;
/// The part of the socket's traffic below which an error does not matter: that of an owner that
/// moves almost nothing.
const NEGLIGIBLE: f64 = 0.001;
/// The part of the traffic that patterns may leave unexplained: they were measured on a quiet
/// machine, three times, and the traffic is counted a little earlier or later than the events.
const UNEXPLAINED: f64 = 0.05;
/// Standard deviations of a count within which a mixture fits.
const FITS: f64 = 2.0;

impl CalibratedTraffic {
    /// Each owner's part of the traffic `moved`, in the order of `owners`. `apart`: how much more
    /// or less may have been moved while their events were counted. An owner that is None was not
    /// counted: it may have moved all that the others did not.
    ///
    /// An owner may run any mixture of the patterns that has its counts. So its part is within the
    /// range of these mixtures, and at most what the least parts of all others leave. The parts
    /// start at the coefficients that explain all patterns best. They are then moved within their
    /// ranges, each in proportion to its variance, to sum up to the traffic.
    ///
    /// The error is the distance to the farther end of the range. Half of the range divided by the
    /// root of 3, the standard deviation of equally probable mixtures, would be too small: with one
    /// event a pointer chase beside streams was within it in 32 of 100 simulated windows.
    ///
    /// # Errors
    ///
    /// The counts and the traffic contradict each other.
    pub fn estimate(
        &self,
        owners: &[Option<OwnerCounts>],
        moved: f64,
        apart: f64,
    ) -> Result<Vec<Result<OwnerPart, NoPart>>, NoEstimate> {
        let (local, remote) = (Side::of(self, &self.patterns), Side::of(self, &self.remote));
        let ranges_by = |causes: &Causes| -> Vec<Option<MixtureRange>> {
            let range = |owner: &Option<OwnerCounts>| {
                let owner = owner.as_ref()?;
                let own = local.range(&owner.local, causes)?;
                match &owner.remote {
                    Some(counts) => Some(own.plus(remote.range(counts, causes)?)),
                    None => Some(own),
                }
            };
            owners.iter().map(range).collect()
        };
        let causes = Causes::all(apart);
        let ranges = ranges_by(&causes);
        let ends = Ends::of(&ranges, moved, &causes);
        if ends.least > moved + apart {
            return Err(NoEstimate::MoreThanMoved);
        }
        if moved - ends.most > UNEXPLAINED * moved + apart {
            return Err(NoEstimate::Unexplained);
        }
        let mut parts: Vec<Part> = (owners.iter().zip(&ends.parts))
            .map(|(owner, (low, high))| {
                let likely = match owner {
                    Some(OwnerCounts {
                        local: own,
                        remote: other,
                    }) => local.likely(own) + other.as_ref().map_or(0.0, |it| remote.likely(it)),
                    // It may have moved anything up to all that the others did not.
                    None => *high / 2.0,
                };
                Part::new(*low, *high, likely)
            })
            .collect();
        Part::sum_up_to(&mut parts, moved);
        // The sum of the least parts may exceed the traffic by up to `apart`.
        let sum: f64 = parts.iter().map(|part| part.traffic).sum();
        let scale = if sum > moved { moved / sum } else { 1.0 };
        let traffics: Vec<f64> = parts.iter().map(|part| part.traffic * scale).collect();
        let mut distances = vec![ends.distances(&traffics, moved, &causes)];
        for causes in causes.fewer() {
            // With fewer causes, possibly no mixture fits. The range is then the estimate alone.
            let narrower: Vec<_> = (ranges_by(&causes).into_iter().zip(&ranges).zip(&traffics))
                .map(|((narrower, range), at)| {
                    let estimate_alone = MixtureRange {
                        low: *at,
                        high: *at,
                    };
                    range.map(|_| narrower.unwrap_or(estimate_alone))
                })
                .collect();
            let ends = Ends::of(&narrower, moved, &causes);
            distances.push(ends.distances(&traffics, moved, &causes));
        }
        let all = owners.iter().zip(&ranges).zip(&traffics).enumerate();
        let stated = all.map(|(at, ((owner, range), traffic))| {
            let owner = owner.as_ref().ok_or(NoPart::Unseen)?;
            if owner.are_all_0() {
                return Err(NoPart::NoCounts);
            }
            if range.is_none() {
                return Err(NoPart::NoMixture);
            }
            let error = PartError::of(distances.iter().map(|by_owner| by_owner[at]));
            let is_too_wide = error.all() > (WIDE * traffic).max(NEGLIGIBLE * moved);
            let part = OwnerPart {
                traffic: *traffic,
                error,
            };
            (!is_too_wide).then_some(part).ok_or(NoPart::TooWide)
        });
        Ok(stated.collect())
    }
}

/// What the counts of accesses from one place, the own socket or the other one, can stand for.
struct Side<'a> {
    spreads: &'a [f64],
    mixtures: Mixtures,
    /// The traffic per count of each event.
    coefficients: Vec<f64>,
}

impl<'a> Side<'a> {
    fn of(calibrated: &'a CalibratedTraffic, patterns: &[Pattern]) -> Self {
        let vectors: Vec<&[f64]> = patterns.iter().map(|it| it.counts.as_slice()).collect();
        let events = calibrated.events.len();
        Self {
            spreads: &calibrated.spreads,
            mixtures: Mixtures::of(&vectors, events),
            coefficients: traffic_per_event(&vectors, events),
        }
    }

    fn range(&self, owner: &EventCounts, causes: &Causes) -> Option<MixtureRange> {
        self.mixtures.range(&self.bounds(owner, causes))
    }

    fn likely(&self, owner: &EventCounts) -> f64 {
        weighted_sum(&owner.counts, &self.coefficients)
    }

    /// The range of an owner's true counts, by event.
    fn bounds(&self, owner: &EventCounts, causes: &Causes) -> Vec<(f64, f64)> {
        let counts = owner.counts.iter().zip(&owner.variances).zip(self.spreads);
        let bounds = counts.map(|((count, variance), spread)| {
            let counting = if causes.counting {
                count + variance
            } else {
                0.0
            };
            let spread = if causes.calibration { *spread } else { 0.0 };
            let error = FITS * hypot(counting.sqrt(), spread * count);
            // A count of 0 may have a mean above 0.
            let unseen = if causes.counting { FITS * FITS } else { 0.0 };
            ((count - error).max(0.0), count + error + unseen)
        });
        bounds.collect()
    }
}

/// The causes of errors that are taken into account. [`PartError::mixture`] always is.
#[derive(Clone, Copy, Debug)]
struct Causes {
    /// How much more or less may have been moved in the time of the counts.
    apart: f64,
    counting: bool,
    calibration: bool,
}

impl Causes {
    fn all(apart: f64) -> Self {
        Self {
            apart,
            counting: true,
            calibration: true,
        }
    }

    /// First without the skew, then also without the errors of the counts, then also without those
    /// of the patterns.
    fn fewer(self) -> [Self; 3] {
        let no_skew = Self { apart: 0.0, ..self };
        let no_counting = Self {
            counting: false,
            ..no_skew
        };
        let no_calibration = Self {
            calibration: false,
            ..no_counting
        };
        [no_skew, no_counting, no_calibration]
    }

    /// How much of the traffic may be missing from the sum of the parts.
    fn missing(&self, moved: f64) -> f64 {
        let unexplained = if self.calibration { UNEXPLAINED } else { 0.0 };
        unexplained * moved + self.apart
    }
}

/// The ranges of the owners' parts.
struct Ends {
    /// By owner: the ends of its range. The upper end is at most what the others leave.
    parts: Vec<(f64, f64)>,
    /// The sum of the lower ends.
    least: f64,
    /// The sum of the upper ends.
    most: f64,
}

impl Ends {
    fn of(ranges: &[Option<MixtureRange>], moved: f64, causes: &Causes) -> Self {
        let least: f64 = ranges.iter().flatten().map(|range| range.low).sum();
        let left = |low: f64| (moved + causes.apart - (least - low)).max(low);
        let ends = |range: &Option<MixtureRange>| match range {
            Some(MixtureRange { low, high }) => (*low, high.min(left(*low))),
            None => (0.0, left(0.0)),
        };
        let parts: Vec<_> = ranges.iter().map(ends).collect();
        Self {
            most: parts.iter().map(|(_, high)| high).sum(),
            parts,
            least,
        }
    }

    /// By owner: the distance from its part, `traffics`, to the farther end.
    fn distances(&self, traffics: &[f64], moved: f64, causes: &Causes) -> Vec<f64> {
        // Traffic that no mixture explains may belong to any owner.
        let unexplained = match causes.calibration {
            true => (moved + causes.apart - self.most).max(0.0),
            false => 0.0,
        };
        let distance = |(traffic, (low, high)): (&f64, &(f64, f64))| {
            // The owner moved what the others cannot have moved.
            let own = moved - causes.missing(moved) - (self.most - high);
            let by_counts = (high + unexplained - traffic).max(traffic - low.max(own));
            // Traffic that was moved either while the events or while the traffic was counted, not
            // during both, belongs to this owner with the probability of its part.
            let part = if moved > 0.0 {
                (traffic / moved).min(1.0)
            } else {
                0.0
            };
            let skew = FITS * causes.apart / 3_f64.sqrt() * (part * (1.0 - part)).sqrt();
            hypot(by_counts.max(0.0), skew)
        };
        traffics.iter().zip(&self.parts).map(distance).collect()
    }
}

impl PartError {
    /// From distances to the farther end: the first with all causes, each further one with one
    /// cause fewer.
    fn of(distances: impl Iterator<Item = f64>) -> Self {
        let mut smallest = f64::INFINITY;
        // With fewer causes, the distance never grows.
        let nested: Vec<f64> = distances
            .map(|distance| {
                smallest = smallest.min(distance);
                smallest
            })
            .collect();
        let cause = |at: usize| {
            let without = nested.get(at + 1).copied().unwrap_or_default();
            (nested[at].powi(2) - without.powi(2)).max(0.0).sqrt()
        };
        Self {
            skew: cause(0),
            counting: cause(1),
            calibration: cause(2),
            mixture: cause(3),
            residual: 0.0,
        }
    }
}

/// An owner's part, and its range.
#[derive(Clone, Copy, Debug)]
struct Part {
    low: f64,
    high: f64,
    traffic: f64,
    /// Variance of `traffic` before the owners' sum is known, if all values of the range are
    /// equally probable.
    variance: f64,
}

impl Part {
    /// A part of `likely`, or of the end of the range that is nearest to it.
    fn new(low: f64, high: f64, likely: f64) -> Self {
        let traffic = likely.clamp(low, high);
        let (half, middle) = ((high - low) / 2.0, f64::midpoint(low, high));
        Self {
            low,
            high,
            traffic,
            variance: half.powi(2) / 3.0 + (traffic - middle).powi(2),
        }
    }

    /// Moves the parts within their ranges so that their sum comes to `moved`, or as near as it
    /// can, each in proportion to its variance.
    fn sum_up_to(parts: &mut [Self], moved: f64) {
        // Each round brings a part to an end of its range, or is the last one.
        for _ in 0..=parts.len() {
            let missing = moved - parts.iter().map(|part| part.traffic).sum::<f64>();
            let room = |part: &Self| match missing > 0.0 {
                true => part.high - part.traffic,
                false => part.traffic - part.low,
            };
            let free = parts.iter().filter(|part| room(part) > 0.0);
            let sum: f64 = free.map(|part| part.variance).sum();
            if sum <= 0.0 || missing.abs() <= 1e-9 * moved {
                break;
            }
            for part in parts.iter_mut().filter(|part| room(part) > 0.0) {
                let more = missing * part.variance / sum;
                part.traffic = (part.traffic + more).clamp(part.low, part.high);
            }
        }
    }
}

#[cfg(test)]
mod tests;
