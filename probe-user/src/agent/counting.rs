//! What an agent counts: by its configuration, or by the profile of the machine.

use std::sync::Arc;

use super::{
    config::{Config, Count, Enabled},
    memory,
    overhead::Level,
    run_directory::Switches,
};
use crate::{
    catalogue::{Catalogue, CatalogueError, Hardware},
    event::sampling::{SampledEvent, SamplingError, max_sample_rate, sampled},
    join::{Hottest, View},
    machine::{Machine, SysfsError},
    names::resolver::Resolver,
    pipeline::{Pipeline, PipelineError},
    plan::{Plan, Wanted, WantedError},
    session::{
        self, ByProcess, Continuity, PinPlace, SamplingConfig, Session, SessionError, SpeConfig,
        SpeError,
        spe::{DEFAULT_FILTERS, SpeEvents},
    },
    state::{State, StateError, boot_id},
};

/// What the kernel counts itself, and what the agent always counts: no counter of the PMU is
/// needed.
pub(super) const ALWAYS: &str = "task-clock,page-faults,context-switches";

/// Why counting cannot start. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CountingError {
    /// The catalogue.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// What is wanted.
    #[error(transparent)]
    Wanted(#[from] WantedError),
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The PMUs.
    #[error(transparent)]
    Pmus(#[from] Arc<SysfsError>),
    /// SPE, where the configuration demands it.
    #[error("spe.enabled = true, but {0}")]
    Spe(#[from] SpeError),
    /// The events that are to be sampled.
    #[error("count.sample: {0}")]
    Sample(#[from] SamplingError),
}

/// What is sampled.
#[derive(Clone, Copy, Debug)]
struct Samples {
    /// Memory accesses, where the configuration and the machine have them.
    spe: bool,
    /// The events of the configuration.
    events: bool,
}

/// How counting begins, besides what the configuration says.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) switches: Switches,
    /// The level of the budget, where there is one.
    pub(super) level: Option<Level>,
    /// The period of memory accesses that was in force, where it is longer than the first one.
    pub(super) period: Option<u64>,
    /// Whether totals that were saved are the last ones.
    pub(super) goes_on: bool,
}

/// Begins to count on this machine. Tells whether the totals of an earlier session go on.
pub(super) fn start(
    config: &Config,
    resolver: Option<Arc<Resolver>>,
    start: Start,
) -> Result<(Pipeline, bool), CountingError> {
    let machine = Arc::new(Machine::this());
    let level = start.level;
    let samples = level.is_none_or(|level| level.samples);
    let samples = Samples {
        spe: samples && !start.switches.spe,
        events: samples,
    };
    let mut session = session(config, &machine, resolver, samples)?;
    if let Some((spe, period)) = session.spe.as_mut().zip(start.period) {
        spe.events.period = spe.events.period.max(period);
    }
    if let Some(level) = level {
        session.plan = session.plan.with_fewer(level.hardware, level.software);
    }
    let accesses = session.spe.is_some();
    let mut session = start_session(session, &machine)?;
    let state = start.goes_on.then(|| saved(config, &machine)).flatten();
    if let Some(state) = &state {
        session.recall(state.names(), state.owners())?;
    }
    let view = View {
        by: config.count.by,
        accesses: accesses.then(Hottest::default),
        processes: config.count.top_processes,
        ..View::default()
    };
    let mut pipeline = Pipeline::start(session, view, None)?;
    let resumed = state.is_some_and(|state| match pipeline.resume(state) {
        Ok(()) => true,
        // The ledger goes on with what was exported of the events that are still counted.
        Err(PipelineError::State(StateError::OtherEvents)) => false,
        Err(error) => {
            tracing::warn!("{error}");
            false
        }
    });
    if pipeline.continuity() != Continuity::New {
        tracing::info!("counting went on in pinned maps, and goes on from there");
    }
    Ok((pipeline, resumed))
}

/// What counting so on this machine takes of its memory, in words.
///
/// # Errors
///
/// Where it cannot be counted so.
pub fn memory_in_words(config: &Config) -> Result<String, CountingError> {
    let machine = Machine::this();
    let all = Samples {
        spe: true,
        events: true,
    };
    let session = session(config, &machine, None, all)?;
    let online = machine.online().map_err(SessionError::from)?;
    let cpus = online.iter().count();
    let memory = session.memory(cpus, possible(&machine)?);
    let groups = session.plan.groups.len();
    let by_process = config.count.top_processes > 0;
    Ok(memory::in_words(&memory, groups, cpus, by_process))
}

/// The numbers of CPUs that the machine may have: up to this one, not included.
fn possible(machine: &Machine) -> Result<usize, SessionError> {
    Ok(machine
        .possible()?
        .last()
        .map_or(0, |last| last as usize + 1))
}

fn session(
    config: &Config,
    machine: &Machine,
    resolver: Option<Arc<Resolver>>,
    samples: Samples,
) -> Result<session::Config, CountingError> {
    let sampling = sampling(&config.count, machine)?;
    let sampled = sampling.as_ref().map_or(&[][..], |it| &it.events);
    Ok(session::Config {
        plan: plan(&config.count, sampled, machine)?,
        hook: config.count.hook,
        by_process: match config.count.top_processes {
            0 => ByProcess::No,
            _ => ByProcess::Counts,
        },
        follow_command: false,
        max_rows: config.count.max_rows,
        spe: match samples.spe {
            true => spe(config, machine)?,
            false => None,
        },
        memory: false,
        sampling: sampling.filter(|_| samples.events),
        resolver,
        pins: config.pins.path.clone().map(PinPlace),
    })
}

/// Starts a session; where maps cannot be pinned, one that ends with the agent.
fn start_session(config: session::Config, machine: &Arc<Machine>) -> Result<Session, SessionError> {
    if config.pins.is_none() {
        return Session::start(config, machine);
    }
    match Session::start(config.clone(), machine) {
        Err(error @ (SessionError::Pins(_) | SessionError::Pin { .. })) => {
            tracing::warn!("{error}; counting ends with the agent now");
            let config = session::Config {
                pins: None,
                ..config
            };
            Session::start(config, machine)
        }
        started => started,
    }
}

/// The totals that were saved, where they can go on.
fn saved(config: &Config, machine: &Machine) -> Option<State<'static>> {
    let loaded = State::load(config.state.as_deref()?, &boot_id(machine));
    loaded.unwrap_or_else(|error| {
        tracing::warn!("{error}");
        None
    })
}

/// The plan of what is counted on a machine.
fn plan(count: &Count, sampled: &[SampledEvent], machine: &Machine) -> Result<Plan, CountingError> {
    let catalogue = Catalogue::builtin()?;
    let told = Hardware::told(machine, count.chip);
    if let Some(mut wanted) = of_profile(count, &told) {
        wanted.leave_room(sampled);
        match wanted.plan(machine, &catalogue, told) {
            Ok(plan) if plan.rotated == 0 => return Ok(plan),
            Ok(_) => tracing::warn!(
                "this machine has no room for all events of its profile at one time: counting \
                 what there is room for"
            ),
            Err(error) => tracing::warn!(
                "cannot count the profile of this machine: {error}; counting what can be counted"
            ),
        }
    }
    let mut wanted = by_name(count);
    wanted.leave_room(sampled);
    Ok(wanted.plan(machine, &catalogue, told)?)
}

/// What the configuration names; nothing: what fits.
fn by_name(count: &Count) -> Wanted {
    Wanted {
        events: count.events.clone(),
        metrics: count.metrics.clone(),
        always: ALWAYS,
        own_weights: false,
        reserve_counters: count.reserve_counters,
        device: None,
        sampled: Vec::new(),
    }
}

/// The profile of the machine, where the configuration names nothing and there is one.
pub(super) fn of_profile(count: &Count, told: &Hardware) -> Option<Wanted> {
    let profile = told.profile()?;
    let named = !count.events.is_empty() || !count.metrics.is_empty();
    (!named).then(|| Wanted {
        events: vec![profile.events.clone()],
        metrics: profile.metrics.clone(),
        own_weights: profile.own_weights,
        ..by_name(count)
    })
}

/// Which events are sampled, and how; None where none are.
fn sampling(count: &Count, machine: &Machine) -> Result<Option<SamplingConfig>, CountingError> {
    if count.sample.is_empty() {
        return Ok(None);
    }
    let events = sampled(&count.sample.join(","), machine.pmus()?, max_sample_rate())?;
    Ok(Some(SamplingConfig {
        events,
        budget: Some(count.sample_budget),
        addresses: false,
        pages: false,
        least_weight: 0,
        max_addresses: None,
        max_rows: Some(memory::event_rows(possible(machine)?)),
    }))
}

/// How memory accesses are sampled; None where they are not.
fn spe(config: &Config, machine: &Machine) -> Result<Option<SpeConfig>, CountingError> {
    let spe = &config.spe;
    if spe.enabled == Enabled::Off {
        return Ok(None);
    }
    let pmus = machine.pmus()?;
    let resolved = SpeEvents::resolve(pmus, DEFAULT_FILTERS, spe.period);
    match (resolved, spe.enabled) {
        (Ok(events), _) => Ok(Some(SpeConfig {
            events,
            budget: Some(spe.budget),
            max_rows: Some(memory::sampled_rows(possible(machine)?)),
            ..SpeConfig::standard(pmus)?
        })),
        (Err(error), Enabled::On) => Err(error.into()),
        (Err(error), _) => {
            tracing::info!("memory accesses are not sampled: {error}");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests;
