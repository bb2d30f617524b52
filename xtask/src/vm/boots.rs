//! The guests that `cargo xtask vm` boots, as data: a new one is a row.

use super::packages::Arch;

pub(super) enum Flavour {
    Normal,
    /// 16 KiB pages; Debian has it for arm64 from 6.12 on.
    Pages16k,
}

/// How the guest learns its devices; the sysfs name of the arm64 PMU depends on it.
pub(super) enum Firmware {
    /// What QEMU offers by itself: a device tree on arm64, BIOS and ACPI on amd64.
    Default,
    /// UEFI and ACPI on arm64, as on servers.
    Uefi,
}

/// A test binary (a `[[test]]` of probe-user) and which of its modules run in this guest.
pub(super) struct Tests {
    pub(super) binary: &'static str,
    /// Tests whose path begins with one of these; empty: all.
    pub(super) modules: &'static [&'static str],
}

pub(super) struct Boot {
    pub(super) name: &'static str,
    pub(super) arch: Arch,
    /// The kernel series, pinned to a version in packages.rs.
    pub(super) series: &'static str,
    pub(super) flavour: Flavour,
    pub(super) firmware: Firmware,
    /// An instruction takes 2^N ns of guest time, which then does not run on while the host does something
    /// else: counts of one CPU repeat to the digit, and arm64's PMU has `inst_retired`.
    pub(super) icount_shift: Option<u8>,
    /// Each on a socket of its own, so that uncore PMUs have two to count for.
    pub(super) cpus: u8,
    /// Whether arm64 CPUs have QEMU's own PMU: without it the test PMU is the only core PMU.
    pub(super) pmu: bool,
    /// More kernel command line.
    pub(super) append: &'static str,
    /// Debian kernel modules loaded before the tests, with what they depend on.
    pub(super) modules: &'static [&'static str],
    /// Whether the init turns on a controller in the root's `cgroup.subtree_control`, as systemd
    /// has done on every real node. Without it no child cgroup has a `perf_event` state of its own.
    pub(super) controllers: bool,
    pub(super) tests: &'static [Tests],
}

/// Everything that runs in a plain guest: the host tests too, where they do not compare with clocks that
/// emulation slows (the test PMU has the exact truth) nor with peers that the guest does not have.
const ALL: &[Tests] = &[
    Tests {
        binary: "vm",
        modules: &[
            "accounting::",
            "hooks::",
            "hotplug::",
            "pmus::",
            "scale::",
            "smoke::",
        ],
    },
    Tests {
        binary: "host",
        modules: &[
            "command::page_faults",
            "conservation::rows",
            "conservation::with_a_map",
            "conservation::with_one",
            "conservation::with_ten",
            "doctor::",
            "lifetimes::five_hundred",
            "moves::by_process",
            "rights::",
        ],
    },
];

const ACCOUNTING: &[Tests] = &[
    Tests {
        binary: "vm",
        modules: &["smoke::", "accounting::", "hooks::"],
    },
    Tests {
        binary: "host",
        modules: &["conservation::with_ten"],
    },
];

/// Where pages are larger, SPE's chunks are too.
const PAGES: &[Tests] = &[
    Tests {
        binary: "vm",
        modules: &[
            "smoke::",
            "accounting::",
            "hooks::",
            "mem_record::",
            "spe::",
            "spe_lives::",
            "spe_losses::",
        ],
    },
    Tests {
        binary: "host",
        modules: &["conservation::with_ten"],
    },
];

const ICOUNT: &[Tests] = &[Tests {
    binary: "vm",
    modules: &["smoke::", "capacity::", "icount::"],
}];

/// Metrics and shares from the test PMUs, which are the only ones in such a guest. They compare with clocks,
/// so the guest's must not run on while its host does something else.
const METRICS: &[Tests] = &[Tests {
    binary: "vm",
    modules: &[
        "capacity::",
        "hooks::where_it_is_complete",
        "metrics::",
        "metrics_stat::",
        "metrics_uncore::",
        "shares::shares_are_near",
        "turns::",
        "uncore::",
    ],
}];

/// How near shares are to the truth takes two minutes to measure: in one guest.
const SHARES: &[Tests] = &[Tests {
    binary: "vm",
    modules: &["shares::"],
}];

const SPE: &[Tests] = &[Tests {
    binary: "vm",
    modules: &["mem_record::", "spe::", "spe_lives::", "spe_losses::"],
}];

/// What most rows share: a plain boot of 6.12 on arm64.
const PLAIN: Boot = Boot {
    name: "arm64-6.12",
    arch: Arch::Arm64,
    series: "6.12",
    flavour: Flavour::Normal,
    firmware: Firmware::Default,
    icount_shift: None,
    cpus: 2,
    pmu: true,
    append: "",
    // Servers load the SPE driver by themselves; the guest has no such device.
    modules: &["arm_spe_pmu"],
    controllers: true,
    tests: ALL,
};

pub(super) const BOOTS: &[Boot] = &[
    PLAIN,
    Boot {
        name: "amd64-6.12",
        arch: Arch::Amd64,
        modules: &[],
        ..PLAIN
    },
    Boot {
        name: "amd64-6.1",
        arch: Arch::Amd64,
        series: "6.1",
        modules: &[],
        ..PLAIN
    },
    Boot {
        name: "arm64-6.1",
        series: "6.1",
        ..PLAIN
    },
    Boot {
        name: "arm64-6.12-spe",
        tests: SPE,
        ..PLAIN
    },
    Boot {
        name: "arm64-6.1-spe",
        series: "6.1",
        tests: SPE,
        ..PLAIN
    },
    Boot {
        name: "amd64-6.12-spe",
        arch: Arch::Amd64,
        modules: &[],
        tests: SPE,
        ..PLAIN
    },
    Boot {
        name: "amd64-6.1-spe",
        arch: Arch::Amd64,
        series: "6.1",
        modules: &[],
        tests: SPE,
        ..PLAIN
    },
    Boot {
        name: "arm64-6.12-icount-dt",
        icount_shift: Some(1),
        cpus: 1,
        tests: ICOUNT,
        ..PLAIN
    },
    Boot {
        name: "arm64-6.12-icount-uefi",
        firmware: Firmware::Uefi,
        icount_shift: Some(1),
        cpus: 1,
        tests: ICOUNT,
        ..PLAIN
    },
    Boot {
        name: "arm64-6.12-metrics",
        icount_shift: Some(3),
        pmu: false,
        tests: METRICS,
        ..PLAIN
    },
    Boot {
        name: "arm64-6.12-shares",
        icount_shift: Some(3),
        pmu: false,
        tests: SHARES,
        ..PLAIN
    },
    Boot {
        name: "arm64-6.1-metrics",
        icount_shift: Some(3),
        series: "6.1",
        pmu: false,
        tests: METRICS,
        ..PLAIN
    },
    Boot {
        name: "amd64-6.12-metrics",
        icount_shift: Some(3),
        arch: Arch::Amd64,
        modules: &[],
        tests: METRICS,
        ..PLAIN
    },
    // With -icount and two CPUs this kernel hangs while it brings up the second one: its clock runs alone.
    Boot {
        name: "amd64-6.1-metrics",
        arch: Arch::Amd64,
        series: "6.1",
        modules: &[],
        tests: METRICS,
        ..PLAIN
    },
    Boot {
        name: "arm64-6.12-16k",
        flavour: Flavour::Pages16k,
        tests: PAGES,
        ..PLAIN
    },
    Boot {
        name: "amd64-6.12-preempt",
        arch: Arch::Amd64,
        append: "preempt=full",
        modules: &[],
        tests: ACCOUNTING,
        ..PLAIN
    },
    Boot {
        name: "amd64-6.12-nocss",
        arch: Arch::Amd64,
        modules: &[],
        controllers: false,
        tests: ACCOUNTING,
        ..PLAIN
    },
];
