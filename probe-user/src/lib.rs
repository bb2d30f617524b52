//! pmuscope: which container (pod, process) causes what the hardware counters see.
//!
//! A count passes through these stages. No stage depends on a later one:
//!
//! 1. [`machine`] reads the machine's description, once;
//! 2. [`plan`] assigns the requested events ([`event`]) and documented metrics ([`catalogue`]) to
//!    counters;
//! 3. [`session`] opens the counters, loads the eBPF programs into the kernel and pulls a
//!    [`snapshot`] of every map and uncore counter;
//! 4. [`window`] is the difference of two snapshots;
//! 5. [`join`] gives owners the [`names`] of containers, pods and processes, and shares of uncore
//!    counts;
//! 6. [`mod@derive`] computes values and metrics from counts;
//! 7. [`emit`] writes them.
//!
//! [`symbols`] names the addresses of samples. [`state`] saves totals across restarts. [`samples`]
//! is separate: it writes whole samples of memory accesses to files. [`recording`] stores snapshots
//! and replays them; [`report`] shows a whole run at once. [`plot`] has the axes and pictures of
//! all plots.
//! [`formula`] evaluates metrics, [`import`] evaluates them for counts taken elsewhere. [`doctor`]
//! checks whether this machine can count, [`list`] shows what it can count, and [`roofline`]
//! measures the peaks of its cores and memory. `top` is the interactive view of windows.
//!
//! docs/how-it-works/architecture.md has the picture and the allowed imports between modules;
//! `cargo xtask check` enforces them.

pub mod agent;
pub mod calibrate;
pub mod calibration;
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
pub mod plot;
pub mod recording;
pub mod report;
pub mod roofline;
pub mod samples;
pub mod session;
pub mod snapshot;
pub mod state;
pub mod symbols;
pub mod sys;
pub mod top;
pub mod window;
