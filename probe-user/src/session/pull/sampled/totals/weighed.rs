//! Tests of the weights of samples: of multiplexed events, of events that the kernel may have
//! throttled, and on each CPU.

use probe_common::CgroupId;

use test_support::sysfs;

use super::*;
use crate::{event::sampling::sampled, machine::Pmus};

/// An event that was on the PMU for a fifth of the time was counted and sampled only for that time.
#[test]
fn multiplexed_samples_stand_for_the_whole_time() {
    let mut totals = EventSampleTotals::new(1);
    let gain = CounterReading {
        count: 20_000,
        enabled: 500,
        running: 100,
    };
    totals.deltas.insert((0, 0), gain);
    assert_eq!(totals.factors(), [((0, 0), 5.0)].into());
    assert_eq!(totals.factors(), [].into());
}

#[test]
fn due_samples_that_did_not_come_count_as_missed() {
    let pmus = Pmus::read(&sysfs("spr")).unwrap();
    let events = "cycles/period=1000/,instructions/freq=99/,cpu-clock/period=10000/u";
    let events = sampled(events, &pmus, None).unwrap();
    let mut totals = EventSampleTotals::new(events.len());
    // Only the first event has missed samples: with a frequency no sample is due by the count, and
    // a clock that samples one privilege level counts all levels.
    for (samples, periods, missed) in [
        ([20, 5], [20_000, 5_000], 0),
        ([30, 5], [45_900, 5_000], 15),
        // One more sample came late: the number of missed samples stays.
        ([31, 6], [46_000, 6_000], 15),
        ([32, 6], [50_000, 6_000], 18),
    ] {
        let cpu = |(samples, periods)| SampleCpu {
            samples,
            periods,
            reported: 1000 * samples,
            ..SampleCpu::ZERO
        };
        let event_cpus: BTreeMap<u32, _> = (0..)
            .zip(samples.into_iter().zip(periods).map(cpu))
            .collect();
        totals.count_missed(&events, &vec![event_cpus; events.len()]);
        assert_eq!(totals.missed, [missed, 0, 0]);
    }
}

#[test]
fn sample_rates_near_the_kernels_limit_are_counted() {
    let mut totals = EventSampleTotals::new(1);
    let cpu = |samples| SampleCpu {
        samples,
        ..SampleCpu::ZERO
    };
    // The samples so far on two CPUs, at each tenth of a second; the limit is 1,000 per second.
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

/// The event was multiplexed on CPU 0, but not on CPU 1.
#[test]
fn samples_of_an_address_are_scaled_on_each_cpu() {
    let mut totals = EventSampleTotals::new(1);
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
    // At the next reading the event was on the PMU all the time.
    totals.add_address(&key(0, 3), &row(4), 0, 1.0);
    let counts: Vec<_> = totals
        .addresses
        .values()
        .map(|entry| entry.counts)
        .collect();
    assert_eq!(counts.len(), 1);
    assert_eq!((counts[0].samples, counts[0].events), (24, 44_000.0));
}

/// A busy phase left a long period, which is dropped. Without the factor, no sample would represent
/// the events that were counted in it.
#[test]
fn samples_also_stand_for_a_dropped_period() {
    let mut totals = EventSampleTotals::new(1);
    let cpu = |periods, last_count| SampleCpu {
        periods,
        last_count,
        ..SampleCpu::ZERO
    };
    totals.cpus[0].insert(0, cpu(500, 0));
    let now = [(0, cpu(1_000_500, 1_000_000))].into();
    assert_eq!(
        totals.with_dropped_period(0, &now, 0, 1_090_000),
        Some(1.09)
    );
    // Without a sample, the next sample stands for the count.
    let now = [(0, cpu(500, 1_000_000))].into();
    assert_eq!(totals.with_dropped_period(0, &now, 0, 1_090_000), None);
    assert_eq!(totals.with_dropped_period(0, &now, 1, 1_090_000), None);
}
