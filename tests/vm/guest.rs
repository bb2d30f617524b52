//! The row of this guest in the boot table (xtask/src/vm/boots.rs), from the environment.

use std::{env, fs};

/// A value that the init sets in every guest; empty if the row has none.
///
/// # Panics
/// Outside of a guest.
pub(crate) fn value(name: &str) -> String {
    env::var(format!("PMUSCOPE_VM_{name}"))
        .unwrap_or_else(|_| panic!("PMUSCOPE_VM_{name} is not set: run this by `cargo xtask vm`"))
}

/// Whether this is Linux 6.1, the oldest supported version.
pub(crate) fn is_6_1() -> bool {
    value("RELEASE").starts_with("6.1.")
}

/// Whether the kernel preempts tasks inside the kernel: with `preempt=full`, and with lazy
/// preemption, the default since 7.0.
pub(crate) fn preempts_itself() -> bool {
    match fs::read_to_string("/sys/kernel/debug/sched/preempt") {
        Ok(modes) => modes.contains("(full)") || modes.contains("(lazy)"),
        // The kernel has no choice of modes: its version names the mode.
        Err(_) => fs::read_to_string("/proc/version")
            .unwrap()
            .contains(" PREEMPT"),
    }
}

/// Prints why a test does not apply to this guest; the caller then returns.
pub(crate) fn skip(reason: &str) {
    println!("skipped: {reason}");
}

/// Whether the guest's clock follows the host's, and so runs on while QEMU does not run the guest's
/// CPUs. Otherwise the clock counts the instructions of the guest's CPUs.
pub(crate) fn clock_follows_host() -> bool {
    value("CLOCK") != "instructions"
}

/// The relative difference to allow between the kernel's and the PMU's running time of a group that
/// was multiplexed for some seconds.
///
/// The kernel reads its clock shortly before or after the test PMU starts or stops. If the clock
/// counts instructions, QEMU alternates between its CPUs in slices of up to a tick (4 ms), and the
/// clock runs in the slice of the other CPU: a slice between the two moments is part of only one of
/// the two times. If the clock follows the host, the host may stop a CPU between the two moments
/// for any time, and no bound would test pmuscope.
pub(crate) fn clock_slack() -> f64 {
    if clock_follows_host() {
        f64::INFINITY
    } else {
        0.01
    }
}

/// [`clock_slack`] for one busy CPU: only its own instructions fall between the two moments.
/// Measured differences: up to 0.007% (-1.8% to 1.4% with both CPUs busy), and up to 0.014% for
/// task-clock, which, unlike a group's time, ends at the switch itself.
pub(crate) fn clock_slack_of_one_cpu() -> f64 {
    clock_slack() / 20.0
}
