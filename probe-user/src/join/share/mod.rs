//! Shares: a socket's traffic divided among owners, by a weight measured for each owner on the same
//! socket in the same window. Entry: `of_window`.
//!
//! This is pure arithmetic. Every division is exact: the shares of all owners (including system and
//! idle), of devices, and the unattributed rest add up to the measured traffic.

mod calibrated;
mod counted;
mod device;
mod divide;
mod method;
mod monitored;
mod planned;
mod sampled;
#[cfg(test)]
mod tests;
mod weights;

use std::collections::BTreeMap;

use libm::hypot;

use self::divide::{divide, fraction};
pub use self::{
    method::{Method, NoShare, Validation},
    planned::MetricShares,
    weights::{SocketWeights, Weight, Weights},
};
pub(crate) use self::{
    monitored::monitored,
    planned::{measured_traffic, of_window},
    weights::Accesses,
};
use crate::{
    calibration::PartError,
    window::{Owner, RunningTime, float},
};

/// One owner's share of a socket's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnerShare {
    /// The share, in counts of the traffic's event.
    pub count: u64,
    /// Raw counts or samples of its weight.
    pub samples: u64,
    /// The variance of its weight ([`Weight::variance`]), in counts of the traffic.
    pub variance: f64,
    /// Enabled and running time of the weight's counters.
    pub time: RunningTime,
    /// Possible error of `count` by unseen owners and by traffic between sockets, in counts of the
    /// traffic.
    pub uncertainty: u64,
    /// The error of `count` by a calibration, in counts of the traffic.
    pub calibrated: PartError,
    /// Why the real share may exceed `count`. If `count` is 0, the share is unknown, not 0.
    pub why_incomplete: Option<NoShare>,
}

impl OwnerShare {
    /// A missing share, for this reason.
    pub(super) fn without(why: NoShare) -> Self {
        Self {
            why_incomplete: Some(why),
            ..Self::default()
        }
    }

    /// Adds the share of another owner of the same row.
    pub(super) fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.samples = self.samples.saturating_add(other.samples);
        self.variance += other.variance;
        self.time.add(other.time);
        self.uncertainty = self.uncertainty.saturating_add(other.uncertainty);
        self.calibrated = self.calibrated.add(&other.calibrated);
        self.why_incomplete = self.why_incomplete.or(other.why_incomplete);
    }
}

/// The measured traffic of one socket, in counts of its event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All traffic.
    pub measured: u64,
    /// Upper bound of the traffic that may lie outside the window of the weights, at both ends.
    pub skew: u64,
    /// Traffic of devices, if counted separately.
    pub io: u64,
    /// Traffic that the CPUs of each other socket counted as sent to this one. Source and
    /// destination count differently ([`Self::mismatch`]), so `measured` may contain less.
    pub from_sockets: BTreeMap<u32, u64>,
    /// Upper bound of the part of `from_sockets` that may have gone to another memory of this
    /// socket.
    pub elsewhere: u64,
    /// Largest relative difference between the counts at the source and at the destination of
    /// traffic between sockets, in thousandths ([`crate::catalogue::PmuSpec::mismatch`]).
    pub mismatch: u64,
}

/// The shares of a socket's traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// How the shares were measured.
    pub method: Method,
    /// By owner, including owners with an unknown share.
    pub owners: BTreeMap<Owner, OwnerShare>,
    /// Traffic of devices.
    pub io: u64,
    /// Traffic of unknown owners.
    pub unattributed: u64,
    /// Upper bound of the traffic that may lie outside the window of the weights.
    pub skew: u64,
    /// Sum of the variances of all owners' weights ([`OwnerShare::variance`]).
    pub variance: f64,
    /// A weight exceeded 2^64, so the shares are wrong by an unknown amount.
    pub saturated: bool,
}

/// The relative error of a share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShareError {
    /// The standard error by counting. It does not include how well the weight represents the
    /// traffic.
    Counting(f64),
    /// The whole error, by a calibration.
    Calibrated(PartError),
}

/// The errors of shares ([`Shares::errors`]).
#[derive(Clone, Copy, Debug)]
pub struct Errors<'a> {
    shares: &'a Shares,
    /// Sum of the counts of all owners.
    owners: u64,
    /// The measured traffic.
    measured: u64,
}

impl Shares {
    fn empty(method: Method) -> Self {
        Self {
            method,
            owners: BTreeMap::new(),
            io: 0,
            unattributed: 0,
            skew: 0,
            variance: 0.0,
            saturated: false,
        }
    }

    /// The shares of a device with a single owner, who gets all of its traffic.
    #[must_use]
    pub fn of_device(measured: u64, owner: Owner) -> Self {
        let mut shares = Self::empty(Method::DeviceOwner);
        let part = OwnerShare {
            count: measured,
            samples: measured,
            ..OwnerShare::default()
        };
        shares.owners.insert(owner, part);
        shares
    }

    /// The shares of a block device's traffic, by the bytes that cgroups read and wrote.
    ///
    /// # Errors
    /// No cgroup moved any bytes.
    pub fn of_block_device(
        measured: u64,
        bytes: &BTreeMap<Owner, Weight>,
    ) -> Result<Self, NoShare> {
        if bytes.values().all(|weight| weight.weight == 0) {
            return Err(NoShare::NoBytes);
        }
        let mut shares = Self::empty(Method::IoStat);
        shares.divide(measured, bytes);
        Ok(shares)
    }

    /// The measured traffic.
    #[must_use]
    pub fn measured(&self) -> u64 {
        let owners: u64 = self.owners.values().map(|share| share.count).sum();
        owners + self.io + self.unattributed
    }

    /// The relative error of one share as one number ([`Errors::of`]).
    #[must_use]
    pub fn relative_error(&self, share: &OwnerShare) -> Option<f64> {
        Some(match self.errors().of(share)? {
            ShareError::Counting(error) => error,
            ShareError::Calibrated(error) => error.all(),
        })
    }

    /// The errors of these shares, with the sums that all of them need.
    #[must_use]
    pub fn errors(&self) -> Errors<'_> {
        let owners = self.owners.values().map(|share| share.count).sum();
        Errors {
            shares: self,
            owners,
            measured: owners + self.io + self.unattributed,
        }
    }

    /// Divides as [`Self::divide`] does, and adds the uncertainties: the traffic may be `uncertain`
    /// counts more or fewer, and unseen owners may have caused a part of it. Unseen owners are
    /// assumed to cause traffic in proportion to their CPU time: each may have that part of all
    /// traffic, and the shares of other owners may be too large by the sum of these parts.
    fn divide_with_uncertainty(
        &mut self,
        count: u64,
        uncertain: u64,
        weights: &BTreeMap<Owner, Weight>,
        socket: &SocketWeights,
    ) {
        self.saturated |= socket.saturated;
        let parts = self.divide(count, weights);
        let unseen = socket
            .unseen
            .values()
            .fold(0, |sum: u64, it| sum.saturating_add(*it));
        for (owner, part) in parts {
            let share = self.owners.entry(owner).or_default();
            let uncertainty = fraction(part, unseen, socket.time);
            share.uncertainty = share.uncertainty.saturating_add(uncertainty);
        }
        let plain = weights.iter().map(|(owner, it)| (*owner, it.weight));
        let uncertain = divide(uncertain, &plain.collect()).unwrap_or_default();
        for (owner, uncertainty) in uncertain
            .into_iter()
            .filter(|(_, uncertainty)| *uncertainty > 0)
        {
            self.owners.entry(owner).or_default().add(&OwnerShare {
                uncertainty,
                why_incomplete: Some(NoShare::WithinMismatch),
                ..OwnerShare::default()
            });
        }
        for (owner, time) in &socket.unseen {
            let uncertainty = fraction(count, *time, socket.time);
            self.owners.entry(*owner).or_default().add(&OwnerShare {
                uncertainty,
                why_incomplete: Some(NoShare::OwnerUnseen),
                ..OwnerShare::default()
            });
        }
    }

    /// Marks owners that ran but had no count with a reason instead of a share.
    pub(super) fn add_uncounted(&mut self, ran: impl Iterator<Item = Owner>) {
        for owner in ran {
            let part = self.owners.entry(owner).or_default();
            if part.count == 0 && part.samples == 0 {
                part.why_incomplete.get_or_insert(NoShare::NothingCounted);
            }
        }
    }

    /// Divides `count` by the weights and adds the parts to the owners. Without weights, the count
    /// becomes unattributed. Returns the parts.
    fn divide(&mut self, count: u64, weights: &BTreeMap<Owner, Weight>) -> BTreeMap<Owner, u64> {
        let plain = weights
            .iter()
            .map(|(owner, weight)| (*owner, weight.weight));
        let Some(parts) = divide(count, &plain.collect()) else {
            self.unattributed += count;
            return BTreeMap::new();
        };
        let all: f64 = weights.values().map(|weight| float(weight.weight)).sum();
        for (owner, weight) in weights {
            let of_owner = OwnerShare {
                count: parts.get(owner).copied().unwrap_or_default(),
                samples: weight.samples,
                variance: weight.variance * (float(count) / all).powi(2),
                time: weight.time,
                ..OwnerShare::default()
            };
            self.variance += of_owner.variance;
            self.owners.entry(*owner).or_default().add(&of_owner);
        }
        parts
    }
}

impl Errors<'_> {
    /// The relative error of a share. `None` for a calibrated share that is unknown or incomplete,
    /// and for another share without samples, with a saturated weight or by a method of unknown
    /// error.
    ///
    /// The error by counting combines:
    /// - the error of the method and of the number of samples;
    /// - the error of multiplexed weights, whose variance is `v (1 - 2 p) + V p^2`: `v` is the
    ///   variance of this weight, `V` the sum of all variances, in counts of the traffic, and `p`
    ///   the share;
    /// - [`OwnerShare::uncertainty`], which is one-sided and added as it is;
    /// - the window's edges. The pull reads one CPU after the other, so any part of the traffic
    ///   meanwhile may lie outside the window: a standard deviation of `1 / sqrt(3)` of that
    ///   traffic. A single owner may have caused it, with the probability `p` this one. Relative to
    ///   the share, that is `sqrt((1 - p) / p)` times the standard deviation.
    #[must_use]
    pub fn of(&self, share: &OwnerShare) -> Option<ShareError> {
        if let Method::Calibrated(_) = self.shares.method {
            // A row of several owners is unknown if one of the owners is.
            let is_known = share.count > 0 && share.why_incomplete.is_none();
            let relative = share.calibrated.scale(float(share.count).recip());
            return is_known.then_some(ShareError::Calibrated(relative));
        }
        self.by_counting(share).map(ShareError::Counting)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "an error of more than 2^53 counts has no better precision"
    )]
    fn by_counting(&self, share: &OwnerShare) -> Option<f64> {
        let counting = self.shares.method.counting_error(share.samples)?;
        if self.shares.saturated {
            return None;
        }
        if share.count == 0 {
            return Some(counting);
        }
        let count = share.count as f64;
        let p = count / self.owners.max(share.count) as f64;
        let multiplexing = share.variance * (1.0 - 2.0 * p) + self.shares.variance * p * p;
        let scaled = hypot(counting, multiplexing.max(0.0).sqrt() / count);
        let error = hypot(scaled, share.uncertainty as f64 / count);
        if self.shares.skew == 0 {
            return Some(error);
        }
        let measured = self.measured as f64;
        let others = (measured / count - 1.0).sqrt();
        let skew = self.shares.skew as f64 / measured / 3_f64.sqrt();
        Some(hypot(error, skew * others))
    }

    /// These counts as a fraction of all measured traffic.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "the fraction of more than 2^53 counts has no better precision"
    )]
    pub fn fraction(&self, count: u64) -> f64 {
        match self.measured {
            0 => 0.0,
            measured => count as f64 / measured as f64,
        }
    }
}

impl Traffic {
    /// The largest difference between this count of the source and the destination's count.
    fn may_differ(&self, count: u64) -> u64 {
        fraction(count, self.mismatch, 1000)
    }
}
