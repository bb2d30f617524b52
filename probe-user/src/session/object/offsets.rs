//! The globals of the object that hold offsets of members in kernel structures. Each global is
//! named after its member.

use std::path::Path;

use super::programs;
use crate::machine::btf::{
    BtfError, Field, KernelTypes, NO_FIELD,
    Shape::{self, AnyInteger, Integer, Other, Pointer, Structure, Text},
    field, read,
};

const TASK: &str = "task_struct";
const ENTITY: &str = "sched_entity";
const CSS: &str = "cgroup_subsys_state";
const SIGNAL: &str = "signal_struct";
const LIST: Shape<'_> = Structure("list_head");

/// The members that every session needs.
const FIELDS: [Field; 34] = [
    field("TASK_PID", TASK, "pid", Integer(4)),
    field("TASK_TGID", TASK, "tgid", Integer(4)),
    field("TASK_CGROUPS", TASK, "cgroups", Pointer),
    field("TASK_COMM", TASK, "comm", Text(16)),
    field("TASK_TASKS", TASK, "tasks", LIST),
    field("TASK_GROUP_LEADER", TASK, "group_leader", Pointer),
    field("TASK_THREAD_NODE", TASK, "thread_node", LIST),
    field("TASK_THREAD_PID", TASK, "thread_pid", Pointer),
    field("TASK_SIGNAL", TASK, "signal", Pointer),
    field("SIGNAL_THREAD_HEAD", SIGNAL, "thread_head", LIST),
    // `live` is an atomic_t.
    field("SIGNAL_LIVE", SIGNAL, "live", Integer(4)),
    field("SIGNAL_NR_THREADS", SIGNAL, "nr_threads", Integer(4)),
    field("TASK_EXIT_STATE", TASK, "exit_state", Integer(4)),
    field("PID_LEVEL", "pid", "level", Integer(4)),
    // `numbers` is an array of upid.
    field("PID_NUMBERS", "pid", "numbers", Other),
    field("UPID_NR", "upid", "nr", Integer(4)),
    field("UPID_NS", "upid", "ns", Pointer),
    field("TASK_SE", TASK, "se", Structure(ENTITY)),
    field(
        "SCHED_ENTITY_SUM_EXEC_RUNTIME",
        ENTITY,
        "sum_exec_runtime",
        Integer(8),
    ),
    field(
        "SCHED_ENTITY_PREV_SUM_EXEC_RUNTIME",
        ENTITY,
        "prev_sum_exec_runtime",
        Integer(8),
    ),
    field("SCHED_ENTITY_EXEC_START", ENTITY, "exec_start", Integer(8)),
    field("RQ_CLOCK", "rq", "clock", Integer(8)),
    field("RQ_CLOCK_TASK", "rq", "clock_task", Integer(8)),
    field("CSS_SET_DFL_CGRP", "css_set", "dfl_cgrp", Pointer),
    field("CGROUP_KN", "cgroup", "kn", Pointer),
    field("CGROUP_ROOT", "cgroup", "root", Pointer),
    field(
        "CGROUP_ROOT_HIERARCHY_ID",
        "cgroup_root",
        "hierarchy_id",
        Integer(4),
    ),
    field(
        "CGROUP_ROOT_CGRP",
        "cgroup_root",
        "cgrp",
        Structure("cgroup"),
    ),
    field("CGROUP_SELF", "cgroup", "self", Structure(CSS)),
    field("CSS_SIBLING", CSS, "sibling", LIST),
    field("CSS_CHILDREN", CSS, "children", LIST),
    field("CSS_FLAGS", CSS, "flags", Integer(4)),
    field("CSS_PARENT", CSS, "parent", Pointer),
    field("KERNFS_NODE_ID", "kernfs_node", "id", Integer(8)),
];

/// The members that the programs for SPE need in addition.
const SPE_FIELDS: [Field; 7] = {
    const HANDLE: &str = "perf_output_handle";
    const BUFFER: &str = "perf_buffer";
    [
        field("SPE_HANDLE_EVENT", HANDLE, "event", Pointer),
        field("SPE_HANDLE_RB", HANDLE, "rb", Pointer),
        field("SPE_HANDLE_HEAD", HANDLE, "head", Integer(8)),
        field("SPE_HANDLE_FLAGS", HANDLE, "aux_flags", Integer(8)),
        field("SPE_BUFFER_PAGES", BUFFER, "aux_pages", Pointer),
        field("SPE_BUFFER_NR_PAGES", BUFFER, "aux_nr_pages", Integer(4)),
        field("SPE_EVENT_ID", "perf_event", "id", Integer(8)),
    ]
};

/// The members that the program of sampled events needs in addition.
const SAMPLE_FIELDS: [Field; 2] = [
    field("DATA_EVENT", "bpf_perf_event_data_kern", "event", Pointer),
    field("EVENT_COUNT", "perf_event", "count", Integer(8)),
];

/// The members that the program of sampled events also reads, if the kernel has them. Without one
/// of them, samples lack the data to which it leads.
const SAMPLE_DATA_FIELDS: [Field; 4] = {
    const DATA: &str = "perf_sample_data";
    [
        field("EVENT_DATA", "bpf_perf_event_data_kern", "data", Pointer),
        field("SAMPLE_FLAGS", DATA, "sample_flags", Integer(8)),
        // `weight` and `data_src` are unions of one word.
        field("SAMPLE_WEIGHT", DATA, "weight", Other),
        field("SAMPLE_DATA_SRC", DATA, "data_src", Other),
    ]
};

/// Members that some kernels lack. Without `CONFIG_FAIR_GROUP_SCHED`, clock counters cannot be set
/// back to the moment of a switch, and waits are not counted; without `CONFIG_SCHED_INFO`, tasks
/// have no `last_arrival` and no waits. `rq.cpu` and `on_rq` are for the ledger of waits.
const OPTIONAL: [Field; 9] = [
    field("RQ_CPU", "rq", "cpu", Integer(4)),
    field("TASK_ON_RQ", TASK, "on_rq", AnyInteger),
    field(
        "SCHED_INFO_RUN_DELAY",
        "sched_info",
        "run_delay",
        Integer(8),
    ),
    field(
        "SCHED_INFO_LAST_QUEUED",
        "sched_info",
        "last_queued",
        Integer(8),
    ),
    field("SCHED_INFO_PCOUNT", "sched_info", "pcount", Integer(8)),
    field("SCHED_ENTITY_CFS_RQ", ENTITY, "cfs_rq", Pointer),
    field("CFS_RQ_RQ", "cfs_rq", "rq", Pointer),
    field(
        "TASK_SCHED_INFO",
        TASK,
        "sched_info",
        Structure("sched_info"),
    ),
    field(
        "SCHED_INFO_LAST_ARRIVAL",
        "sched_info",
        "last_arrival",
        Integer(8),
    ),
];

/// The value of every offset global, and the numbers of the types to which programs attach. `spe`
/// and `events` include the globals of the programs for SPE and for sampled events.
///
/// # Errors
///
/// If the file cannot be read, lacks a field, or shows a kernel older than Linux 6.1.
pub(crate) fn kernel_types(
    vmlinux: &Path,
    spe: bool,
    events: bool,
) -> Result<KernelTypes, BtfError> {
    let mut needed = FIELDS.to_vec();
    if spe {
        needed.extend(SPE_FIELDS);
    }
    let mut optional = OPTIONAL.to_vec();
    if events {
        needed.extend(SAMPLE_FIELDS);
        optional.extend(SAMPLE_DATA_FIELDS);
    }
    read(vmlinux, &needed, &optional, programs::attach_targets())
}

/// Whether the kernel has all members of [`OPTIONAL`], which the accounts of waits need.
pub(super) fn has_waits(types: &KernelTypes) -> bool {
    let mut missing = types.offsets.iter().filter(|(_, at)| *at == NO_FIELD);
    !missing.any(|(name, _)| OPTIONAL.iter().any(|field| field.global == *name))
}

/// The names of all offset globals.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let fields = FIELDS
        .into_iter()
        .chain(SPE_FIELDS)
        .chain(SAMPLE_FIELDS)
        .chain(SAMPLE_DATA_FIELDS)
        .chain(OPTIONAL);
    fields.map(|field| field.global)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn the_running_kernel_has_every_field() {
        let vmlinux = Machine::this().vmlinux();
        if !vmlinux.exists() {
            println!("skipped: this kernel has no BTF");
            return;
        }
        let offsets = kernel_types(&vmlinux, true, true).unwrap().offsets;
        assert_eq!(offsets.len(), names().count());
        // No known kernel has one of these members at offset 0 of task_struct.
        assert!(
            offsets
                .iter()
                .filter(|(name, _)| name.starts_with("TASK_"))
                .all(|(_, offset)| *offset > 0)
        );
    }
}
