//! The machine as its kernel describes it: CPUs, sockets, PMUs, cgroups, resctrl, types. These are
//! raw facts that name no platform. A run makes one [`Machine`] and passes it on.

mod bdf;
pub(crate) mod btf;
mod by_text;
pub mod caches;
pub(crate) mod capabilities;
pub mod cgroup;
pub(crate) mod config_space;
mod cpu_model;
pub mod cpu_time;
pub mod cpus;
mod format;
pub(crate) mod io_stat;
pub(crate) mod kernel_config;
pub mod limits;
pub mod memory;
mod pmus;
pub mod pressure;
pub(crate) mod process;
pub mod process_usage;
pub mod resctrl;
mod sysfs_error;
pub(crate) mod terms;
pub mod topology;
mod uncore_names;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

pub use self::{
    bdf::{Bdf, ParseBdfError},
    btf::BtfError,
    capabilities::MissingCapabilities,
    cpu_model::CpuModel,
    format::{FieldFormat, FormatError, Word},
    pmus::{Pmu, PmuEvent, PmuKind, Pmus},
    sysfs_error::{SysfsError, SysfsProblem},
    uncore_names::{named_node, product},
};
use self::{
    cgroup::{CgroupError, Hierarchy},
    cpus::{CpuList, CpuListError},
    kernel_config::KernelConfig,
    topology::Topology,
};

pub use crate::sys::roots::Roots;

/// One machine. Facts that do not change at run time are read at first use and cached.
#[derive(Debug, Default)]
pub struct Machine {
    roots: Roots,
    pmus: OnceLock<Result<Pmus, Arc<SysfsError>>>,
    hierarchy: OnceLock<Result<Hierarchy, CgroupError>>,
    topology: OnceLock<Topology>,
    config: OnceLock<Option<KernelConfig>>,
    cpu_model: OnceLock<Option<CpuModel>>,
}

impl Machine {
    /// The running machine.
    #[must_use]
    pub fn this() -> Self {
        Self::default()
    }

    /// The machine described by the trees below these roots.
    #[must_use]
    pub fn at(roots: Roots) -> Self {
        Self {
            roots,
            ..Self::default()
        }
    }

    /// The same machine with another mount of cgroup2, as a process with its own mounts sees it.
    #[must_use]
    pub fn with_hierarchy(self, hierarchy: Hierarchy) -> Self {
        Self {
            hierarchy: OnceLock::from(Ok(hierarchy)),
            ..self
        }
    }

    /// The roots of the machine's trees.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The root of sysfs.
    #[must_use]
    pub fn sysfs(&self) -> &Path {
        &self.roots.sys
    }

    /// The root of procfs.
    #[must_use]
    pub fn procfs(&self) -> &Path {
        &self.roots.proc
    }

    /// The trimmed content of a file of sysfs; None if it cannot be read.
    #[must_use]
    pub fn sys(&self, path: &str) -> Option<String> {
        read_trimmed(&self.roots.sys.join(path))
    }

    /// The trimmed content of a file of procfs; None if it cannot be read.
    #[must_use]
    pub fn proc(&self, path: &str) -> Option<String> {
        read_trimmed(&self.roots.proc.join(path))
    }

    /// The CPUs that are online now; read each time, since CPUs go online and offline.
    ///
    /// # Errors
    /// The file cannot be read or is no CPU list.
    pub fn online(&self) -> Result<CpuList, CpuListError> {
        cpus::online(&self.roots.sys)
    }

    /// The CPUs that can ever be online.
    ///
    /// # Errors
    /// The file cannot be read or is no CPU list.
    pub fn possible(&self) -> Result<CpuList, CpuListError> {
        cpus::possible(&self.roots.sys)
    }

    /// Sockets and NUMA nodes of the CPUs that were online at the first call.
    pub fn topology(&self) -> &Topology {
        self.topology
            .get_or_init(|| Topology::read(&self.roots.sys))
    }

    /// The mount of cgroup2.
    ///
    /// # Errors
    /// No cgroup2 is mounted, or procfs cannot be read.
    pub fn hierarchy(&self) -> Result<&Hierarchy, CgroupError> {
        let read = || Hierarchy::find(&self.roots.proc);
        let hierarchy = self.hierarchy.get_or_init(read);
        hierarchy.as_ref().map_err(Clone::clone)
    }

    /// The PMUs.
    ///
    /// # Errors
    /// Their directory cannot be listed. A problem with a single PMU is no error here.
    pub fn pmus(&self) -> Result<&Pmus, Arc<SysfsError>> {
        let read = || Pmus::read(&self.roots.sys).map_err(Arc::new);
        self.pmus.get_or_init(read).as_ref().map_err(Arc::clone)
    }

    /// `MIDR_EL1` of a CPU; None if it has none or is offline.
    #[must_use]
    pub fn midr(&self, cpu: u32) -> Option<u64> {
        cpu_model::midr(&self.roots.sys, cpu)
    }

    /// Vendor, family and model of an x86 CPU.
    pub fn cpu_model(&self) -> Option<&CpuModel> {
        let read = || CpuModel::read(&self.roots.sys, &self.roots.proc);
        self.cpu_model.get_or_init(read).as_ref()
    }

    /// The kernel's build configuration; None if it cannot be read.
    pub(crate) fn kernel_config(&self) -> Option<&KernelConfig> {
        let read = || KernelConfig::read(&self.roots);
        self.config.get_or_init(read).as_ref()
    }

    /// Whether the kernel records how long threads wait for a CPU (`CONFIG_SCHED_INFO`).
    #[must_use]
    pub fn keeps_waits(&self) -> bool {
        self.proc("self/schedstat").is_some()
    }

    /// The BTF file of the kernel's types.
    pub(crate) fn vmlinux(&self) -> PathBuf {
        self.roots.sys.join(btf::VMLINUX)
    }

    /// Whether process ids in procfs equal the ids that the BPF programs use.
    #[must_use]
    pub fn is_in_initial_pid_namespace(&self) -> bool {
        // PROC_PID_INIT_INO in linux/proc_ns.h.
        let initial = Path::new("pid:[4026531836]");
        let namespace = fs::read_link(self.roots.proc.join("self/ns/pid"));
        namespace.is_ok_and(|namespace| namespace == initial)
    }

    /// Mount point of resctrl, as a path of the machine itself.
    #[must_use]
    pub fn resctrl(&self) -> Option<PathBuf> {
        resctrl::mount(&self.roots.proc)
    }
}

fn read_trimmed(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use test_support::Tree;

    use super::*;

    /// Files that change later do not change cached facts; the CPUs online are read each time.
    #[test]
    fn constant_files_are_read_once() {
        let root = Tree::new();
        let machine = Machine::at(Roots::below(root.path()));
        root.write("sys/devices/system/cpu/online", "0-3\n");
        root.write("sys/bus/event_source/devices/software/type", "1\n");
        let mount = |at: &str| format!("30 1 0:26 / {at} rw - cgroup2 cgroup2 rw\n");
        root.write("proc/self/mountinfo", mount("/first"));
        assert_eq!(machine.pmus().unwrap().names().count(), 1);
        assert_eq!(machine.online().unwrap().len(), 4);
        assert_eq!(machine.hierarchy().unwrap().mount, Path::new("/first"));
        root.write("sys/devices/system/cpu/online", "0-1\n");
        root.write("sys/bus/event_source/devices/msr/type", "9\n");
        root.write("proc/self/mountinfo", mount("/second"));
        assert_eq!(machine.pmus().unwrap().names().count(), 1);
        assert_eq!(machine.online().unwrap().len(), 2);
        assert_eq!(machine.hierarchy().unwrap().mount, Path::new("/first"));
    }

    #[test]
    fn an_unreadable_file_is_an_error_each_time() {
        let machine = Machine::at(Roots::below(Path::new("/nonexistent")));
        for _ in 0..2 {
            let error = machine.pmus().unwrap_err().to_string();
            assert!(error.ends_with("`mount -t sysfs none /sys`"), "{error}");
            assert!(machine.hierarchy().is_err() && machine.online().is_err());
        }
        assert!(machine.midr(0).is_none() && machine.cpu_model().is_none());
        assert!(machine.kernel_config().is_none() && machine.resctrl().is_none());
    }
}
