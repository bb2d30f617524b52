//! The events every kernel knows by number: hardware, hardware cache and software events.
//!
//! Numbers are those of `include/uapi/linux/perf_event.h`; names and which cache takes which
//! operation are perf's (`tools/perf/util/evsel.c`, `parse-events.c`).

/// `PERF_TYPE_HARDWARE`
pub(super) const TYPE_HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`
pub(super) const TYPE_SOFTWARE: u32 = 1;
/// `PERF_TYPE_HW_CACHE`
pub(super) const TYPE_HW_CACHE: u32 = 3;
/// The wall clock that perf offers as an event; no counter is opened for it.
pub(super) const DURATION_TIME: &str = "duration_time";

/// An event with a number of the kernel's, and its names. The first name is the usual one.
type Numbered = (u64, &'static [&'static str]);

const HARDWARE: [Numbered; 10] = [
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

const SOFTWARE: [Numbered; 11] = [
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

/// Number 10 of the software events carries data from BPF to user space and counts nothing.
pub(super) const BPF_OUTPUT: &str = "bpf-output";

/// One cache of the hardware-cache events.
struct Cache {
    names: &'static [&'static str],
    /// The operations perf accepts for it, as indices of [`OPERATIONS`].
    operations: &'static [usize],
}

/// In the order of `perf_hw_cache_id`.
const CACHES: [Cache; 7] = [
    Cache {
        names: &["L1-dcache", "l1-d", "l1d", "L1-data"],
        operations: &[0, 1, 2],
    },
    Cache {
        names: &["L1-icache", "l1-i", "l1i", "L1-instruction"],
        operations: &[0, 2],
    },
    Cache {
        names: &["LLC", "L2"],
        operations: &[0, 1, 2],
    },
    Cache {
        names: &["dTLB", "d-tlb", "Data-TLB"],
        operations: &[0, 1, 2],
    },
    Cache {
        names: &["iTLB", "i-tlb", "Instruction-TLB"],
        operations: &[0],
    },
    Cache {
        names: &["branch", "branches", "bpu", "btb", "bpc"],
        operations: &[0],
    },
    Cache {
        names: &["node"],
        operations: &[0, 1, 2],
    },
];

/// In the order of `perf_hw_cache_op_id`: read, write, prefetch. First the singular, then the
/// plural.
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

/// A cache event that perf refuses: no hardware counts that operation on that cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoSuchOperation {
    pub(super) cache: &'static str,
    pub(super) operation: &'static str,
}

/// The number of a generic hardware event.
pub(super) fn hardware(name: &str) -> Option<u64> {
    find(&HARDWARE, name).map(|(number, _)| number)
}

/// The number of a software event that counts.
pub(super) fn software(name: &str) -> Option<u64> {
    find(&SOFTWARE, name).map(|(number, _)| number)
}

/// All names of the generic hardware event that is also called `name`.
pub(super) fn hardware_aliases(name: &str) -> &'static [&'static str] {
    find(&HARDWARE, name).map_or(&[], |(_, names)| names)
}

/// The config of a hardware-cache event: cache | operation << 8 | result << 16. `None` if `name`
/// is not one.
///
/// As in perf a missing operation is a load and a missing result an access.
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

/// Every name of this module that can be counted, the cache events in their usual spelling.
pub(super) fn names() -> impl Iterator<Item = String> {
    let numbered = HARDWARE.iter().chain(&SOFTWARE);
    let plain = numbered.flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned()));
    let caches = CACHES.iter().flat_map(|cache| {
        let name = cache.names[0];
        cache.operations.iter().flat_map(move |operation| {
            let (one, many) = (OPERATIONS[*operation][0], OPERATIONS[*operation][1]);
            [format!("{name}-{many}"), format!("{name}-{one}-misses")]
        })
    });
    plain.chain(caches).chain([DURATION_TIME.to_owned()])
}

fn find(table: &[Numbered], name: &str) -> Option<Numbered> {
    table
        .iter()
        .copied()
        .find(|(_, names)| names.contains(&name))
}

/// Takes the name of `table` that `rest` starts with, and the `-` between it and what follows, off
/// `rest`; gives the index of its row. No name is another one with `-` and more behind it.
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
