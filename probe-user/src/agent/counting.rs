//! Starts an agent's session: the events and metrics of the configuration, or of the machine's
//! profile.

mod profile;
mod sampled;

use std::sync::Arc;

use tracing::subscriber::{NoSubscriber, with_default};

pub(crate) use self::profile::plan_within;
use self::sampled::{AccessBackend, AccessError};
use super::{
    config::{self, Config, Enabled},
    memory,
    overhead::Level,
    run_directory::Switches,
};
use crate::{
    calibration::{Calibration, CalibrationError, UsedCalibration},
    catalogue::{Catalogue, CatalogueError, resolve_hardware},
    event::sampling::{SampledEvent, SamplingError},
    join::{Hottest, MostWaitedFor, View},
    machine::{Machine, SysfsError, cpus::CpuList},
    names::resolver::Resolver,
    pipeline::{Pipeline, PipelineError},
    plan::{Plan, PlanRequest, PlanRequestError},
    session::{self, ByProcess, Continuity, PinPath, Session, SessionError},
    snapshot::Hook,
    state::{SavedState, StateError, boot_id},
};

/// Software events that the agent always counts: they need no counter of the PMU.
const ALWAYS: &str = "task-clock,page-faults,context-switches";

/// Why memory accesses are not sampled on a machine that can sample them.
const NEEDS_COUNTERS: &str =
    "they take counters that events are counted with; spe.enabled = true takes them";

/// Why counting cannot start. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CountingError {
    /// The catalogue is invalid.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The requested events and metrics cannot be counted.
    #[error(transparent)]
    Wanted(#[from] PlanRequestError),
    /// The calibration cannot be used.
    #[error("count.calibration: {0}")]
    Calibration(#[from] CalibrationError),
    /// The session cannot start.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The PMUs cannot be read.
    #[error(transparent)]
    Pmus(#[from] Arc<SysfsError>),
    /// Memory accesses cannot be sampled, and the configuration requires it.
    #[error("spe.enabled = true, but {0}")]
    Accesses(#[from] AccessError),
    /// The configured events cannot be sampled.
    #[error("count.sample: {0}")]
    Sample(#[from] SamplingError),
}

/// Which kinds of samples a session takes.
#[derive(Clone, Copy, Debug)]
struct SampleKinds {
    /// Memory accesses, if the configuration allows it and the machine can sample them.
    accesses: bool,
    /// The events of `count.sample`.
    events: bool,
}

/// Options of a start that are not in the configuration.
#[derive(Clone, Copy)]
pub(super) struct StartOptions {
    pub(super) switches: Switches,
    /// What the budget allows to count; None without a budget.
    pub(super) level: Option<Level>,
    /// The last sampling period of memory accesses, in operations: the session begins with it if it
    /// is longer than the configured one.
    pub(super) period: Option<u64>,
    /// Whether to watch, from the start, for switches that this kernel hides from the program at
    /// `sched_switch`.
    pub(super) watch_exits: bool,
    /// Whether the saved totals are the latest, so that the session may continue them.
    pub(super) saved_is_latest: bool,
}

/// Begins to count on this machine. The flag is true if totals of an earlier session continue.
pub(super) fn start(
    config: &Config,
    resolver: Option<Arc<Resolver>>,
    options: StartOptions,
) -> Result<(Pipeline, bool), CountingError> {
    let machine = Arc::new(Machine::this());
    let level = options.level;
    let may_sample = level.is_none_or(|level| level.samples);
    let samples = SampleKinds {
        accesses: may_sample && !options.switches.spe,
        events: may_sample,
    };
    let mut session = session_config(config, &machine, resolver.clone(), samples)?;
    // Tried before the session takes over pins: a failed start could not give them back.
    if config.spe.enabled == Enabled::Auto
        && let Err(error) = session.try_accesses(&machine)
    {
        sampled::log_not_sampled(&error);
        let samples = SampleKinds {
            accesses: false,
            ..samples
        };
        session = session_config(config, &machine, resolver, samples)?;
    }
    if let Some((spe, period)) = session.spe.as_mut().zip(options.period) {
        spe.events.period = spe.events.period.max(period);
    }
    if let Some(level) = level {
        session.plan = session.plan.degraded(level.hardware, level.software);
    }
    let accesses = session.samples_accesses();
    let mut session = start_session(session, &machine)?;
    if options.watch_exits
        && let Err(error) = session.watch_exits()
    {
        tracing::warn!("{error}");
    }
    let state = options
        .saved_is_latest
        .then(|| load_state(config, &machine))
        .flatten();
    if let Some(state) = &state {
        session.restore(state.names(), state.owners());
    }
    let view = View {
        by: config.count.by,
        accesses: accesses.then(Hottest::default),
        processes: config.count.top_processes,
        waited_for: MostWaitedFor::NAMED,
        ..View::default()
    };
    let mut pipeline = Pipeline::start(session, view, None)?;
    let resumed = state.is_some_and(|state| match pipeline.resume(state) {
        Ok(()) => true,
        // The ledger continues the totals of the events that are still counted.
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

/// The memory that counting by this configuration takes on this machine, as text.
///
/// # Errors
///
/// If this machine cannot count by this configuration.
pub fn memory_in_words(config: &Config) -> Result<String, CountingError> {
    let machine = Machine::this();
    let all_kinds = SampleKinds {
        accesses: true,
        events: true,
    };
    let session = session_config(config, &machine, None, all_kinds)?;
    let online = machine.online().map_err(SessionError::from)?;
    let cpus = online.iter().count();
    let memory = session.memory(cpus, possible_cpus(&machine)?);
    let groups = session.plan.groups.len();
    let by_process = config.count.top_processes > 0;
    Ok(memory::in_words(&memory, groups, cpus, by_process))
}

/// One more than the highest possible CPU number.
fn possible_cpus(machine: &Machine) -> Result<usize, SessionError> {
    Ok(machine
        .possible()?
        .last()
        .map_or(0, |last| last as usize + 1))
}

fn session_config(
    config: &Config,
    machine: &Machine,
    resolver: Option<Arc<Resolver>>,
    samples: SampleKinds,
) -> Result<session::Config, CountingError> {
    let events = sampled::events(&config.count, machine)?;
    let backend = match samples.accesses {
        true => sampled::access_backend(&config.spe, events.len(), machine)?,
        false => None,
    };
    let (spe, accesses) = match backend {
        Some(AccessBackend::Spe(spe)) => (Some(spe), Vec::new()),
        Some(AccessBackend::Events(accesses)) => (None, accesses),
        None => (None, Vec::new()),
    };
    let (plan, sampled) = plan_with_samples(config, events, &accesses, machine)?;
    let sampling = match samples.events {
        true => sampled::sampling_config(config, sampled, possible_cpus(machine)?),
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
        pins: config.pins.path.clone().map(PinPath),
        ..session::Config::default()
    })
}

/// Starts a session. If maps cannot be pinned, counting ends with the agent.
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

/// Loads the saved totals, if they can be continued.
fn load_state(config: &Config, machine: &Machine) -> Option<SavedState<'static>> {
    let loaded = SavedState::load(config.state.as_deref()?, &boot_id(machine));
    loaded.unwrap_or_else(|error| {
        tracing::warn!("{error}");
        None
    })
}

/// The plan of what is counted on a machine.
fn plan(
    count: &config::Count,
    sampled: &[SampledEvent],
    machine: &Machine,
) -> Result<Plan, CountingError> {
    let catalogue = Catalogue::builtin()?;
    let hardware = resolve_hardware(machine, count.chip);
    let mut wanted = PlanRequest {
        calibration: calibration(count, machine)?,
        ..configured_request(count, machine)
    };
    wanted.set_sampled(sampled);
    let capacity = wanted.capacity(machine, &catalogue, &hardware)?;
    let plan = plan_within(&wanted, &capacity, machine, &catalogue, hardware)?;
    for event in &plan.uncountable {
        tracing::warn!("{} is not counted: {}", event.name, event.reason);
    }
    let online = machine.online().map_err(PlanRequestError::from)?;
    if let Some(message) = multiplexing(&plan, &online) {
        tracing::info!("{message}");
    }
    Ok(plan)
}

/// A message on how many groups a plan multiplexes, and for what part of the time each counts; None
/// if it multiplexes none.
fn multiplexing(plan: &Plan, online: &CpuList) -> Option<String> {
    let groups = online
        .iter()
        .map(|cpu| plan.multiplexed_groups(cpu).count());
    let groups = groups.max().filter(|groups| *groups > 1)?;
    let percent = 100 / groups;
    Some(format!(
        "{groups} groups of counters are multiplexed: each counts {percent}% of the time"
    ))
}

/// The calibrations of the configuration. A fleet has one configuration, so calibrations of other
/// types of machines are no error.
fn calibration(count: &config::Count, machine: &Machine) -> Result<UsedCalibration, CountingError> {
    let Some(path) = &count.calibration else {
        return Ok(UsedCalibration::default());
    };
    match Calibration::read(path, machine) {
        Ok(calibration) => Ok(calibration.used_on(machine)),
        Err(error) if error.is_of_another_machine() => {
            tracing::warn!("{error}; until then memory traffic is divided by one weight");
            Ok(UsedCalibration::default())
        }
        Err(error) => Err(error.into()),
    }
}

/// The plan together with the events that are sampled: `events`, and `accesses` unless these would
/// take counters from the plan. If the configuration requires accesses, they are sampled anyway.
fn plan_with_samples(
    config: &Config,
    events: Vec<SampledEvent>,
    accesses: &[SampledEvent],
    machine: &Machine,
) -> Result<(Plan, Vec<SampledEvent>), CountingError> {
    let pmus = machine.pmus()?;
    let takes_counters = { accesses.iter() }.any(|event| !event.counters(pmus).is_empty());
    let all_sampled = [events.as_slice(), accesses].concat();
    if !takes_counters || config.spe.enabled == Enabled::On {
        return Ok((plan(&config.count, &all_sampled, machine)?, all_sampled));
    }
    let without_accesses = plan(&config.count, &events, machine)?;
    // A trial: the user does not need its warnings about events that do not fit.
    let with_accesses = with_default(NoSubscriber::new(), || {
        plan(&config.count, &all_sampled, machine)
    });
    match with_accesses {
        Ok(plan) if plan.opened() == without_accesses.opened() => Ok((plan, all_sampled)),
        _ => {
            sampled::log_not_sampled(&NEEDS_COUNTERS);
            Ok((without_accesses, events))
        }
    }
}

/// The events and metrics of the configuration. If it names none, the plan has the machine's
/// profile, or what fits the PMU.
fn configured_request(count: &config::Count, machine: &Machine) -> PlanRequest {
    // Waits need `sched-switch`: the hook `cgroup-switches` does not see the incoming task, whose
    // wait ends.
    let waits = count.hook == Hook::SchedSwitch && machine.keeps_waits();
    PlanRequest {
        events: count.events.clone(),
        metrics: count.metrics.clone(),
        always: ALWAYS,
        own_weights: false,
        calibration: UsedCalibration::default(),
        all_weights: false,
        reserve_counters: count.reserve_counters,
        device: None,
        sampled: Vec::new(),
        waits,
        rates: waits,
    }
}

/// What the default configuration counts.
pub(crate) fn default_request(machine: &Machine) -> PlanRequest {
    configured_request(&Config::default().count, machine)
}

#[cfg(test)]
mod tests;
