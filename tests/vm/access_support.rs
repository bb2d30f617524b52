//! Mixes of memory accesses that the test PMUs raise samples of, and what they say they raised.

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
    window::Served,
};

use crate::{support::this_machine, testpmu::TestPmu};

/// Operations from one sample to the next: a running task executes 100,000 a tick.
pub(crate) const PERIOD: u64 = 50_000;

/// An operation of a mix, as the kernel's drivers say it (`perf_mem_data_src`).
#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub(crate) weight: u64,
    pub(crate) word: u64,
    /// In cycles; 0: not known.
    pub(crate) latency: u64,
    pub(crate) address: u64,
    /// What the word means; None: it is no access.
    pub(crate) kind: Option<(Class, Served)>,
}

const fn load(weight: u64, word: u64, latency: u64, address: u64, source: Source) -> Op {
    Op {
        weight,
        // `PERF_MEM_OP_LOAD`
        word: 0x02 | word,
        latency,
        address,
        kind: Some((Class::Load, Served::By(source))),
    }
}

/// The bits of `mem_lvl`, with `HIT`.
const fn level(bits: u64) -> u64 {
    (bits | 0x02) << 5
}

/// A store that hit level 1, and missed the translation buffers.
const STORE: Op = Op {
    weight: 2,
    word: 0x04 | level(0x08) | 0x14 << 26,
    latency: 0,
    address: 0x7f00_0003_0000,
    kind: Some((Class::Store, Served::NotSaid)),
};

/// No load and no store.
pub(crate) const OTHER: Op = Op {
    weight: 1,
    word: 0x01 | 0x01 << 5,
    latency: 0,
    address: 0,
    kind: None,
};

/// Two mixes: their shares, sources and latencies differ. Addresses are on pages of their own, also
/// where these have 64 KiB.
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
        // A level that was missed is no source.
        Op {
            kind: Some((Class::Load, Served::NotSaid)),
            ..load(1, 0x04 << 5 | 3 << 33, 90, 0x7f00_0006_0000, Source::L3)
        },
        STORE,
    ],
];

/// Gives a cgroup its mix.
pub(crate) fn give(pmu: &TestPmu, cgroup: CgroupId, mix: &[Op]) {
    for op in mix {
        let Op {
            weight,
            word,
            latency,
            address,
            ..
        } = op;
        pmu.control(&format!(
            "sample op {} {weight} {word:#x} {latency} {address:#x}",
            cgroup.0
        ));
    }
}

/// What an event raised and executed, all CPUs.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// By cgroup, word, latency and address.
    pub(crate) raised: BTreeMap<(u64, u64, u64, u64), u64>,
    /// Samples that are no access, of those without a mix.
    pub(crate) others: u64,
    pub(crate) lost: u64,
    /// By cgroup.
    pub(crate) executed: BTreeMap<u64, u64>,
}

impl Truth {
    pub(crate) fn of(event: &str) -> Self {
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
        let key = (cgroup.0, op.word, op.latency, op.address);
        self.raised.get(&key).copied().unwrap_or(0)
    }

    pub(crate) fn all_raised(&self) -> u64 {
        self.raised.values().sum::<u64>() + self.others
    }
}

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
