//! Tests of the weights of samples: of multiplexed events, of events that the kernel may have
//! throttled, and on each CPU.

use probe_common::CgroupId;

use std::collections::HashSet;

use test_support::sysfs;

use super::*;
use crate::{event::sampling::sampled, machine::Pmus};

/// An event that was on the PMU for a fifth of the time was counted and sampled only for that time.
#[test]
fn what_took_turns_stands_for_the_whole_time() {
    let pmus = Pmus::read(&sysfs("spr")).unwrap();
    let events = sampled("cycles/period=1000/", &pmus, None).unwrap();
    let mut totals = SampleTotals::new(1);
    let gain = EventDelta {
        counted: 20_000,
        enabled: 500,
        running: 100,
    };
    totals.deltas.insert((0, 0), gain);
    let cpu = SampleCpu {
        samples: 20,
        periods: 20_000,
        ..SampleCpu::ZERO
    };
    let factors = totals.factors(&events, &[[(0, cpu)].into()], &HashSet::new());
    assert_eq!(factors, [((0, 0), 5.0)].into());
    assert_eq!(totals.scales[&(0, 0)].missed, 0);
}

#[test]
fn samples_near_the_kernels_limit_are_noted() {
    let mut totals = SampleTotals::new(1);
    let cpu = |samples| SampleCpu {
        samples,
        ..SampleCpu::ZERO
    };
    // In each tenth of a second; a second has 1,000 at most.
    for (moment, samples, limited) in [
        (1, [50, 50], 0),
        (100_000_001, [120, 139], 0),
        (200_000_001, [200, 230], 1),
        (300_000_001, [300, 330], 3),
    ] {
        let cpus = vec![(0..).zip(samples.map(cpu)).collect()];
        totals.count_limited(&cpus, moment, Some(1000));
        totals.cpus = cpus;
        assert_eq!(totals.limited, [limited], "{moment}");
    }
}

/// Samples of one CPU were missed, those of the other were not.
#[test]
fn an_address_has_what_its_samples_stand_for_on_each_cpu() {
    let mut totals = SampleTotals::new(1);
    let key = |cpu, generation| AddressKey {
        cgroup: CgroupId(7),
        address: 0x1000,
        tgid: 3,
        event: 0,
        page: 0,
        cpu,
        generation,
    };
    let row = |samples| AddressRow {
        samples,
        periods: 1000 * u64::from(samples),
        ..AddressRow::ZERO
    };
    totals.add_address(&key(0, 2), &row(10), 0, 3.0);
    totals.add_address(&key(1, 2), &row(10), 0, 1.0);
    // Later none is missed.
    totals.add_address(&key(0, 3), &row(4), 0, 1.0);
    let all: Vec<_> = totals.addresses.values().map(|kept| kept.counts).collect();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].samples, all[0].periods), (24, 24_000));
    assert_eq!(all[0].events, 44_000.0);
}
