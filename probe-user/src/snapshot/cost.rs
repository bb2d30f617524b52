//! What counting takes of a CPU: by the programs' own samples, else by what reading the counters
//! takes.

use std::{collections::BTreeMap, time::Duration};

use probe_common::{CpuState, SampledCost};
use serde::{Deserialize, Serialize};

use crate::sys::clock::nanos;

/// A share of a CPU above which fewer events are worth a thought, in parts per million.
const LIMIT: u64 = 10_000;

/// What the counters that are read at a charge take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadCost {
    /// Counters of hardware that are read.
    pub hardware: u32,
    /// Nanoseconds to read all of those.
    pub hardware_nanos: u64,
    /// Counters of the kernel's own that are read.
    pub software: u32,
    /// Nanoseconds to read all of those.
    pub software_nanos: u64,
}

impl ReadCost {
    /// Nanoseconds to read one counter: of hardware, where one is read. None where none is, and
    /// where this kernel's clock does not tell so short a time.
    #[must_use]
    pub fn each(&self) -> Option<u64> {
        let hardware = self.hardware_nanos.checked_div(self.hardware.into());
        let each = hardware.or_else(|| self.software_nanos.checked_div(self.software.into()));
        each.filter(|nanos| *nanos > 0)
    }

    /// Nanoseconds to read all.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.hardware_nanos + self.software_nanos
    }
}

/// What the programs took of the CPU on which they took most, since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountingCost {
    /// What the counters take that are read at a charge there.
    pub read: ReadCost,
    /// That CPU.
    pub cpu: u32,
    /// Nanoseconds there since the session began.
    pub elapsed: u64,
    /// Times a slice was charged there.
    pub charges: u64,
    /// Nanoseconds that a charge takes.
    pub charging: u64,
    /// Nanoseconds of the runs there that charged nothing.
    pub rest: u64,
}

impl CountingCost {
    /// `read` is by CPU, `same` and `changed` are of all CPUs.
    pub(crate) fn of(
        states: &BTreeMap<u32, CpuState>,
        elapsed: Duration,
        read: impl Fn(u32) -> ReadCost,
        same: SampledCost,
        changed: SampledCost,
    ) -> Self {
        let mean = |sampled: SampledCost| sampled.nanos.checked_div(sampled.samples);
        let (same, changed) = (mean(same).unwrap_or(0), mean(changed).unwrap_or(0));
        let on = |(&cpu, state): (&u32, &CpuState)| {
            let read = read(cpu);
            Self {
                read,
                cpu,
                elapsed: nanos(elapsed),
                charges: state.counts.charges,
                // A short run has no samples of its own.
                charging: changed.max(read.all()),
                rest: state.counts.runs.saturating_sub(state.counts.charges) * same,
            }
        };
        let cpus = states.iter().map(on);
        cpus.max_by_key(Self::nanos).unwrap_or_default()
    }

    fn nanos(&self) -> u64 {
        self.charges * self.charging + self.rest
    }

    /// Parts per million of that CPU's time; None before any time has passed.
    #[must_use]
    pub fn ppm(&self) -> Option<u64> {
        self.ppm_of(self.nanos())
    }

    fn ppm_of(&self, nanos: u64) -> Option<u64> {
        let ppm = (u128::from(nanos) * 1_000_000).checked_div(u128::from(self.elapsed))?;
        u64::try_from(ppm).ok()
    }

    /// Where counting takes more than 1% of a CPU: how many hardware counters would take less, and
    /// how much they would, in parts per million.
    #[must_use]
    pub fn affordable(&self) -> Option<(u32, u64)> {
        self.ppm().filter(|ppm| *ppm > LIMIT)?;
        let each = self
            .read
            .hardware_nanos
            .checked_div(self.read.hardware.into())?;
        let with = |counters: &u32| {
            let saved = u64::from(self.read.hardware - counters) * each;
            let charging = self.charging.saturating_sub(saved);
            let ppm = self.ppm_of(self.charges * charging + self.rest)?;
            Some((*counters, ppm))
        };
        let fewer = (0..self.read.hardware)
            .rev()
            .filter_map(|counters| with(&counters));
        let fewer: Vec<(u32, u64)> = fewer.collect();
        let enough = fewer.iter().find(|(_, ppm)| *ppm <= LIMIT);
        enough.or(fewer.last()).copied()
    }
}

#[cfg(test)]
mod tests {
    use probe_common::CpuCounts;

    use super::*;

    /// Four counters at 4.2 us, as a hypervisor answers for them, and the clock.
    fn trapped(charges: u64) -> CountingCost {
        CountingCost {
            read: ReadCost {
                hardware: 4,
                hardware_nanos: 16_800,
                software: 1,
                software_nanos: 60,
            },
            cpu: 1,
            elapsed: 1_000_000_000,
            charges,
            charging: 17_400,
            rest: 10_000,
        }
    }

    #[test]
    fn a_dear_counter_is_said_with_how_many_would_do() {
        // 0.9% of a CPU.
        assert_eq!(trapped(500).ppm(), Some(8_710));
        assert_eq!(trapped(500).affordable(), None);
        // 1.7%, with two counters 0.9%.
        assert_eq!(trapped(1_000).ppm(), Some(17_410));
        assert_eq!(trapped(1_000).affordable(), Some((2, 9_010)));
        // With none it is still above.
        assert_eq!(trapped(30_000).affordable(), Some((0, 18_010)));
    }

    #[test]
    fn the_cpu_that_counting_takes_most_of_counts() {
        let state = |runs, charges| {
            let counts = CpuCounts {
                runs,
                charges,
                ..CpuCounts::ZERO
            };
            CpuState {
                counts,
                ..CpuState::ZERO
            }
        };
        let states = [state(1_000, 10), state(2_000, 900), state(5_000, 0)];
        let states = (0..).zip(states).collect();
        let sampled = |samples, nanos| SampledCost { samples, nanos };
        let read = |_| trapped(0).read;
        let second = Duration::from_secs(1);
        let cost = CountingCost::of(&states, second, read, sampled(2, 160), sampled(0, 0));
        assert_eq!((cost.cpu, cost.charges), (1, 900));
        // Without a sample, a charge takes at least what its readings take.
        assert_eq!(cost.charging, 16_860);
        let cost = CountingCost::of(&states, second, read, sampled(2, 160), sampled(2, 40_000));
        assert_eq!(cost.charging, 20_000);
        assert_eq!(cost.ppm(), Some(18_088));
        assert_eq!(CountingCost::default().ppm(), None);
        // Where there are several kinds of core, each CPU has the costs of its own.
        let kinds = |cpu| match cpu {
            0 => ReadCost {
                hardware: 1,
                hardware_nanos: 2_000_000,
                ..ReadCost::default()
            },
            _ => trapped(0).read,
        };
        let cost = CountingCost::of(&states, second, kinds, sampled(2, 160), sampled(0, 0));
        assert_eq!((cost.cpu, cost.charging), (0, 2_000_000));
        assert_eq!(cost.read, kinds(0));
    }
}
