//! Shares: whose a socket's traffic is, by a weight that was measured for each owner on the same
//! socket in the same window.
//!
//! Only arithmetic is here. Every division is exact: the shares of all owners (system and idle are
//! among them), what devices caused, and what nobody can be told for add up to what was measured.

mod counted;
mod device;
mod divide;
mod method;
mod monitored;
mod planned;
mod sampled;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::divide::{divide, fraction, limited};
pub use self::{
    method::{Method, NoShare},
    planned::MetricShares,
};
pub(crate) use self::{monitored::monitored, planned::of_window};
use crate::window::Owner;

/// What one owner is known to have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// In any unit, the same for all owners.
    pub weight: u64,
    /// Counts or samples behind it: their number bounds its error.
    pub samples: u64,
}

/// What one owner has of a socket's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// In counts of the traffic.
    pub count: u64,
    /// Counts or samples of the weight behind it.
    pub samples: u64,
    /// How far `count` may be off, in the same counts, by what could not be seen.
    pub uncertainty: u64,
    /// Why there may be more than `count`. Without any count nothing is known, which is not the
    /// same as nothing done.
    pub why_incomplete: Option<NoShare>,
}

impl Part {
    /// Takes in what another owner of the same row has.
    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.samples += other.samples;
        self.uncertainty = self.uncertainty.saturating_add(other.uncertainty);
        self.why_incomplete = self.why_incomplete.or(other.why_incomplete);
    }
}

/// What was measured on the CPUs of one socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketWeights {
    /// Accesses to memory of this socket; of any memory where the method cannot tell.
    pub local: BTreeMap<Owner, Weight>,
    /// Accesses to memory of other sockets; the same as `local` where the method cannot tell.
    pub remote: BTreeMap<Owner, Weight>,
    /// Whether the method tells them apart.
    pub apart: bool,
    /// Who ran only while the counters were rotated out, with the CPU time of each in ns: what
    /// these did is not known, which is not the same as nothing. The idle task's time counts as
    /// none, since it tells of no traffic.
    pub unseen: BTreeMap<Owner, u64>,
    /// CPU time of all owners but the idle task, in ns; 0 where it does not matter, as nobody is
    /// unseen.
    pub time: u64,
    /// The counters were rotated out for all owners, or for most of their time.
    pub rotated_out: bool,
}

/// Weights by one method, of one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    /// How they were measured.
    pub method: Method,
    /// By the socket of the CPUs.
    pub sockets: BTreeMap<u32, SocketWeights>,
}

/// What was measured of one socket's traffic, in counts of its event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All of it.
    pub measured: u64,
    /// The most of it that may lie outside of the window in which the weights were counted, at both
    /// ends.
    pub skew: u64,
    /// The part of devices, where it is counted apart.
    pub io: u64,
    /// What the CPUs of each other socket say they sent here. Source and destination do not count
    /// the same ([`Self::mismatch`]), so these are no part of `measured` to the last count.
    pub from_sockets: BTreeMap<u32, u64>,
    /// How far what the source of traffic between sockets counts may be from what its destination
    /// does, in thousandths ([`crate::catalogue::PmuSpec::mismatch`]).
    pub mismatch: u64,
}

/// Whose a socket's traffic is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// How it is known.
    pub method: Method,
    /// By owner; those of whom nothing is known are among them.
    pub owners: BTreeMap<Owner, Part>,
    /// Of devices.
    pub io: u64,
    /// Of nobody that can be told.
    pub unattributed: u64,
    /// How much of it may lie outside of the window in which the weights were counted.
    pub skew: u64,
}

impl Weights {
    /// The first of several, best first, that says something about this socket.
    ///
    /// # Errors
    /// None does: with the reason of the best.
    pub fn best(all: &[Self], socket: u32) -> Result<&Self, NoShare> {
        let mut why = NoShare::NoWeight;
        for weights in all {
            match weights.sockets.get(&socket) {
                Some(of_socket) if of_socket.rotated_out => why = NoShare::RotatedOut,
                Some(of_socket) if of_socket.total() > 0 => return Ok(weights),
                Some(_) | None => {}
            }
        }
        Err(why)
    }

    /// Whose reads the traffic to the memory of a socket is: devices' first, then that of other
    /// sockets by their remote weights, the rest by the local weights of its own CPUs.
    ///
    /// Of `r` counts that other sockets sent, up to `d = m r` more or fewer may be here, by the
    /// mismatch `m`. So the first `d` of the rest are nobody's: they may be more of the same. To
    /// the `L` counts that are left then, these may have to be added, and as many of the remote
    /// ones: an error of up to `2 d / L` of each local share, and of `m` of each remote one. Where
    /// nothing is left (the source counts as much as the destination, or more), of those with a
    /// local weight nothing is known.
    ///
    /// # Errors
    /// A socket that took part has no weights, or they were rotated out.
    pub fn cpu_reads(&self, socket: u32, traffic: &Traffic) -> Result<Shares, NoShare> {
        let mut shares = Shares::none(self.method);
        shares.skew = traffic.skew;
        shares.io = traffic.io.min(traffic.measured);
        let mut left = traffic.measured - shares.io;
        let mut remote = 0;
        for (other, count) in limited(left, &traffic.from_sockets) {
            if count > 0 {
                let of_other = self.of(other)?;
                shares.divide_seen(count, traffic.may_differ(count), &of_other.remote, of_other);
                remote += count;
            }
        }
        left -= remote;
        let apart = traffic.may_differ(remote);
        let nobodys = apart.min(left);
        shares.unattributed += nobodys;
        let own = self.of(socket)?;
        let apart = apart.saturating_add(nobodys);
        shares.divide_seen(left - nobodys, apart, &own.local, own);
        Ok(shares)
    }

    /// Whose the traffic is that only CPUs of this socket caused: reads of remote memory by its
    /// remote weights, those of any memory by both.
    ///
    /// # Errors
    /// The socket has no weights, or they were rotated out.
    pub fn own(&self, socket: u32, traffic: &Traffic, of_remote: bool) -> Result<Shares, NoShare> {
        let weights = self.of(socket)?;
        let mut shares = Shares::none(self.method);
        shares.skew = traffic.skew;
        if of_remote {
            shares.divide_seen(traffic.measured, 0, &weights.remote, weights);
        } else {
            shares.divide_seen(traffic.measured, 0, &weights.all(), weights);
        }
        Ok(shares)
    }

    fn of(&self, socket: u32) -> Result<&SocketWeights, NoShare> {
        let weights = self.sockets.get(&socket).ok_or(NoShare::NoWeight)?;
        if weights.rotated_out {
            Err(NoShare::RotatedOut)
        } else {
            Ok(weights)
        }
    }
}

impl SocketWeights {
    /// Of local and remote accesses together; where the method cannot tell them apart, both are
    /// all.
    fn all(&self) -> BTreeMap<Owner, Weight> {
        if !self.apart {
            return self.local.clone();
        }
        let mut all = self.local.clone();
        for (owner, remote) in &self.remote {
            let weight = all.entry(*owner).or_default();
            weight.weight += remote.weight;
            weight.samples += remote.samples;
        }
        all
    }

    fn total(&self) -> u128 {
        let all = self.local.values().chain(self.remote.values());
        all.map(|weight| u128::from(weight.weight)).sum()
    }
}

impl Shares {
    fn none(method: Method) -> Self {
        Self {
            method,
            owners: BTreeMap::new(),
            io: 0,
            unattributed: 0,
            skew: 0,
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

    /// Standard error of a share, as a part of it; `None` where it has no samples or the method's
    /// own error is not known.
    ///
    /// That of the method, of the number of samples, and of the window's edges: anything from none
    /// to all of the traffic that came while the pull read one CPU after the other may lie outside,
    /// whose standard deviation is `1 / sqrt(3)` of it, and all of that may be somebody's, with the
    /// probability of that one's share `p`, which makes it `sqrt((1 - p) / p)` of the share. What
    /// could not be seen ([`Part::uncertainty`]) is off to one side, and is taken as it is.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an error of more than 2^53 counts has no better precision"
    )]
    pub fn rel_error(&self, share: &Part) -> Option<f64> {
        let own = self.method.rel_error(share.samples)?;
        if share.count == 0 {
            return Some(own);
        }
        let count = share.count as f64;
        let own = own.hypot(share.uncertainty as f64 / count);
        if self.skew == 0 {
            return Some(own);
        }
        let measured = self.measured() as f64;
        let others = (measured / count - 1.0).sqrt();
        let skew = self.skew as f64 / measured / 3_f64.sqrt();
        Some(own.hypot(skew * others))
    }

    /// The same as [`Self::divide`], of counts of which there may be `apart` more or fewer, and of
    /// which owners that were not seen may have caused a part: if they caused traffic in proportion
    /// to their CPU time, each of them that part of all, and the others have too much by the sum of
    /// it.
    fn divide_seen(
        &mut self,
        count: u64,
        apart: u64,
        weights: &BTreeMap<Owner, Weight>,
        of: &SocketWeights,
    ) {
        let parts = self.divide(count, weights);
        let unseen: u64 = of.unseen.values().sum();
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

    /// Adds `count`, divided by these weights; to nobody where there are none. Returns what each
    /// got.
    fn divide(&mut self, count: u64, weights: &BTreeMap<Owner, Weight>) -> BTreeMap<Owner, u64> {
        let plain = weights
            .iter()
            .map(|(owner, weight)| (*owner, weight.weight));
        let Some(parts) = divide(count, &plain.collect()) else {
            self.unattributed += count;
            return BTreeMap::new();
        };
        for (owner, part) in &parts {
            let share = self.owners.entry(*owner).or_default();
            share.count += part;
            share.samples += weights.get(owner).map_or(0, |weight| weight.samples);
        }
        parts
    }
}

impl Traffic {
    /// How many of the counts of a source the destination may not have, or have more.
    fn may_differ(&self, count: u64) -> u64 {
        fraction(count, self.mismatch, 1000)
    }
}
