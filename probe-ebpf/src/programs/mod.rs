//! The programs, one file each. No other file uses what such a file defines. What programs share is
//! in the modules beside this one, and none of these names a program.
//!
//! User space names each in `probe-user/src/session/object/programs.rs`.

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
mod sample_preallocate_rows;
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
mod walk;
