//! Each owner's part of a socket's traffic, with its error, by calibrated patterns.

use libm::hypot;

use super::{
    CalibratedTraffic,
    fit::{product, traffic_per_event},
    mixtures::{MixtureRange, Mixtures},
};

/// The counts of an owner in a window, by event of the calibration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnerCounts {
    /// Counts, estimated for the whole time where events are multiplexed.
    pub counts: Vec<f64>,
    /// The variances of `counts` by their estimated part.
    pub variances: Vec<f64>,
}

/// An owner's part of the traffic, in its counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnerPart {
    /// The estimate.
    pub traffic: f64,
    /// The distance to the farther end of what the counts allow. It covers the unknown mixture of
    /// patterns.
    pub error: f64,
}

/// Why an owner's part is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPart {
    /// The owner's counts are unknown.
    Unseen,
    /// The owner has no counts: it moved nothing, or what no event counts.
    NoCounts,
    /// No mixture of the calibrated patterns has the owner's counts.
    NoMixture,
    /// Mixtures that moved very different amounts have the owner's counts.
    TooWide,
}

/// Why no owner's part is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEstimate {
    /// The owners' counts stand for more than was moved, whatever the mixture.
    MoreThanMoved,
    /// More was moved than any mixture of patterns has counts for.
    Unexplained,
}

/// Errors above this part of a share are too wide, if they are above [`NEGLIGIBLE`] too.
const WIDE: f64 = 0.5;
/// The part of the socket's traffic below which an error does not matter: of owners that move
/// almost nothing.
const NEGLIGIBLE: f64 = 0.001;
/// The part of the traffic that patterns may leave unexplained: they were measured on a quiet
/// machine, three times, and the traffic is counted a little earlier or later than the events.
const UNEXPLAINED: f64 = 0.05;
/// Standard deviations of a count within which a mixture fits.
const FITS: f64 = 2.0;

impl CalibratedTraffic {
    /// The parts of `moved`, the traffic's counts, in the order of `owners`; `apart` is how much
    /// more or less may have been moved in the time of their counts. An owner without counts was
    /// not counted: it may have moved all that the others did not.
    ///
    /// An owner may run any mixture of the patterns that has its counts. So its part is within the
    /// range of these mixtures, and at most what the least parts of all others leave. Within their
    /// ranges the parts begin with the coefficients that explain all patterns best, and are then
    /// moved, each in proportion to its variance, to sum up to the traffic.
    ///
    /// The error is the distance to the farther end. Half of the range by the root of 3, the
    /// standard deviation of equally probable mixtures, is too small: with one event a pointer
    /// chase beside streams was within it in 32 of 100 simulated windows.
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
        let mixtures = Mixtures::of(self.vectors(), self.events.len());
        let ranges: Vec<Option<MixtureRange>> = (owners.iter())
            .map(|counts| mixtures.range(&self.bounds(counts.as_ref()?)))
            .collect();
        let least: f64 = ranges.iter().flatten().map(|range| range.low).sum();
        if least > moved + apart {
            return Err(NoEstimate::MoreThanMoved);
        }
        let coefficients = traffic_per_event(&self.vectors(), self.events.len());
        let most = |low: f64| (moved + apart - (least - low)).max(low);
        let mut parts: Vec<Part> = (owners.iter().zip(&ranges))
            .map(|(owner, range)| match (owner, range) {
                (Some(owner), Some(MixtureRange { low, high })) => {
                    let likely = product(&owner.counts, &coefficients);
                    Part::new(*low, high.min(most(*low)), likely)
                }
                // It may have moved all that the others did not.
                _ => Part::new(0.0, most(0.0), most(0.0) / 2.0),
            })
            .collect();
        let highest: f64 = parts.iter().map(|part| part.high).sum();
        if moved - highest > UNEXPLAINED * moved + apart {
            return Err(NoEstimate::Unexplained);
        }
        Part::sum_up_to(&mut parts, moved);
        // The least parts may be above the traffic by what may be apart.
        let sum: f64 = parts.iter().map(|part| part.traffic).sum();
        let scale = if sum > moved { moved / sum } else { 1.0 };
        let all = parts.iter().zip(&ranges).zip(owners);
        let stated = all.map(|((part, range), owner)| {
            let owner = owner.as_ref().ok_or(NoPart::Unseen)?;
            if owner.counts.iter().all(|count| *count == 0.0) {
                return Err(NoPart::NoCounts);
            }
            if range.is_none() {
                return Err(NoPart::NoMixture);
            }
            // What the others cannot have moved is its own.
            let low = moved * (1.0 - UNEXPLAINED) - apart - (highest - part.high);
            let traffic = part.traffic * scale;
            let error = (part.high - traffic).max(traffic - part.low.max(low).min(traffic));
            let wide = error > (WIDE * traffic).max(NEGLIGIBLE * moved);
            (!wide)
                .then_some(OwnerPart { traffic, error })
                .ok_or(NoPart::TooWide)
        });
        Ok(stated.collect())
    }

    /// Where an owner's counts may be, by event.
    fn bounds(&self, owner: &OwnerCounts) -> Vec<(f64, f64)> {
        let counts = owner.counts.iter().zip(&owner.variances).zip(&self.spreads);
        let bounds = counts.map(|((count, variance), spread)| {
            // The counts of the patterns have an error too.
            let error = FITS * hypot((count + variance).sqrt(), spread * count);
            ((count - error).max(0.0), count + error)
        });
        bounds.collect()
    }

    fn vectors(&self) -> Vec<&[f64]> {
        let patterns = self.patterns.iter();
        patterns.map(|it| it.counts.as_slice()).collect()
    }
}

/// An owner's part, and where it may be.
#[derive(Clone, Copy, Debug)]
struct Part {
    low: f64,
    high: f64,
    traffic: f64,
    /// Of `traffic`, before the owners' sum is known, as if all of the range were as probable.
    variance: f64,
}

impl Part {
    /// `likely` is brought into the range.
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
            let all: f64 = free.map(|part| part.variance).sum();
            if all <= 0.0 || missing.abs() <= 1e-9 * moved {
                break;
            }
            for part in parts.iter_mut().filter(|part| room(part) > 0.0) {
                let more = missing * part.variance / all;
                part.traffic = (part.traffic + more).clamp(part.low, part.high);
            }
        }
    }
}

#[cfg(test)]
mod tests;
