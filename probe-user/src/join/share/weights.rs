//! Weights: the accesses that were counted or sampled for each owner, and the divisions of traffic
//! by them.

use std::collections::BTreeMap;

use super::{
    Method, NoShare, Shares, Traffic,
    divide::{fraction, limited},
};
use crate::{
    catalogue::MemoryTraffic,
    window::{Owner, RunningTime, float},
};

/// The counted or sampled accesses of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weight {
    /// In any unit, the same for all owners. It saturates at 2^64 - 1
    /// ([`SocketWeights::saturated`]).
    pub weight: u64,
    /// The number of raw counts or samples of the weight, on which its error depends.
    pub samples: u64,
    /// The variance of `weight`, which comes from its estimated part: the counts while the counters
    /// were not running.
    pub variance: f64,
    /// Enabled and running time of its counters.
    pub time: RunningTime,
}

impl Weight {
    /// Divides this weight into two parts, in the proportion of `local` to `remote`. The variances
    /// of these add to the variance of each part. If `local` and `remote` are 0, the first part is
    /// the whole weight.
    fn divided(&self, local: &Self, remote: &Self) -> (Self, Self) {
        // Halves, so that the sum does not overflow.
        let (l, r) = (local.weight / 2, remote.weight / 2);
        let Some(sum) = l.checked_add(r).filter(|sum| *sum > 0) else {
            let none = Self {
                time: self.time,
                ..Self::default()
            };
            return (*self, none);
        };
        let [l_part, r_part] = [l, r].map(|it| float(it) / float(sum));
        let of_part = (r_part.powi(2) * local.variance + l_part.powi(2) * remote.variance)
            / (2.0 * float(sum)).powi(2);
        let part = |weight: u64, part: f64| Self {
            weight: fraction(self.weight, weight, sum),
            samples: fraction(self.samples, weight, sum),
            variance: self.variance * part.powi(2) + float(self.weight).powi(2) * of_part,
            time: self.time,
        };
        (part(l, l_part), part(r, r_part))
    }

    /// Adds the same owner's accesses to other memory. The same counters counted them, so the time
    /// stays. Returns whether the sum overflowed.
    pub(super) fn add(&mut self, other: &Self) -> bool {
        let sum = self.weight.checked_add(other.weight);
        self.weight = sum.unwrap_or(u64::MAX);
        self.samples = self.samples.saturating_add(other.samples);
        self.variance += other.variance;
        sum.is_none()
    }
}

/// Which of the accesses that a socket's CPUs made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accesses {
    /// To any memory.
    All,
    /// To the memory of that socket.
    Local,
    /// To the memory of other sockets.
    Remote,
}

/// The weights of the CPUs of one socket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SocketWeights {
    /// Accesses to memory of this socket, or to any memory if the method cannot distinguish.
    pub local: BTreeMap<Owner, Weight>,
    /// Accesses to memory of other sockets; the same as `local` if the method cannot distinguish.
    pub remote: BTreeMap<Owner, Weight>,
    /// Whether the method distinguishes local and remote accesses.
    pub apart: bool,
    /// Owners that ran mostly while the counters were rotated out, with the CPU time of each in ns:
    /// their accesses are unknown, not zero. The idle task's time counts as 0, since it causes no
    /// traffic.
    pub unseen: BTreeMap<Owner, u64>,
    /// CPU time of all owners but the idle task, in ns. Sampled weights leave it 0: it matters only
    /// if an owner is unseen.
    pub time: u64,
    /// Whether the counters were rotated out for all owners, or for most of their time.
    pub rotated_out: bool,
    /// Whether a weight exceeded 2^64, so that the shares are wrong.
    pub saturated: bool,
}

/// Weights by one method, of one window.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// How they were measured.
    pub method: Method,
    /// The kind of traffic.
    pub of: MemoryTraffic,
    /// Whether local and remote accesses are counted in the same unit, so that both together can
    /// divide the counts of a memory controller.
    pub by_memory: bool,
    /// By the socket of the CPUs.
    pub sockets: BTreeMap<u32, SocketWeights>,
}

impl Weights {
    /// Checks that a socket has weights above 0.
    ///
    /// # Errors
    /// The reason, if it has none.
    pub fn tells_of(&self, socket: u32) -> Result<(), NoShare> {
        match self.socket_weights(socket)?.total() {
            0 => Err(NoShare::NoWeight),
            _ => Ok(()),
        }
    }

    /// Divides the traffic to the memory of a socket: devices' traffic first, then the traffic of
    /// other sockets by their remote weights, the rest by the local weights of its own CPUs.
    ///
    /// If other sockets sent `r` counts and the mismatch is `m`, up to `d = m r` counts more or
    /// fewer may have arrived. So the first `d` counts of the rest are unattributed: they may be
    /// remote too. Let `L` be the counts left after that. Each local share has an error of up to
    /// `2 d / L`, since the unattributed counts, and as many of the remote counts, may be local.
    /// Each remote share has an error of up to `m`. If nothing is left (the source counts as much
    /// as the destination, or more), the shares of owners with a local weight are unknown. Traffic
    /// that may have gone to other memory of this socket ([`Traffic::elsewhere`]) adds to the error
    /// of local and remote shares in the same way, but leaves no count unattributed.
    ///
    /// # Errors
    /// A socket that took part has no weights, or they were rotated out.
    pub fn cpu_reads(&self, socket: u32, traffic: &Traffic) -> Result<Shares, NoShare> {
        let mut shares = Shares::empty(self.method.clone());
        shares.skew = traffic.skew;
        shares.io = traffic.io.min(traffic.measured);
        let mut left = traffic.measured - shares.io;
        let mut remote = 0;
        for (other, count) in limited(left, &traffic.from_sockets) {
            if count > 0 {
                let of_other = self.socket_weights(other)?;
                let apart = traffic
                    .may_differ(count)
                    .saturating_add(traffic.elsewhere.min(count));
                shares.divide_with_uncertainty(count, apart, &of_other.remote, of_other);
                remote += count;
            }
        }
        left -= remote;
        let apart = traffic.may_differ(remote);
        let unattributed = apart.min(left);
        shares.unattributed += unattributed;
        let own = self.socket_weights(socket)?;
        let uncertain = apart
            .saturating_add(unattributed)
            .saturating_add(traffic.elsewhere.min(remote));
        shares.divide_with_uncertainty(left - unattributed, uncertain, &own.local, own);
        Ok(shares)
    }

    /// Whether any accesses of an owner on a socket were counted.
    pub(super) fn has_counted(&self, socket: u32, owner: Owner) -> bool {
        let of_socket = self.sockets.get(&socket);
        of_socket.is_some_and(|weights| weights.has_counted(owner))
    }

    /// Divides the traffic to the memory of a socket if the CPUs of two sockets caused it and the
    /// traffic of each is not counted: devices' traffic first, the rest by the local weights of its
    /// own CPUs together with the remote weights of the other socket's.
    ///
    /// # Errors
    /// A socket has no weights, or they were rotated out, or are not [by memory](Self::by_memory).
    pub fn two_sockets(
        &self,
        socket: u32,
        other: u32,
        traffic: &Traffic,
    ) -> Result<Shares, NoShare> {
        if !self.by_memory {
            return Err(NoShare::OtherSockets);
        }
        let (own, other) = (self.socket_weights(socket)?, self.socket_weights(other)?);
        let mut together = own.clone();
        for (owner, remote) in &other.remote {
            let weight = together.local.entry(*owner).or_default();
            together.saturated |= weight.add(remote);
            weight.time.add(remote.time);
        }
        for (owner, time) in &other.unseen {
            let sum = together.unseen.entry(*owner).or_default();
            *sum = sum.saturating_add(*time);
        }
        together.time = together.time.saturating_add(other.time);
        together.saturated |= other.saturated;
        let mut shares = Shares::empty(self.method.clone());
        shares.skew = traffic.skew;
        shares.io = traffic.io.min(traffic.measured);
        shares.divide_with_uncertainty(traffic.measured - shares.io, 0, &together.local, &together);
        Ok(shares)
    }

    /// Splits each weight into local and remote accesses in the proportion of `like`. This is a
    /// model: the memory that was accessed is not measured. An owner with zero weights in `like`
    /// gets only local accesses; an owner that `like` lacks becomes unseen.
    #[must_use]
    pub fn by_memory_like(mut self, like: &Self) -> Self {
        self.by_memory = like.by_memory;
        for (socket, of_socket) in &mut self.sockets {
            let Some(like) = like.sockets.get(socket) else {
                of_socket.rotated_out = true;
                continue;
            };
            of_socket.rotated_out |= like.rotated_out;
            of_socket.saturated |= like.saturated;
            for (owner, all) in std::mem::take(&mut of_socket.local) {
                let (Some(local), Some(remote)) = (like.local.get(&owner), like.remote.get(&owner))
                else {
                    of_socket.remote.remove(&owner);
                    // The time of an unseen idle task is 0.
                    let unseen = like.unseen.get(&owner).copied();
                    let unseen = unseen.unwrap_or(all.time.enabled);
                    of_socket.unseen.insert(owner, unseen);
                    continue;
                };
                let (here, there) = all.divided(local, remote);
                of_socket.local.insert(owner, here);
                of_socket.remote.insert(owner, there);
            }
            of_socket.apart = true;
        }
        self
    }

    /// Divides traffic that only CPUs of this socket caused: reads of remote memory by its remote
    /// weights, reads of any memory by both.
    ///
    /// # Errors
    /// The socket has no weights, or they were rotated out.
    pub fn own(&self, socket: u32, traffic: &Traffic, of_remote: bool) -> Result<Shares, NoShare> {
        let weights = self.socket_weights(socket)?;
        let mut shares = Shares::empty(self.method.clone());
        shares.skew = traffic.skew;
        if of_remote {
            shares.divide_with_uncertainty(traffic.measured, 0, &weights.remote, weights);
        } else {
            let (all, saturated) = weights.local_and_remote();
            shares.saturated = saturated;
            shares.divide_with_uncertainty(traffic.measured, 0, &all, weights);
        }
        Ok(shares)
    }

    /// The weights of all owners on a socket for these accesses; `None` if some of them are
    /// unknown.
    pub(crate) fn all_of(
        &self,
        socket: u32,
        accesses: Accesses,
    ) -> Option<impl Iterator<Item = u64>> {
        let of_socket = self.socket_weights(socket).ok()?;
        let (all, saturated) = match accesses {
            Accesses::All => of_socket.local_and_remote(),
            Accesses::Local => (of_socket.local.clone(), false),
            Accesses::Remote => (of_socket.remote.clone(), false),
        };
        let is_complete = !saturated && !of_socket.saturated && of_socket.unseen.is_empty();
        is_complete.then(|| all.into_values().map(|weight| weight.weight))
    }

    fn socket_weights(&self, socket: u32) -> Result<&SocketWeights, NoShare> {
        let weights = self.sockets.get(&socket).ok_or(NoShare::NoWeight)?;
        if weights.rotated_out {
            Err(NoShare::RotatedOut)
        } else {
            Ok(weights)
        }
    }
}

impl SocketWeights {
    /// Whether any accesses of an owner were counted.
    pub(super) fn has_counted(&self, owner: Owner) -> bool {
        let both = [&self.local, &self.remote].into_iter();
        let mut weights = both.filter_map(|weights| weights.get(&owner));
        weights.any(|weight| weight.samples > 0)
    }

    /// Whether the counts of an owner are an estimate for more than a twentieth of its time.
    pub(super) fn is_multiplexed(&self) -> bool {
        let mut all = self.local.values().chain(self.remote.values());
        all.any(|weight| weight.time.running_ratio() < 0.95)
    }

    /// The weights of local and remote accesses together, and whether a sum overflowed. If the
    /// method cannot distinguish them, `local` has both.
    fn local_and_remote(&self) -> (BTreeMap<Owner, Weight>, bool) {
        let mut all = self.local.clone();
        let mut saturated = false;
        if self.apart {
            for (owner, remote) in &self.remote {
                saturated |= all.entry(*owner).or_default().add(remote);
            }
        }
        (all, saturated)
    }

    fn total(&self) -> u128 {
        let all = self.local.values().chain(self.remote.values());
        all.map(|weight| u128::from(weight.weight)).sum()
    }
}
