//! The maps of the object. Pinned maps outlive a session.

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
    CgroupWalk, CpuState, LogCpu, MarkerCpu, ProcessWalk, ProgramClock, SLOTS, UsageKey, UsageRow,
    WaitKey, WaitTimes, WalkedProcess,
    sample::{SampleCpu, SampleKey, SampleRow},
    spe::{LineKey, LineRow, PageKey, PageRow, SpeClock, SpeCpu, SpeKey, SpeRow, SpeTask},
};

pub(super) use self::kinds::TakenMap;
pub(crate) use self::kinds::{Array, CounterMaps, Hash, PerCpu, Queue, RingMap};
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
            /// The perf events of each slot of counters.
            pub(crate) counters: CounterMaps,
            /// The messages of the programs; None if they send none.
            pub(crate) messages: Option<KernelLog>,
        }

        const NAMED: usize = [$(name::$name),*].len();

        impl Maps {
            /// Takes the maps out of the object. Loaded programs hold them too. `possible` are the
            /// CPUs that this machine may have.
            pub(super) fn take(ebpf: &mut Ebpf, possible: CpuList) -> Result<Self, SessionError> {
                let possible = Arc::new(possible);
                let mut take_named = |name: &'static str| {
                    Ok::<_, SessionError>(TakenMap {
                        name,
                        map: take(ebpf, name)?,
                        possible: Arc::clone(&possible),
                    })
                };
                Ok(Self {
                    $($field: <$type>::open(take_named(name::$name)?)?,)*
                    counters: CounterMaps::take(ebpf, possible)?,
                    messages: None,
                })
            }

            /// The name of each map, and the sizes of its keys and values.
            #[cfg(test)]
            pub(super) const ALL: &[(&str, Sizes)] = &[$((name::$name, <$type>::SIZES),)*];
        }
    };
}

maps! {
    /// Counts by owner, CPU and group.
    usage: Hash<UsageKey, UsageRow> = USAGE,
    /// Counts that did not fit into USAGE, by counter group.
    overflow: PerCpu<UsageRow> = OVERFLOW,
    /// The state of each CPU, at index 0.
    state: PerCpu<CpuState> = STATE,
    /// The programs' clock, and the times of the pinned maps, at index 0.
    clock: Array<ProgramClock> = CLOCK,
    /// Records of [`probe_common::LifecycleKind`]: created cgroups, exits of processes and others.
    lifecycle: RingMap = LIFECYCLE,
    /// Counts of the programs' messages, at index 0.
    kernel_log: PerCpu<LogCpu> = KERNEL_LOG,
    /// Markers of observed programs.
    markers: RingMap = MARKERS,
    /// Counts of written and lost markers, at index 0.
    marker_cpu: PerCpu<MarkerCpu> = MARKER_CPU,
    /// Parameters and results of the walk over all processes, at index 0.
    walk: Array<ProcessWalk> = WALK,
    /// The processes that the walk looks for.
    processes: Hash<u64, WalkedProcess> = PROCESSES,
    /// Results of the walk over all cgroups, at index 0.
    tree: Array<CgroupWalk> = TREE,
    /// The cgroups that the walk looks for. The value is 1 once the walk has found the cgroup.
    cgroups: Hash<u64, u64> = CGROUPS,
    /// Processes of a command that has no cgroup of its own.
    command: Hash<u32, u8> = COMMAND,
    /// Nanoseconds of waits, by the owner that waited and the cgroup that ran meanwhile.
    waits: Hash<WaitKey, u64> = WAITS,
    /// Waits by owner and length.
    wait_times: Hash<UsageKey, WaitTimes> = WAIT_TIMES,
    /// Samples by owner.
    spe_rows: Hash<SpeKey, SpeRow> = SPE_ROWS,
    /// Samples that did not fit into `SPE_ROWS`, by class.
    spe_overflow: PerCpu<SpeRow> = SPE_OVERFLOW,
    /// Counts of SPE's bytes and records on each CPU, by outcome, at index 0.
    spe_cpu: PerCpu<SpeCpu> = SPE_CPU,
    /// Recently accessed pages.
    spe_pages: Hash<PageKey, PageRow> = SPE_PAGES,
    /// Recently accessed cache lines.
    spe_lines: Hash<LineKey, LineRow> = SPE_LINES,
    /// By CPU: a mask of the data sources that mean another core.
    spe_peers: Array<u64> = SPE_PEERS,
    /// Ids of this session's events, by CPU.
    spe_events: Array<u64> = SPE_EVENTS,
    /// Settings of SPE, by [`probe_common::spe::SpeSetting`].
    spe_settings: Array<u64> = SPE_SETTINGS,
    /// Two clock conversions: one is filled while the other is in use.
    spe_clocks: Array<SpeClock> = SPE_CLOCKS,
    /// The owner of each thread.
    spe_tasks: Hash<u64, SpeTask> = SPE_TASKS,
    /// Threads that exited.
    spe_exited: Queue<u64> = SPE_EXITED,
    /// Samples of events by owner.
    sample_rows: Hash<SampleKey, SampleRow> = SAMPLE_ROWS,
    /// Sampled instructions.
    sample_addresses: Slots = SAMPLE_ADDRESSES,
    /// Sampled data pages.
    sample_pages: Slots = SAMPLE_PAGES,
    /// Counts of the samples of each event on each CPU, by outcome.
    sample_cpu: PerCpu<SampleCpu> = SAMPLE_CPU,
    /// Settings of sampled events, by [`probe_common::sample::SampleSetting`].
    sample_settings: Array<u64> = SAMPLE_SETTINGS,
}

/// The timeline of switches. Only programs use it; user space sets its size.
pub(super) const SPE_SWITCHES: &str = "SPE_SWITCHES";

/// The state of threads between their switches. Only programs use it; user space sets its size.
pub(super) const TASKS: &str = "TASKS";

/// The last slices of each CPU.
const SLICES: &str = "SLICES";

/// The maps that are not in [`Maps`]. Only programs use them, except the ring of messages, which
/// [`KernelLog`] reads.
pub(super) const PROGRAM_MAPS: [&str; 9] = [
    kernel_log::RING,
    TASKS,
    SLICES,
    "RECORD",
    "SAMPLE_ZERO",
    "SPE_MOVE",
    SPE_SWITCHES,
    "SPE_WALK",
    "SPE_ZERO",
];

/// The number of maps of globals.
const GLOBAL_MAPS: usize = 1;

/// The number of all maps of the object.
pub(super) const COUNT: usize = NAMED + PROGRAM_MAPS.len() + SLOTS + GLOBAL_MAPS;

/// The maps that outlive a session with pins, in addition to the maps of counters: the attached
/// programs write them. All other maps belong to one process. With a version of aya-log that writes
/// its messages differently, the layout must change ([`layout`](crate::snapshot::layout)).
const PINNED: [&str; 11] = [
    name::USAGE,
    name::OVERFLOW,
    name::STATE,
    name::CLOCK,
    name::LIFECYCLE,
    name::KERNEL_LOG,
    kernel_log::RING,
    TASKS,
    SLICES,
    name::WAITS,
    name::WAIT_TIMES,
];

/// Name and file of each pinned map, for pins in `directory`.
pub(super) fn pinned(directory: &Path) -> Vec<(String, PathBuf)> {
    let names = PINNED
        .into_iter()
        .map(str::to_owned)
        .chain((0..SLOTS).map(CounterMaps::name));
    names
        .map(|name| (name.clone(), directory.join(name)))
        .collect()
}

/// Whether all maps of [`pinned`] are in `directory`, with the kinds and sizes of this object.
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

/// Number of rows for which the pinned USAGE map has room; None if it cannot be opened.
pub(crate) fn row_capacity(directory: &Path) -> Option<u32> {
    let info = MapInfo::from_pin(directory.join(name::USAGE)).ok()?;
    Some(info.max_entries())
}

/// Sizes of key and value, in bytes.
pub(super) type Sizes = [usize; 2];

fn take(ebpf: &mut Ebpf, name: &str) -> Result<Map, SessionError> {
    ebpf.take_map(name).ok_or_else(|| missing(label(name)))
}

/// The name of a map in messages.
pub(super) fn label(name: &str) -> String {
    format!("map {name}")
}

/// The error of a failed bpf(2) call on a map.
pub(super) fn failed(verb: &str, name: &str, source: io::Error) -> SessionError {
    SessionError::Map {
        what: format!("{verb} the {name} map"),
        source,
    }
}
