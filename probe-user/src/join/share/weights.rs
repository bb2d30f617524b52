//! Weights: what each owner is known to have done, and the divisions by it.

use std::collections::BTreeMap;

use super::{
    Method, NoShare, Shares, Traffic,
    divide::{fraction, limited},
};
use crate::{
    catalogue::Of,
    window::{LiveTime, Owner, float},
};

/// What one owner is known to have done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weight {
    /// In any unit, the same for all owners. It is at most 2^64 - 1
    /// ([`SocketWeights::saturated`]).
    pub weight: u64,
    /// Counts or samples behind it: their number bounds its error.
    pub samples: u64,
    /// The variance of `weight`, as far as it is an estimate of what the counters would have
    /// counted while they were not live.
    pub variance: f64,
    /// For how long its counters could have been live, and were.
    pub time: LiveTime,
}

impl Weight {
    /// In the proportion of two others, whose own errors make one of both parts; all of it to the
    /// first where these are nothing.
    fn divided(&self, local: &Self, remote: &Self) -> (Self, Self) {
        // Halves, so that the sum is no overflow.
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
        let part = |of: u64, part: f64| Self {
            weight: fraction(self.weight, of, sum),
            samples: fraction(self.samples, of, sum),
            variance: self.variance * part.powi(2) + float(self.weight).powi(2) * of_part,
            time: self.time,
        };
        (part(l, l_part), part(r, r_part))
    }

    /// Adds the same owner's accesses to other memory, which the same counters counted. Returns
    /// whether the sum is more than it can hold.
    fn add(&mut self, other: &Self) -> bool {
        let sum = self.weight.checked_add(other.weight);
        self.weight = sum.unwrap_or(u64::MAX);
        self.samples = self.samples.saturating_add(other.samples);
        self.variance += other.variance;
        sum.is_none()
    }
}

/// What was measured on the CPUs of one socket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SocketWeights {
    /// Accesses to memory of this socket; of any memory where the method cannot tell.
    pub local: BTreeMap<Owner, Weight>,
    /// Accesses to memory of other sockets; the same as `local` where the method cannot tell.
    pub remote: BTreeMap<Owner, Weight>,
    /// Whether the method tells them apart.
    pub apart: bool,
    /// Owners that ran mostly while the counters were rotated out, with the CPU time of each in ns:
    /// what they did is not known, which is not the same as nothing. The idle task's time counts as
    /// none, since it tells of no traffic.
    pub unseen: BTreeMap<Owner, u64>,
    /// CPU time of all owners but the idle task, in ns; 0 where it does not matter, as nobody is
    /// unseen.
    pub time: u64,
    /// The counters were rotated out for all owners, or for most of their time.
    pub rotated_out: bool,
    /// A weight was more than 2^64, so that the shares are wrong.
    pub saturated: bool,
}

/// Weights by one method, of one window.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// How they were measured.
    pub method: Method,
    /// The traffic that they are weights of.
    pub of: Of,
    /// Whether accesses to the memory of other sockets are counted in the same unit as those to the
    /// own socket's, so that both together divide what a memory controller counts.
    pub by_memory: bool,
    /// By the socket of the CPUs.
    pub sockets: BTreeMap<u32, SocketWeights>,
}

impl Weights {
    /// Whether it says something about a socket.
    ///
    /// # Errors
    /// Why it does not.
    pub fn tells_of(&self, socket: u32) -> Result<(), NoShare> {
        match self.of(socket)?.total() {
            0 => Err(NoShare::NoWeight),
            _ => Ok(()),
        }
    }

    /// Whose reads the traffic to the memory of a socket is: devices' first, then that of other
    /// sockets by their remote weights, the rest by the local weights of its own CPUs.
    ///
    /// Of `r` counts that other sockets sent, up to `d = m r` more or fewer may be here, by the
    /// mismatch `m`. So the first `d` of the rest are nobody's: they may be more of the same. To
    /// the `L` counts that are left then, these may have to be added, and as many of the remote
    /// ones: an error of up to `2 d / L` of each local share, and of `m` of each remote one. Where
    /// nothing is left (the source counts as much as the destination, or more), of those with a
    /// local weight nothing is known. What may have gone to other memory here
    /// ([`Traffic::elsewhere`]) is an error of both in the same way, but nobody's count.
    ///
    /// # Errors
    /// A socket that took part has no weights, or they were rotated out.
    pub fn cpu_reads(&self, socket: u32, traffic: &Traffic) -> Result<Shares, NoShare> {
        let mut shares = Shares::none(self.method.clone());
        shares.skew = traffic.skew;
        shares.io = traffic.io.min(traffic.measured);
        let mut left = traffic.measured - shares.io;
        let mut remote = 0;
        for (other, count) in limited(left, &traffic.from_sockets) {
            if count > 0 {
                let of_other = self.of(other)?;
                let apart = traffic.may_differ(count);
                let apart = apart.saturating_add(traffic.elsewhere.min(count));
                shares.divide_seen(count, apart, &of_other.remote, of_other);
                remote += count;
            }
        }
        left -= remote;
        let apart = traffic.may_differ(remote);
        let nobodys = apart.min(left);
        shares.unattributed += nobodys;
        let own = self.of(socket)?;
        let apart = apart.saturating_add(nobodys);
        let apart = apart.saturating_add(traffic.elsewhere.min(remote));
        shares.divide_seen(left - nobodys, apart, &own.local, own);
        Ok(shares)
    }

    /// Whether an owner's accesses on a socket were counted, to any memory.
    pub(super) fn has_counted(&self, socket: u32, owner: Owner) -> bool {
        let of = |weights: &BTreeMap<Owner, Weight>| {
            weights.get(&owner).is_some_and(|weight| weight.samples > 0)
        };
        let of_socket = self.sockets.get(&socket);
        of_socket.is_some_and(|weights| of(&weights.local) || of(&weights.remote))
    }

    /// Whose the traffic to the memory of a socket is where the CPUs of two sockets cause it and
    /// nothing counts how much each did: devices' first, the rest in one by the local weights of
    /// its own CPUs and the remote weights of the other socket's.
    ///
    /// # Errors
    /// A socket has no weights, or they were rotated out, or they do not tell by memory.
    pub fn two_sockets(
        &self,
        socket: u32,
        other: u32,
        traffic: &Traffic,
    ) -> Result<Shares, NoShare> {
        if !self.by_memory {
            return Err(NoShare::OtherSockets);
        }
        let (own, other) = (self.of(socket)?, self.of(other)?);
        let mut both = own.clone();
        for (owner, remote) in &other.remote {
            let weight = both.local.entry(*owner).or_default();
            both.saturated |= weight.add(remote);
            weight.time.add(remote.time);
        }
        for (owner, time) in &other.unseen {
            let sum = both.unseen.entry(*owner).or_default();
            *sum = sum.saturating_add(*time);
        }
        both.time = both.time.saturating_add(other.time);
        both.saturated |= other.saturated;
        let mut shares = Shares::none(self.method.clone());
        shares.skew = traffic.skew;
        shares.io = traffic.io.min(traffic.measured);
        shares.divide_seen(traffic.measured - shares.io, 0, &both.local, &both);
        Ok(shares)
    }

    /// Divides each weight between the memory of its own socket and that of others as `like` was. A
    /// model: nothing says to which memory they went. Who has no weights in `like` writes at home;
    /// of whom `like` knows nothing, nothing is known here.
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
                    of_socket.unseen.insert(owner, all.time.enabled);
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

    /// Whose the traffic is that only CPUs of this socket caused: reads of remote memory by its
    /// remote weights, those of any memory by both.
    ///
    /// # Errors
    /// The socket has no weights, or they were rotated out.
    pub fn own(&self, socket: u32, traffic: &Traffic, of_remote: bool) -> Result<Shares, NoShare> {
        let weights = self.of(socket)?;
        let mut shares = Shares::none(self.method.clone());
        shares.skew = traffic.skew;
        if of_remote {
            shares.divide_seen(traffic.measured, 0, &weights.remote, weights);
        } else {
            let (all, saturated) = weights.all();
            shares.saturated = saturated;
            shares.divide_seen(traffic.measured, 0, &all, weights);
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
    /// all. With whether a sum is more than it can hold.
    fn all(&self) -> (BTreeMap<Owner, Weight>, bool) {
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
