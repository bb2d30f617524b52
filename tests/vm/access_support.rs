//! Mixes of memory accesses that the test PMUs sample, and the PMUs' account of raised samples.

use std::{collections::BTreeMap, fs};

use probe_common::{
    CgroupId,
    spe::{Class, Source},
};
use probe_user::{
    event::{
        accesses::accesses,
        sampling::{Rate, SampledEvent},
    },
    session::SamplingConfig,
    window::MemLevel,
};
use test_harness::this_machine;

use crate::testpmu::TestPmu;

/// Operations from one sample to the next. A running task executes 100,000 in a tick.
pub(crate) const PERIOD: u64 = 50_000;

/// An operation of a mix.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub(crate) weight: u64,
    /// The kernel's encoding (`perf_mem_data_src`).
    pub(crate) data_src: u64,
    /// In cycles; 0: unknown.
    pub(crate) latency: u64,
    pub(crate) address: u64,
    /// The meaning of `data_src`; None: it is no access.
    pub(crate) kind: Option<(Class, MemLevel)>,
}

const fn load(weight: u64, data_src: u64, latency: u64, address: u64, source: Source) -> Op {
    Op {
        weight,
        // `PERF_MEM_OP_LOAD`
        data_src: 0x02 | data_src,
        latency,
        address,
        kind: Some((Class::Load, MemLevel::By(source))),
    }
}

/// The bits of `mem_lvl`, with `HIT`.
const fn level(bits: u64) -> u64 {
    (bits | 0x02) << 5
}

/// A store that hits level 1 and misses the TLBs.
const STORE: Op = Op {
    weight: 2,
    data_src: 0x04 | level(0x08) | 0x14 << 26,
    latency: 0,
    address: 0x7f00_0003_0000,
    kind: Some((Class::Store, MemLevel::Unknown)),
};

/// Neither a load nor a store.
pub(crate) const OTHER: Op = Op {
    weight: 1,
    data_src: 0x01 | 0x01 << 5,
    latency: 0,
    address: 0,
    kind: None,
};

/// Two mixes that differ in weights, sources and latencies. Each address is on its own page, even
/// with pages of 64 KiB.
pub(crate) const MIXES: [&[Op]; 2] = [
    &[
        load(4, level(0x08), 4, 0x7f00_0001_0000, Source::L1d),
        load(
            1,
            level(0x80) | 0x14 << 26,
            300,
            0x7f00_0002_0010,
            Source::Dram,
        ),
        STORE,
        OTHER,
    ],
    &[
        // Zen 3: the level 3 cache, or a cache beside it.
        load(3, level(0x40 | 0x400), 40, 0x7f00_0004_0000, Source::L3),
        // Another socket's memory.
        load(
            2,
            level(0x100) | 1 << 37,
            700,
            0x7f00_0005_0008,
            Source::RemoteDram,
        ),
        // A missed level is not the source.
        Op {
            kind: Some((Class::Load, MemLevel::Unknown)),
            ..load(1, 0x04 << 5 | 3 << 33, 90, 0x7f00_0006_0000, Source::L3)
        },
        STORE,
    ],
];

/// Sets the mix of a cgroup.
pub(crate) fn set_mix(pmu: &TestPmu, cgroup: CgroupId, mix: &[Op]) {
    for op in mix {
        let Op {
            weight,
            data_src,
            latency,
            address,
            ..
        } = op;
        pmu.control(&format!(
            "sample op {} {weight} {data_src:#x} {latency} {address:#x}",
            cgroup.0
        ));
    }
}

/// The samples that an event raised and the operations that it executed, on all CPUs.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// By cgroup, `data_src`, latency and address.
    pub(crate) raised: BTreeMap<(u64, u64, u64, u64), u64>,
    /// Samples without an access, of cgroups without a mix.
    pub(crate) others: u64,
    /// Samples that the PMU dropped on request (`lose_every`).
    pub(crate) lost: u64,
    /// By cgroup.
    pub(crate) executed: BTreeMap<u64, u64>,
}

impl Truth {
    pub(crate) fn read(event: &str) -> Self {
        let text = fs::read_to_string("/sys/kernel/debug/testpmu/sample_truth").unwrap();
        let mut truth = Self::default();
        for line in text.lines() {
            let f: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| match f[at].strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
                None => f[at].parse::<u64>().unwrap(),
            };
            if f[0] == "unknown" {
                assert_eq!(number(2), 0, "more cgroups than the account holds");
            } else if f[2] == event {
                match f[0] {
                    "raised" => {
                        let key = (number(3), number(4), number(5), number(6));
                        *truth.raised.entry(key).or_default() += number(7);
                    }
                    "others" => truth.others += number(3),
                    "lost" => truth.lost += number(3),
                    "executed" => *truth.executed.entry(number(3)).or_default() += number(4),
                    other => panic!("{other}"),
                }
            }
        }
        truth
    }

    pub(crate) fn raised(&self, cgroup: CgroupId, op: &Op) -> u64 {
        let key = (cgroup.0, op.data_src, op.latency, op.address);
        self.raised.get(&key).copied().unwrap_or(0)
    }

    pub(crate) fn all_raised(&self) -> u64 {
        self.raised.values().sum::<u64>() + self.others
    }
}

/// The machine's events that sample memory accesses. `least` is the shortest latency to sample, in
/// cycles.
pub(crate) fn events(period: Option<u64>, least: Option<u16>) -> Vec<SampledEvent> {
    let machine = this_machine();
    let events = accesses(machine.pmus().unwrap(), period.map(Rate::Period), least).unwrap();
    assert!(!events.is_empty());
    events
}

pub(crate) fn sampling(events: Vec<SampledEvent>) -> SamplingConfig {
    SamplingConfig {
        events,
        pages: true,
        ..SamplingConfig::default()
    }
}
