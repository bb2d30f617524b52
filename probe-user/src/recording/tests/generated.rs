//! Random snapshots.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use probe_common::{
    CgroupId, CpuCounts, UsageKey, UsageRow, WAIT_BUCKETS, WaitTimes,
    spe::{
        Class, LATENCY_BUCKETS, LineKey, LineRow, PageKey, PageRow, SourceTable, SpeAccess, SpeCpu,
    },
};
use proptest::{collection, prelude::*};

use crate::{
    devices::{CgroupIo, DeviceUse, IoBytes},
    event::AccessScaling,
    machine::{
        memory::{MemoryHolder, MemoryReading, MemoryUse, PageSizes},
        pressure::{CgroupCounter, CgroupCounts, PressureReading},
        resctrl::{GroupBytes, MonitoringGroup},
        topology::Topology,
    },
    names::{
        RuntimeNames,
        resolver::ResolverHealth,
        runtime_names::{Container, Pod},
    },
    snapshot::{
        AddressCounts, CodeLocation, HandedOver, Health, Hook, LogCounts, MapMemory, NameCounts,
        Names, OwnerWaits, SampleCounts, SampleOrigin, SampleReading, SampledAddress,
        SampledEventHealth, SampledKey, Snapshot, SourceReadings, SpeHealth, SpeHook, SpeReading,
        UncoreReading, WaitPair, WaitReading,
    },
};

fn keys() -> impl Strategy<Value = (CgroupId, u32, u16, u16)> {
    let cgroup = prop_oneof![0..9_u64, Just(u64::MAX), Just(u64::MAX - 2)];
    (cgroup.prop_map(CgroupId), any::<u32>(), 0..9_u16, 0..99_u16)
}

fn usage() -> impl Strategy<Value = (UsageKey, UsageRow)> {
    (keys(), any::<[u64; UsageRow::WORDS]>()).prop_map(|((cgroup, tgid, cpu, group), words)| {
        let key = UsageKey {
            cgroup,
            tgid,
            cpu,
            group,
        };
        (key, UsageRow::from_words(&words))
    })
}

/// Any number that JSON can represent. Recordings have no other numbers.
fn number() -> impl Strategy<Value = f64> {
    prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO
}

fn sampled() -> impl Strategy<Value = (SampledKey, SampleCounts)> {
    let access = (0..4_usize, prop::option::of(0..99_u64));
    let histogram = collection::vec(number(), LATENCY_BUCKETS);
    let sums = prop::array::uniform7(number());
    let counts = (any::<[u64; 2]>(), sums, histogram);
    (keys(), access, counts).prop_map(
        |((cgroup, tgid, cpu, _), (class, source), ([samples, made], sums, histogram))| {
            let access = SpeAccess::new(Class::ALL[class], source);
            let key = SampledKey {
                cgroup,
                tgid,
                origin: SampleOrigin::Spe { cpu, access },
            };
            let [
                operations,
                variance,
                walks,
                cycles,
                squares,
                issue,
                translation,
            ] = sums;
            let counts = SampleCounts {
                samples,
                operations,
                variance,
                walks,
                cycles,
                squares,
                issue,
                translation,
                histogram: histogram.try_into().unwrap(),
                made,
            };
            (key, counts)
        },
    )
}

fn pages() -> impl Strategy<Value = Vec<(PageKey, PageRow)>> {
    let page = any::<([u64; PageKey::WORDS], [u64; PageRow::WORDS])>();
    let page = page.prop_map(|(key, row)| (PageKey::from_words(&key), PageRow::from_words(&row)));
    collection::vec(page, 0..3)
}

fn lines() -> impl Strategy<Value = Vec<(LineKey, LineRow)>> {
    let line = any::<([u64; LineKey::WORDS], [u64; LineRow::WORDS])>();
    let line = line.prop_map(|(key, row)| (LineKey::from_words(&key), LineRow::from_words(&row)));
    collection::vec(line, 0..3)
}

fn spe() -> impl Strategy<Value = SpeReading> {
    let sum = any::<[u64; SpeCpu::WORDS]>();
    let stats = prop::option::of(any::<u64>());
    let lists = (pages(), lines());
    (lists, sum, stats, any::<bool>()).prop_map(|((pages, lines), sum, bpf_stats, kprobe)| {
        SpeReading {
            pages,
            lines,
            tables: Arc::new(BTreeMap::from([
                (0, SourceTable::Common),
                (9, SourceTable::HiSilicon),
            ])),
            health: SpeHealth {
                hook: if kprobe {
                    SpeHook::Kprobe
                } else {
                    SpeHook::Fentry
                },
                period: 4096,
                max_latency: 4095,
                sum: SpeCpu::from_words(&sum),
                longest: 7,
                rows: 3,
                freed_idle: 4,
                memory: MapMemory {
                    rows: 768,
                    fixed: 65_536,
                },
                sampler: BTreeMap::from([("sample_pop".to_owned(), 5)]),
                aux_size: 65_536,
                unlogged: 2,
                bpf_stats,
            },
        }
    })
}

fn uncore() -> impl Strategy<Value = Vec<UncoreReading>> {
    let count = prop::option::of(any::<u64>());
    let reading = (0..9_usize, 0..4_u32, 0..3_u16, count, any::<[u64; 3]>());
    let reading =
        reading.prop_map(
            |(at, socket, instance, count, [skew, enabled, running])| UncoreReading {
                at,
                socket,
                instance,
                count,
                skew,
                enabled,
                running,
            },
        );
    collection::vec(reading, 0..5)
}

fn names() -> impl Strategy<Value = Names> {
    let cgroups = collection::hash_map(any::<u64>().prop_map(CgroupId), any::<String>(), 0..4);
    let processes = collection::hash_map(any::<u32>(), any::<String>(), 0..4);
    let described = described().prop_map(Arc::new);
    let delegated = collection::btree_map(any::<String>(), any::<bool>(), 0..3);
    let all = (cgroups, processes, described, delegated);
    all.prop_map(|(cgroups, processes, described, delegated)| Names {
        cgroups,
        processes,
        described,
        delegated,
    })
}

fn described() -> impl Strategy<Value = RuntimeNames> {
    let labels = collection::btree_map(any::<String>(), any::<String>(), 0..3);
    let container = (
        any::<[String; 2]>(),
        prop::option::of(any::<String>()),
        prop::option::of(any::<String>()),
        labels.clone(),
    );
    let container = container.prop_map(|([name, runtime], pod, image, labels)| Container {
        name,
        pod: pod.map(Into::into),
        runtime: runtime.into(),
        image,
        labels,
    });
    let pod = (any::<[String; 2]>(), labels);
    let pod = pod.prop_map(|([namespace, name], labels)| Pod {
        namespace,
        name,
        labels,
    });
    let id = || any::<String>().prop_map(Arc::<str>::from);
    let containers = collection::btree_map(id(), container.prop_map(Arc::new), 0..3);
    let pods = collection::btree_map(id(), pod.prop_map(Arc::new), 0..3);
    (containers, pods).prop_map(|(containers, pods)| RuntimeNames { containers, pods })
}

fn device_use() -> DeviceUse {
    DeviceUse {
        io: vec![CgroupIo {
            id: CgroupId(7),
            path: "/a b".to_owned(),
            total: BTreeMap::from([(
                "259:0".to_owned(),
                IoBytes {
                    read: 1,
                    written: u64::MAX,
                },
            )]),
        }],
        holders: Arc::default(),
        fresh: true,
    }
}

fn pressure(count: u64) -> PressureReading {
    let counts = CgroupCounts {
        quota: count.is_multiple_of(2).then_some(0.1),
        ..CgroupCounts::default().with(CgroupCounter::Throttled, Some(count))
    };
    PressureReading {
        beside_waits: true,
        cgroups: vec![(CgroupId(7), counts)],
        machine: counts,
        at: Duration::from_nanos(count),
    }
}

fn waits(nanos: u64) -> WaitReading {
    let pair = WaitPair {
        waiting: CgroupId(7),
        tgid: 0,
        running: CgroupId::IDLE,
    };
    WaitReading {
        pairs: vec![(pair, nanos)],
        unplaced: nanos / 2,
        rows: 1,
        owners: vec![OwnerWaits {
            cgroup: CgroupId(7),
            tgid: 9,
            lengths: WaitTimes {
                counts: [nanos; WAIT_BUCKETS],
                nanos,
            },
        }],
        unplaced_waits: nanos / 3,
        length_rows: 2,
    }
}

fn memory(bytes: u64) -> MemoryReading {
    let held = MemoryUse {
        used: bytes,
        anon: Some(bytes / 2),
        peak: Some(u64::MAX),
        age: Some(Duration::from_nanos(bytes)),
        ..MemoryUse::default()
    };
    MemoryReading {
        held: vec![
            (MemoryHolder::Cgroup(CgroupId(7)), held),
            (MemoryHolder::Process(8), held),
            (MemoryHolder::Command, held),
        ],
        machine: bytes.is_multiple_of(2).then_some(held),
        pages: bytes.is_multiple_of(2).then_some(PageSizes {
            small: bytes,
            huge: bytes.is_multiple_of(3).then_some(bytes),
        }),
    }
}

pub(super) fn snapshots() -> impl Strategy<Value = Snapshot> {
    let rows = collection::hash_map(usage().prop_map(|(key, _)| key), usage(), 0..6);
    let rows = rows.prop_map(|rows| rows.into_iter().map(|(key, (_, row))| (key, row)).collect());
    let parts = (rows, collection::vec(usage(), 0..3), uncore());
    let others = (prop::option::of(samples()), names(), any::<[bool; 4]>());
    let at = any::<u64>().prop_map(Duration::from_nanos);
    (at, parts, others, any::<[u64; CpuCounts::WORDS]>()).prop_map(
        |(
            at,
            (rows, freed, uncore),
            (samples, names, [topology, devices, monitored, hook]),
            state,
        )| {
            let health = Health {
                hook: if hook {
                    Hook::CgroupSwitches
                } else {
                    Hook::SchedSwitch
                },
                sum: CpuCounts::from_words(&state),
                flushes: state[0],
                skew: topology.then_some(state[3]),
                exchanges: state[1],
                map_retries: state[2],
                evicted_rows: topology.then_some(state[5]),
                skipped_runs: topology.then_some(state[4]),
                names: hook.then(|| ResolverHealth {
                    answers: state[0],
                    not_asked: state[1],
                    ..ResolverHealth::default()
                }),
                log: monitored.then_some(LogCounts {
                    suppressed: state[0],
                    dropped: state[1],
                }),
                handed_over: monitored.then(|| HandedOver {
                    times: state[0],
                    gap: state[1],
                    unattended: state[2],
                }),
                ..Health::default()
            };
            let group = MonitoringGroup {
                path: "/sys/fs/resctrl/mon_groups/a".into(),
                cgroups: [CgroupId(7), CgroupId(8)].into(),
            };
            let group_bytes = GroupBytes {
                group: Arc::new(group),
                bytes: BTreeMap::from([(0, state[3]), (1, 0)]),
            };
            Snapshot {
                at,
                boot_time: at / 3,
                rows,
                freed,
                uncore,
                topology: topology.then(|| Arc::new(Topology::with_sockets(&[0, 0, 1]))),
                sources: SourceReadings {
                    devices: devices.then(device_use),
                    resctrl: monitored.then(|| vec![group_bytes]),
                    pressure: hook.then(|| pressure(state[5])),
                    waits: hook.then(|| waits(state[6])),
                    memory: hook.then(|| memory(state[4])),
                },
                samples,
                names: Arc::new(names),
                health,
            }
        },
    )
}

/// Samples of SPE and of an event.
fn samples() -> impl Strategy<Value = SampleReading> {
    let rows = collection::hash_map(sampled().prop_map(|(key, _)| key), sampled(), 0..4);
    let freed = collection::vec(sampled(), 0..3);
    (rows, freed, prop::option::of(spe()), any::<u64>()).prop_map(|(rows, freed, spe, samples)| {
        let mut reading = sampled_event(samples);
        let rows = rows.into_iter().map(|(key, (_, row))| (key, row));
        reading.rows.extend(rows);
        (reading.freed, reading.spe) = (freed, spe);
        reading
    })
}

/// Samples of an event by one owner at one address.
fn sampled_event(samples: u64) -> SampleReading {
    let (cgroup, tgid, event) = (CgroupId(7), 3, 0);
    let source = 0x92;
    let key = SampledKey {
        cgroup,
        tgid,
        origin: SampleOrigin::Event { event, source },
    };
    let counts = SampleCounts {
        samples,
        ..SampleCounts::default()
    };
    let address = SampledAddress {
        cgroup,
        address: u64::MAX - samples % 4096,
        tgid,
        event,
        page: false,
        image: samples,
    };
    let at = AddressCounts {
        samples,
        events: samples as f64,
        timed: samples / 2,
        cycles: samples,
        made: 1,
    };
    let location = CodeLocation {
        function: Some("spin".into()),
        module: "/bin/a \u{1b}".into(),
        build_id: Some([1, 2, 3].into()),
        offset: samples,
    };
    let health = SampledEventHealth {
        name: "cycles:u".to_owned(),
        frequency: Some(997),
        counted: samples,
        accesses: Some(AccessScaling::Tagged),
        ..SampledEventHealth::default()
    };
    SampleReading {
        events: vec![health],
        rows: [(key, counts)].into(),
        addresses: [(address, at)].into(),
        places: [(address.code_key(), location)].into(),
        names: Some(NameCounts {
            lost: samples,
            ..NameCounts::default()
        }),
        ..SampleReading::default()
    }
}
