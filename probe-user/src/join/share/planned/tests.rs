//! The choice among several weights.

use probe_common::CgroupId;

use super::*;
use crate::{
    catalogue::{Catalogue, Chip, Hardware},
    join::share::{Method, SocketWeights, Weight},
    window::{self, Owner},
};

/// A metric of reads of memory, and a window in which socket 1 sent this many reads to socket 0.
fn reads(sent: u64) -> (PlannedMetric, Window) {
    let machine = Hardware::of_chip(Chip::named("grace-cpu-superchip").unwrap());
    let catalogue = Catalogue::builtin().unwrap();
    let metrics = catalogue.select("cmem_read_bandwidth", &machine).unwrap();
    let metric = metrics[0].clone();
    let from_sockets = metric.from_sockets.clone().unwrap();
    let place = CountSource::Uncore { at: 0 };
    let planned = PlannedMetric {
        metric,
        sources: Ok(vec![MetricSource {
            events: vec![(from_sockets, place)],
            units: 1,
            ..MetricSource::default()
        }]),
        io: Vec::new(),
    };
    let mut window = window::tests::empty();
    window.uncore.push(UncoreReading {
        at: 0,
        socket: 1,
        instance: 0,
        count: Some(sent),
        skew: 0,
        enabled: 1,
        running: 1,
    });
    (planned, window)
}

fn owner(cgroup: u64) -> Owner {
    Owner {
        cgroup: CgroupId(cgroup),
        tgid: 0,
    }
}

/// The accesses of one cgroup to any memory.
fn accesses(cgroup: u64, weight: u64) -> SocketWeights {
    let weight = Weight {
        weight,
        samples: weight,
        ..Weight::default()
    };
    let of_owner = BTreeMap::from([(owner(cgroup), weight)]);
    SocketWeights {
        local: of_owner.clone(),
        remote: of_owner,
        ..SocketWeights::default()
    }
}

fn misses() -> Method {
    Method::Counted {
        weight: "llc_read_misses".into(),
        but: None,
    }
}

fn by(method: Method, sockets: impl IntoIterator<Item = (u32, SocketWeights)>) -> Weights {
    Weights {
        method,
        of: MemoryTraffic::Reads,
        by_memory: false,
        sockets: sockets.into_iter().collect(),
    }
}

/// The shares of 1,000 reads of the memory of socket 0, of which socket 1 sent `sent`: the method,
/// and the counts by cgroup.
fn shares(sent: u64, weights: &[Weights]) -> Result<(Method, Vec<(u64, u64)>), NoShare> {
    let (planned, window) = reads(sent);
    let counted = UncoreCount {
        count: 1_000,
        skew: 0,
    };
    let traffic = traffic(&planned, &window, 0, counted, false)?;
    let shares = by_cpus(&planned, &window, weights, 0, &traffic)?;
    let parts = shares.owners.iter();
    let parts = parts.map(|(owner, part)| (owner.cgroup.0, part.count));
    Ok((shares.method, parts.filter(|part| part.1 > 0).collect()))
}

#[test]
fn counters_are_the_weight_if_a_socket_that_took_part_has_no_samples() {
    let spe = by(Method::Spe, [(0, accesses(7, 100))]);
    let counters = [(0, accesses(8, 100)), (1, accesses(9, 100))];
    let all_weights = [spe, by(misses(), counters)];
    // Source and destination of 500 sent counts may differ by 7.9%: 40 are unattributed.
    let of_both = (misses(), vec![(8, 460), (9, 500)]);
    assert_eq!(shares(500, &all_weights), Ok(of_both));
    assert_eq!(shares(0, &all_weights), Ok((Method::Spe, vec![(7, 1_000)])));
}

/// The reason is the first other than [`NoShare::NoWeight`].
#[test]
fn rotated_out_counters_are_the_reason() {
    let out = SocketWeights {
        rotated_out: true,
        ..SocketWeights::default()
    };
    let spe = by(Method::Spe, [(0, accesses(7, 100))]);
    let counters = by(misses(), [(0, accesses(8, 100)), (1, out)]);
    assert_eq!(shares(500, &[spe, counters]), Err(NoShare::RotatedOut));
}

/// The memory of a socket without reads is divided by the weights of the sending socket.
#[test]
fn the_memory_of_an_idle_socket_is_read_by_the_other_one() {
    let counters = [(0, accesses(8, 0)), (1, accesses(9, 100))];
    let all_weights = [by(misses(), counters)];
    let of_other = (misses(), vec![(9, 500)]);
    assert_eq!(shares(500, &all_weights), Ok(of_other));
    assert_eq!(shares(0, &all_weights), Err(NoShare::NoWeight));
}

/// The skews of the counts of both sockets add up.
#[test]
fn the_edges_of_all_counts_are_an_error() {
    let (planned, mut window) = reads(500);
    window.uncore[0].skew = 5;
    let counters = [(0, accesses(8, 100)), (1, accesses(9, 100))];
    let all_weights = [by(misses(), counters)];
    let counted = UncoreCount {
        count: 1_000,
        skew: 7,
    };
    let traffic = traffic(&planned, &window, 0, counted, false).unwrap();
    let shares = by_cpus(&planned, &window, &all_weights, 0, &traffic).unwrap();
    assert_eq!(shares.skew, 12);
}

/// To which memory an owner writes is unknown if its reads are unknown.
#[test]
fn writes_of_an_owner_with_unseen_reads_are_unseen() {
    let reads = Weights {
        by_memory: true,
        ..by(misses(), [(0, accesses(7, 100))])
    };
    let both = |cgroup| {
        let mut both = accesses(cgroup, 100);
        both.local.extend(accesses(7, 100).local);
        both
    };
    let writes = Weights {
        of: MemoryTraffic::Writes,
        ..by(misses(), [(0, both(8)), (1, both(9))])
    };
    let divided = writes.by_memory_like(&reads);
    let here = &divided.sockets[&0];
    let known: Vec<_> = here
        .local
        .iter()
        .map(|(it, by)| (it.cgroup.0, by.weight))
        .collect();
    assert_eq!(known, [(7, 50)]);
    assert_eq!(here.remote[&owner(7)].weight, 50);
    assert_eq!(here.unseen.keys().collect::<Vec<_>>(), [&owner(8)]);
    // Without reads on socket 1, the memory of all its writes is unknown.
    assert!(divided.sockets[&1].rotated_out);
}
