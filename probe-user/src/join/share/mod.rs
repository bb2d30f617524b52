//! Shares: a socket's traffic by owner, by a weight that was measured for each of them on the same
//! socket in the same window.
//!
//! Only arithmetic is here. Every division is exact: the shares of all owners (system and idle are
//! among them), what devices caused, and what is unattributed add up to what was measured.

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
    method::{Method, NoShare},
    planned::MetricShares,
    weights::{SocketWeights, Weight, Weights},
};
pub(crate) use self::{monitored::monitored, planned::of_window};
use crate::window::{LiveTime, Owner, float};

/// What one owner has of a socket's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// In counts of the traffic.
    pub count: u64,
    /// Counts or samples of the weight behind it.
    pub samples: u64,
    /// The variance of its weight ([`Weight::variance`]), in counts of the traffic.
    pub variance: f64,
    /// For how long the weight's counters could have been live, and were.
    pub time: LiveTime,
    /// How far `count` may be off, in the same counts, by what could not be seen.
    pub uncertainty: u64,
    /// Why there may be more than `count`. Without any count nothing is known, which is not the
    /// same as nothing done.
    pub why_incomplete: Option<NoShare>,
}

impl Part {
    /// Takes in what another owner of the same row has.
    pub(super) fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.samples = self.samples.saturating_add(other.samples);
        self.variance += other.variance;
        self.time.add(other.time);
        self.uncertainty = self.uncertainty.saturating_add(other.uncertainty);
        self.why_incomplete = self.why_incomplete.or(other.why_incomplete);
    }
}

/// What was measured of one socket's traffic, in counts of its event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All traffic.
    pub measured: u64,
    /// The most of it that may lie outside of the window in which the weights were counted, at both
    /// ends.
    pub skew: u64,
    /// The devices' part, where it is counted apart.
    pub io: u64,
    /// What the CPUs of each other socket say they sent here. Source and destination do not count
    /// the same ([`Self::mismatch`]), so `measured` need not have all of these.
    pub from_sockets: BTreeMap<u32, u64>,
    /// How much of that may have gone to another memory of this socket, at most.
    pub elsewhere: u64,
    /// How far what the source of traffic between sockets counts may be from what its destination
    /// does, in thousandths ([`crate::catalogue::PmuSpec::mismatch`]).
    pub mismatch: u64,
}

/// Who caused a socket's traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// How it is known.
    pub method: Method,
    /// By owner; those of whom nothing is known are among them.
    pub owners: BTreeMap<Owner, Part>,
    /// Of devices.
    pub io: u64,
    /// Of no owner that is known.
    pub unattributed: u64,
    /// How much of it may lie outside of the window in which the weights were counted.
    pub skew: u64,
    /// The variance of all owners' weights ([`Part::variance`]).
    pub variance: f64,
    /// A weight was more than 2^64, so the shares are wrong by an unknown amount.
    pub saturated: bool,
}

/// The errors of shares ([`Shares::errors`]).
#[derive(Clone, Copy, Debug)]
pub struct Errors<'a> {
    shares: &'a Shares,
    /// Counts of all owners.
    owners: u64,
    /// All that was measured.
    measured: u64,
}

impl Shares {
    fn none(method: Method) -> Self {
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

    /// All of a device's traffic to its only owner.
    #[must_use]
    pub fn of_device(measured: u64, owner: Owner) -> Self {
        let mut shares = Self::none(Method::DeviceOwner);
        let part = Part {
            count: measured,
            samples: measured,
            ..Part::default()
        };
        shares.owners.insert(owner, part);
        shares
    }

    /// A block device's traffic by what cgroups read from it and wrote to it.
    ///
    /// # Errors
    /// Nobody did.
    pub fn of_block_device(
        measured: u64,
        bytes: &BTreeMap<Owner, Weight>,
    ) -> Result<Self, NoShare> {
        if bytes.values().all(|weight| weight.weight == 0) {
            return Err(NoShare::NoBytes);
        }
        let mut shares = Self::none(Method::IoStat);
        shares.divide(measured, bytes);
        Ok(shares)
    }

    /// What was measured.
    #[must_use]
    pub fn measured(&self) -> u64 {
        let owners: u64 = self.owners.values().map(|share| share.count).sum();
        owners + self.io + self.unattributed
    }

    /// The error of one share ([`Errors::of`]).
    #[must_use]
    pub fn counting_error(&self, share: &Part) -> Option<f64> {
        self.errors().of(share)
    }

    /// What the errors of all shares need, added up once.
    #[must_use]
    pub fn errors(&self) -> Errors<'_> {
        let owners = self.owners.values().map(|share| share.count).sum();
        Errors {
            shares: self,
            owners,
            measured: owners + self.io + self.unattributed,
        }
    }

    /// Divides as [`Self::divide`] does, and adds what is uncertain: `apart` counts more or fewer,
    /// and what owners that were not seen may have caused. These are taken to cause traffic in
    /// proportion to their CPU time: each may have that part of all, and the others too much by the
    /// sum.
    fn divide_seen(
        &mut self,
        count: u64,
        apart: u64,
        weights: &BTreeMap<Owner, Weight>,
        of: &SocketWeights,
    ) {
        self.saturated |= of.saturated;
        let parts = self.divide(count, weights);
        let unseen = of
            .unseen
            .values()
            .fold(0, |sum: u64, it| sum.saturating_add(*it));
        for (owner, part) in parts {
            let share = self.owners.entry(owner).or_default();
            let uncertainty = fraction(part, unseen, of.time);
            share.uncertainty = share.uncertainty.saturating_add(uncertainty);
        }
        let plain = weights.iter().map(|(owner, it)| (*owner, it.weight));
        let apart = divide(apart, &plain.collect()).unwrap_or_default();
        for (owner, uncertainty) in apart
            .into_iter()
            .filter(|(_, uncertainty)| *uncertainty > 0)
        {
            self.owners.entry(owner).or_default().add(&Part {
                uncertainty,
                why_incomplete: Some(NoShare::WithinMismatch),
                ..Part::default()
            });
        }
        for (owner, time) in &of.unseen {
            let uncertainty = fraction(count, *time, of.time);
            self.owners.entry(*owner).or_default().add(&Part {
                uncertainty,
                why_incomplete: Some(NoShare::OwnerUnseen),
                ..Part::default()
            });
        }
    }

    /// Gives owners that ran, and of which nothing was counted, the reason in place of a share.
    pub(super) fn add_uncounted(&mut self, ran: impl Iterator<Item = Owner>) {
        for owner in ran {
            let part = self.owners.entry(owner).or_default();
            if part.count == 0 && part.samples == 0 {
                part.why_incomplete.get_or_insert(NoShare::NothingCounted);
            }
        }
    }

    /// Divides `count` among the weights, and adds the parts; without weights it stays
    /// unattributed. Returns the parts.
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
            let of_owner = Part {
                count: parts.get(owner).copied().unwrap_or_default(),
                samples: weight.samples,
                variance: weight.variance * (float(count) / all).powi(2),
                time: weight.time,
                ..Part::default()
            };
            self.variance += of_owner.variance;
            self.owners.entry(*owner).or_default().add(&of_owner);
        }
        parts
    }
}

impl Errors<'_> {
    /// Standard error of a share by the way it was counted, as a part of it; `None` where it has no
    /// samples or the method's own error is not known. How well the weight stands for the traffic
    /// is not in it.
    ///
    /// That of the method, of the number of samples, and of the window's edges: anything from none
    /// to all of the traffic that came while the pull read one CPU after the other may lie outside,
    /// whose standard deviation is `1 / sqrt(3)` of it, and all of that may be somebody's, with the
    /// probability of that one's share `p`, which makes it `sqrt((1 - p) / p)` of the share. Of
    /// weights that were not live all the time it has the error of what was estimated: with the
    /// variance `v` of this weight and `V` of all, in counts of the traffic, `v (1 - 2 p) + V p^2`.
    /// What could not be seen ([`Part::uncertainty`]) is off to one side, and is taken as it is.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an error of more than 2^53 counts has no better precision"
    )]
    pub fn of(&self, share: &Part) -> Option<f64> {
        let own = self.shares.method.counting_error(share.samples)?;
        if self.shares.saturated {
            return None;
        }
        if share.count == 0 {
            return Some(own);
        }
        let count = share.count as f64;
        let p = count / self.owners.max(share.count) as f64;
        let turns = share.variance * (1.0 - 2.0 * p) + self.shares.variance * p * p;
        let own = hypot(own, turns.max(0.0).sqrt() / count);
        let own = hypot(own, share.uncertainty as f64 / count);
        if self.shares.skew == 0 {
            return Some(own);
        }
        let measured = self.measured as f64;
        let others = (measured / count - 1.0).sqrt();
        let skew = self.shares.skew as f64 / measured / 3_f64.sqrt();
        Some(hypot(own, skew * others))
    }

    /// The part of all traffic that so many of its counts are.
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
    /// How many of the counts of a source the destination may not have, or have more.
    fn may_differ(&self, count: u64) -> u64 {
        fraction(count, self.mismatch, 1000)
    }
}
