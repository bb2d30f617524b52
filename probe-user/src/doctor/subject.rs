//! The [`Subject`] of an examination: the machine, the process that would count, and the trials.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::thread::CapabilitySet;

use super::{
    finding::ExaminedMachine,
    trials::{RunningKernel, Trials},
};
use crate::{
    calibration::DIRECTORY,
    machine::{Machine, capabilities},
    sys::descriptors::hard_limit,
};

/// The input of all checks.
pub struct Subject {
    pub(super) machine: Arc<Machine>,
    pub(super) process: Process,
    pub(super) trials: Box<dyn Trials>,
    /// The directory of calibrations.
    pub(super) calibrations: PathBuf,
}

/// The process that would count.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) arch: Arch,
    /// Effective capabilities.
    pub(super) capabilities: CapabilitySet,
    /// Bytes of a page.
    pub(super) page_size: usize,
    /// Hard limit of open files; None: no limit.
    pub(super) descriptors: Option<u64>,
    /// Path of this program.
    pub(super) binary: PathBuf,
}

/// Architectures with different PMUs and drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arch {
    Arm64,
    X86,
}

impl Arch {
    fn this() -> Self {
        if cfg!(target_arch = "aarch64") {
            Self::Arm64
        } else {
            Self::X86
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::X86 => "x86-64",
        }
    }
}

impl Subject {
    /// This process, on the running machine.
    #[must_use]
    pub fn this(machine: Arc<Machine>) -> Self {
        let binary = std::env::current_exe();
        let process = Process {
            arch: Arch::this(),
            // If the capabilities cannot be read, the trials decide.
            capabilities: capabilities::effective(&machine.roots().proc),
            page_size: rustix::param::page_size(),
            descriptors: hard_limit(),
            binary: binary.unwrap_or_else(|_| PathBuf::from("pmuscope")),
        };
        Self {
            trials: Box::new(RunningKernel {
                machine: Arc::clone(&machine),
            }),
            machine,
            process,
            calibrations: PathBuf::from(DIRECTORY),
        }
    }

    /// Content of `/proc/<path>`, without surrounding white space; None if it cannot be read.
    pub(super) fn proc(&self, path: &str) -> Option<String> {
        self.machine.proc(path)
    }

    /// Content of `/sys/<path>`, without surrounding white space; None if it cannot be read.
    pub(super) fn sys(&self, path: &str) -> Option<String> {
        self.machine.sys(path)
    }

    /// The location of one of the machine's paths below its roots.
    pub(super) fn locate(&self, path: &Path) -> PathBuf {
        self.machine.roots().locate(path)
    }

    /// Release of the kernel (`uname -r`).
    pub(super) fn release(&self) -> Option<String> {
        self.proc("sys/kernel/osrelease")
    }

    /// Major and minor version of the kernel.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        let release = self.release()?;
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// Whether the process has a capability, or `CAP_SYS_ADMIN` if that implies it.
    pub(super) fn has(&self, capability: CapabilitySet) -> bool {
        let implied = CapabilitySet::BPF | CapabilitySet::PERFMON;
        let capabilities = self.process.capabilities;
        capabilities.contains(capability)
            || implied.contains(capability) && capabilities.contains(CapabilitySet::SYS_ADMIN)
    }

    /// Whether the process has the capabilities that counting needs.
    pub(super) fn may_count(&self) -> bool {
        self.has(CapabilitySet::BPF | CapabilitySet::PERFMON)
    }

    /// What identifies the machine.
    pub(super) fn describe(&self) -> ExaminedMachine {
        ExaminedMachine {
            arch: self.process.arch.name(),
            kernel: self.release(),
            vendor: self.sys("class/dmi/id/sys_vendor"),
            product: self.sys("class/dmi/id/product_name"),
        }
    }

    /// Whether this is a virtual machine, as far as it can be detected.
    pub(super) fn is_virtual(&self) -> bool {
        let has_hypervisor_flag = || {
            let cpuinfo = self.proc("cpuinfo")?;
            let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
            Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
        };
        let is_virtual_vendor = |vendor: &str| match vendor {
            "QEMU" => true,
            // The product is the instance type, such as m8g.metal-24xl.
            "Amazon EC2" => self
                .sys("class/dmi/id/product_name")
                .is_some_and(|product| !product.contains(".metal")),
            _ => false,
        };
        has_hypervisor_flag() == Some(true)
            || self
                .sys("class/dmi/id/sys_vendor")
                .is_some_and(|vendor| is_virtual_vendor(&vendor))
            || self.sys("hypervisor/type").is_some()
    }
}
