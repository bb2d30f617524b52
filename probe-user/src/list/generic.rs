//! The events that every kernel knows, with their meaning (`include/uapi/linux/perf_event.h`).

/// One event: its names, the usual one first, and what it counts.
pub(super) struct GenericEvent {
    pub(super) names: &'static [&'static str],
    pub(super) meaning: &'static str,
}

const fn event(names: &'static [&'static str], meaning: &'static str) -> GenericEvent {
    GenericEvent { names, meaning }
}

/// Hardware events, counted by the core PMU.
pub(super) const HARDWARE: [GenericEvent; 10] = [
    event(&["cycles", "cpu-cycles"], "cycles that the core ran"),
    event(&["instructions"], "instructions that retired"),
    event(
        &["cache-references"],
        "cache accesses, mostly of the last level (on Arm: level 1 data)",
    ),
    event(
        &["cache-misses"],
        "cache misses, mostly of the last level (on Arm: level 1 data)",
    ),
    event(
        &["branches", "branch-instructions"],
        "branches that retired",
    ),
    event(&["branch-misses"], "branches that were predicted wrongly"),
    event(
        &["bus-cycles"],
        "cycles of the bus or of another slow clock",
    ),
    event(
        &["stalled-cycles-frontend", "idle-cycles-frontend"],
        "cycles without an instruction to issue",
    ),
    event(
        &["stalled-cycles-backend", "idle-cycles-backend"],
        "cycles that waited for data or units",
    ),
    event(
        &["ref-cycles"],
        "cycles of a clock that does not change with the frequency",
    ),
];

/// Software events, counted by the kernel itself. `bpf-output` carries data and counts nothing, so
/// it is left out.
pub(super) const SOFTWARE: [GenericEvent; 12] = [
    event(&["task-clock"], "time that tasks were on a CPU"),
    event(&["cpu-clock"], "time of the CPU's clock, idle or not"),
    event(&["page-faults", "faults"], "page faults"),
    event(&["minor-faults"], "page faults without disk access"),
    event(&["major-faults"], "page faults that read from disk"),
    event(
        &["context-switches", "cs"],
        "switches from one task to another",
    ),
    event(
        &["cgroup-switches"],
        "switches between tasks of two cgroups (Linux 5.13)",
    ),
    event(
        &["cpu-migrations", "migrations"],
        "moves of a task to another CPU",
    ),
    event(
        &["alignment-faults"],
        "unaligned accesses that the kernel handled",
    ),
    event(
        &["emulation-faults"],
        "instructions that the kernel emulated",
    ),
    event(&["dummy"], "nothing; for tests"),
    event(&["duration_time"], "the wall clock of the window"),
];

/// Scheduler events, counted by the program at each switch, from the kernel's own accounts.
pub(super) const SCHEDULER: [GenericEvent; 7] = [
    event(
        &["cpu-wait"],
        "time that threads were runnable and did not run, counted when a wait ends",
    ),
    event(&["cpu-waits"], "waits that ended"),
    event(
        &["unknown-cpu-waits"],
        "waits of which a part is unknown and in no other count",
    ),
    event(
        &["voluntary-switches"],
        "switches from threads that blocked or slept",
    ),
    event(
        &["involuntary-switches"],
        "switches from threads that could have run on",
    ),
    event(
        &["uninterruptible-sleep"],
        "time of threads in state D, counted when it ends",
    ),
    event(
        &["stolen-time"],
        "time that interrupts and the hypervisor took from running threads",
    ),
];

/// A cache of the hardware-cache events, with the operations that perf takes for it.
pub(super) struct GenericCache {
    name: &'static str,
    what: &'static str,
    operations: &'static [CacheOperation],
}

struct CacheOperation {
    singular: &'static str,
    plural: &'static str,
}

const LOAD: CacheOperation = CacheOperation {
    singular: "load",
    plural: "loads",
};
const STORE: CacheOperation = CacheOperation {
    singular: "store",
    plural: "stores",
};
const PREFETCH: CacheOperation = CacheOperation {
    singular: "prefetch",
    plural: "prefetches",
};

const fn cache(
    name: &'static str,
    what: &'static str,
    operations: &'static [CacheOperation],
) -> GenericCache {
    GenericCache {
        name,
        what,
        operations,
    }
}

/// Hardware cache events, counted by the core PMU as far as it has them.
pub(super) const CACHES: [GenericCache; 7] = [
    cache(
        "L1-dcache",
        "the level 1 data cache",
        &[LOAD, STORE, PREFETCH],
    ),
    cache(
        "L1-icache",
        "the level 1 instruction cache",
        &[LOAD, PREFETCH],
    ),
    cache("LLC", "the last-level cache", &[LOAD, STORE, PREFETCH]),
    cache("dTLB", "the data TLB", &[LOAD, STORE, PREFETCH]),
    cache("iTLB", "the instruction TLB", &[LOAD]),
    cache("branch", "the branch predictor", &[LOAD]),
    cache(
        "node",
        "the memory of this CPU's node",
        &[LOAD, STORE, PREFETCH],
    ),
];

impl GenericCache {
    /// The name of each event of the cache, in perf's usual spelling, and its meaning.
    pub(super) fn events(&self) -> impl Iterator<Item = (String, String)> {
        let Self { name, what, .. } = self;
        self.operations.iter().flat_map(move |operation| {
            let CacheOperation { singular, plural } = operation;
            [
                (
                    format!("{name}-{plural}"),
                    format!("{plural}: accesses to {what}"),
                ),
                (
                    format!("{name}-{singular}-misses"),
                    format!("{plural}: misses in {what}"),
                ),
            ]
        })
    }
}
