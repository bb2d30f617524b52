//! Where the fields that the programs read are, in the running kernel.

mod file;

use std::{fs, path::Path};

use self::file::Types;
use super::LoadError;

/// Where the kernel describes its types.
pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The global that holds each offset, with the structure and member it is the offset of.
const FIELDS: [(&str, &str, &str); 16] = [
    ("TASK_PID", "task_struct", "pid"),
    ("TASK_TGID", "task_struct", "tgid"),
    ("TASK_CGROUPS", "task_struct", "cgroups"),
    ("TASK_COMM", "task_struct", "comm"),
    ("TASK_SE", "task_struct", "se"),
    (
        "SCHED_ENTITY_SUM_EXEC_RUNTIME",
        "sched_entity",
        "sum_exec_runtime",
    ),
    (
        "SCHED_ENTITY_PREV_SUM_EXEC_RUNTIME",
        "sched_entity",
        "prev_sum_exec_runtime",
    ),
    ("SCHED_ENTITY_EXEC_START", "sched_entity", "exec_start"),
    ("CFS_RQ_RQ", "cfs_rq", "rq"),
    ("RQ_CLOCK", "rq", "clock"),
    ("RQ_CLOCK_TASK", "rq", "clock_task"),
    ("CSS_SET_DFL_CGRP", "css_set", "dfl_cgrp"),
    ("CGROUP_KN", "cgroup", "kn"),
    ("CGROUP_ROOT", "cgroup", "root"),
    ("CGROUP_ROOT_HIERARCHY_ID", "cgroup_root", "hierarchy_id"),
    ("KERNFS_NODE_ID", "kernfs_node", "id"),
];

/// A member that kernels without `CONFIG_FAIR_GROUP_SCHED` lack: there, clocks cannot be taken back to
/// the moment of a switch.
const RUN_QUEUE: (&str, &str, &str) = ("SCHED_ENTITY_CFS_RQ", "sched_entity", "cfs_rq");

/// What the programs take for "not there".
const NO_FIELD: u64 = u64::MAX;

/// The name and value of every offset global.
pub(crate) fn offsets(vmlinux: &Path) -> Result<Vec<(&'static str, u64)>, LoadError> {
    let error = |reason: String| LoadError::Btf {
        path: vmlinux.to_path_buf(),
        reason,
    };
    let bytes = fs::read(vmlinux).map_err(|read| error(read.to_string()))?;
    let types = Types::parse(&bytes).map_err(|parse| error(parse.to_string()))?;
    let mut found: Vec<_> = FIELDS
        .into_iter()
        .map(|(global, structure, member)| {
            types
                .offset(structure, member)
                .map(|offset| (global, offset))
                .ok_or_else(|| LoadError::Field {
                    path: vmlinux.to_path_buf(),
                    structure,
                    member,
                })
        })
        .collect::<Result<_, _>>()?;
    let (global, structure, member) = RUN_QUEUE;
    found.push((global, types.offset(structure, member).unwrap_or(NO_FIELD)));
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
        let offsets = offsets(Path::new(VMLINUX)).unwrap();
        assert_eq!(offsets.len(), FIELDS.len() + 1);
        // The members that lie first in their structures on no kernel we know.
        assert!(
            offsets
                .iter()
                .filter(|(name, _)| name.starts_with("TASK_"))
                .all(|(_, offset)| *offset > 0)
        );
    }

    #[test]
    fn no_btf_is_said_so() {
        let error = offsets(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read the kernel's BTF at /nonexistent"),
            "{error}"
        );
    }
}
