//! Shares by a calibration of this machine.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use super::{
    Accesses, Method, NoShare, OwnerShare, Shares, SocketWeights, Traffic, Weight, Weights,
};
use crate::{
    calibration::{CalibratedTraffic, EventCounts, MadeOn, NoEstimate, NoPart, OwnerCounts},
    window::{Owner, RunningTime, float},
};

/// The CPUs that access a memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sockets {
    /// The socket of the memory.
    pub(super) own: u32,
    /// The other socket, on machines with two.
    pub(super) other: Option<u32>,
}

/// The shares of the traffic of a socket's memory, by what the calibration says about the counts.
/// `None` if the calibration does not apply: its events were not counted on each socket, or, with
/// two sockets, do not distinguish the memories, were multiplexed, or were not calibrated for the
/// other one.
///
/// A row has one share, which its first owner gets: the mixtures of several owners together are
/// the mixtures of the sum of their counts. `ran`: the owners that ran on these sockets.
pub(super) fn shares<R: Ord>(
    calibrated: &CalibratedTraffic,
    made_on: MadeOn,
    weights: &[Weights],
    sockets: Sockets,
    traffic: &Traffic,
    ran: impl Iterator<Item = Owner>,
    row_of: impl Fn(Owner) -> R,
) -> Option<Result<Shares, NoShare>> {
    let events_on = |socket: u32| -> Option<Vec<&SocketWeights>> {
        (calibrated.events.iter())
            .map(|event| weights_of_event(weights, event)?.sockets.get(&socket))
            .collect()
    };
    let own = events_on(sockets.own)?;
    let other = match sockets.other {
        Some(other) => Some(events_on(other)?),
        None => None,
    };
    let all: Vec<&SocketWeights> = own.iter().chain(other.iter().flatten()).copied().collect();
    // The counts while a group was off the PMU are estimated from all CPUs of an owner, and what
    // is local to one socket is remote to the other.
    let is_of_use = |event: &&SocketWeights| event.apart && !event.is_multiplexed();
    if other.is_some() && (calibrated.remote.is_empty() || !all.iter().all(is_of_use)) {
        return None;
    }
    if all.iter().any(|event| event.rotated_out) {
        return Some(Err(NoShare::RotatedOut));
    }
    if all.iter().any(|event| event.saturated) {
        return Some(Err(NoShare::Saturated));
    }
    let with_counts = all.iter().flat_map(|event| {
        let unseen = event.unseen.iter().filter(|(_, time)| **time > 0);
        event
            .local
            .keys()
            .chain(unseen.map(|(owner, _)| owner))
            .copied()
    });
    let ran: BTreeSet<Owner> = ran.collect();
    let owners: BTreeSet<Owner> = with_counts.chain(ran.iter().copied()).collect();
    let local = match &other {
        // Events count accesses to one memory.
        None => Accesses::All,
        Some(_) => Accesses::Local,
    };
    let mut rows: BTreeMap<R, (Owner, Counted)> = BTreeMap::new();
    for owner in owners {
        // All of its accesses may have gone to the other memory.
        let has_counted = all.iter().any(|event| event.has_counted(owner));
        let ran = ran.contains(&owner) && !has_counted;
        let mut counted = Counted::of(&own, owner, ran, local);
        if let Some(other) = &other {
            counted.add_remote(Counted::of(other, owner, false, Accesses::Remote));
        }
        match rows.entry(row_of(owner)) {
            Entry::Vacant(row) => {
                row.insert((owner, counted));
            }
            Entry::Occupied(mut row) => row.get_mut().1.add(counted),
        }
    }
    let counted: Vec<(Owner, Counted)> = rows.into_values().collect();
    Some(shares_of_rows(calibrated, made_on, &counted, traffic))
}

fn weights_of_event<'a>(weights: &'a [Weights], event: &str) -> Option<&'a Weights> {
    weights.iter().find(|weights| match &weights.method {
        Method::Counted { weight, .. } => **weight == *event,
        _ => false,
    })
}

/// The counts of an owner, or of all owners of a row.
struct Counted {
    /// `None` if some of the events were rotated out.
    counts: Option<OwnerCounts>,
    samples: u64,
    time: RunningTime,
    /// Whether it ran, and its events counted nothing for any memory.
    ran: bool,
}

impl Counted {
    /// The counts of `accesses` on one socket, as local ones.
    fn of(events: &[&SocketWeights], owner: Owner, ran: bool, accesses: Accesses) -> Self {
        let mut sum = Self {
            counts: Some(OwnerCounts::default()),
            samples: 0,
            time: RunningTime::default(),
            ran,
        };
        // An idle task is unseen for a time of 0, and moves nothing.
        let is_unseen = |event: &SocketWeights| event.unseen.get(&owner).is_some_and(|it| *it > 0);
        let is_in = |event: &&SocketWeights| event.local.contains_key(&owner) || is_unseen(event);
        let has_counts = events.iter().any(is_in);
        for event in events {
            let of_accesses = match accesses {
                Accesses::Remote => &event.remote,
                Accesses::All | Accesses::Local => &event.local,
            };
            let counted = of_accesses.get(&owner).copied();
            // An owner without a count of any event has counts of 0.
            let is_idle = event.unseen.get(&owner) == Some(&0);
            let has_none = !has_counts || is_idle;
            let Some(mut weight) = counted.or(has_none.then(Weight::default)) else {
                sum.counts = None;
                continue;
            };
            if accesses == Accesses::All
                && event.apart
                && let Some(remote) = event.remote.get(&owner)
            {
                weight.add(remote);
            }
            sum.samples = sum.samples.saturating_add(weight.samples);
            sum.time.add(weight.time);
            if let Some(OwnerCounts { local, .. }) = &mut sum.counts {
                local.counts.push(float(weight.weight));
                local.variances.push(weight.variance);
            }
        }
        sum
    }

    /// Adds the counts of the same owner on the other socket.
    fn add_remote(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.time.add(other.time);
        let both = self.counts.take().zip(other.counts);
        self.counts = both.map(|(own, other)| OwnerCounts {
            local: own.local,
            remote: Some(other.local),
        });
    }

    /// Adds another owner of the same row.
    fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.time.add(other.time);
        self.ran |= other.ran;
        let both = self.counts.take().zip(other.counts);
        self.counts = both.map(|(mut sum, other)| {
            add_counts(&mut sum.local, other.local);
            if let (Some(sum), Some(other)) = (&mut sum.remote, other.remote) {
                add_counts(sum, other);
            }
            sum
        });
    }
}

fn add_counts(sum: &mut EventCounts, other: EventCounts) {
    let counts = sum.counts.iter_mut().zip(other.counts);
    counts.for_each(|(sum, count)| *sum += count);
    let variances = sum.variances.iter_mut().zip(other.variances);
    variances.for_each(|(sum, variance)| *sum += variance);
}

fn shares_of_rows(
    calibrated: &CalibratedTraffic,
    made_on: MadeOn,
    counted: &[(Owner, Counted)],
    traffic: &Traffic,
) -> Result<Shares, NoShare> {
    let mut shares = Shares::empty(Method::Calibrated(made_on));
    shares.io = traffic.io.min(traffic.measured);
    let moved = traffic.measured - shares.io;
    let counts: Vec<_> = counted.iter().map(|(_, it)| it.counts.clone()).collect();
    let parts = calibrated
        .estimate(&counts, float(moved), float(traffic.skew))
        .map_err(|why| match why {
            NoEstimate::MoreThanMoved => NoShare::MoreThanMoved,
            NoEstimate::Unexplained => NoShare::Unexplained,
        })?;
    let mut left = moved;
    for ((owner, counted), part) in counted.iter().zip(parts) {
        let mut share = match part {
            Ok(part) => OwnerShare {
                count: rounded(part.traffic).min(left),
                calibrated: part.error,
                ..OwnerShare::default()
            },
            Err(NoPart::Unseen) => OwnerShare::without(NoShare::OwnerUnseen),
            Err(NoPart::NoCounts) if counted.ran => OwnerShare::without(NoShare::NothingCounted),
            Err(NoPart::NoCounts) => OwnerShare::default(),
            Err(NoPart::NoMixture) => OwnerShare::without(NoShare::NoMixture),
            Err(NoPart::TooWide) => OwnerShare::without(NoShare::TooWide),
        };
        (share.samples, share.time) = (counted.samples, counted.time);
        left -= share.count;
        shares.owners.insert(*owner, share);
    }
    shares.unattributed = left;
    Ok(shares)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of the traffic, which is a u64; not negative"
)]
fn rounded(count: f64) -> u64 {
    count.round() as u64
}
