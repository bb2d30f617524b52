//! The start of a session.

use std::sync::Arc;

use probe_common::ProcessWalk;

use super::{
    Config, Continuity, CountedCpus, EbpfObject, EventSampling, Hotplug, KernelClock,
    ProcessCounts, ReadCosts, Session, SessionError, SourceReaders, SpeSampling, Uncore, object,
    pins::SessionPins,
    pull::{
        EvictionCandidates, FreedRows, LastIdleRows, LifecycleTracker, WaitTotals, sum_of_counts,
    },
    walk,
};
use crate::{
    machine::{Machine, capabilities},
    snapshot::Refused,
    sys::{
        clock::{nanos, now},
        descriptors,
    },
};

impl Session {
    /// Loads and attaches the programs, and starts counting on every online CPU of the running
    /// machine.
    ///
    /// # Errors
    ///
    /// If a right, a kernel feature or an event is missing. Each error says what to do.
    pub fn start(mut config: Config, machine: &Arc<Machine>) -> Result<Self, SessionError> {
        capabilities::check()?;
        if let Some(spe) = &mut config.spe {
            spe.resolve_timeline(machine);
        }
        // Listening begins before the CPUs are looked up, so that no change is missed.
        let hotplug = Hotplug::listen();
        let online: Vec<u32> = machine.online()?.iter().collect();
        let possible = machine
            .possible()?
            .last()
            .map_or(0, |last| last as usize + 1);
        let config = Arc::new(config);
        let mut session = Self::open(&config, machine, hotplug, &online, possible)?;
        if let Some(spe) = config.spe.clone() {
            let (object, clock) = (&mut session.object, session.clock);
            let spe = SpeSampling::start(spe, machine, object, clock, &online, possible)?;
            session.spe = Some(spe);
        }
        if config.counts_on_cpus() {
            session.start_counting(&online)?;
        }
        if let Some(events) = config.sampling.clone() {
            let object = &mut session.object;
            let events = EventSampling::start(events, object, &online, possible, machine)?;
            session.sampling = Some(events);
        }
        session.complete_pins()?;
        session.object.programs.release_types();
        Ok(session)
    }

    /// Loads the object, opens every counter, and tracks cgroups from here on. This session charges
    /// nothing yet; pinned programs of an earlier process still charge.
    fn open(
        config: &Arc<Config>,
        machine: &Arc<Machine>,
        hotplug: Hotplug,
        online: &[u32],
        possible: usize,
    ) -> Result<Self, SessionError> {
        let hierarchy = machine.hierarchy()?;
        let counts_before = ProcessCounts::now(config.resolver.as_deref());
        if config.plan.counts_waits() && !config.keeps_ledger(machine) {
            tracing::warn!(
                "a scheduler of sched_ext runs, whose queues belong to no CPU: waits are counted, \
                 and not for whom"
            );
        }
        let mut pins = config
            .pins
            .as_ref()
            .map(|path| SessionPins::open(path, config, machine))
            .transpose()?;
        let pinned_rows = pins.as_ref().and_then(SessionPins::row_capacity);
        let max_rows = pinned_rows.unwrap_or_else(|| config.rows(online.len(), possible));
        descriptors::allow(&config.descriptors(machine, online))?;
        let mut object = EbpfObject::load(config, machine, max_rows, possible, pins.as_ref())?;
        let cpus = CountedCpus::open(config, online)?;
        let uncore = Uncore::open(&config.plan, machine)?;
        let programs = &mut object.programs;
        programs.load(object::FLUSH)?;
        programs.load(object::READ_COST)?;
        for program in config.lifecycle(machine) {
            programs.attach(program)?;
        }
        // The walk comes after the programs are attached, so that no cgroup is missed in between.
        let mut lifecycle = LifecycleTracker::start(hierarchy, config.resolver.clone())?;
        let clock = KernelClock::measure(&mut object)?;
        let mut began = now();
        if let Some(pins) = &mut pins {
            let resumes = pins.resumes();
            began = pins.handover.begin(&object, clock, resumes)?;
            if resumes {
                // Owners still have rows if they ended after the earlier process last handled ends.
                lifecycle.mark_stale();
            }
        }
        let sources = SourceReaders::open(config, machine, hierarchy, &uncore)?;
        Ok(Self {
            machine: Arc::clone(machine),
            config: Arc::clone(config),
            object,
            cpus,
            uncore,
            clock,
            lifecycle,
            freed: FreedRows::default(),
            waits: WaitTotals::default(),
            candidates: EvictionCandidates::default(),
            hotplug,
            max_rows,
            idle: LastIdleRows::default(),
            refused: Refused::default(),
            read_costs: ReadCosts::default(),
            began,
            counts_before,
            spe: None,
            sampling: None,
            sources,
            command: None,
            pins,
        })
    }

    /// Attaches the hook, arms the CPUs, and measures what a reading costs.
    fn start_counting(&mut self, online: &[u32]) -> Result<(), SessionError> {
        let object = &mut self.object;
        if let Some(pins) = &mut self.pins
            && pins.continuity == Continuity::Replaced
        {
            // Stops every CPU before its programs are replaced by those of this build.
            object.programs.prepare(object::SCHED_SWITCH)?;
            for cpu in online {
                pins.handover.stop(object, *cpu)?;
            }
        }
        let hook = &mut self.cpus.hook;
        hook.attach(object, self.config.hook, self.machine.hierarchy()?, online)?;
        if self.config.plan.scheduler_slots() != 0 {
            let walk = ProcessWalk {
                thread_map: ProcessWalk::WAITS,
                ..ProcessWalk::ZERO
            };
            walk::run(object, walk)?;
        }
        self.cpus.arm_all(object, self.pins.as_mut())?;
        self.cpus.hook.prepare_exits(object);
        self.read_costs = ReadCosts::measure(object, &self.config.plan, &self.cpus.counters)?;
        Ok(())
    }

    /// Completes the pins once this session counts, and stores the times of the pinned maps.
    fn complete_pins(&mut self) -> Result<(), SessionError> {
        let Some(pins) = &mut self.pins else {
            return Ok(());
        };
        let now = nanos(self.clock.now());
        if pins.resumes() {
            // The earlier process already reported the rows that were refused to it.
            let sum = sum_of_counts(&self.object.maps.state.get(0)?);
            self.refused = Refused::from_counts(&sum);
        }
        pins.handover.end(now);
        pins.complete()?;
        let directory = pins.directory();
        self.object.programs.set_pin_directory(&directory);
        pins.handover.store_pull_time(&mut self.object, now)
    }
}
