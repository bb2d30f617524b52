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
