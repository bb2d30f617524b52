//! pmuscope: which container (pod, process) causes what the hardware counters see.
//!
//! A count passes through these stages, and each stage knows nothing of those after it:
//!
//! 1. [`machine`] reads what the machine is, once;
//! 2. [`plan`] decides what is counted where, of the events ([`event`]) and the documented metrics
//!    ([`catalogue`]) that are asked for;
//! 3. [`session`] opens the counters, puts the eBPF programs into the kernel and pulls
//!    a [`snapshot`] of every map and uncore counter;
//! 4. [`window`] is the difference of two snapshots;
//! 5. [`join`] gives owners the [`names`] of containers, pods, processes, and shares of uncore
//!    counts;
//! 6. [`mod@derive`] makes values and ratios of counts;
//! 7. [`emit`] writes them.
//!
//! [`symbols`] names the addresses of samples. [`state`] remembers totals over restarts. [`record`]
//! is apart from these: it keeps whole SPE samples in files. [`recording`] keeps snapshots with
//! what their windows show, and replays them; [`profile`] shows a whole one at once. [`formula`]
//! computes metrics, [`import`] does so for counts taken elsewhere. [`doctor`] says whether this
//! machine can count, [`list`] what it can count, and [`roofline`] what its cores and memory can
//! do. `top` is the view of windows that keys move.
//!
//! docs/architecture.md has the picture, and which module may import which: `cargo xtask check`
//! enforces it.

pub mod agent;
pub mod catalogue;
pub mod derive;
pub mod devices;
pub mod doctor;
pub mod emit;
pub mod event;
pub mod formula;
pub mod import;
pub mod join;
pub mod list;
pub mod machine;
pub mod names;
pub mod pipeline;
pub mod plan;
pub mod profile;
pub mod record;
pub mod recording;
pub mod roofline;
pub mod session;
pub mod snapshot;
pub mod state;
pub mod symbols;
pub mod sys;
pub mod top;
pub mod window;
