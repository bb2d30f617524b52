//! The machine as its kernel describes it: CPUs, sockets, PMUs, cgroups, resctrl, types. Raw facts, which
//! name no platform.

mod bdf;
pub(crate) mod btf;
pub(crate) mod capabilities;
pub mod cgroup;
pub mod cpus;
mod format;
pub(crate) mod kernel_config;
mod pmus;
pub mod resctrl;
mod sysfs_error;
pub(crate) mod terms;
pub mod topology;
mod uncore_names;

pub use self::{
    bdf::{Bdf, ParseBdfError},
    btf::BtfError,
    capabilities::MissingCapabilities,
    format::{Format, FormatError, Word},
    pmus::{Pmu, PmuEvent, PmuKind, Pmus},
    sysfs_error::{SysfsError, SysfsProblem},
    uncore_names::{named_node, product, product_of},
};
