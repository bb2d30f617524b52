//! Session: everything that is in the kernel for one run. It opens the counters, and loads and
//! attaches the programs; dropping it removes all of them. [`Session::pull`] yields a
//! [`Snapshot`](crate::snapshot::Snapshot).

mod clock;
mod command;
mod config;
mod cost;
mod counters;
mod error;
mod flush;
mod hook;
mod hotplug;
pub mod markers;
pub mod memory;
pub(crate) mod object;
pub mod pins;
mod pull;
mod required_descriptors;
mod resctrl_reader;
mod restore;
mod rotation;
pub mod sampling;
mod schedule;
pub mod spe;
mod temporary_cgroup;
mod uncore;
mod walk;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use probe_common::{CgroupId, CpuState, ProcessWalk, ProgramClock};

pub(crate) use self::{
    clock::KernelClock,
    cost::ReadCosts,
    counters::CpuCounters,
    error::chain,
    hook::{CgroupSwitches, SchedExitHook},
    hotplug::Hotplug,
    object::EbpfObject,
    rotation::Rotation,
    sampling::EventSampling,
    spe::{DrainOutcome, SpeSampling},
    uncore::Uncore,
};
pub use self::{
    command::{Command, RunningCommand},
    config::{ByProcess, Config, MOST_ROWS},
    cost::CpuWork,
    error::SessionError,
    pins::{Continuity, PinError, PinPath, unpin},
    sampling::{SampleError, SamplingConfig},
    spe::{SpeConfig, SpeError},
    temporary_cgroup::TemporaryCgroup,
};
use self::{
    pins::{Handover, SessionPins},
    pull::{EvictionCandidates, FreedRows, LastIdleRows, LifecycleTracker, Processes},
};
use crate::{
    devices::DeviceReader,
    machine::{Machine, capabilities, cgroup::Hierarchy, memory::MemoryReader, resctrl},
    plan::Plan,
    snapshot::{Hook, Names, Refused},
    sys::{
        clock::{nanos, now},
        descriptors,
    },
};

/// Everything that is in the kernel for one run.
pub struct Session {
    pub(crate) machine: Arc<Machine>,
    pub(crate) config: Config,
    pub(crate) object: EbpfObject,
    pub(crate) counters: Vec<CpuCounters>,
    pub(crate) uncore: Uncore,
    pub(crate) cgroup_switches: Option<CgroupSwitches>,
    /// The programs' clock.
    pub(crate) clock: KernelClock,
    pub(crate) hierarchy: Hierarchy,
    pub(crate) lifecycle: LifecycleTracker,
    pub(crate) processes: Processes,
    /// Processes that are looked up although they have no row.
    pub(crate) watched: HashSet<u32>,
    pub(crate) freed: FreedRows<probe_common::UsageRow>,
    pub(crate) candidates: EvictionCandidates,
    pub(crate) hotplug: Hotplug,
    pub(crate) max_rows: u32,
    pub(crate) idle: LastIdleRows,
    pub(crate) refused: Refused,
    pub(crate) missed_switches: u64,
    pub(crate) exits: SchedExitHook,
    pub(crate) flushes: u64,
    pub(crate) rotation: Rotation,
    pub(crate) read_costs: ReadCosts,
    pub(crate) began: Duration,
    pub(crate) spe: Option<SpeSampling>,
    pub(crate) sampling: Option<EventSampling>,
    pub(crate) devices: Option<DeviceReader>,
    pub(crate) resctrl: Option<resctrl::Reader>,
    pub(crate) memory: Option<MemoryReader>,
    /// The owner that the started command is charged to. The memory of its processes is read.
    pub(crate) command: Option<CgroupId>,
    /// Times of the maps, which a pinned map stores.
    pub(crate) times: ProgramClock,
    /// The handover in progress, while counts are taken over.
    pub(crate) handover: Option<Handover>,
    pub(crate) pins: Option<SessionPins>,
}

impl Session {
    /// Loads and attaches everything, and starts counting on every online CPU of the running
    /// machine.
    ///
    /// # Errors
    ///
    /// If a right, a kernel feature or an event is missing. Each error says what to do.
    pub fn start(mut config: Config, machine: &Arc<Machine>) -> Result<Self, SessionError> {
        capabilities::check()?;
        let hierarchy = machine.hierarchy()?;
        if let Some(spe) = &mut config.spe {
            spe.resolve_timeline(machine);
        }
        // Before the CPUs are looked up, so that no change is missed.
        let hotplug = Hotplug::listen();
        let online: Vec<u32> = machine.online()?.iter().collect();
        let pins = config
            .pins
            .as_ref()
            .map(|place| SessionPins::open(place, &config, machine))
            .transpose()?;
        let pinned_rows = pins.as_ref().and_then(SessionPins::row_capacity);
        let possible = machine
            .possible()?
            .last()
            .map_or(0, |last| last as usize + 1);
        let max_rows = pinned_rows.unwrap_or_else(|| config.rows(online.len(), possible));
        descriptors::allow(&config.descriptors(machine, &online))?;
        let mut object = EbpfObject::load(&config, machine, max_rows, possible, pins.as_ref())?;

        let opened = online
            .iter()
            .map(|cpu| CpuCounters::open(&config.plan, *cpu));
        let cpu_counters = opened.collect::<Result<Vec<_>, _>>()?;
        let uncore = Uncore::open(&config.plan, machine)?;

        let programs = &mut object.programs;
        programs.load(object::FLUSH)?;
        programs.load(object::READ_COST)?;
        for program in config.lifecycle(machine) {
            programs.attach(program)?;
        }
        // After the programs are attached, so that no cgroup falls between walk and events.
        let cgroups = hierarchy.walk()?;
        temporary_cgroup::remove_leftover(hierarchy, cgroups.iter().map(|(_, path)| path.as_str()));
        let mut lifecycle =
            LifecycleTracker::new(Names::from_walk(cgroups), config.resolver.clone());

        let clock = KernelClock::measure(&mut object)?;
        let mut times = object.maps.clock.get(0)?;
        let resumes = pins.as_ref().is_some_and(SessionPins::resumes);
        if resumes {
            // Owners that ended after the earlier process last handled ends still have rows.
            lifecycle.mark_stale();
        } else {
            times.began = nanos(clock.now());
        }
        let before = nanos(clock.now()).saturating_sub(times.began);
        let devices = config
            .plan
            .reads_devices()
            .then(|| DeviceReader::new(&config.plan.devices, machine, hierarchy));
        let memory = config
            .memory
            .then(|| match config.by_process.any() {
                true => MemoryReader::for_processes(machine),
                false => MemoryReader::for_cgroups(machine),
            })
            .transpose()?;
        let resctrl = resctrl_reader::open(&config.plan, machine, hierarchy, &uncore);
        let mut session = Self {
            machine: Arc::clone(machine),
            config,
            object,
            counters: cpu_counters,
            uncore,
            cgroup_switches: None,
            clock,
            hierarchy: hierarchy.clone(),
            lifecycle,
            processes: Processes::default(),
            watched: HashSet::new(),
            freed: FreedRows::default(),
            candidates: EvictionCandidates::default(),
            hotplug,
            max_rows,
            idle: LastIdleRows::default(),
            refused: Refused::default(),
            missed_switches: 0,
            exits: SchedExitHook::default(),
            flushes: 0,
            rotation: Rotation::default(),
            read_costs: ReadCosts::default(),
            began: now().saturating_sub(Duration::from_nanos(before)),
            spe: None,
            sampling: None,
            devices,
            resctrl,
            memory,
            command: None,
            times,
            handover: resumes.then(Handover::default),
            pins,
        };
        if let Some(config) = session.config.spe.clone() {
            let spe = SpeSampling::start(
                config,
                machine,
                &mut session.object,
                session.clock,
                &online,
                possible,
            )?;
            session.spe = Some(spe);
        }
        if session.config.counts_on_cpus() {
            session.attach_hook(hierarchy, &online)?;
            session.arm_all()?;
            session.prepare_exits();
            session.measure_reads()?;
        }
        if let Some(config) = session.config.sampling.clone() {
            let sampling = EventSampling::start(config, &mut session.object, &online, machine)?;
            session.sampling = Some(sampling);
        }
        session.complete_pins()?;
        session.object.programs.release_types();
        Ok(session)
    }

    /// The plan: what is counted.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.config.plan
    }

    /// Ends the sampling of memory accesses, so that other programs can use the PMU.
    pub fn stop_accesses(&mut self) {
        self.spe = None;
        self.sampling = self
            .sampling
            .take()
            .and_then(EventSampling::without_accesses);
    }

    /// Ends sampling and frees its events and buffers, so that other programs can use the PMU.
    pub fn stop_sampling(&mut self) {
        self.spe = None;
        self.sampling = None;
    }

    /// Converts a time of this process's monotonic clock to the clock of snapshots. The two differ
    /// in a time namespace.
    pub(crate) fn kernel_time(&self, ours: Duration) -> Duration {
        self.clock.convert(ours)
    }

    /// The hook in use: `cgroup-switches` only if it was requested, was admitted, and has missed
    /// nothing since.
    #[must_use]
    pub fn hook(&self) -> Hook {
        if self.cgroup_switches.is_some() {
            Hook::CgroupSwitches
        } else {
            Hook::SchedSwitch
        }
    }

    /// Converts `pid`, an id in the pid namespace of this process, to the id in the initial one,
    /// which all counts use.
    ///
    /// # Errors
    ///
    /// If there is no such process, or the kernel refuses the walk.
    pub fn process_id(&mut self, pid: u32) -> Result<u32, SessionError> {
        let wanted = ProcessWalk {
            wanted: u64::from(pid),
            ..ProcessWalk::default()
        };
        let found = walk::run(&mut self.object, wanted)?.found;
        match u32::try_from(found) {
            Ok(id) if id != 0 => Ok(id),
            _ => Err(SessionError::NoProcess(pid)),
        }
    }

    /// Charges the counts of process `pid` and of its descendants to [`CgroupId::COMMAND`].
    ///
    /// # Errors
    ///
    /// If the kernel refuses the map entry, and the errors of [`Self::process_id`].
    pub fn follow(&mut self, pid: u32) -> Result<(), SessionError> {
        let pid = self.process_id(pid)?;
        self.object.maps.command.put(&pid, &1)?;
        if self.spe.is_some() {
            SpeSampling::follow(&self.object, pid)?;
        }
        Ok(())
    }

    /// The programs' state of every possible CPU.
    pub(crate) fn states(&self) -> Result<BTreeMap<u32, CpuState>, SessionError> {
        self.object.maps.state.get(0)
    }

    fn attach_hook(&mut self, hierarchy: &Hierarchy, online: &[u32]) -> Result<(), SessionError> {
        if self.config.hook == Hook::CgroupSwitches {
            let hook = CgroupSwitches::attach(&mut self.object, online)?;
            match hook.admit(&self.object.maps.state, hierarchy) {
                Ok(()) => {
                    self.cgroup_switches = Some(hook);
                    return Ok(());
                }
                Err(reason) => {
                    tracing::warn!(
                        "hook cgroup-switches is not complete here: {reason}; using sched-switch"
                    );
                    hook.detach(&mut self.object)?;
                }
            }
        }
        if self.continuity() == Continuity::Replaced {
            self.object.programs.prepare(object::SCHED_SWITCH)?;
            self.stop_for_handover()?;
        }
        hook::attach_sched_switch(&mut self.object)?;
        self.adopt_exits()
    }

    /// Replaces the hook `cgroup-switches` by `sched-switch`, after it missed switches.
    pub(crate) fn fall_back(&mut self) -> Result<(), SessionError> {
        let Some(hook) = self.cgroup_switches.take() else {
            return Ok(());
        };
        hook.detach(&mut self.object)?;
        hook::attach_sched_switch(&mut self.object)?;
        // Open slices belong to the running tasks; from here on owners are known.
        self.reopen_slices()
    }
}
