//! What this guest's row of the boot table says (xtask/src/vm/boots.rs), from the environment.

use std::env;

/// A value that the init sets in every guest; empty where the row has none.
///
/// # Panics
/// Outside of a guest.
pub(crate) fn value(name: &str) -> String {
    env::var(format!("PMUSCOPE_VM_{name}"))
        .unwrap_or_else(|_| panic!("PMUSCOPE_VM_{name} is not set: run this by `cargo xtask vm`"))
}

/// Says why a test does not apply here; the caller returns.
pub(crate) fn skip(reason: &str) {
    println!("skipped: {reason}");
}

/// Whether the guest's clock runs on while QEMU keeps its CPUs from running. Else it is their instructions.
pub(crate) fn clock_runs_alone() -> bool {
    value("CLOCK") != "instructions"
}

/// By what part a time of the kernel's, over some seconds in turns, may differ from the PMU's.
///
/// The kernel looks at its clock beside the moment at which the test PMU starts and stops. Where the guest's
/// clock is its instructions, only those between the two count. Else QEMU keeps an emulated CPU from running
/// there for as long as its host does something else: no bound on that says anything about pmuscope.
pub(crate) fn clock_slack() -> f64 {
    if clock_runs_alone() {
        f64::INFINITY
    } else {
        0.01
    }
}
