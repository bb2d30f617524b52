//! Events that every kernel knows by number: hardware, hardware cache and software events.
//!
//! Numbers are those of `include/uapi/linux/perf_event.h`; names, and the operations of each cache,
//! are perf's (`tools/perf/util/evsel.c`, `parse-events.c`). Scheduler events are pmuscope's own.

use probe_common::SchedulerCounter;

/// `PERF_TYPE_HARDWARE`
pub(super) const TYPE_HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`
pub(super) const TYPE_SOFTWARE: u32 = 1;
/// `PERF_TYPE_HW_CACHE`
pub(super) const TYPE_HW_CACHE: u32 = 3;
/// Type of the counters that pmuscope's own program keeps at switches; the kernel has no such PMU.
pub(super) const TYPE_SCHEDULER: u32 = u32::MAX;
/// perf's event for the wall clock; no counter is opened for it.
pub(super) const DURATION_TIME: &str = "duration_time";

/// An event's number in the kernel, and its names, the usual one first.
type NumberedEvent = (u64, &'static [&'static str]);

const HARDWARE: [NumberedEvent; 10] = [
    (0, &["cycles", "cpu-cycles"]),
    (1, &["instructions"]),
    (2, &["cache-references"]),
    (3, &["cache-misses"]),
    (4, &["branches", "branch-instructions"]),
    (5, &["branch-misses"]),
    (6, &["bus-cycles"]),
    (7, &["stalled-cycles-frontend", "idle-cycles-frontend"]),
    (8, &["stalled-cycles-backend", "idle-cycles-backend"]),
    (9, &["ref-cycles"]),
];

const SOFTWARE: [NumberedEvent; 11] = [
    (0, &["cpu-clock"]),
    (1, &["task-clock"]),
    (2, &["page-faults", "faults"]),
    (3, &["context-switches", "cs"]),
    (4, &["cpu-migrations", "migrations"]),
    (5, &["minor-faults"]),
    (6, &["major-faults"]),
    (7, &["alignment-faults"]),
    (8, &["emulation-faults"]),
    (9, &["dummy"]),
    (11, &["cgroup-switches"]),
];

/// Numbered by [`SchedulerCounter`].
const SCHEDULER: [NumberedEvent; SchedulerCounter::COUNT] = [
    (SchedulerCounter::Wait as u64, &["cpu-wait"]),
    (SchedulerCounter::Waits as u64, &["cpu-waits"]),
    (
        SchedulerCounter::UnknownWaits as u64,
        &["unknown-cpu-waits"],
    ),
    (
        SchedulerCounter::VoluntarySwitches as u64,
        &["voluntary-switches"],
    ),
    (
        SchedulerCounter::InvoluntarySwitches as u64,
        &["involuntary-switches"],
    ),
    (
        SchedulerCounter::Uninterruptible as u64,
        &["uninterruptible-sleep"],
    ),
    (SchedulerCounter::Stolen as u64, &["stolen-time"]),
];

/// Events that count nanoseconds, not occurrences.
const NANOSECONDS: [&str; 5] = [
    "cpu-clock",
    "task-clock",
    "cpu-wait",
    "uninterruptible-sleep",
    "stolen-time",
];

/// Software event 10 carries data from BPF to user space and counts nothing.
pub(super) const BPF_OUTPUT: &str = "bpf-output";

/// One cache of the hardware-cache events.
struct CacheNames {
    names: &'static [&'static str],
    /// The operations that perf accepts for it, as indices of [`OPERATIONS`].
    operations: &'static [usize],
}

/// In the order of `perf_hw_cache_id`.
const CACHES: [CacheNames; 7] = [
    CacheNames {
        names: &["L1-dcache", "l1-d", "l1d", "L1-data"],
        operations: &[0, 1, 2],
    },
    CacheNames {
        names: &["L1-icache", "l1-i", "l1i", "L1-instruction"],
        operations: &[0, 2],
    },
    CacheNames {
        names: &["LLC", "L2"],
        operations: &[0, 1, 2],
    },
    CacheNames {
        names: &["dTLB", "d-tlb", "Data-TLB"],
        operations: &[0, 1, 2],
    },
    CacheNames {
        names: &["iTLB", "i-tlb", "Instruction-TLB"],
        operations: &[0],
    },
    CacheNames {
        names: &["branch", "branches", "bpu", "btb", "bpc"],
        operations: &[0],
    },
    CacheNames {
        names: &["node"],
        operations: &[0, 1, 2],
    },
];

/// In the order of `perf_hw_cache_op_id`: read, write, prefetch. The first name is the singular,
/// the second the plural.
const OPERATIONS: [&[&str]; 3] = [
    &["load", "loads", "read"],
    &["store", "stores", "write"],
    &[
        "prefetch",
        "prefetches",
        "speculative-read",
        "speculative-load",
    ],
];

/// In the order of `perf_hw_cache_op_result_id`: access, miss.
const RESULTS: [&[&str]; 2] = [&["refs", "Reference", "ops", "access"], &["misses", "miss"]];

/// A cache event that perf rejects: no hardware counts that operation on that cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoSuchOperation {
    pub(super) cache: &'static str,
    pub(super) operation: &'static str,
}

/// The number of a generic hardware event.
pub(super) fn hardware(name: &str) -> Option<u64> {
    find(&HARDWARE, name).map(|(number, _)| number)
}

/// The number of a counting software event.
pub(super) fn software(name: &str) -> Option<u64> {
    find(&SOFTWARE, name).map(|(number, _)| number)
}

/// The number of a scheduler event, which pmuscope's program counts at each switch.
pub(super) fn scheduler(name: &str) -> Option<u64> {
    find(&SCHEDULER, name).map(|(number, _)| number)
}

/// Whether a software or scheduler event counts nanoseconds.
pub(super) fn is_in_nanoseconds(name: &str) -> bool {
    NANOSECONDS.contains(&name)
}

/// All names of the generic hardware event `name`.
pub(super) fn hardware_aliases(name: &str) -> &'static [&'static str] {
    find(&HARDWARE, name).map_or(&[], |(_, names)| names)
}

/// The config of a hardware-cache event: cache | operation << 8 | result << 16. `None` if `name`
/// is not one.
///
/// As in perf, a missing operation means load, and a missing result means access.
pub(super) fn cache(name: &str) -> Option<Result<u64, NoSuchOperation>> {
    let mut rest = name;
    let cache = strip(&mut rest, CACHES.iter().map(|cache| cache.names))?;
    let (mut operation, mut result) = (None, None);
    while !rest.is_empty() {
        if operation.is_none() {
            operation = strip(&mut rest, OPERATIONS);
            if operation.is_some() {
                continue;
            }
        }
        if result.is_some() {
            return None;
        }
        result = Some(strip(&mut rest, RESULTS)?);
    }
    let (operation, result) = (operation.unwrap_or(0), result.unwrap_or(0));
    if !CACHES[cache].operations.contains(&operation) {
        return Some(Err(NoSuchOperation {
            cache: CACHES[cache].names[0],
            operation: OPERATIONS[operation][0],
        }));
    }
    Some(Ok((cache | operation << 8 | result << 16) as u64))
}

/// All names that can be counted; cache events in their usual spelling.
pub(super) fn names() -> impl Iterator<Item = String> {
    let numbered = HARDWARE.iter().chain(&SOFTWARE).chain(&SCHEDULER);
    let plain = numbered.flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned()));
    let caches = CACHES.iter().flat_map(|cache| {
        let name = cache.names[0];
        cache.operations.iter().flat_map(move |operation| {
            let (singular, plural) = (OPERATIONS[*operation][0], OPERATIONS[*operation][1]);
            [
                format!("{name}-{plural}"),
                format!("{name}-{singular}-misses"),
            ]
        })
    });
    plain.chain(caches).chain([DURATION_TIME.to_owned()])
}

fn find(table: &[NumberedEvent], name: &str) -> Option<NumberedEvent> {
    table
        .iter()
        .copied()
        .find(|(_, names)| names.contains(&name))
}

/// Strips from `rest` a leading name of `table` and the `-` behind it; returns the index of its
/// row. No name begins with another name followed by `-`.
fn strip<'n>(rest: &mut &str, table: impl IntoIterator<Item = &'n [&'n str]>) -> Option<usize> {
    let text = *rest;
    for (row, names) in table.into_iter().enumerate() {
        for name in names {
            let Some(after) = text.strip_prefix(name) else {
                continue;
            };
            let following = after.strip_prefix('-').filter(|more| !more.is_empty());
            if after.is_empty() || following.is_some() {
                *rest = following.unwrap_or_default();
                return Some(row);
            }
        }
    }
    None
}
