//! No text makes the formula parser or the evaluation panic, and a parsed formula's text parses to
//! the same formula.
//!
//! The module is compiled by its path, since probe-user as a dependency would need the eBPF build.

#![no_main]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the module's public items have other users"
)]

#[path = "../../probe-user/src/formula/mod.rs"]
mod formula;

use formula::{Absent, EventCount, Formula, Implicit, Input};
use libfuzzer_sys::fuzz_target;

/// Counts that depend only on the name: some are 0, some missing, some never ran.
struct Counts;

impl Input for Counts {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        match name.len() % 5 {
            0 => Err(Absent::Missing),
            1 => Err(Absent::NeverRan),
            2 => Ok(EventCount {
                count: 0.0,
                running_ratio: 1.0,
            }),
            length => Ok(EventCount {
                count: length as f64 * 1e9,
                running_ratio: 0.5,
            }),
        }
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        (implicit != Implicit::NumUnits).then_some(2.0)
    }
}

fuzz_target!(|text: &str| {
    let Ok(formula) = Formula::parse(text) else {
        return;
    };
    if let Ok(value) = formula.evaluate(&Counts) {
        assert!(value.value.is_finite() && (0.0..=1.0).contains(&value.running_ratio));
    }
    let again = Formula::parse(formula.text()).expect("it was read before");
    assert_eq!(again, formula);
});
