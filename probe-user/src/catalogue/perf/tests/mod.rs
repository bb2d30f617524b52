//! Tests of perf's files: small ones written here, and the real ones if they are present.

mod agreement;
mod expressions;
mod files;
mod real;

use std::collections::BTreeMap;

use crate::formula::{Absent, EventCount, Implicit, Input};

/// Counts of events by name. An event that is not in `named` has a positive pseudo-random count
/// that depends on its name and the seed.
#[derive(Default)]
struct Counts {
    named: BTreeMap<String, f64>,
    seed: u32,
}

impl Counts {
    fn named<'a>(counts: impl IntoIterator<Item = &'a (&'a str, f64)>) -> Self {
        let counts = counts.into_iter();
        Self {
            named: counts
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect(),
            seed: 0,
        }
    }
}

impl Input for Counts {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let hash = name.bytes().fold(self.seed, |hash, byte| {
            (hash ^ u32::from(byte))
                .wrapping_mul(0x0100_0193)
                .rotate_left(5)
        });
        let random = 1e4 * 10_f64.powf(f64::from(hash % 4_000) / 1e3);
        Ok(EventCount {
            count: self.named.get(name).copied().unwrap_or(random),
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
