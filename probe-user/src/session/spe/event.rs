//! The SPE events: their settings, by the PMU's own format files, and one per CPU.

use std::os::fd::{AsFd as _, OwnedFd};

use super::{
    error::{SpeError, no_buffer, refused},
    sampler::Sampler,
};
use crate::{
    event::spe::{self, PERIOD_STEP, SpeEvent},
    machine::Pmus,
    sys::{
        aux::{AuxBuffer, Logged},
        perf,
    },
};

/// Loads and stores, at a period that varies by itself so that no short loop falls into step with
/// it.
pub const DEFAULT_FILTERS: &str = "load_filter=1,store_filter=1,jitter=1";

/// The term for physical addresses in the records.
const PHYSICAL: &str = "pa_enable";

/// Operations from one sample to the next (NMO: avoid below 2,000; 10,000 to 50,000 suggested).
pub const DEFAULT_PERIOD: u64 = 32_768;

/// What is sampled on which CPUs: one entry for each SPE PMU. Machines with several kinds of core
/// have several.
#[derive(Clone, Debug)]
pub struct SpeEvents {
    events: Vec<SpeEvent>,
    /// Operations from one sample to the next when sampling begins.
    pub period: u64,
    /// The shortest period that all of them allow.
    pub(crate) floor: u64,
    /// The longest latency that any of them can tell, in cycles.
    pub(crate) max_latency: u16,
}

impl SpeEvents {
    /// Builds the settings of every SPE PMU of the machine. `filters` are terms as in
    /// `arm_spe_0/load_filter=1,min_latency=100/`; timestamps are always on, owners of records need
    /// them.
    ///
    /// # Errors
    /// There is no such PMU, its files cannot be read, it does not know a term, or allows no such
    /// period.
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

    /// The same with physical addresses in the records, or why they cannot be had. `filters` are
    /// those of [`Self::resolve`]; what they say of `pa_enable` holds.
    ///
    /// # Errors
    /// As of [`Self::resolve`].
    pub fn with_physical(
        &self,
        pmus: &Pmus,
        filters: &str,
    ) -> Result<Result<Self, String>, SpeError> {
        let term = |term: &str| term.trim().split('=').next() == Some(PHYSICAL);
        if filters.split(',').any(term) {
            return Ok(Ok(self.clone()));
        }
        for pmu in spe::pmus(pmus)? {
            if !pmu.formats.contains_key(PHYSICAL) {
                return Ok(Err(format!("{} has no term {PHYSICAL}", pmu.name)));
            }
        }
        let comma = if filters.is_empty() { "" } else { "," };
        let terms = format!("{filters}{comma}{PHYSICAL}=1");
        let physical = Self::resolve(pmus, &terms, self.period)?;
        for event in &physical.events {
            let attr = event.counter.attr();
            let mut refused = event.cpus.iter().map(|cpu| {
                let opened = perf::open_sampling(&attr, event.exclude, cpu, self.period);
                opened.err().and_then(|error| error.raw_os_error())
            });
            // A CPU that is offline says nothing.
            let refused = refused.find(|errno| *errno != Some(libc::ENODEV));
            if let Some(Some(libc::EACCES | libc::EPERM)) = refused {
                return Ok(Err(format!(
                    "{} gives physical addresses to processes with CAP_PERFMON only, or where \
                     kernel.perf_event_paranoid is 1 at most",
                    event.pmu
                )));
            }
        }
        Ok(Ok(physical))
    }

    /// What jitter adds to the mean period of a CPU, in operations.
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

/// The SPE event of one CPU; closing it ends the sampling there.
pub(crate) struct SpeCpuEvent {
    pub(crate) cpu: u32,
    /// The number that the kernel gave the event.
    pub(crate) id: u64,
    fd: OwnedFd,
    // After the event, which is closed first: the kernel then hands over what is left.
    buffer: AuxBuffer,
    /// What the core counts of its sampling.
    pub(crate) sampler: Sampler,
    /// Enabled time at the last drain, in ns.
    enabled: u64,
}

/// What a drain found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// The CPU handed over what it had.
    Yes,
    /// The event has not been enabled since the last drain: its CPU was offline in between, and it
    /// is dead.
    Dead,
}

impl SpeCpuEvent {
    /// Opens the event of a CPU, not started; None where the CPU has no SPE. The sizes are those of
    /// its buffer and of the kernel's log of that, in bytes.
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
                reason: refused(&error),
            },
        )?;
        let buffer =
            AuxBuffer::new(fd.as_fd(), aux_size, log).map_err(|error| SpeError::Buffer {
                kib: aux_size / 1024,
                cpu,
                reason: no_buffer(&error),
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
            sampler: Sampler::default(),
            enabled: 0,
        }))
    }

    pub(super) fn enable(&self) -> Result<(), SpeError> {
        perf::enable(self.fd.as_fd()).map_err(self.failed("start"))
    }

    /// Stops sampling: everything that lies in the buffer is handed over.
    pub(crate) fn stop(&mut self) -> Result<Drained, SpeError> {
        perf::disable(self.fd.as_fd()).map_err(self.failed("stop"))?;
        // Its error means that the CPU, and with it the event, is gone.
        let enabled = perf::read(self.fd.as_fd()).map_or(self.enabled, |reading| reading.enabled);
        let grown = enabled > self.enabled;
        self.enabled = enabled;
        Ok(if grown { Drained::Yes } else { Drained::Dead })
    }

    /// Samples on: with another period where one is given, and also where the hardware stopped
    /// after it had lost data.
    pub(crate) fn go_on(&self, period: Option<u64>) -> Result<(), SpeError> {
        if let Some(period) = period {
            perf::set_period(self.fd.as_fd(), period)
                .map_err(self.failed("change the period of"))?;
        }
        self.enable()
    }

    /// What the kernel's log says of the buffer since it was asked last.
    pub(crate) fn logged(&mut self) -> Logged {
        self.buffer.logged()
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(std::io::Error) -> SpeError {
        let cpu = self.cpu;
        move |source| SpeError::Control { what, cpu, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tree::Tree;

    #[test]
    fn physical_addresses_are_asked_for_where_a_pmu_has_them() {
        let root = Tree::new();
        let files = [
            ("type", "20\n"),
            ("cpumask", "0\n"),
            ("format/ts_enable", "config:0\n"),
            ("format/load_filter", "config:33\n"),
        ];
        root.pmu("arm_spe_0", &files);
        let with = |filters: &str| {
            let pmus = Pmus::read(root.path()).unwrap();
            let plain = SpeEvents::resolve(&pmus, filters, 4096).unwrap();
            plain.with_physical(&pmus, filters).unwrap()
        };
        let config = |events: SpeEvents| events.events[0].counter.config;
        let reason = with("load_filter=1").unwrap_err();
        assert_eq!(reason, "arm_spe_0 has no term pa_enable");
        root.pmu("arm_spe_0", &[("format/pa_enable", "config:1\n")]);
        // What the user says of it holds.
        assert_eq!(config(with("pa_enable=0").unwrap()), 1);
        assert_eq!(config(with("load_filter,pa_enable").unwrap()), 1 << 33 | 3);
        // No PMU has this number here: it is the session that says so.
        assert_eq!(config(with("load_filter").unwrap()), 1 << 33 | 3);
        assert_eq!(config(with("").unwrap()), 3);
    }
}
