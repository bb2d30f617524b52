//! Where the fields that the programs read are, in the running kernel.

mod file;

use std::{fs, path::Path};

pub(crate) use self::file::Shape;
use self::file::{
    Shape::{Integer, Other, Pointer, Structure, Text},
    Types,
};
use super::LoadError;

/// Where the kernel describes its types.
pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// A member of a structure that the programs read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// The global that holds its offset.
    global: &'static str,
    structure: &'static str,
    member: &'static str,
    /// What the programs take it for.
    shape: Shape<'static>,
}

/// A [`Field`].
pub(crate) const fn field(
    global: &'static str,
    structure: &'static str,
    member: &'static str,
    shape: Shape<'static>,
) -> Field {
    Field {
        global,
        structure,
        member,
        shape,
    }
}

const TASK: &str = "task_struct";
const ENTITY: &str = "sched_entity";
const CSS: &str = "cgroup_subsys_state";
const SIGNAL: &str = "signal_struct";
const LIST: Shape<'_> = Structure("list_head");

/// What every session needs.
const FIELDS: [Field; 32] = [
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
    // An atomic_t.
    field("SIGNAL_LIVE", SIGNAL, "live", Integer(4)),
    field("PID_LEVEL", "pid", "level", Integer(4)),
    // An array of upid.
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

/// Members that kernels without `CONFIG_FAIR_GROUP_SCHED` lack: there, clocks cannot be taken back to
/// the moment of a switch.
const RUN_QUEUE: [Field; 2] = [
    field("SCHED_ENTITY_CFS_RQ", ENTITY, "cfs_rq", Pointer),
    field("CFS_RQ_RQ", "cfs_rq", "rq", Pointer),
];

/// The allocator that hash maps without preallocation take memory from since Linux 6.1. Before it
/// they call kmalloc, which in a program at `sched_switch` can wake kswapd under the run-queue lock
/// that is held there: a deadlock. Distributions backport it (RHEL 9's 5.14), so the type decides
/// and not the version.
const MAP_ALLOCATOR: &str = "bpf_mem_alloc";

/// What the programs take for "not there".
const NO_FIELD: u64 = u64::MAX;

/// The name and value of every offset global, and of those of `more`.
///
/// # Errors
///
/// Where the file cannot be read, lacks a field, or shows a kernel below the floor (Linux 6.1).
pub(crate) fn offsets(
    vmlinux: &Path,
    more: &[Field],
) -> Result<Vec<(&'static str, u64)>, LoadError> {
    let error = |reason: String| LoadError::Btf {
        path: vmlinux.to_path_buf(),
        reason,
    };
    let bytes = fs::read(vmlinux).map_err(|read| error(read.to_string()))?;
    let types = Types::parse(&bytes).map_err(|parse| error(parse.to_string()))?;
    if !types.has_structure(MAP_ALLOCATOR) {
        return Err(LoadError::MapAllocator {
            path: vmlinux.to_path_buf(),
        });
    }
    let offset = |it: &Field| -> Result<Option<u64>, LoadError> {
        match types.member(it.structure, it.member) {
            None => Ok(None),
            Some((offset, shape)) if shape == it.shape => Ok(Some(offset)),
            Some((_, shape)) => Err(LoadError::FieldType {
                path: vmlinux.to_path_buf(),
                structure: it.structure,
                member: it.member,
                found: shape.to_string(),
                expected: it.shape.to_string(),
            }),
        }
    };
    let needed = |it: &Field| {
        let missing = || LoadError::Field {
            path: vmlinux.to_path_buf(),
            structure: it.structure,
            member: it.member,
        };
        Ok((it.global, offset(it)?.ok_or_else(missing)?))
    };
    let fields = FIELDS.iter().chain(more);
    let mut found: Vec<_> = fields.map(needed).collect::<Result<_, LoadError>>()?;
    for field in &RUN_QUEUE {
        found.push((field.global, offset(field)?.unwrap_or(NO_FIELD)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_every_field() {
        if !Path::new(VMLINUX).exists() {
            println!("skipped: this kernel has no BTF");
            return;
        }
        let more = crate::load::spe::FIELDS;
        let offsets = offsets(Path::new(VMLINUX), &more).unwrap();
        assert_eq!(offsets.len(), FIELDS.len() + more.len() + RUN_QUEUE.len());
        // The members that lie first in their structures on no kernel we know.
        assert!(
            offsets
                .iter()
                .filter(|(name, _)| name.starts_with("TASK_"))
                .all(|(_, offset)| *offset > 0)
        );
    }

    /// What it would take to count is all there, but for the allocator of the maps.
    #[test]
    fn a_kernel_whose_maps_allocate_in_the_scheduler_is_refused() {
        let file = file::tests::file(&[1, 4 << 24, 0], "\0task_struct\0");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmlinux");
        fs::write(&path, file).unwrap();
        let error = offsets(&path, &[]).unwrap_err().to_string();
        assert_eq!(
            error.replace(path.to_str().unwrap(), "PATH"),
            "this kernel has no struct bpf_mem_alloc (read in PATH): pmuscope's maps would allocate \
             memory under the scheduler's lock, which can deadlock it; boot Linux 6.1 or newer, or a \
             kernel with a backport, such as RHEL 9's"
        );
    }

    /// `struct task_struct { <8 bytes> pid; }`, and a kernel without `tgid`.
    #[test]
    fn a_field_of_another_size_is_refused() {
        let refused = |size: u32| {
            let (int, composite) = (1 << 24, 4 << 24);
            let types = [
                vec![0, int, size, 8 * size],
                vec![1, composite | 1, size, 13, 1, 0],
                vec![17, composite, 0],
            ];
            let names = "\0task_struct\0pid\0bpf_mem_alloc\0";
            let file = file::tests::file(&types.concat(), names);
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("vmlinux");
            fs::write(&path, file).unwrap();
            let error = offsets(&path, &[]).unwrap_err().to_string();
            error.replace(path.to_str().unwrap(), "PATH")
        };
        assert_eq!(
            refused(8),
            "the kernel's BTF at PATH has task_struct.pid as an integer of 8 bytes, and the programs read an integer \
             of 4 bytes there: this kernel is newer or older than pmuscope knows; please report it with the output of \
             `uname -r`"
        );
        let missing = refused(4);
        assert!(
            missing.starts_with("the kernel's BTF at PATH has no task_struct.tgid"),
            "{missing}"
        );
    }

    #[test]
    fn no_btf_is_said_so() {
        let error = offsets(Path::new("/nonexistent"), &[])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("cannot read the kernel's BTF at /nonexistent"),
            "{error}"
        );
    }
}
