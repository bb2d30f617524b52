//! Loads the object for a session: sets its globals and the sizes of its maps.

use aya::EbpfLoader;
use probe_common::{CgroupId, WAIT_TASKS, spe::TIMELINE};

use super::{
    EbpfObject, OBJECT,
    attach_types::AttachTypes,
    globals,
    kernel_log::{self, KernelLog},
    maps::{self, Maps, name},
    offsets,
    programs::EbpfPrograms,
    refused, refused_pin,
};
use crate::{
    machine::{Machine, btf::KernelTypes},
    session::{
        Config, SamplingConfig, SessionError, SpeConfig,
        memory::{MAX_EXITED, MAX_THREADS},
        pins::SessionPins,
    },
    snapshot::Hook,
    sys::signals::uninterrupted,
};

/// Maximum number of processes of a followed command at one time.
const FOLLOWED_PROCESSES: u32 = 65_536;

/// Bytes of the ring of markers: room for some 50,000 records between two drains.
const MARKERS_SIZE: u32 = 4 << 20;

impl EbpfObject {
    /// Creates the maps, with room for `max_rows` rows of counts, and parses the programs.
    /// `possible` is the number of CPUs that the machine may have. Maps that are already pinned are
    /// reused.
    pub(crate) fn load(
        config: &Config,
        machine: &Machine,
        max_rows: u32,
        possible: usize,
        pins: Option<&SessionPins>,
    ) -> Result<Self, SessionError> {
        let vmlinux = machine.vmlinux();
        let (spe, sampling) = (config.spe.is_some(), config.sampling.is_some());
        let types = offsets::kernel_types(&vmlinux, spe, sampling)?;
        let plan = &config.plan;
        check_waits(config, &types)?;
        let events = plan.slots() as u64;
        let rotated = plan.fixed_slots() as u64;
        let groups = u32::try_from(plan.groups.len()).unwrap_or(u32::MAX);
        let (group_ends, clocks) = (plan.group_ends(), plan.clocks());
        let scheduler_slots = plan.scheduler_slots();
        let tasks = match scheduler_slots {
            0 => 1,
            _ => WAIT_TASKS,
        };
        let keeps_ledger = config.keeps_ledger(machine);
        let with_ledger = u8::from(keeps_ledger);
        let waits = if keeps_ledger { config.max_waits() } else { 1 };
        let wait_times = if plan.counts_waits() { max_rows } else { 1 };
        let by_process = config.by_process.setting();
        let follow = u8::from(config.follow_command);
        let spe = config.spe.as_ref().map(SpeSettings::new);
        let sampling = config.sampling.as_ref();
        let page_shift = u64::from(rustix::param::page_size().trailing_zeros());
        let with_addresses = u64::from(sampling.is_some_and(|it| it.addresses));
        let with_pages = u64::from(sampling.is_some_and(|it| it.pages));
        let slots = sampling.map_or(1, |it| it.slots(possible));
        let weighed = sampling.map_or(0, SamplingConfig::weighed);
        let counted = sampling.map_or(0, SamplingConfig::counted);
        let precise = sampling.map_or(0, SamplingConfig::precise);
        let addressed = sampling.map_or(0, SamplingConfig::addressed);
        let accesses = sampling.map_or(0, SamplingConfig::accesses);
        let least_weight = sampling.map_or(0, |it| it.least_weight);

        let pinned = pins
            .map(|pins| maps::pinned(&pins.directory()))
            .unwrap_or_default();

        let mut loader = EbpfLoader::new();
        for (name, path) in &pinned {
            loader.map_pin_path(name, path.as_path());
        }
        // The programs have no relocations.
        loader.btf(None);
        globals::EVENTS.set(&mut loader, &events);
        globals::ROTATED.set(&mut loader, &rotated);
        globals::GROUP_ENDS.set(&mut loader, &group_ends);
        globals::CLOCKS.set(&mut loader, &clocks);
        globals::SCHEDULER_SLOTS.set(&mut loader, &scheduler_slots);
        globals::WITH_LEDGER.set(&mut loader, &with_ledger);
        globals::BY_PROCESS.set(&mut loader, &by_process);
        globals::FOLLOW_COMMAND.set(&mut loader, &follow);
        let log = kernel_log::is_shown();
        kernel_log::configure(&mut loader, log, pins.is_some());
        for (name, offset) in &types.offsets {
            loader.override_global(name, offset, true);
        }
        // Walks look only for processes with rows.
        let processes = if config.by_process.any() { max_rows } else { 1 };
        let followed = if config.follow_command {
            FOLLOWED_PROCESSES
        } else {
            1
        };
        loader
            .map_max_entries(name::USAGE, max_rows)
            .map_max_entries(name::OVERFLOW, groups.max(1))
            .map_max_entries(maps::TASKS, tasks)
            .map_max_entries(name::WAITS, waits)
            .map_max_entries(name::WAIT_TIMES, wait_times)
            .map_max_entries(name::PROCESSES, processes)
            .map_max_entries(name::COMMAND, followed)
            .map_max_entries(name::MARKERS, kernel_log::ring_size(false, false));
        if let Some(spe) = &spe {
            spe.set(&mut loader, possible);
        }
        if let Some(sampling) = sampling {
            globals::SAMPLE_PAGE_SHIFT.set(&mut loader, &page_shift);
            globals::SAMPLE_SLOTS.set(&mut loader, &slots);
            globals::SAMPLE_WITH_ADDRESSES.set(&mut loader, &with_addresses);
            globals::SAMPLE_WITH_PAGES.set(&mut loader, &with_pages);
            globals::SAMPLE_COUNTED.set(&mut loader, &counted);
            globals::SAMPLE_PRECISE.set(&mut loader, &precise);
            globals::SAMPLE_WEIGHED.set(&mut loader, &weighed);
            globals::SAMPLE_ADDRESSED.set(&mut loader, &addressed);
            globals::SAMPLE_ACCESSES.set(&mut loader, &accesses);
            globals::SAMPLE_LEAST_WEIGHT.set(&mut loader, &least_weight);
            let table_slots = |is_filled| match is_filled {
                true => u32::try_from(slots * possible as u64).unwrap_or(u32::MAX),
                false => 1,
            };
            loader
                .map_max_entries(name::SAMPLE_ROWS, sampling.rows(possible))
                .map_max_entries(name::SAMPLE_ADDRESSES, table_slots(sampling.addresses))
                .map_max_entries(name::SAMPLE_PAGES, table_slots(sampling.pages));
        }
        // No signal may interrupt this: loading probes the kernel's features with small programs.
        let mut ebpf = uninterrupted(|| loader.load(OBJECT))
            .map_err(|error| refused_pin("the eBPF object", &error))?;
        let mut maps = Maps::take(&mut ebpf, machine.possible()?)?;
        if log {
            maps.messages = Some(KernelLog::take(&mut ebpf)?);
        }
        let programs = EbpfPrograms::new(ebpf, AttachTypes::new(types.numbers), pins);
        Ok(Self { maps, programs })
    }
}

/// Checks that the scheduler events of the plan, if there are any, can be counted.
fn check_waits(config: &Config, types: &KernelTypes) -> Result<(), SessionError> {
    let mut planned = config.plan.groups.iter().flatten();
    let Some(planned) = planned.find(|it| it.counter.is_of_scheduler()) else {
        return Ok(());
    };
    let event = config.plan.columns[planned.column].name.clone();
    match config.hook {
        Hook::CgroupSwitches => Err(SessionError::WaitsHook(event)),
        Hook::SchedSwitch if !offsets::has_waits(types) => Err(SessionError::NoWaits(event)),
        Hook::SchedSwitch => Ok(()),
    }
}

impl EbpfObject {
    /// Loads the object only for [`Markers`](crate::session::markers::Markers): nothing is counted.
    /// Observes the processes of `cgroup` if it is given, else the followed processes.
    pub(crate) fn load_markers(
        machine: &Machine,
        cgroup: Option<CgroupId>,
    ) -> Result<Self, SessionError> {
        let vmlinux = machine.vmlinux();
        let types = offsets::kernel_types(&vmlinux, false, false)?;
        let cgroup = cgroup.map_or(0, |id| id.0);
        let wake_from = u64::from(MARKERS_SIZE) / 4;
        let mut loader = EbpfLoader::new();
        // The programs have no relocations.
        loader.btf(None);
        globals::MARKER_CGROUP.set(&mut loader, &cgroup);
        globals::MARKER_WAKE_FROM.set(&mut loader, &wake_from);
        // The marker programs send no messages.
        kernel_log::configure(&mut loader, false, false);
        for (name, offset) in &types.offsets {
            loader.override_global(name, offset, true);
        }
        loader
            .map_max_entries(name::COMMAND, FOLLOWED_PROCESSES)
            .map_max_entries(name::MARKERS, MARKERS_SIZE);
        let mut ebpf = uninterrupted(|| loader.load(OBJECT))
            .map_err(|error| refused("the eBPF object", &error))?;
        let maps = Maps::take(&mut ebpf, machine.possible()?)?;
        let programs = EbpfPrograms::new(ebpf, AttachTypes::new(types.numbers), None);
        Ok(Self { maps, programs })
    }
}

/// The values of the globals of the programs for SPE.
struct SpeSettings<'a> {
    config: &'a SpeConfig,
    page_shift: u64,
    with_pages: u64,
    with_lines: u64,
    with_timeline: u64,
}

impl<'a> SpeSettings<'a> {
    fn new(config: &'a SpeConfig) -> Self {
        Self {
            config,
            page_shift: u64::from(rustix::param::page_size().trailing_zeros()),
            with_pages: u64::from(config.pages > 0),
            with_lines: u64::from(config.lines > 0),
            with_timeline: u64::from(config.wants_timeline()),
        }
    }

    fn set(&'a self, loader: &mut EbpfLoader<'a>, possible: usize) {
        globals::SPE_PAGE_SHIFT.set(loader, &self.page_shift);
        globals::SPE_DATA_PAGE_SHIFT.set(loader, &self.page_shift);
        globals::SPE_WITH_PAGES.set(loader, &self.with_pages);
        globals::SPE_WITH_LINES.set(loader, &self.with_lines);
        globals::SPE_WITH_TIMELINE.set(loader, &self.with_timeline);
        let timeline = if self.with_timeline == 1 { TIMELINE } else { 1 };
        let cpus = u32::try_from(possible).unwrap_or(u32::MAX);
        loader
            .map_max_entries(name::SPE_EVENTS, cpus)
            .map_max_entries(name::SPE_PEERS, cpus)
            .map_max_entries(name::SPE_LINES, self.config.lines.max(1))
            .map_max_entries(name::SPE_ROWS, self.config.rows(possible))
            .map_max_entries(name::SPE_TASKS, MAX_THREADS)
            .map_max_entries(name::SPE_EXITED, MAX_EXITED)
            .map_max_entries(maps::SPE_SWITCHES, timeline)
            .map_max_entries(name::SPE_PAGES, self.config.pages.max(1));
    }
}
