//! Session: everything that lives in the kernel for one run. It opens the counters, loads the programs and
//! attaches them; dropping it takes it all out. [`Session::pull`] yields a [`Snapshot`](crate::snapshot::Snapshot).

mod clock;
mod command;
mod cost;
mod counters;
mod error;
pub(crate) mod fields;
mod flush;
mod hook;
mod hotplug;
mod needed;
mod own_cgroup;
mod pull;
mod resctrl_reader;
mod rotation;
mod schedule;
pub mod spe;
mod uncore;
mod walk;

use std::{io, sync::Arc, time::Duration};

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{HashMap, MapError, PerCpuArray},
    programs::{Program, ProgramError, RawTracePoint},
};
use probe_common::{CpuState, Walk};

use self::pull::{Freed, IdleRows, Lifecycle, Processes};
pub(crate) use self::{
    clock::KernelClock,
    cost::ReadCosts,
    counters::CpuCounters,
    error::chain,
    hook::{CgroupSwitches, SchedExitHook},
    hotplug::Hotplug,
    rotation::Rotation,
    spe::{Drained, Maps, Spe},
    uncore::Uncore,
};
pub use self::{
    command::{Command, RunningCommand},
    error::SessionError,
    own_cgroup::OwnCgroup,
    spe::{SpeConfig, SpeError},
};
use crate::{
    devices::DeviceReader,
    machine::{Machine, btf::BtfError, capabilities, cgroup::Hierarchy, resctrl},
    plan::Plan,
    snapshot::{Hook, Names, Refused},
    sys::{bpf, clock::now, descriptors},
};

/// The eBPF object, built for this architecture.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe-ebpf"));

/// What a session counts and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The events.
    pub plan: Plan,
    /// The hook that is asked for; see [`Session::hook`] for the one in use.
    pub hook: Hook,
    /// Rows by process too.
    pub by_process: bool,
    /// A command's process tree will be followed ([`Session::follow`]).
    pub follow_command: bool,
    /// Rows that the USAGE map takes; None: by the number of CPUs.
    pub max_rows: Option<u32>,
    /// Sampling of memory accesses beside the counting.
    pub spe: Option<SpeConfig>,
}

/// Everything that is in the kernel for one run.
pub struct Session {
    pub(crate) machine: Arc<Machine>,
    pub(crate) config: Config,
    pub(crate) ebpf: Ebpf,
    pub(crate) btf: Btf,
    pub(crate) counters: Vec<CpuCounters>,
    pub(crate) uncore: Uncore,
    pub(crate) cgroup_switches: Option<CgroupSwitches>,
    /// The programs' clock.
    pub(crate) clock: KernelClock,
    pub(crate) hierarchy: Hierarchy,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) processes: Processes,
    pub(crate) freed: Freed<probe_common::UsageRow>,
    pub(crate) hotplug: Hotplug,
    pub(crate) max_rows: u32,
    pub(crate) idle: IdleRows,
    pub(crate) refused: Refused,
    pub(crate) missed_switches: u64,
    pub(crate) exits: SchedExitHook,
    pub(crate) flushes: u64,
    pub(crate) rotation: Rotation,
    pub(crate) read_costs: ReadCosts,
    pub(crate) began: Duration,
    pub(crate) spe: Option<Spe>,
    pub(crate) devices: Option<DeviceReader>,
    pub(crate) resctrl: Option<resctrl::Reader>,
}

impl Session {
    /// Loads and attaches everything, and starts counting on every online CPU of the running machine.
    ///
    /// # Errors
    ///
    /// Where a right, a kernel feature or an event is missing; each error says what to do.
    pub fn start(mut config: Config, machine: &Arc<Machine>) -> Result<Self, SessionError> {
        capabilities::check()?;
        let hierarchy = machine.hierarchy()?;
        if let Some(spe) = &mut config.spe {
            spe.settle(machine);
        }
        // Before the CPUs are looked up, so that none leaves unseen.
        let hotplug = Hotplug::listen();
        let online: Vec<u32> = machine.online()?.iter().collect();
        let max_rows = config
            .max_rows
            .unwrap_or_else(|| default_rows(online.len(), config.plan.groups.len()));
        let vmlinux = machine.vmlinux();
        let offsets = fields::offsets(&vmlinux, config.spe.is_some())?;
        let btf = Btf::from_sys_fs().map_err(|error| BtfError::Unreadable {
            path: vmlinux.clone(),
            reason: chain(&error),
        })?;
        let possible = machine
            .possible()?
            .last()
            .map_or(0, |last| last as usize + 1);
        descriptors::allow(&config.descriptors(machine, &online))?;
        let mut ebpf = load(&config, max_rows, &offsets, &btf, possible)?;

        let opened = online
            .iter()
            .map(|cpu| CpuCounters::open(&config.plan, *cpu));
        let cpu_counters = opened.collect::<Result<Vec<_>, _>>()?;
        let uncore = Uncore::open(&config.plan, machine)?;

        for name in ["flush", "read_cost"] {
            let run: &mut RawTracePoint = program(&mut ebpf, name)?;
            run.load().map_err(|error| SessionError::Bpf {
                what: format!("program {name}"),
                reason: chain(&error),
            })?;
        }
        hook::attach_tracepoint(&mut ebpf, &btf, "cgroup_mkdir", "cgroup_mkdir")?;
        hook::attach_tracepoint(&mut ebpf, &btf, "cgroup_rmdir", "cgroup_rmdir")?;
        hook::attach_tracepoint(&mut ebpf, &btf, "cgroup_attach", "cgroup_attach_task")?;
        hook::attach_tracepoint(&mut ebpf, &btf, "cpu_hotplug", "cpuhp_enter")?;
        if config.by_process {
            hook::attach_tracepoint(&mut ebpf, &btf, "process_exit", "sched_process_exit")?;
        }
        if config.follow_command {
            hook::attach_tracepoint(&mut ebpf, &btf, "follow_fork", "sched_process_fork")?;
            hook::attach_tracepoint(&mut ebpf, &btf, "follow_free", "sched_process_free")?;
        }
        // After the programs are attached, so that no cgroup falls between walk and events.
        let cgroups = hierarchy.walk()?;
        own_cgroup::remove_left(hierarchy, cgroups.iter().map(|(_, path)| path.as_str()));
        let lifecycle = Lifecycle::new(&mut ebpf, Names::from_walk(cgroups))?;

        let clock = KernelClock::measure(&mut ebpf)?;
        let devices = config
            .plan
            .reads_devices()
            .then(|| DeviceReader::new(&config.plan.devices, machine, hierarchy));
        let resctrl = resctrl_reader::open(&config.plan, machine, hierarchy, &uncore);
        let mut session = Self {
            machine: Arc::clone(machine),
            config,
            ebpf,
            btf,
            counters: cpu_counters,
            uncore,
            cgroup_switches: None,
            clock,
            hierarchy: hierarchy.clone(),
            lifecycle,
            processes: Processes::default(),
            freed: Freed::default(),
            hotplug,
            max_rows,
            idle: IdleRows::default(),
            refused: Refused::default(),
            missed_switches: 0,
            exits: SchedExitHook::default(),
            flushes: 0,
            rotation: Rotation::default(),
            read_costs: ReadCosts::default(),
            began: now(),
            spe: None,
            devices,
            resctrl,
        };
        if let Some(config) = session.config.spe.clone() {
            let spe = Spe::start(
                config,
                machine,
                &mut session.ebpf,
                &session.btf,
                session.clock,
                &online,
                possible,
            )?;
            session.spe = Some(spe);
        }
        // Nothing is counted on CPUs: no switch matters.
        if session.config.plan.groups.is_empty() {
            return Ok(session);
        }
        session.attach_hook(hierarchy, &online)?;
        session.arm_all()?;
        session.measure_reads()?;
        Ok(session)
    }

    /// What is counted.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.config.plan
    }

    /// The hook in use: `cgroup-switches` only where it was asked for, admitted, and has missed nothing since.
    #[must_use]
    pub fn hook(&self) -> Hook {
        if self.cgroup_switches.is_some() {
            Hook::CgroupSwitches
        } else {
            Hook::SchedSwitch
        }
    }

    /// The id in the initial pid namespace, by which all that is counted goes, of a process that has
    /// the id `pid` in ours.
    ///
    /// # Errors
    ///
    /// Where there is no such process, or the kernel refuses the walk.
    pub fn process_id(&mut self, pid: u32) -> Result<u32, SessionError> {
        let wanted = Walk {
            wanted: u64::from(pid),
            ..Walk::default()
        };
        let found = walk::run(&mut self.ebpf, &self.btf, wanted)?.found;
        match u32::try_from(found) {
            Ok(id) if id != 0 => Ok(id),
            _ => Err(SessionError::NoProcess(pid)),
        }
    }

    /// Charges what process `pid`, and every process it makes, does to [`probe_common::CgroupId::COMMAND`].
    ///
    /// # Errors
    ///
    /// Where the kernel refuses the map entry, or as of [`Self::process_id`].
    pub fn follow(&mut self, pid: u32) -> Result<(), SessionError> {
        let pid = self.process_id(pid)?;
        let failed = |error: &dyn std::error::Error| SessionError::Bpf {
            what: "map COMMAND".into(),
            reason: chain(error),
        };
        let map = self
            .ebpf
            .map_mut("COMMAND")
            .ok_or_else(|| no_map("COMMAND"))?;
        let mut map: HashMap<_, u32, u8> =
            map.try_into().map_err(|error: MapError| failed(&error))?;
        let inserted = bpf::again(|| {
            map.insert(pid, 1, 0).map_err(|error| match error {
                MapError::SyscallError(error) => error.io_error,
                other => io::Error::other(other),
            })
        });
        inserted.map_err(|error| failed(&error))?;
        if self.spe.is_some() {
            Spe::follow(&mut self.ebpf, pid)?;
        }
        Ok(())
    }

    /// The programs' state of every possible CPU.
    pub(crate) fn states(ebpf: &Ebpf) -> Result<Vec<CpuState>, SessionError> {
        let failed = |error| SessionError::Bpf {
            what: "map STATE".into(),
            reason: chain(&error),
        };
        let map = ebpf.map("STATE").ok_or_else(|| no_map("STATE"))?;
        let map: PerCpuArray<_, [u64; CpuState::WORDS]> = map.try_into().map_err(failed)?;
        Ok(map
            .get(&0, 0)
            .map_err(failed)?
            .iter()
            .map(CpuState::from_words)
            .collect())
    }

    fn attach_hook(&mut self, hierarchy: &Hierarchy, online: &[u32]) -> Result<(), SessionError> {
        if self.config.hook == Hook::CgroupSwitches {
            let hook = CgroupSwitches::attach(&mut self.ebpf, online, Self::states)?;
            match hook.admit(&self.ebpf, hierarchy, Self::states) {
                Ok(()) => {
                    self.cgroup_switches = Some(hook);
                    return Ok(());
                }
                Err(reason) => {
                    tracing::warn!(
                        "hook cgroup-switches is not complete here: {reason}; using sched-switch"
                    );
                    hook.detach(&mut self.ebpf)?;
                }
            }
        }
        hook::attach_sched_switch(&mut self.ebpf, &self.btf)
    }

    /// Leaves `cgroup-switches` for `sched-switch`, after switches were missed.
    pub(crate) fn fall_back(&mut self) -> Result<(), SessionError> {
        let Some(hook) = self.cgroup_switches.take() else {
            return Ok(());
        };
        hook.detach(&mut self.ebpf)?;
        hook::attach_sched_switch(&mut self.ebpf, &self.btf)?;
        // Open slices belong to whoever runs now; from here on owners are known.
        self.reopen_slices()
    }
}

/// Processes of a followed command that may live at once.
const FOLLOWED_PROCESSES: u32 = 65_536;

/// Rows for 2,048 owner-group pairs on every CPU, or 512 owners with all their groups: memory follows
/// what ran, only the buckets are there at once.
fn default_rows(cpus: usize, groups: usize) -> u32 {
    let on_a_cpu = groups.saturating_mul(512).max(2048);
    u32::try_from(cpus.saturating_mul(on_a_cpu))
        .unwrap_or(u32::MAX)
        .clamp(16_384, 1 << 20)
}

fn load(
    config: &Config,
    max_rows: u32,
    offsets: &[(&'static str, u64)],
    btf: &Btf,
    cpus: usize,
) -> Result<Ebpf, SessionError> {
    let events = config.plan.slots() as u64;
    let rotated = config.plan.fixed_slots() as u64;
    let groups = u32::try_from(config.plan.groups.len()).unwrap_or(u32::MAX);
    let group_ends = config.plan.group_ends();
    let clocks = config.plan.clocks();
    let by_process = u8::from(config.by_process);
    let follow = u8::from(config.follow_command);
    let mut loader = EbpfLoader::new();
    loader
        .btf(Some(btf))
        .map_max_entries("USAGE", max_rows)
        .map_max_entries("OVERFLOW", groups.max(1))
        // A process that is asked about has a row.
        .map_max_entries("PROCESSES", if config.by_process { max_rows } else { 1 })
        .map_max_entries(
            "COMMAND",
            if config.follow_command {
                FOLLOWED_PROCESSES
            } else {
                1
            },
        )
        .override_global("EVENTS", &events, true)
        .override_global("ROTATED", &rotated, true)
        .override_global("GROUP_ENDS", &group_ends, true)
        .override_global("CLOCKS", &clocks, true)
        .override_global("BY_PROCESS", &by_process, true)
        .override_global("FOLLOW_COMMAND", &follow, true);
    for (name, offset) in offsets {
        loader.override_global(name, offset, true);
    }
    let spe = config.spe.as_ref();
    let globals = spe.map(SpeConfig::globals).unwrap_or_default();
    if let Some(spe) = spe {
        for (name, value) in &globals {
            loader.override_global(name, value, true);
        }
        for (name, entries) in spe.map_sizes(cpus) {
            loader.map_max_entries(name, entries);
        }
    }
    loader.load(OBJECT).map_err(|error| SessionError::Bpf {
        what: "the eBPF object".into(),
        reason: chain(&error),
    })
}

/// A program of the object by name and type.
pub(crate) fn program<'a, T>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut T, SessionError>
where
    &'a mut T: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let missing = || SessionError::Bpf {
        what: format!("program {name}"),
        reason: "the object has none".into(),
    };
    ebpf.program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or_else(missing)
}

pub(crate) fn no_map(name: &str) -> SessionError {
    SessionError::Bpf {
        what: format!("map {name}"),
        reason: "the object has none".into(),
    }
}
