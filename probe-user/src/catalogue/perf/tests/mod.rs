//! Tests of perf's files: small ones of their own, and the real ones where they are.

mod expressions;
mod files;
mod real;

use std::collections::BTreeMap;

use crate::formula::{Absent, EventCount, Implicit, Input};

/// Counts that the test names, else positive pseudo-random ones by the name.
#[derive(Default)]
struct Counts(BTreeMap<String, f64>);

impl Input for Counts {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let hash = name.bytes().fold(7_u32, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(u32::from(byte))
        });
        let random = 1e6 + f64::from(hash % 1_000_003);
        Ok(EventCount {
            count: self.0.get(name).copied().unwrap_or(random),
            running_ratio: 1.0,
        })
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        Some(match implicit {
            Implicit::SmtOn | Implicit::NumSockets => 1.0,
            Implicit::DurationTime => 2e9,
            Implicit::TscFrequency => 2.5e9,
            Implicit::NumCpus | Implicit::NumUnits => 16.0,
            Implicit::Slots => 8.0,
            _ => 2.0,
        })
    }
}
