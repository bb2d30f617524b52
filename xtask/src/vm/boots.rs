//! The table of guests that `cargo xtask vm` boots: [`BOOTS`].
//!
//! CI boots one guest of each kernel series and architecture, and some for tests with special
//! needs. Together they cover every option, which a test checks: 16 KiB pages, UEFI, full
//! preemption, `PREEMPT_RT`, QEMU's PMU or none, one CPU, a clock that follows the host or counts
//! instructions. `--all` also boots the other combinations.
//!
//! [`super::placement`] decides which tests run in which guest.

#[cfg(test)]
mod tests;

use super::packages::Arch;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Flavour {
    Normal,
    /// 16 KiB pages. Debian has this kernel for arm64 since 6.12.
    Pages16k,
    /// `PREEMPT_RT`: programs at tracepoints can be preempted, and most interrupts run in threads.
    Realtime,
}

/// How the guest discovers devices. The sysfs name of the arm64 PMU depends on it.
pub(super) enum Firmware {
    /// QEMU's default: a device tree on arm64, BIOS and ACPI on amd64.
    Default,
    /// UEFI and ACPI on arm64, as on servers.
    Uefi,
}

pub(super) struct Boot {
    pub(super) name: &'static str,
    /// Whether `cargo xtask test`, and `cargo xtask vm` without `--all`, boot this guest.
    pub(super) ci: bool,
    pub(super) arch: Arch,
    /// The kernel series, pinned to a version in packages.rs.
    pub(super) series: &'static str,
    pub(super) flavour: Flavour,
    pub(super) firmware: Firmware,
    /// With Some(N), an instruction takes 2^N ns of guest time, and the clock stops while the host
    /// does other work. Then counts of one CPU repeat exactly, and arm64's PMU has `inst_retired`.
    pub(super) icount_shift: Option<u8>,
    /// Number of CPUs. Each is on its own socket, so that uncore PMUs have two.
    pub(super) cpus: u8,
    /// Whether arm64 CPUs have QEMU's own PMU. Without it the test PMU is the only core PMU.
    pub(super) pmu: bool,
    /// Further kernel parameters.
    pub(super) append: &'static str,
    /// Debian kernel modules loaded before the tests, with their dependencies.
    pub(super) modules: &'static [&'static str],
    /// Whether init enables a controller in the root's `cgroup.subtree_control`, as systemd does on
    /// every real node. Without it no child cgroup has its own `perf_event` state.
    pub(super) controllers: bool,
}

/// Default values of all rows.
const ARM64: Boot = Boot {
    name: "arm64",
    ci: false,
    arch: Arch::Arm64,
    series: "7.3",
    flavour: Flavour::Normal,
    firmware: Firmware::Default,
    icount_shift: None,
    cpus: 2,
    pmu: true,
    append: "",
    // Servers load the SPE driver by themselves; the guest has no such device.
    modules: &["arm_spe_pmu"],
    controllers: true,
};

const AMD64: Boot = Boot {
    name: "amd64",
    arch: Arch::Amd64,
    modules: &[],
    ..ARM64
};

/// Two CPUs; the clock counts instructions, of 8 ns each.
const ARM64_EXACT: Boot = Boot {
    icount_shift: Some(3),
    pmu: false,
    ..ARM64
};

/// As [`ARM64_EXACT`], but not for 6.1, which hangs with -icount when it brings up the second CPU.
const AMD64_EXACT: Boot = Boot {
    icount_shift: Some(3),
    ..AMD64
};

/// One CPU, on which the PMU counts instructions exactly.
const ICOUNTED: Boot = Boot {
    icount_shift: Some(1),
    cpus: 1,
    ..ARM64
};

pub(super) const BOOTS: &[Boot] = &[
    // CI's guests, the longest first.
    Boot {
        name: "arm64-7.3",
        ci: true,
        firmware: Firmware::Uefi,
        // With UEFI, QEMU's PMU would have the same name as the test PMU.
        pmu: false,
        ..ARM64
    },
    Boot {
        name: "arm64-6.1",
        ci: true,
        series: "6.1",
        ..ARM64
    },
    Boot {
        name: "arm64-7.3-exact",
        ci: true,
        ..ARM64_EXACT
    },
    Boot {
        name: "amd64-7.3",
        ci: true,
        append: "preempt=full",
        ..AMD64
    },
    Boot {
        name: "amd64-6.1",
        ci: true,
        series: "6.1",
        ..AMD64
    },
    Boot {
        name: "arm64-6.12",
        ci: true,
        series: "6.12",
        flavour: Flavour::Pages16k,
        ..ARM64
    },
    Boot {
        name: "amd64-6.12",
        ci: true,
        series: "6.12",
        append: "preempt=full",
        ..AMD64_EXACT
    },
    Boot {
        name: "arm64-7.3-icount",
        ci: true,
        firmware: Firmware::Uefi,
        ..ICOUNTED
    },
    Boot {
        name: "amd64-7.3-rt",
        ci: true,
        flavour: Flavour::Realtime,
        ..AMD64
    },
    Boot {
        name: "amd64-7.3-nocss",
        ci: true,
        controllers: false,
        ..AMD64
    },
    // Other combinations, booted only with `--all`.
    Boot {
        name: "arm64-7.3-dt",
        ..ARM64
    },
    Boot {
        name: "arm64-7.3-16k",
        flavour: Flavour::Pages16k,
        ..ARM64
    },
    Boot {
        name: "arm64-7.3-icount-dt",
        ..ICOUNTED
    },
    Boot {
        name: "arm64-6.12-4k",
        series: "6.12",
        ..ARM64
    },
    Boot {
        name: "arm64-6.12-shares",
        series: "6.12",
        ..ARM64_EXACT
    },
    Boot {
        name: "arm64-6.12-icount-dt",
        series: "6.12",
        ..ICOUNTED
    },
    Boot {
        name: "arm64-6.12-icount-uefi",
        series: "6.12",
        firmware: Firmware::Uefi,
        ..ICOUNTED
    },
    Boot {
        name: "arm64-6.1-exact",
        series: "6.1",
        ..ARM64_EXACT
    },
    Boot {
        name: "amd64-7.3-exact",
        ..AMD64_EXACT
    },
    Boot {
        name: "amd64-7.3-lazy",
        ..AMD64
    },
    Boot {
        name: "amd64-6.12-clock",
        series: "6.12",
        ..AMD64
    },
    Boot {
        name: "amd64-6.12-preempt",
        series: "6.12",
        append: "preempt=full",
        ..AMD64
    },
    Boot {
        name: "amd64-6.12-nocss",
        series: "6.12",
        controllers: false,
        ..AMD64
    },
];
