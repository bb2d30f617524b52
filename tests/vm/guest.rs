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

/// By what part a time of the kernel's, over some seconds in turns, may differ from the PMU's.
///
/// The kernel looks at its clock beside the moment at which the test PMU starts and stops. QEMU may keep an
/// emulated CPU from running between the two: on amd64, where one thread emulates both CPUs, for 100 ms (its
/// `TCG_KICK_PERIOD`), else for as long as the host does.
pub(crate) fn clock_slack() -> f64 {
    if value("ARCH") == "arm64" { 0.05 } else { 0.15 }
}
