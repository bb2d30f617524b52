//! What an agent counts: by its configuration, or by the profile of the machine.

mod sampled;

use std::sync::Arc;

use tracing::subscriber::{NoSubscriber, with_default};

use self::sampled::{AccessError, Means};
use super::{
    config::{Config, Count, Enabled},
    memory,
    overhead::Level,
    run_directory::Switches,
};
use crate::{
    catalogue::{Catalogue, CatalogueError, Hardware},
    event::sampling::{SampledEvent, SamplingError},
    join::{Hottest, View},
    machine::{Machine, SysfsError},
    names::resolver::Resolver,
    pipeline::{Pipeline, PipelineError},
    plan::{Plan, Wanted, WantedError},
    session::{self, ByProcess, Continuity, PinPlace, Session, SessionError},
    state::{State, StateError, boot_id},
};

/// What the kernel counts itself, and what the agent always counts: no counter of the PMU is
/// needed.
const ALWAYS: &str = "task-clock,page-faults,context-switches";

/// Why memory accesses are not sampled that could be.
const BESIDE_COUNTERS: &str =
    "they take counters that events are counted with; spe.enabled = true takes them";

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
    /// Memory accesses, where the configuration demands their samples.
    #[error("spe.enabled = true, but {0}")]
    Accesses(#[from] AccessError),
    /// The events that are to be sampled.
    #[error("count.sample: {0}")]
    Sample(#[from] SamplingError),
}

/// What is sampled.
#[derive(Clone, Copy, Debug)]
struct Samples {
    /// Memory accesses, where the configuration and the machine have them.
    accesses: bool,
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
    /// Whether switches that this kernel hides from the program at `sched_switch` are seen from the
    /// first one on.
    pub(super) watch_exits: bool,
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
        accesses: samples && !start.switches.spe,
        events: samples,
    };
    let mut session = session(config, &machine, resolver.clone(), samples)?;
    // Before anything is taken over, as a start that fails could not go back.
    if config.spe.enabled == Enabled::Auto
        && let Err(error) = session.try_accesses(&machine)
    {
        sampled::are_not(&error);
        let samples = Samples {
            accesses: false,
            ..samples
        };
        session = self::session(config, &machine, resolver, samples)?;
    }
    if let Some((spe, period)) = session.spe.as_mut().zip(start.period) {
        spe.events.period = spe.events.period.max(period);
    }
    if let Some(level) = level {
        session.plan = session.plan.with_fewer(level.hardware, level.software);
    }
    let accesses = session.samples_accesses();
    let mut session = start_session(session, &machine)?;
    if start.watch_exits
        && let Err(error) = session.watch_exits()
    {
        tracing::warn!("{error}");
    }
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

/// How much memory counting by this configuration takes on this machine, in words.
///
/// # Errors
///
/// Where this machine cannot count so.
pub fn memory_in_words(config: &Config) -> Result<String, CountingError> {
    let machine = Machine::this();
    let all = Samples {
        accesses: true,
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
    let events = sampled::events(&config.count, machine)?;
    let means = match samples.accesses {
        true => sampled::means(&config.spe, events.len(), machine)?,
        false => None,
    };
    let (spe, accesses) = match means {
        Some(Means::Spe(spe)) => (Some(spe), Vec::new()),
        Some(Means::Events(accesses)) => (None, accesses),
        None => (None, Vec::new()),
    };
    let (plan, sampled) = plan_beside(config, events, &accesses, machine)?;
    let sampling = match samples.events {
        true => sampled::config(config, sampled, possible(machine)?),
        false => None,
    };
    Ok(session::Config {
        plan,
        hook: config.count.hook,
        by_process: match config.count.top_processes {
            0 => ByProcess::No,
            _ => ByProcess::Counts,
        },
        max_rows: config.count.max_rows,
        spe,
        sampling,
        resolver,
        pins: config.pins.path.clone().map(PinPlace),
        ..session::Config::default()
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

/// The plan beside samples of these events, and of memory accesses, with what is sampled then: what
/// would take counters from the plan is left out, unless the configuration demands it.
fn plan_beside(
    config: &Config,
    events: Vec<SampledEvent>,
    accesses: &[SampledEvent],
    machine: &Machine,
) -> Result<(Plan, Vec<SampledEvent>), CountingError> {
    let pmus = machine.pmus()?;
    let takes_counters = { accesses.iter() }.any(|event| !event.counters(pmus).is_empty());
    let all = [events.as_slice(), accesses].concat();
    if !takes_counters || config.spe.enabled == Enabled::On {
        return Ok((plan(&config.count, &all, machine)?, all));
    }
    let alone = plan(&config.count, &events, machine)?;
    // A trial: its warnings about events that find no room are not for the user.
    let beside = with_default(NoSubscriber::new(), || plan(&config.count, &all, machine));
    match beside {
        Ok(beside) if beside.opened() == alone.opened() => Ok((beside, all)),
        _ => {
            sampled::are_not(&BESIDE_COUNTERS);
            Ok((alone, events))
        }
    }
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

#[cfg(test)]
mod tests;
