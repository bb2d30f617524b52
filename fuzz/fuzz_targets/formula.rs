//! No text makes the formula parser or the evaluation panic, and what is read can be read again.
//!
//! The module is compiled by its path: as a dependency, probe-user would bring the eBPF build.

#![no_main]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the module's public items have other users"
)]

#[path = "../../probe-user/src/formula/mod.rs"]
mod formula;

use formula::{Absent, Formula, Implicit, Input, Sample};
use libfuzzer_sys::fuzz_target;

/// Counts that depend on the name only: some 0, some missing, some that never ran.
struct Counts;

impl Input for Counts {
    fn event(&self, name: &str) -> Result<Sample, Absent> {
        match name.len() % 5 {
            0 => Err(Absent::Missing),
            1 => Err(Absent::NeverRan),
            2 => Ok(Sample {
                count: 0.0,
                live: 1.0,
            }),
            length => Ok(Sample {
                count: length as f64 * 1e9,
                live: 0.5,
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
        assert!(value.value.is_finite() && (0.0..=1.0).contains(&value.live));
    }
    let again = Formula::parse(formula.text()).expect("it was read before");
    assert_eq!(again, formula);
});
