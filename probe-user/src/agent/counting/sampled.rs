//! What an agent samples: the events of its configuration, and memory accesses by what the machine
//! has for them.

use std::fmt::Display;

use super::{CountingError, possible};
use crate::{
    agent::{
        config::{Config, Count, Enabled, Spe},
        memory,
    },
    event::{
        accesses::{NoAccesses, accesses, described},
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
    /// By SPE, or there is nothing to sample them by.
    #[error(transparent)]
    Spe(#[from] SpeError),
    /// By events.
    #[error(transparent)]
    Events(#[from] NoAccesses),
    /// More often than the kernel allows.
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
pub(super) enum Means {
    Spe(SpeConfig),
    /// IBS, or events of Intel's cores.
    Events(Vec<SampledEvent>),
}

/// The events of the configuration.
pub(super) fn events(count: &Count, machine: &Machine) -> Result<Vec<SampledEvent>, CountingError> {
    if count.sample.is_empty() {
        return Ok(Vec::new());
    }
    let lists = count.sample.join(",");
    Ok(sampled(&lists, machine.pmus()?, max_sample_rate())?)
}

/// What samples memory accesses here, beside so many events; None where they are not sampled.
pub(super) fn means(
    spe: &Spe,
    events: usize,
    machine: &Machine,
) -> Result<Option<Means>, CountingError> {
    if spe.enabled == Enabled::Off {
        return Ok(None);
    }
    let pmus = machine.pmus()?;
    let found = match described(pmus) {
        Some(here) if !pmus.names().any(is_spe) => {
            let found = by_events(spe, events, pmus, max_sample_rate());
            found.inspect(|_| tracing::info!("memory accesses are sampled by {here}"))
        }
        _ => by_spe(spe, pmus, possible(machine)?),
    };
    match (found, spe.enabled) {
        (Ok(means), _) => Ok(Some(means)),
        (Err(error), Enabled::On) => Err(error.into()),
        (Err(error), _) => {
            are_not(&error);
            Ok(None)
        }
    }
}

/// Says why memory accesses are not sampled, where nobody demands it.
pub(super) fn are_not(why: &impl Display) {
    tracing::info!("memory accesses are not sampled: {why}");
}

fn by_spe(spe: &Spe, pmus: &Pmus, possible: usize) -> Result<Means, AccessError> {
    let events = SpeEvents::resolve(pmus, DEFAULT_FILTERS, spe.period)?;
    Ok(Means::Spe(SpeConfig {
        events,
        budget: Some(spe.budget),
        max_rows: Some(memory::sampled_rows(possible)),
        ..SpeConfig::standard(pmus)?
    }))
}

fn by_events(
    spe: &Spe,
    events: usize,
    pmus: &Pmus,
    max_rate: Option<u64>,
) -> Result<Means, AccessError> {
    let rate = spe.frequency;
    if let Some(max) = max_rate.filter(|max| rate > *max) {
        return Err(AccessError::Rate { rate, max });
    }
    let accesses = accesses(pmus, Some(Rate::Frequency(rate)), None)?;
    match events + accesses.len() {
        0..=probe_common::sample::SAMPLED_EVENTS => Ok(Means::Events(accesses)),
        many => Err(NoAccesses::from(SamplingError::TooMany(many)).into()),
    }
}

/// How these events are sampled, of which the last may be of memory accesses; None where there are
/// none. One program takes in all of them: what it may take and the room that it has are the sums
/// of both.
pub(super) fn config(
    config: &Config,
    events: Vec<SampledEvent>,
    possible: usize,
) -> Option<SamplingConfig> {
    let accesses = events.iter().any(|event| event.accesses.is_some());
    let others = events.iter().any(|event| event.accesses.is_none());
    let parts = [
        (
            others,
            config.count.sample_budget,
            memory::event_rows(possible),
        ),
        (accesses, config.spe.budget, memory::sampled_rows(possible)),
    ];
    let parts = || parts.iter().filter(|(is_sampled, ..)| *is_sampled);
    (!events.is_empty()).then(|| SamplingConfig {
        budget: Some(parts().map(|(_, budget, _)| budget).sum()),
        max_rows: Some(parts().map(|(.., rows)| rows).sum()),
        events,
        ..SamplingConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agent::config::Config, event::Accesses, sys::tree::fixture};

    fn spr() -> Pmus {
        Pmus::read(&fixture("sysfs/spr")).unwrap()
    }

    fn intels(spe: &Spe) -> Vec<SampledEvent> {
        let Ok(Means::Events(events)) = by_events(spe, 0, &spr(), Some(1000)) else {
            panic!("Intel's cores have events for it");
        };
        events
    }

    #[test]
    fn accesses_are_sampled_as_often_as_the_configuration_says() {
        let events = intels(&Config::default().spe);
        assert_eq!(events.len(), 2);
        let rates = events.iter().map(|event| event.rate);
        assert!(rates.eq([Rate::Frequency(199); 2]));
        // Two general counters and the leader's.
        let pmus = spr();
        let counters = events.iter().flat_map(|event| event.counters(&pmus));
        assert_eq!(counters.count(), 3);
    }

    #[test]
    fn what_is_too_much_is_said() {
        let spe = Spe {
            frequency: 5000,
            ..Config::default().spe
        };
        let error = by_events(&spe, 0, &spr(), Some(4000)).err().unwrap();
        assert_eq!(
            CountingError::from(error).to_string(),
            "spe.enabled = true, but spe.frequency = 5000 is more than \
             kernel.perf_event_max_sample_rate allows (here 4000): lower it, or raise the limit by \
             `sysctl`"
        );
        let error = by_events(&spe, 7, &spr(), None).err().unwrap().to_string();
        assert!(
            error.contains("9 events are to be sampled, and at most 8"),
            "{error}"
        );
    }

    /// One program has both budgets together.
    #[test]
    fn budgets_and_rows_are_of_what_is_sampled() {
        let mut settings = Config::default();
        settings.count.sample_budget = 0.25;
        settings.spe.budget = 0.5;
        let clock = sampled("cpu-clock", &spr(), None).unwrap();
        let accesses = intels(&settings.spe);
        let (a, b) = (memory::event_rows(8), memory::sampled_rows(8));
        for (events, budget, rows) in [
            (clock.clone(), 0.25, a),
            (accesses.clone(), 0.5, b),
            ([clock, accesses].concat(), 0.75, a + b),
        ] {
            let made = config(&settings, events.clone(), 8).unwrap();
            assert_eq!((made.budget, made.max_rows), (Some(budget), Some(rows)));
            assert_eq!(made.events, events);
            let last = made.events.iter().rev();
            let accesses = last.take_while(|event| event.accesses.is_some()).count();
            assert_eq!(made.accesses().count_ones() as usize, accesses);
        }
        assert!(config(&settings, Vec::new(), 8).is_none());
        assert_eq!(intels(&settings.spe)[0].accesses, Some(Accesses::Tagged));
    }
}
