//! The programs, one file each. No other file uses their items. Shared code is in the sibling
//! modules of this one, which name no program.
//!
//! `probe-user/src/session/object/programs.rs` lists each program in user space.

mod cgroup_attach;
mod cgroup_mkdir;
mod cgroup_rmdir;
mod cgroup_switch;
mod cgroups;
mod clock;
mod cpu_hotplug;
mod event_sample;
mod flush;
mod follow_fork;
mod follow_free;
mod marker;
mod marker_exec;
mod marker_exit;
mod marker_fork;
mod process_exit;
mod read_cost;
mod sample_count_from;
mod sample_prepare;
mod sched_exit;
mod sched_switch;
mod spe_attach;
mod spe_chunk;
mod spe_chunk_kprobe;
mod spe_exec;
mod spe_exit;
mod spe_fork;
mod spe_preallocate_rows;
mod spe_switch;
mod wait_migrate;
mod walk;
