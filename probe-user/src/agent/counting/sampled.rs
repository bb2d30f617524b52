//! What an agent samples: the events of its configuration, and memory accesses by SPE or by the
//! machine's events for them.

use std::fmt::Display;

use super::{CountingError, possible_cpus};
use crate::{
    agent::{
        config::{self, Config, Enabled},
        memory,
    },
    event::{
        accesses::{NoAccesses, accesses, describe_mechanism},
        sampling::{Rate, SampledEvent, SamplingError, max_sample_rate, sampled},
        spe::is_spe,
    },
    machine::{Machine, Pmus},
    session::{
        SamplingConfig, SpeConfig, SpeError,
        spe::{DEFAULT_FILTERS, SpeEvents},
    },
};

/// Why memory accesses cannot be sampled. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// SPE cannot sample, or the machine has neither SPE nor events of memory accesses.
    #[error(transparent)]
    Spe(#[from] SpeError),
    /// The machine's events cannot sample memory accesses.
    #[error(transparent)]
    Events(#[from] NoAccesses),
    /// The configured rate exceeds the kernel's limit.
    #[error(
        "spe.frequency = {rate} is more than kernel.perf_event_max_sample_rate allows (here \
         {max}): lower it, or raise the limit by `sysctl`"
    )]
    Rate {
        /// Samples a second.
        rate: u64,
        /// The kernel's limit.
        max: u64,
    },
}

/// What samples memory accesses.
pub(super) enum AccessBackend {
    Spe(SpeConfig),
    /// IBS, or events of Intel's cores.
    Events(Vec<SampledEvent>),
}

/// The sampled events of the configuration.
pub(super) fn events(
    count: &config::Count,
    machine: &Machine,
) -> Result<Vec<SampledEvent>, CountingError> {
    if count.sample.is_empty() {
        return Ok(Vec::new());
    }
    let lists = count.sample.join(",");
    Ok(sampled(&lists, machine.pmus()?, max_sample_rate())?)
}

/// What samples memory accesses here, in addition to `other_events` sampled events; None if memory
/// accesses are not sampled.
pub(super) fn access_backend(
    spe: &config::Spe,
    other_events: usize,
    machine: &Machine,
) -> Result<Option<AccessBackend>, CountingError> {
    if spe.enabled == Enabled::Off {
        return Ok(None);
    }
    let pmus = machine.pmus()?;
    let backend = match describe_mechanism(pmus) {
        Some(here) if !pmus.names().any(is_spe) => {
            let backend = event_backend(spe, other_events, pmus, max_sample_rate());
            backend.inspect(|_| tracing::info!("memory accesses are sampled by {here}"))
        }
        _ => spe_backend(spe, pmus, possible_cpus(machine)?),
    };
    match (backend, spe.enabled) {
        (Ok(backend), _) => Ok(Some(backend)),
        (Err(error), Enabled::On) => Err(error.into()),
        (Err(error), _) => {
            log_not_sampled(&error);
            Ok(None)
        }
    }
}

/// Logs why memory accesses are not sampled, if the configuration does not require them.
pub(super) fn log_not_sampled(why: &impl Display) {
    tracing::info!("memory accesses are not sampled: {why}");
}

fn spe_backend(
    spe: &config::Spe,
    pmus: &Pmus,
    possible: usize,
) -> Result<AccessBackend, AccessError> {
    let events = SpeEvents::resolve(pmus, DEFAULT_FILTERS, spe.period)?;
    Ok(AccessBackend::Spe(SpeConfig {
        events,
        budget: Some(spe.budget),
        max_rows: Some(memory::access_rows(possible)),
        ..SpeConfig::standard(pmus)?
    }))
}

fn event_backend(
    spe: &config::Spe,
    other_events: usize,
    pmus: &Pmus,
    max_rate: Option<u64>,
) -> Result<AccessBackend, AccessError> {
    let rate = spe.frequency;
    if let Some(max) = max_rate.filter(|max| rate > *max) {
        return Err(AccessError::Rate { rate, max });
    }
    let accesses = accesses(pmus, Some(Rate::Frequency(rate)), None)?;
    match other_events + accesses.len() {
        0..=probe_common::sample::SAMPLED_EVENTS => Ok(AccessBackend::Events(accesses)),
        many => Err(NoAccesses::from(SamplingError::TooMany(many)).into()),
    }
}

/// The settings for sampling `events`, in which memory accesses come last; None if it is empty. One
/// program handles memory accesses and other events: it has the sum of their budgets and rows.
pub(super) fn sampling_config(
    config: &Config,
    events: Vec<SampledEvent>,
    possible: usize,
) -> Option<SamplingConfig> {
    let accesses = events.iter().any(|event| event.accesses.is_some());
    let others = events.iter().any(|event| event.accesses.is_none());
    let kinds = [
        (
            others,
            config.count.sample_budget,
            memory::event_rows(possible),
        ),
        (accesses, config.spe.budget, memory::access_rows(possible)),
    ];
    let active = || kinds.iter().filter(|(is_sampled, ..)| *is_sampled);
    (!events.is_empty()).then(|| SamplingConfig {
        budget: Some(active().map(|(_, budget, _)| budget).sum()),
        max_rows: Some(active().map(|(.., rows)| rows).sum()),
        events,
        ..SamplingConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use test_support::sysfs;

    use super::*;
    use crate::{agent::config::Config, event::AccessScaling};

    fn spr() -> Pmus {
        Pmus::read(&sysfs("spr")).unwrap()
    }

    fn intel_events(spe: &config::Spe) -> Vec<SampledEvent> {
        let Ok(AccessBackend::Events(events)) = event_backend(spe, 0, &spr(), Some(1000)) else {
            panic!("Intel's cores have events of memory accesses");
        };
        events
    }

    #[test]
    fn accesses_are_sampled_as_often_as_the_configuration_says() {
        let events = intel_events(&Config::default().spe);
        assert_eq!(events.len(), 2);
        let rates = events.iter().map(|event| event.rate);
        assert!(rates.eq([Rate::Frequency(199); 2]));
        // Two general counters, and one for the leader.
        let pmus = spr();
        let counters = events.iter().flat_map(|event| event.counters(&pmus));
        assert_eq!(counters.count(), 3);
    }

    #[test]
    fn too_many_samples_or_events_are_refused() {
        let spe = config::Spe {
            frequency: 5000,
            ..Config::default().spe
        };
        let error = event_backend(&spe, 0, &spr(), Some(4000)).err().unwrap();
        assert_eq!(
            CountingError::from(error).to_string(),
            "spe.enabled = true, but spe.frequency = 5000 is more than \
             kernel.perf_event_max_sample_rate allows (here 4000): lower it, or raise the limit by \
             `sysctl`"
        );
        let error = event_backend(&spe, 7, &spr(), None)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("9 events are to be sampled, and at most 8"),
            "{error}"
        );
    }

    /// One program has the budgets of memory accesses and of other events.
    #[test]
    fn budgets_and_rows_are_sums_over_what_is_sampled() {
        let mut settings = Config::default();
        settings.count.sample_budget = 0.25;
        settings.spe.budget = 0.5;
        let clock = sampled("cpu-clock", &spr(), None).unwrap();
        let accesses = intel_events(&settings.spe);
        let (a, b) = (memory::event_rows(8), memory::access_rows(8));
        for (events, budget, rows) in [
            (clock.clone(), 0.25, a),
            (accesses.clone(), 0.5, b),
            ([clock, accesses].concat(), 0.75, a + b),
        ] {
            let sampling = sampling_config(&settings, events.clone(), 8).unwrap();
            assert_eq!(
                (sampling.budget, sampling.max_rows),
                (Some(budget), Some(rows))
            );
            assert_eq!(sampling.events, events);
            let last = sampling.events.iter().rev();
            let accesses = last.take_while(|event| event.accesses.is_some()).count();
            assert_eq!(sampling.accesses().count_ones() as usize, accesses);
        }
        assert!(sampling_config(&settings, Vec::new(), 8).is_none());
        assert_eq!(
            intel_events(&settings.spe)[0].accesses,
            Some(AccessScaling::Tagged)
        );
    }
}
