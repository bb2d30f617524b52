//! pmuscope: which container (pod, process) causes what the hardware counters see.
//!
//! The way of a count is one direction, and each stage knows nothing of those after it:
//!
//! 1. [`load`] opens the counters and puts the eBPF programs into the kernel;
//! 2. [`pull`] reads every map and uncore counter into one snapshot;
//! 3. [`window`] is the difference of two snapshots;
//! 4. [`join`] gives owners the names of containers, pods, processes;
//! 5. [`mod@derive`] makes values and ratios of counts;
//! 6. [`emit`] writes them.
//!
//! [`catalogue`] holds the documented metrics, [`formula`] computes them, [`import`] does so for
//! counts taken elsewhere.
//!
//! [`resctrl`] is what the hardware counted for groups that others made, shown beside shares.
//!
//! [`record`] is beside that way: it keeps whole SPE samples in files.
//!
//! [`event`] reads what the user wants to be counted, [`command`] runs what the user wants to
//! be counted for. [`doctor`] says what this machine gives to all that, [`list`] what it can count.

pub mod catalogue;
pub mod cgroup;
pub mod command;
pub mod cpus;
pub mod derive;
pub mod descriptors;
pub mod devices;
pub mod doctor;
pub mod emit;
pub mod event;
pub mod formula;
mod hotplug;
pub mod import;
pub mod join;
pub mod list;
pub mod load;
pub mod own_cgroup;
pub mod printable;
pub mod pull;
pub mod record;
pub mod resctrl;
pub mod spin;
mod sys;
pub mod topology;
pub mod window;
