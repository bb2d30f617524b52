//! The maps of the object, and which of them outlive a session.

mod kinds;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use aya::{
    Ebpf,
    maps::{Map, MapInfo},
};
use aya_obj::Object as Compiled;
use probe_common::{
    Clock, CpuState, LogCpu, MarkerCpu, Process, SLOTS, Tree, UsageKey, UsageRow, Walk,
    sample::{SampleCpu, SampleKey, SampleRow},
    spe::{LineKey, LineRow, PageKey, PageRow, SpeClock, SpeCpu, SpeKey, SpeRow, SpeTask},
};

pub(super) use self::kinds::Taken;
pub(crate) use self::kinds::{Array, Counters, Hash, PerCpu, Queue, Ring};
use super::{
    OBJECT,
    kernel_log::{self, KernelLog},
    missing,
    slots::Slots,
};
use crate::{machine::cpus::CpuList, session::SessionError};

macro_rules! maps {
    ($($(#[$meta:meta])* $field:ident: $type:ty = $name:ident,)*) => {
        /// The names of the maps that user space reads or writes.
        pub(super) mod name {
            $(pub(in super::super) const $name: &str = stringify!($name);)*
        }

        /// The maps that user space reads or writes.
        pub(crate) struct Maps {
            $($(#[$meta])* pub(crate) $field: $type,)*
            /// The counters of each slot.
            pub(crate) counters: Counters,
            /// The messages of the programs; None where they send none.
            pub(crate) messages: Option<KernelLog>,
        }

        const NAMED: usize = [$(name::$name),*].len();

        impl Maps {
            /// Takes the maps out of the object. The programs hold them too, once they are loaded.
            /// `possible`: the CPUs that this machine may have.
            pub(super) fn take(ebpf: &mut Ebpf, possible: CpuList) -> Result<Self, SessionError> {
                let possible = Arc::new(possible);
                let mut taken = |name: &'static str| {
                    Ok::<_, SessionError>(Taken {
                        name,
                        map: take(ebpf, name)?,
                        possible: Arc::clone(&possible),
                    })
                };
                Ok(Self {
                    $($field: <$type>::open(taken(name::$name)?)?,)*
                    counters: Counters::take(ebpf, possible)?,
                    messages: None,
                })
            }

            /// Name, sizes of key and value.
            #[cfg(test)]
            pub(super) const ALL: &[(&str, Sizes)] = &[$((name::$name, <$type>::SIZES),)*];
        }
    };
}

maps! {
    /// Who used how much of each counter, on which CPU.
    usage: Hash<UsageKey, UsageRow> = USAGE,
    /// What USAGE had no row for, by counter group.
    overflow: PerCpu<UsageRow> = OVERFLOW,
    /// What each CPU is doing, at index 0.
    state: PerCpu<CpuState> = STATE,
    /// The programs' clock, and the times of these maps, at index 0.
    clock: Array<Clock> = CLOCK,
    /// The records of what comes and goes.
    lifecycle: Ring = LIFECYCLE,
    /// What became of the messages of the programs, at index 0.
    kernel_log: PerCpu<LogCpu> = KERNEL_LOG,
    /// What observed programs mark.
    markers: Ring = MARKERS,
    /// What became of these records, at index 0.
    marker_cpu: PerCpu<MarkerCpu> = MARKER_CPU,
    /// The walk over all processes, at index 0.
    walk: Array<Walk> = WALK,
    /// The processes that it is asked about.
    processes: Hash<u64, Process> = PROCESSES,
    /// The walk over all cgroups, at index 0.
    tree: Array<Tree> = TREE,
    /// The cgroups that it is asked about: 1 once it has met them.
    cgroups: Hash<u64, u64> = CGROUPS,
    /// Processes of a command that has no cgroup of its own.
    command: Hash<u32, u8> = COMMAND,
    /// Samples by owner.
    spe_rows: Hash<SpeKey, SpeRow> = SPE_ROWS,
    /// Samples that `SPE_ROWS` had no row for, by class.
    spe_overflow: PerCpu<SpeRow> = SPE_OVERFLOW,
    /// What became of everything that SPE wrote on each CPU, at index 0.
    spe_cpu: PerCpu<SpeCpu> = SPE_CPU,
    /// The pages that were accessed lately.
    spe_pages: Hash<PageKey, PageRow> = SPE_PAGES,
    /// The cache lines that were accessed lately.
    spe_lines: Hash<LineKey, LineRow> = SPE_LINES,
    /// Data sources that mean another core, by CPU.
    spe_peers: Array<u64> = SPE_PEERS,
    /// Ids of our own events, by CPU.
    spe_events: Array<u64> = SPE_EVENTS,
    /// By [`probe_common::spe::SpeSetting`].
    spe_settings: Array<u64> = SPE_SETTINGS,
    /// Two clocks: one is filled while the other is in use.
    spe_clocks: Array<SpeClock> = SPE_CLOCKS,
    /// Whose each thread is.
    spe_tasks: Hash<u64, SpeTask> = SPE_TASKS,
    /// Threads that exited.
    spe_exited: Queue<u64> = SPE_EXITED,
    /// Samples of events by owner.
    sample_rows: Hash<SampleKey, SampleRow> = SAMPLE_ROWS,
    /// The instructions that they were at.
    sample_addresses: Slots = SAMPLE_ADDRESSES,
    /// The data pages that they were at.
    sample_pages: Slots = SAMPLE_PAGES,
    /// What became of the samples of each event on each CPU.
    sample_cpu: PerCpu<SampleCpu> = SAMPLE_CPU,
    /// By [`probe_common::sample::SampleSetting`].
    sample_settings: Array<u64> = SAMPLE_SETTINGS,
}

/// The timeline of switches: only programs use it, user space sets its size.
pub(super) const SPE_SWITCHES: &str = "SPE_SWITCHES";

/// Maps that only programs use.
pub(super) const OF_PROGRAMS: [&str; 7] = [
    kernel_log::RING,
    "RECORD",
    "SAMPLE_ZERO",
    "SPE_MOVE",
    SPE_SWITCHES,
    "SPE_WALK",
    "SPE_ZERO",
];

/// The map of the globals.
const OF_GLOBALS: usize = 1;

/// All maps of the object.
pub(super) const COUNT: usize = NAMED + OF_PROGRAMS.len() + SLOTS + OF_GLOBALS;

/// The maps that outlive a session where it has pins: what the attached programs write, and the
/// counters that they read. All others are of one process. A version of aya-log that writes its
/// messages otherwise has another layout ([`layout`](crate::snapshot::layout)).
const PINNED: [&str; 7] = [
    name::USAGE,
    name::OVERFLOW,
    name::STATE,
    name::CLOCK,
    name::LIFECYCLE,
    name::KERNEL_LOG,
    kernel_log::RING,
];

/// Each of those with its pin below a directory.
pub(super) fn pinned(directory: &Path) -> Vec<(String, PathBuf)> {
    let names = PINNED.into_iter().map(str::to_owned);
    let names = names.chain((0..SLOTS).map(Counters::name));
    names
        .map(|name| (name.clone(), directory.join(name)))
        .collect()
}

/// Whether all of them are pinned there, and are such as this object's.
pub(crate) fn can_use(directory: &Path) -> bool {
    let compiled = Compiled::parse(OBJECT).expect("the object was built with this program");
    pinned(directory).into_iter().all(|(name, path)| {
        let info = MapInfo::from_pin(path);
        compiled
            .maps
            .get(&name)
            .zip(info.ok())
            .is_some_and(|(map, info)| {
                let wanted = (map.map_type(), map.key_size(), map.value_size());
                let found = info.map_type().map(|kind| kind as u32);
                (wanted.1, wanted.2) == (info.key_size(), info.value_size())
                    && found.is_ok_and(|found| found == wanted.0)
            })
    })
}

/// Rows for which the pinned USAGE map has room; None where it cannot be asked.
pub(crate) fn rows_of(directory: &Path) -> Option<u32> {
    let info = MapInfo::from_pin(directory.join(name::USAGE)).ok()?;
    Some(info.max_entries())
}

/// Bytes of key and value.
pub(super) type Sizes = [usize; 2];

fn take(ebpf: &mut Ebpf, name: &str) -> Result<Map, SessionError> {
    ebpf.take_map(name).ok_or_else(|| missing(of(name)))
}

pub(super) fn of(name: &str) -> String {
    format!("map {name}")
}

/// A failed call of bpf(2).
pub(super) fn failed(verb: &str, name: &str, source: io::Error) -> SessionError {
    SessionError::Map {
        what: format!("{verb} the {name} map"),
        source,
    }
}
