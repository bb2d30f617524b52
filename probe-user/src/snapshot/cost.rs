//! The CPU time that counting costs, estimated from program runs that measured their own duration.
//! A charge costs at least the measured time to read its counters.

use std::{collections::BTreeMap, time::Duration};

use probe_common::{CpuState, SampledCost};
use serde::{Deserialize, Serialize};

use crate::sys::clock::nanos;

/// Share of a CPU above which fewer events are advised, in parts per million.
const LIMIT_PPM: u64 = 10_000;

/// Cost of reading the counters at a charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadCost {
    /// Number of hardware counters read.
    pub hardware: u32,
    /// Nanoseconds to read all hardware counters.
    pub hardware_nanos: u64,
    /// Number of software counters read.
    pub software: u32,
    /// Nanoseconds to read all software counters.
    pub software_nanos: u64,
}

impl ReadCost {
    /// Nanoseconds to read one counter: a hardware counter if any is read, else a software counter.
    /// None if no counter is read, or if the time is below the resolution of the kernel's clock.
    #[must_use]
    pub fn each(&self) -> Option<u64> {
        let hardware = self.hardware_nanos.checked_div(self.hardware.into());
        let each = hardware.or_else(|| self.software_nanos.checked_div(self.software.into()));
        each.filter(|nanos| *nanos > 0)
    }

    /// Nanoseconds to read all counters.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.hardware_nanos + self.software_nanos
    }
}

/// The programs' time on the CPU with the highest cost, since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountingCost {
    /// Cost of reading that CPU's counters at a charge.
    pub read: ReadCost,
    /// That CPU.
    pub cpu: u32,
    /// Nanoseconds since the session began.
    pub elapsed: u64,
    /// Charges on that CPU.
    pub charges: u64,
    /// Nanoseconds per charge.
    pub charging: u64,
    /// Total nanoseconds of that CPU's program runs without a charge.
    pub rest: u64,
}

impl CountingCost {
    /// The cost of the CPU with the highest one. `read` gives the reading cost of a CPU. `same` and
    /// `changed` are the sampled costs of runs without and with a charge, summed over all CPUs.
    pub(crate) fn from_states(
        states: &BTreeMap<u32, CpuState>,
        elapsed: Duration,
        read: impl Fn(u32) -> ReadCost,
        same: SampledCost,
        changed: SampledCost,
    ) -> Self {
        let mean = |sampled: SampledCost| sampled.nanos.checked_div(sampled.samples);
        let (same, changed) = (mean(same).unwrap_or(0), mean(changed).unwrap_or(0));
        let cpu_cost = |(&cpu, state): (&u32, &CpuState)| {
            let read = read(cpu);
            Self {
                read,
                cpu,
                elapsed: nanos(elapsed),
                charges: state.counts.charges,
                // A short session has no sampled runs: its charges cost at least the reading.
                charging: changed.max(read.all()),
                rest: state.counts.runs.saturating_sub(state.counts.charges) * same,
            }
        };
        let cpus = states.iter().map(cpu_cost);
        cpus.max_by_key(Self::nanos).unwrap_or_default()
    }

    fn nanos(&self) -> u64 {
        self.charges * self.charging + self.rest
    }

    /// The cost in parts per million of that CPU's time; None before any time has passed.
    #[must_use]
    pub fn ppm(&self) -> Option<u64> {
        self.ppm_of(self.nanos())
    }

    fn ppm_of(&self, nanos: u64) -> Option<u64> {
        let ppm = (u128::from(nanos) * 1_000_000).checked_div(u128::from(self.elapsed))?;
        u64::try_from(ppm).ok()
    }

    /// If counting takes more than 1% of a CPU: the largest number of hardware counters that would
    /// take less, or 0, and their cost in parts per million.
    #[must_use]
    pub fn affordable(&self) -> Option<(u32, u64)> {
        self.ppm().filter(|ppm| *ppm > LIMIT_PPM)?;
        let each = self
            .read
            .hardware_nanos
            .checked_div(self.read.hardware.into())?;
        let cost_with = |counters: &u32| {
            let saved = u64::from(self.read.hardware - counters) * each;
            let charging = self.charging.saturating_sub(saved);
            let ppm = self.ppm_of(self.charges * charging + self.rest)?;
            Some((*counters, ppm))
        };
        let fewer: Vec<(u32, u64)> = (0..self.read.hardware)
            .rev()
            .filter_map(|counters| cost_with(&counters))
            .collect();
        let affordable = fewer.iter().find(|(_, ppm)| *ppm <= LIMIT_PPM);
        affordable.or(fewer.last()).copied()
    }
}

#[cfg(test)]
mod tests {
    use probe_common::CpuCounts;

    use super::*;

    /// Cost with four counters that a hypervisor emulates in 4.2 us each, and a clock.
    fn emulated(charges: u64) -> CountingCost {
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
    fn an_expensive_counter_is_reported_with_the_affordable_number() {
        // 0.9% of a CPU.
        assert_eq!(emulated(500).ppm(), Some(8_710));
        assert_eq!(emulated(500).affordable(), None);
        // 1.7%; two counters would cost 0.9%.
        assert_eq!(emulated(1_000).ppm(), Some(17_410));
        assert_eq!(emulated(1_000).affordable(), Some((2, 9_010)));
        // Above the limit even without counters.
        assert_eq!(emulated(30_000).affordable(), Some((0, 18_010)));
    }

    #[test]
    fn the_cost_is_for_the_most_loaded_cpu() {
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
        let read = |_| emulated(0).read;
        let second = Duration::from_secs(1);
        let cost = CountingCost::from_states(&states, second, read, sampled(2, 160), sampled(0, 0));
        assert_eq!((cost.cpu, cost.charges), (1, 900));
        // Without a sample, a charge takes at least the time of its readings.
        assert_eq!(cost.charging, 16_860);
        let cost =
            CountingCost::from_states(&states, second, read, sampled(2, 160), sampled(2, 40_000));
        assert_eq!(cost.charging, 20_000);
        assert_eq!(cost.ppm(), Some(18_088));
        assert_eq!(CountingCost::default().ppm(), None);
        // With several kinds of core, each CPU has its own costs.
        let kinds = |cpu| match cpu {
            0 => ReadCost {
                hardware: 1,
                hardware_nanos: 2_000_000,
                ..ReadCost::default()
            },
            _ => emulated(0).read,
        };
        let cost =
            CountingCost::from_states(&states, second, kinds, sampled(2, 160), sampled(0, 0));
        assert_eq!((cost.cpu, cost.charging), (0, 2_000_000));
        assert_eq!(cost.read, kinds(0));
    }
}
