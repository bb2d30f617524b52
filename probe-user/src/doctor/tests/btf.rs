//! Kernel type information (BTF) for a fixture machine.

/// Name and members, each with the id of its type.
pub(super) type Structure = (&'static str, &'static [(&'static str, u32)]);

/// Ids of the types before the structures, and of some structures, by order.
const INT: u32 = 1;
const LONG: u32 = 2;
const POINTER: u32 = 3;
const CHARACTER: u32 = 4;
const TEXT: u32 = 5;
const NUMBERS: u32 = 6;
const ENTITY: u32 = 8;
const LIST: u32 = 9;
const CGROUP: u32 = 16;
const CSS: u32 = 20;
const SCHED_INFO: u32 = 21;

/// The structures and members of the kernel that pmuscope reads.
pub(super) const STRUCTURES: [Structure; 15] = [
    (
        "task_struct",
        &[
            ("state", INT),
            ("pid", INT),
            ("tgid", INT),
            ("cgroups", POINTER),
            ("comm", TEXT),
            ("se", ENTITY),
            ("tasks", LIST),
            ("group_leader", POINTER),
            ("thread_node", LIST),
            ("thread_pid", POINTER),
            ("exit_state", INT),
            ("signal", POINTER),
            ("sched_info", SCHED_INFO),
        ],
    ),
    (
        "sched_entity",
        &[
            ("sum_exec_runtime", LONG),
            ("prev_sum_exec_runtime", LONG),
            ("exec_start", LONG),
            ("cfs_rq", POINTER),
        ],
    ),
    ("list_head", &[("next", POINTER), ("prev", POINTER)]),
    (
        "signal_struct",
        &[("thread_head", LIST), ("live", INT), ("nr_threads", INT)],
    ),
    ("pid", &[("level", INT), ("numbers", NUMBERS)]),
    ("upid", &[("nr", INT), ("ns", POINTER)]),
    ("cfs_rq", &[("rq", POINTER)]),
    ("rq", &[("clock", LONG), ("clock_task", LONG)]),
    ("css_set", &[("dfl_cgrp", POINTER)]),
    (
        "cgroup",
        &[("self", CSS), ("kn", POINTER), ("root", POINTER)],
    ),
    ("cgroup_root", &[("hierarchy_id", INT), ("cgrp", CGROUP)]),
    ("kernfs_node", &[("id", LONG)]),
    ("bpf_mem_alloc", &[("objcg", POINTER)]),
    (
        "cgroup_subsys_state",
        &[
            ("sibling", LIST),
            ("children", LIST),
            ("flags", INT),
            ("parent", POINTER),
        ],
    ),
    ("sched_info", &[("pcount", LONG), ("last_arrival", LONG)]),
];

/// A BTF file (Documentation/bpf/btf.rst) of these structures.
pub(super) fn btf(structures: &[Structure]) -> Vec<u8> {
    let kind = |kind: u32| kind << 24;
    let mut strings = vec![0_u8];
    let mut name = |text: &str| {
        let at = u32::try_from(strings.len()).unwrap();
        strings.extend(text.bytes().chain([0]));
        at
    };
    // A type is its name, its kind, its size in bytes (of a pointer: its target), and for an
    // integer its bits. An array has its element's type, its index type and its length.
    let mut types = vec![name("int"), kind(1), 4, 32];
    types.extend([name("long"), kind(1), 8, 64]);
    types.extend([0, kind(2), INT]);
    types.extend([name("char"), kind(1), 1, 8]);
    types.extend([0, kind(3), 0, CHARACTER, INT, 16]);
    types.extend([0, kind(3), 0, INT, INT, 1]);
    for (structure, members) in structures {
        let count = u32::try_from(members.len()).unwrap();
        types.extend([name(structure), kind(4) | count, count * 32]);
        for (at, (member, id)) in (0..).zip(*members) {
            types.extend([name(member), *id, at * 256]);
        }
    }
    let types: Vec<u8> = types.into_iter().flat_map(u32::to_le_bytes).collect();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
    let (types_len, strings_len) = (length(&types), length(&strings));
    let mut file = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, types_len, types_len, strings_len] {
        file.extend(u32::to_le_bytes(word));
    }
    file.extend(types);
    file.extend(strings);
    file
}
