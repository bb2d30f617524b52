//! SPE events: their settings, by the PMU's format files, and the event of each CPU.

use std::os::fd::{AsFd as _, OwnedFd};

use super::{
    error::{SpeError, buffer_refusal, event_refusal},
    sampler::SamplerCounters,
};
use crate::{
    event::spe::{self, PERIOD_STEP, SpeEvent},
    machine::Pmus,
    sys::{
        aux::{AuxBuffer, AuxTotals},
        perf,
    },
};

/// Filters for loads and stores. The period has jitter, so that no short loop falls into step with
/// it.
pub const DEFAULT_FILTERS: &str = "load_filter=1,store_filter=1,jitter=1";

/// The term that puts physical addresses into the records.
const PHYSICAL_TERM: &str = "pa_enable";

/// Default number of operations from one sample to the next. NMO suggests 10,000 to 50,000, and to
/// avoid periods below 2,000.
pub const DEFAULT_PERIOD: u64 = 32_768;

/// The settings of each SPE PMU, with its CPUs. Machines with several kinds of core have several
/// PMUs.
#[derive(Clone, Debug)]
pub struct SpeEvents {
    events: Vec<SpeEvent>,
    /// Operations from one sample to the next at the start of sampling.
    pub period: u64,
    /// The shortest period that all PMUs allow.
    pub(crate) floor: u64,
    /// The longest latency that any of the PMUs can record, in cycles.
    pub(crate) max_latency: u16,
}

impl SpeEvents {
    /// Builds the settings of every SPE PMU of the machine. `filters` are terms as in
    /// `arm_spe_0/load_filter=1,min_latency=100/`. Timestamps are always on, since finding the
    /// owner of a record needs them.
    ///
    /// # Errors
    /// If there is no such PMU, its files cannot be read, it does not know a term, or it does not
    /// allow the period.
    pub fn resolve(pmus: &Pmus, filters: &str, period: u64) -> Result<Self, SpeError> {
        let period = spe::period(pmus, period)?;
        let floors = spe::pmus(pmus)?.into_iter().map(spe::min_interval);
        let floor = floors.fold(PERIOD_STEP, u64::max);
        let latencies = spe::pmus(pmus)?.into_iter().map(spe::max_latency);
        let comma = if filters.is_empty() { "" } else { "," };
        Ok(Self {
            events: spe::events(pmus, &format!("ts_enable=1{comma}{filters}"))?,
            period,
            floor,
            max_latency: latencies.fold(0, u16::max),
        })
    }

    /// These settings with physical addresses in the records, or the reason why physical addresses
    /// are not available. `filters` are those of [`Self::resolve`]; a `pa_enable` in them takes
    /// precedence.
    ///
    /// # Errors
    /// The errors of [`Self::resolve`].
    pub fn with_physical(
        &self,
        pmus: &Pmus,
        filters: &str,
    ) -> Result<Result<Self, String>, SpeError> {
        let is_physical = |term: &str| term.trim().split('=').next() == Some(PHYSICAL_TERM);
        if filters.split(',').any(is_physical) {
            return Ok(Ok(self.clone()));
        }
        for pmu in spe::pmus(pmus)? {
            if !pmu.formats.contains_key(PHYSICAL_TERM) {
                return Ok(Err(format!("{} has no term {PHYSICAL_TERM}", pmu.name)));
            }
        }
        let comma = if filters.is_empty() { "" } else { "," };
        let terms = format!("{filters}{comma}{PHYSICAL_TERM}=1");
        let physical = Self::resolve(pmus, &terms, self.period)?;
        for event in &physical.events {
            let attr = event.counter.attr();
            let mut errnos = event.cpus.iter().map(|cpu| {
                let opened = perf::open_sampling(&attr, event.exclude, cpu, self.period);
                opened.err().and_then(|error| error.raw_os_error())
            });
            // The error on an offline CPU says nothing about permission.
            let first_online = errnos.find(|errno| *errno != Some(libc::ENODEV));
            if let Some(Some(libc::EACCES | libc::EPERM)) = first_online {
                return Ok(Err(format!(
                    "{} gives physical addresses to processes with CAP_PERFMON only, or where \
                     kernel.perf_event_paranoid is 1 at most",
                    event.pmu
                )));
            }
        }
        Ok(Ok(physical))
    }

    /// The mean of the jitter that is added to the period on a CPU, in operations.
    pub(crate) fn jitter(&self, cpu: u32) -> f64 {
        let mut events = self.events.iter();
        let event = events.find(|event| event.cpus.contains(cpu));
        event.map_or(0.0, |event| event.jitter)
    }

    /// Whether this CPU is sampled.
    pub(super) fn covers(&self, cpu: u32) -> bool {
        self.events.iter().any(|event| event.cpus.contains(cpu))
    }
}

/// The SPE event of one CPU. Closing it ends the sampling on the CPU.
pub(crate) struct SpeCpuEvent {
    pub(crate) cpu: u32,
    /// The kernel's id of the event.
    pub(crate) id: u64,
    fd: OwnedFd,
    // Declared after `fd`, which is closed first: the kernel then hands over the rest of the
    // buffer.
    buffer: AuxBuffer,
    /// The core's counts of its sampling.
    pub(crate) sampler: SamplerCounters,
    /// Enabled time at the last drain, in nanoseconds.
    enabled: u64,
}

/// The outcome of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainOutcome {
    /// The buffer of the CPU was drained.
    Drained,
    /// The event is dead: it was not enabled since the last drain, because its CPU went offline.
    Dead,
}

impl SpeCpuEvent {
    /// Opens the event of a CPU without enabling it; None if the CPU has no SPE. The sizes of its
    /// buffer and of the kernel's log of the buffer are in bytes.
    pub(super) fn open(
        events: &SpeEvents,
        cpu: u32,
        period: u64,
        [aux_size, log]: [usize; 2],
    ) -> Result<Option<Self>, SpeError> {
        let Some(event) = events.events.iter().find(|event| event.cpus.contains(cpu)) else {
            return Ok(None);
        };
        let fd = perf::open_sampling(&event.counter.attr(), event.exclude, cpu, period).map_err(
            |error| SpeError::Open {
                pmu: event.pmu.clone(),
                cpu,
                reason: event_refusal(&error),
            },
        )?;
        let buffer =
            AuxBuffer::new(fd.as_fd(), aux_size, log).map_err(|error| SpeError::Buffer {
                kib: aux_size / 1024,
                cpu,
                reason: buffer_refusal(&error),
            })?;
        let id = perf::id(fd.as_fd()).map_err(|source| SpeError::Control {
            what: "identify",
            cpu,
            source,
        })?;
        Ok(Some(Self {
            cpu,
            id,
            fd,
            buffer,
            sampler: SamplerCounters::default(),
            enabled: 0,
        }))
    }

    pub(super) fn enable(&self) -> Result<(), SpeError> {
        perf::enable(self.fd.as_fd()).map_err(self.failed("start"))
    }

    /// Stops sampling. The kernel hands over everything in the buffer.
    pub(crate) fn stop(&mut self) -> Result<DrainOutcome, SpeError> {
        perf::disable(self.fd.as_fd()).map_err(self.failed("stop"))?;
        // If the event cannot be read, the CPU went offline.
        let enabled = perf::read(self.fd.as_fd()).map_or(self.enabled, |reading| reading.enabled);
        let was_enabled = enabled > self.enabled;
        self.enabled = enabled;
        Ok(if was_enabled {
            DrainOutcome::Drained
        } else {
            DrainOutcome::Dead
        })
    }

    /// Resumes sampling, with another `period` if it is given. Also restarts the hardware if it
    /// stopped after losing data.
    pub(crate) fn resume(&self, period: Option<u64>) -> Result<(), SpeError> {
        if let Some(period) = period {
            perf::set_period(self.fd.as_fd(), period)
                .map_err(self.failed("change the period of"))?;
        }
        self.enable()
    }

    /// Sums of the kernel's log of the buffer since the last call.
    pub(crate) fn logged(&mut self) -> AuxTotals {
        self.buffer.take_totals()
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(std::io::Error) -> SpeError {
        let cpu = self.cpu;
        move |source| SpeError::Control { what, cpu, source }
    }
}

#[cfg(test)]
mod tests {
    use test_support::Tree;

    use super::*;

    #[test]
    fn physical_addresses_are_requested_if_the_pmu_has_them() {
        let root = Tree::new();
        let files = [
            ("type", "20\n"),
            ("cpumask", "0\n"),
            ("format/ts_enable", "config:0\n"),
            ("format/load_filter", "config:33\n"),
        ];
        root.pmu("arm_spe_0", &files);
        let with_physical = |filters: &str| {
            let pmus = Pmus::read(root.path()).unwrap();
            let plain = SpeEvents::resolve(&pmus, filters, 4096).unwrap();
            plain.with_physical(&pmus, filters).unwrap()
        };
        let config = |events: SpeEvents| events.events[0].counter.config;
        let reason = with_physical("load_filter=1").unwrap_err();
        assert_eq!(reason, "arm_spe_0 has no term pa_enable");
        root.pmu("arm_spe_0", &[("format/pa_enable", "config:1\n")]);
        // The user's term takes precedence.
        assert_eq!(config(with_physical("pa_enable=0").unwrap()), 1);
        assert_eq!(
            config(with_physical("load_filter,pa_enable").unwrap()),
            1 << 33 | 3
        );
        // The test machine has no PMU with this number, so opening events fails, but not for lack
        // of permission.
        assert_eq!(config(with_physical("load_filter").unwrap()), 1 << 33 | 3);
        assert_eq!(config(with_physical("").unwrap()), 3);
    }
}
