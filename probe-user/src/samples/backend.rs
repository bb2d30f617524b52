//! The sampling backend: Arm's SPE, or x86's events for memory accesses.

use super::{RecordError, SpeOptions};
use crate::{
    event::{
        Scope,
        accesses::accesses,
        sampling::{Rate, SampledEvent},
        spe::{SpeEvent, is_spe},
    },
    machine::{Pmus, cpus::CpuList},
};

/// Options of sampling by events (`docs/reference/mem.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessSampling {
    /// Number of events from one sample to the next; None: by the default number of samples per
    /// second and CPU.
    pub period: Option<u64>,
    /// Minimum latency in cycles; accesses without a latency are kept.
    pub min_latency: Option<u16>,
}

impl AccessSampling {
    /// The memory-access events; empty if this machine has SPE, or none of these events.
    ///
    /// # Errors
    ///
    /// If the PMU does not support the period.
    pub fn events(&self, pmus: &Pmus) -> Result<Vec<SampledEvent>, RecordError> {
        if pmus.names().any(is_spe) {
            return Ok(Vec::new());
        }
        Ok(accesses(
            pmus,
            self.period.map(Rate::Period),
            self.min_latency,
        )?)
    }
}

/// How samples are taken.
#[derive(Clone, Debug)]
pub enum SamplingMethod {
    /// SPE: the core writes samples into an AUX buffer.
    Spe(SpeOptions),
    /// Sampled events: the kernel writes samples into a ring in an interrupt.
    Events(AccessSampling),
}

/// A [`SamplingMethod`] with the events that implement it on this machine.
pub(super) enum Backend {
    Spe(SpeOptions, Vec<SpeEvent>),
    Events(AccessSampling, Vec<SampledEvent>),
}

impl Backend {
    pub(super) fn for_method(method: &SamplingMethod, pmus: &Pmus) -> Result<Self, RecordError> {
        Ok(match method {
            SamplingMethod::Spe(sampling) => Self::Spe(sampling.clone(), sampling.events(pmus)?),
            SamplingMethod::Events(sampling) => Self::Events(*sampling, sampling.events(pmus)?),
        })
    }

    /// SPE events, one for each kind of core; empty for [`Self::Events`].
    pub(super) fn spe(&self) -> &[SpeEvent] {
        match self {
            Self::Spe(_, events) => events,
            Self::Events(..) => &[],
        }
    }

    /// The SPE options, repeated for each event of [`Self::spe`].
    pub(super) fn sampling(&self) -> impl Iterator<Item = &SpeOptions> {
        let sampling = match self {
            Self::Spe(sampling, _) => Some(sampling),
            Self::Events(..) => None,
        };
        sampling.into_iter().cycle()
    }

    /// Minimum latency of samples, in cycles; 0 with SPE, where the core filters them.
    pub(super) fn min_latency(&self) -> u32 {
        match self {
            Self::Spe(..) => 0,
            Self::Events(sampling, _) => sampling.min_latency.map_or(0, u32::from),
        }
    }

    /// Index of a CPU's kind of core; None if the CPU cannot be sampled.
    pub(super) fn core_kind(&self, cpu: u32) -> Option<usize> {
        match self {
            Self::Spe(_, events) => events.iter().position(|event| event.cpus.contains(cpu)),
            Self::Events(_, events) => {
                let counts = |event: &SampledEvent| event.counter.scope.counts_on(cpu);
                events.iter().any(counts).then_some(0)
            }
        }
    }

    /// The CPUs that each PMU names.
    pub(super) fn masks(&self) -> Vec<&CpuList> {
        let spe = self.spe().iter().map(|event| &event.cpus);
        let sampled = match self {
            Self::Spe(..) => &[][..],
            Self::Events(_, events) => events,
        };
        let events = sampled
            .iter()
            .filter_map(|event| match &event.counter.scope {
                Scope::Cpus(cpus) => Some(cpus),
                Scope::Cpu | Scope::Uncore { .. } => None,
            });
        spe.chain(events).collect()
    }

    /// Metadata about sampling for a file: keys and values.
    pub(super) fn about(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Spe(sampling, _) => vec![
                ("period", sampling.period.to_string()),
                ("terms", sampling.terms.clone()),
            ],
            Self::Events(_, events) => {
                let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
                let mut about = vec![("events", serde_json::json!(names).to_string())];
                about.extend(events.first().map(|event| match event.rate {
                    Rate::Period(period) => ("period", period.to_string()),
                    Rate::Frequency(rate) => ("frequency", rate.to_string()),
                }));
                about
            }
        }
    }
}
