//! The row of this guest in the boot table (xtask/src/vm/boots.rs), from the environment.

use std::{env, fs};

/// A value that the init sets in every guest; empty where the row has none.
///
/// # Panics
/// Outside of a guest.
pub(crate) fn value(name: &str) -> String {
    env::var(format!("PMUSCOPE_VM_{name}"))
        .unwrap_or_else(|_| panic!("PMUSCOPE_VM_{name} is not set: run this by `cargo xtask vm`"))
}

/// Whether this is Linux 6.1, the oldest that is supported.
pub(crate) fn is_6_1() -> bool {
    value("RELEASE").starts_with("6.1.")
}

/// Whether the kernel takes a CPU away from a task inside the kernel: with `preempt=full`, and with
/// lazy preemption, the default from 7.0 on.
pub(crate) fn preempts_itself() -> bool {
    match fs::read_to_string("/sys/kernel/debug/sched/preempt") {
        Ok(modes) => modes.contains("(full)") || modes.contains("(lazy)"),
        // A kernel without a choice of modes: its version names the mode.
        Err(_) => fs::read_to_string("/proc/version")
            .unwrap()
            .contains(" PREEMPT"),
    }
}

/// Says why a test does not apply here; the caller returns.
pub(crate) fn skip(reason: &str) {
    println!("skipped: {reason}");
}

/// Whether the guest's clock runs on while QEMU keeps its CPUs from running. Else it is their
/// instructions.
pub(crate) fn clock_runs_alone() -> bool {
    value("CLOCK") != "instructions"
}

/// The relative difference that is allowed between the kernel's time of a group, over some seconds
/// of turns, and the PMU's.
///
/// The kernel reads its clock shortly before or after the test PMU starts or stops. Where the clock
/// counts instructions, QEMU runs its CPUs in turns of up to a tick (4 ms), and time goes on in the
/// turn of the other CPU: such a turn between the two moments is in one time and not in the other.
/// Else the host may stop a CPU between the two moments for any time, and no bound would say
/// anything about pmuscope.
pub(crate) fn clock_slack() -> f64 {
    if clock_runs_alone() {
        f64::INFINITY
    } else {
        0.01
    }
}

/// The same where only one CPU is busy: only its own instructions are between the two moments.
/// Measured: up to 0.007%, and -1.8% to 1.4% for the same counts with both CPUs busy; up to 0.014%
/// of task-clock, which is taken back to the switch itself while a group's time is not.
pub(crate) fn clock_slack_of_one_cpu() -> f64 {
    clock_slack() / 20.0
}
