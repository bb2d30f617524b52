//! How samples are taken: by Arm's SPE, or by the events of memory accesses that x86 has.

use super::{RecordError, Sampling};
use crate::{
    event::{
        Scope,
        accesses::accesses,
        sampling::{Rate, SampledEvent},
        spe::{SpeEvent, is_spe},
    },
    machine::{Pmus, cpus::CpuList},
};

/// What is sampled by events (`docs/mem.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessSampling {
    /// Events from one sample to the next; none: by the usual number of samples
    /// per second and CPU.
    pub period: Option<u64>,
    /// Only accesses with at least so many cycles of latency, and those without one.
    pub min_latency: Option<u16>,
}

impl AccessSampling {
    /// The events; none where this machine has SPE, or no such events.
    ///
    /// # Errors
    ///
    /// Where the PMU does not take the period.
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
pub enum Method {
    /// By SPE: the core writes them into a buffer.
    Spe(Sampling),
    /// By events that interrupt: the kernel writes them into a ring.
    Events(AccessSampling),
}

/// The same, with what this machine has for it.
pub(super) enum Means {
    Spe(Sampling, Vec<SpeEvent>),
    Events(AccessSampling, Vec<SampledEvent>),
}

impl Means {
    pub(super) fn of(method: &Method, pmus: &Pmus) -> Result<Self, RecordError> {
        Ok(match method {
            Method::Spe(sampling) => Self::Spe(sampling.clone(), sampling.events(pmus)?),
            Method::Events(sampling) => Self::Events(*sampling, sampling.events(pmus)?),
        })
    }

    /// SPE's events, by kind of core.
    pub(super) fn spe(&self) -> &[SpeEvent] {
        match self {
            Self::Spe(_, events) => events,
            Self::Events(..) => &[],
        }
    }

    /// What SPE was asked for, for each of these.
    pub(super) fn sampling(&self) -> impl Iterator<Item = &Sampling> {
        let sampling = match self {
            Self::Spe(sampling, _) => Some(sampling),
            Self::Events(..) => None,
        };
        sampling.into_iter().cycle()
    }

    /// The least latency of samples that are kept, where the core does not leave others out.
    pub(super) fn least(&self) -> u32 {
        match self {
            Self::Spe(..) => 0,
            Self::Events(sampling, _) => sampling.min_latency.map_or(0, u32::from),
        }
    }

    /// The kind of core of a CPU; none where it cannot be sampled.
    pub(super) fn kind(&self, cpu: u32) -> Option<usize> {
        match self {
            Self::Spe(_, events) => events.iter().position(|event| event.cpus.contains(cpu)),
            Self::Events(_, events) => {
                let has = |event: &SampledEvent| event.counter.scope.counts_on(cpu);
                events.iter().any(has).then_some(0)
            }
        }
    }

    /// The CPUs that the PMUs name.
    pub(super) fn masks(&self) -> Vec<&CpuList> {
        let spe = self.spe().iter().map(|event| &event.cpus);
        let events = match self {
            Self::Spe(..) => &[][..],
            Self::Events(_, events) => events,
        };
        let events = events
            .iter()
            .filter_map(|event| match &event.counter.scope {
                Scope::Cpus(cpus) => Some(cpus),
                Scope::Cpu | Scope::Uncore { .. } => None,
            });
        spe.chain(events).collect()
    }

    /// Names and values for the metadata of a file.
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
