//! Arm SPE: opens its events, and attaches the programs that decode and attribute its records.
//!
//! User space maps the buffers but never reads them: the programs add every record to its owner's
//! row, and user space reads the rows. docs/how-it-works/spe.md has the cost.

mod budget;
mod clock;
mod error;
mod event;
mod programs;
mod sampler;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use probe_common::{
    CgroupId,
    spe::{SourceTable, SpeSetting, SpeTask},
};

pub(crate) use self::{
    budget::Budget,
    event::{DrainOutcome, SpeCpuEvent},
    sampler::SamplerCounters,
};
pub use self::{
    budget::LOWEST as LOWEST_IN_BUDGET,
    error::SpeError,
    event::{DEFAULT_FILTERS, DEFAULT_PERIOD, SpeEvents},
};
use self::{clock::TimerClock, sampler::SamplerEvents};
use super::{
    EbpfObject, KernelClock, SessionError,
    object::{SPE_PREALLOCATE_ROWS, SPE_SWITCH},
};
use crate::{
    machine::{Machine, Pmus, kernel_config::Built},
    session::pull::SpeTotals,
    snapshot::SpeHook,
    sys::clock::nanos,
};

/// Nanoseconds that one synthetic SPE record takes in the programs, measured on x86-64 with Linux
/// 6.18. Determines the size of buffers.
const ASSUMED_NANOS_PER_RECORD: u64 = 127;

/// Bytes of the kernel's log of a buffer. A chunk takes 32; this is enough for the chunks between
/// two drains.
const LOG_SIZE: usize = 64 << 10;

/// Configuration of SPE sampling.
#[derive(Clone, Debug)]
pub struct SpeConfig {
    /// The events, from [`SpeEvents::resolve`].
    pub events: SpeEvents,
    /// Longest time for which decoding a chunk may keep interrupts off.
    pub irq_max: Duration,
    /// Bytes of each CPU's buffer, twice a chunk; see [`aux_size`].
    pub aux_size: usize,
    /// Share of a CPU's time that decoding may cost. The period is adapted to it; None if the
    /// period stays.
    pub budget: Option<f64>,
    /// Size of the table of pages, in pages; 0 for no table.
    pub pages: u32,
    /// Size of the table of cache lines, in rows: one for each line, owner and CPU; 0 for no table.
    pub lines: u32,
    /// Maximum number of rows in the map; None for a number that follows from the number of CPUs.
    pub max_rows: Option<u32>,
    /// Whether the timeline of switches is recorded.
    pub timeline: Timeline,
}

/// Whether the timeline of switches is recorded. It finds the owners of records without a thread
/// id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timeline {
    /// Recorded, unless this kernel is known to put thread ids into records.
    #[default]
    Auto,
    /// Always recorded.
    On,
}

/// SPE sampling of one session: its events, programs and state.
pub(crate) struct SpeSampling {
    pub(crate) config: SpeConfig,
    pub(crate) hook: SpeHook,
    pub(crate) events: Vec<SpeCpuEvent>,
    sampler_events: SamplerEvents,
    pub(crate) period: u64,
    pub(crate) clock: TimerClock,
    /// Data-source table by CPU, for CPUs with a known kind of core.
    pub(crate) tables: Arc<BTreeMap<u32, SourceTable>>,
    pub(crate) budget: Option<Budget>,
    pub(crate) totals: SpeTotals,
    /// Maximum number of rows in the map.
    pub(crate) max_rows: u32,
}

impl SpeConfig {
    /// Number of file descriptors that sampling on these CPUs takes. Each CPU with SPE takes one
    /// for its event and one for each sampler event; the walk over the tasks takes one.
    pub(super) fn descriptors(&self, machine: &Machine, cpus: &[u32]) -> usize {
        let sampler = sampler_events(machine);
        let sampled = cpus.iter().filter(|cpu| self.events.covers(**cpu));
        let per_cpu = sampled.map(|cpu| 1 + sampler.on(*cpu).count());
        per_cpu.sum::<usize>() + 1
    }
}

/// Whether this kernel is known to be built to put thread ids into records.
fn thread_ids_in_records(machine: &Machine) -> bool {
    let config = machine.kernel_config();
    config.is_some_and(|config| config.built("PID_IN_CONTEXTIDR") == Built::In)
}

/// The sampler events of this machine's core PMUs.
fn sampler_events(machine: &Machine) -> SamplerEvents {
    machine.pmus().map(SamplerEvents::find).unwrap_or_default()
}

impl SpeSampling {
    /// Attaches the programs and starts sampling on every online CPU that has SPE.
    pub(crate) fn start(
        config: SpeConfig,
        machine: &Machine,
        object: &mut EbpfObject,
        kernel: KernelClock,
        online: &[u32],
        possible: usize,
    ) -> Result<Self, SessionError> {
        let timeline = config.wants_timeline();
        programs::attach_tasks(object)?;
        let clock = TimerClock::calibrate(kernel);
        set_clock(object, &clock)?;
        let irq_max = nanos(config.irq_max);
        let settings = &mut object.maps.spe_settings;
        settings.set(SpeSetting::Nanos as u32, &irq_max)?;
        object.programs.load(SPE_PREALLOCATE_ROWS)?;
        if timeline {
            object.programs.attach(SPE_SWITCH)?;
        }
        let hook = programs::attach_chunks(object)?;
        let table = |&cpu: &u32| Some((cpu, SourceTable::for_midr(machine.midr(cpu)?)?));
        let tables = Arc::new(online.iter().filter_map(table).collect());
        let mut spe = Self {
            period: config.events.period,
            hook,
            events: Vec::new(),
            sampler_events: sampler_events(machine),
            clock,
            tables,
            budget: config
                .budget
                .map(|share| Budget::new(share, config.events.floor)),
            totals: SpeTotals::default(),
            max_rows: config.rows(possible),
            config,
        };
        for &cpu in online {
            spe.open(object, cpu)?;
        }
        if spe.events.is_empty() {
            return Err(SpeError::NoCpu.into());
        }
        tracing::info!(
            "SPE: period {}, {} KiB of buffer on each of {} CPUs, hook {:?}{}",
            spe.period,
            spe.config.aux_size / 1024,
            spe.events.len(),
            spe.hook,
            if timeline {
                ", owners by the time of switches where records name no thread"
            } else {
                ""
            }
        );
        Ok(spe)
    }

    /// Starts sampling on a CPU, if it has SPE.
    pub(crate) fn open(&mut self, object: &mut EbpfObject, cpu: u32) -> Result<(), SessionError> {
        let log = match self.hook {
            SpeHook::Fentry => 0,
            SpeHook::Kprobe => LOG_SIZE.max(rustix::param::page_size()),
        };
        let sizes = [self.config.aux_size, log];
        let Some(mut event) = SpeCpuEvent::open(&self.config.events, cpu, self.period, sizes)?
        else {
            return Ok(());
        };
        programs::preallocate_rows(object, cpu)?;
        // The program must know the event before its first chunk.
        object.maps.spe_events.set(cpu, &event.id)?;
        if let Some(table) = self.tables.get(&cpu) {
            object.maps.spe_peers.set(cpu, &table.peers())?;
        }
        event.sampler = SamplerCounters::open(&self.sampler_events, cpu);
        event.enable()?;
        self.events.push(event);
        Ok(())
    }

    /// Whether an event is open on this CPU.
    pub(crate) fn samples(&self, cpu: u32) -> bool {
        self.events.iter().any(|event| event.cpu == cpu)
    }

    /// Closes the events of all CPUs for which `keep` is false: they went offline, even if they are
    /// online again.
    pub(crate) fn retain_cpus(&mut self, keep: impl Fn(u32) -> bool) {
        let totals = &mut self.totals;
        self.events.retain_mut(|event| {
            let stays = keep(event.cpu);
            if !stays {
                totals.read_log(event);
            }
            stays
        });
    }

    /// Assigns a process to the followed command. Must be called before the process starts.
    pub(crate) fn follow(object: &EbpfObject, pid: u32) -> Result<(), SessionError> {
        let task = SpeTask::new(CgroupId::COMMAND, pid, 0);
        object.maps.spe_tasks.put(&u64::from(pid), &task)
    }

    /// Gives the programs the current clock conversion.
    pub(crate) fn set_clock(&self, object: &mut EbpfObject) -> Result<(), SessionError> {
        set_clock(object, &self.clock)
    }
}

/// Writes the clock conversion into the unused slot, and makes this slot the used one.
fn set_clock(object: &mut EbpfObject, clock: &TimerClock) -> Result<(), SessionError> {
    let maps = &mut object.maps;
    maps.spe_clocks.set(clock.slot, &clock.current)?;
    let slot = u64::from(clock.slot);
    maps.spe_settings.set(SpeSetting::Clock as u32, &slot)
}

/// Share of a CPU's time that decoding may cost, if the user sets neither it nor the period.
pub const DEFAULT_BUDGET: f64 = 0.005;

/// Longest time for which decoding a chunk may keep interrupts off, if the user does not set it.
pub const DEFAULT_IRQ_MAX: Duration = Duration::from_micros(50);

/// Longest time between two drains. Each drain also removes exited threads, compares the clocks,
/// and adapts the period to the cost.
pub const UPKEEP: Duration = Duration::from_secs(2);

impl SpeConfig {
    /// Samples loads and stores, at a period that is adapted to the default budget.
    ///
    /// # Errors
    /// The errors of [`SpeEvents::resolve`].
    pub fn standard(pmus: &Pmus) -> Result<Self, SpeError> {
        Ok(Self {
            events: SpeEvents::resolve(pmus, DEFAULT_FILTERS, DEFAULT_PERIOD)?,
            irq_max: DEFAULT_IRQ_MAX,
            aux_size: aux_size(DEFAULT_IRQ_MAX),
            budget: Some(DEFAULT_BUDGET),
            pages: 0,
            lines: 0,
            max_rows: None,
            timeline: Timeline::Auto,
        })
    }

    /// Decides [`Timeline::Auto`] for this machine.
    pub(super) fn resolve_timeline(&mut self, machine: &Machine) {
        if !thread_ids_in_records(machine) {
            self.timeline = Timeline::On;
        }
    }

    pub(crate) fn wants_timeline(&self) -> bool {
        self.timeline == Timeline::On
    }
}

/// Size of a CPU's buffer in bytes, if decoding a chunk may keep interrupts off for `irq_max`. A
/// chunk is half of the buffer: as many pages as can be decoded in this time, rounded down to a
/// power of two.
#[must_use]
pub fn aux_size(irq_max: Duration) -> usize {
    let page = rustix::param::page_size();
    let records = irq_max.as_nanos() / u128::from(ASSUMED_NANOS_PER_RECORD);
    let pages = usize::try_from(records * 64).unwrap_or(usize::MAX) / page;
    // A chunk has at least a page, and the buffer at most 2 MiB.
    let pages = pages.clamp(1, (1 << 20) / page);
    2 * page * (1 << pages.ilog2())
}
