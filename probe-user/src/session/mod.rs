//! Session: the counters and programs that are in the kernel for one run. A session opens the
//! counters, and loads and attaches the programs. Dropping it removes them, unless it keeps its
//! pins ([`Session::keep_pins`]). [`Session::pull`] yields a
//! [`Snapshot`](crate::snapshot::Snapshot).
//!
//! Each part of a session has its own methods. The methods of `Session` call these in order; they
//! are here, in `start`, in `pull` and in `pull/upkeep.rs`.

mod clock;
mod command;
mod config;
mod cost;
mod counted_cpus;
mod counters;
mod error;
mod flush;
mod hook;
mod hotplug;
pub mod markers;
pub mod memory;
pub(crate) mod object;
pub mod pins;
mod process_counts;
mod pull;
mod required_descriptors;
mod rotation;
pub mod sampling;
mod schedule;
mod sources;
pub mod spe;
mod start;
mod temporary_cgroup;
mod uncore;
mod walk;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use probe_common::{CgroupId, CpuState, ProcessWalk, UsageRow};

pub(crate) use self::{
    clock::KernelClock,
    cost::ReadCosts,
    counted_cpus::CountedCpus,
    counters::CpuCounters,
    error::chain,
    hotplug::Hotplug,
    object::EbpfObject,
    process_counts::ProcessCounts,
    rotation::Rotation,
    sampling::EventSampling,
    sources::SourceReaders,
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
    pins::SessionPins,
    pull::{EvictionCandidates, FreedRows, LastIdleRows, LifecycleTracker, WaitTotals},
};
use crate::{
    machine::Machine,
    plan::Plan,
    snapshot::{Hook, Names, Refused},
    sys::clock::nanos,
};

/// The counters and programs that are in the kernel for one run, and the state to read them.
pub struct Session {
    pub(crate) machine: Arc<Machine>,
    pub(crate) config: Arc<Config>,
    pub(crate) object: EbpfObject,
    pub(crate) cpus: CountedCpus,
    pub(crate) uncore: Uncore,
    /// The programs' clock.
    pub(crate) clock: KernelClock,
    pub(crate) lifecycle: LifecycleTracker,
    pub(crate) freed: FreedRows<UsageRow>,
    pub(crate) waits: WaitTotals,
    pub(crate) candidates: EvictionCandidates,
    pub(crate) hotplug: Hotplug,
    pub(crate) max_rows: u32,
    pub(crate) idle: LastIdleRows,
    pub(crate) refused: Refused,
    pub(crate) read_costs: ReadCosts,
    pub(crate) began: Duration,
    /// Counts of this process when the session began.
    pub(crate) counts_before: ProcessCounts,
    pub(crate) spe: Option<SpeSampling>,
    pub(crate) sampling: Option<EventSampling>,
    pub(crate) sources: SourceReaders,
    /// The owner to which the started command is charged, if the memory of the command's processes
    /// is read.
    pub(crate) command: Option<CgroupId>,
    pub(crate) pins: Option<SessionPins>,
}

impl Session {
    /// Restores the state of an earlier session. `names` are the names that it knew, also of
    /// cgroups that are gone by now. `owners` are the cgroups that it counted. Each that still
    /// exists gets a row for the next pull, so that its totals continue even while it sleeps. An
    /// owner for which the map has no room continues when it runs. Must be called before the first
    /// pull.
    pub fn restore(&mut self, names: &Names, owners: impl IntoIterator<Item = CgroupId>) {
        let current = self.lifecycle.names();
        // If all rows are by process, a row ends with its process and is not restored.
        if self.config.by_process != ByProcess::All {
            let exists = |id: &CgroupId| current.cgroups.contains_key(id);
            let owners = owners.into_iter().filter(exists);
            let now = nanos(self.clock.now());
            if let Err(error) = self.cpus.make_rows(&self.object, now, owners) {
                // Pinned maps that counted while no pmuscope ran may be full.
                tracing::warn!(
                    "totals of containers that sleep are missing until they run: {error}; if the \
                     map is full, raise count.max_rows"
                );
            }
        }
        self.lifecycle.restore(names, self.config.by_process.any());
    }

    /// Identifies the maps of this session among all maps since boot. A session that takes over the
    /// maps of an earlier session has the earlier session's generation.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to describe the map.
    pub fn generation(&self) -> Result<u64, SessionError> {
        self.object.maps.usage.id().map(u64::from)
    }

    /// Whether this session is new or continues an earlier one.
    #[must_use]
    pub fn continuity(&self) -> Continuity {
        self.pins
            .as_ref()
            .map_or(Continuity::New, |pins| pins.continuity)
    }

    /// Keeps the pins of this session when it ends. Its programs continue counting, and the next
    /// session with the same plan takes them over.
    pub fn keep_pins(&mut self) {
        if let Some(pins) = &mut self.pins {
            pins.keep();
        }
    }

    /// The plan: what is counted.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.config.plan
    }

    /// Whether this session samples. If so, callers that pull rarely must call [`Self::upkeep`].
    #[must_use]
    pub fn samples(&self) -> bool {
        self.spe.is_some() || self.sampling.is_some()
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

    /// Converts a time of this process's monotonic clock to the clock of snapshots. The clocks
    /// differ in a time namespace.
    pub(crate) fn kernel_time(&self, process_time: Duration) -> Duration {
        self.clock.convert(process_time)
    }

    /// The hook in use: `cgroup-switches` only if it was requested, was admitted, and has not
    /// missed a switch since.
    #[must_use]
    pub fn hook(&self) -> Hook {
        self.cpus.hook.kind()
    }

    /// Attaches the program `sched_exit`. It runs right after each switch, and also sees switches
    /// that the kernel hides from `sched_switch`. Since it costs a program run at every switch, a
    /// session attaches it by itself only after the first missed switch. Callers for which even one
    /// missed switch is too much call this first. Does nothing on kernels without the tracepoint
    /// `sched_exit_tp`.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the program.
    pub fn watch_exits(&mut self) -> Result<(), SessionError> {
        self.cpus.watch_exits(&mut self.object)
    }

    /// Converts `pid`, a process id in the pid namespace of this process, to the process id in the
    /// initial namespace, which all counts use.
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

    /// The programs' work, by possible CPU. The time spent on samples is that of the last reading.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to read the programs' state.
    pub fn work(&self) -> Result<BTreeMap<u32, CpuWork>, SessionError> {
        let accesses = self
            .spe
            .as_ref()
            .map(SpeSampling::nanos)
            .unwrap_or_default();
        let events = self
            .sampling
            .as_ref()
            .map(EventSampling::nanos)
            .unwrap_or_default();
        let nanos_on = |nanos: &BTreeMap<u32, u64>, cpu| nanos.get(&cpu).copied().unwrap_or(0);
        let work = self.states()?.into_iter().map(|(cpu, state)| {
            let work = CpuWork {
                runs: state.counts.runs,
                charges: state.counts.charges,
                sampling: nanos_on(&accesses, cpu) + nanos_on(&events, cpu),
            };
            (cpu, work)
        });
        Ok(work.collect())
    }
}
