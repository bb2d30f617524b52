//! Samples that events raise when their counters overflow: each is added to the row of the owner
//! that accounting has open on this CPU, and to the address that was sampled. No record is made.
//!
//! Hardware events interrupt with NMIs. So no map here is of a kind whose locks such an interrupt
//! may meet held by its own CPU (LRU maps are): plain hash maps refuse the row then, and it is
//! counted.
//!
//! Nearly every sample may be at an address of its own. So addresses are in arrays, of which each
//! CPU has its own part: to take a row of a hash map runs through so much of the kernel's code and
//! memory that it costs most of a microsecond, which a CPU's caches do not have by then.

use aya_ebpf::{
    Global,
    bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_NOEXIST, bpf_perf_event_data},
    helpers::{bpf_ktime_get_ns, generated::bpf_get_attach_cookie},
    macros::map,
    maps::{Array, HashMap, PerCpuArray},
};
use probe_common::{
    CgroupId, CpuState,
    sample::{
        AddressKey, AddressRow, AddressSlot, DataSource, SAMPLED_EVENTS, SampleCpu, SampleKey,
        SampleRow, SampleSetting, TRIES,
    },
    spe::SpeKey,
};

use crate::{
    kernel::{Task, offsets, read},
    owner::{BY_PROCESS, Owner, owner_of},
    slice,
    state::{cpu, this_cpu},
    words::{bucket, keep_order},
};

offsets! {
    /// `bpf_perf_event_data_kern.data`
    EVENT_DATA;
    /// `perf_sample_data.sample_flags`
    SAMPLE_FLAGS;
    /// `perf_sample_data.weight`
    SAMPLE_WEIGHT;
    /// `perf_sample_data.data_src`
    SAMPLE_DATA_SRC;
    /// Log2 of the size of a data page.
    SAMPLE_PAGE_SHIFT;
    /// Slots of each CPU in a table of addresses: a power of two.
    SAMPLE_SLOTS;
    /// 1: the table of instructions is kept.
    SAMPLE_WITH_ADDRESSES;
    /// 1: the table of data pages is kept.
    SAMPLE_WITH_PAGES;
    /// Bit n: samples of event n may have a weight and a data source.
    SAMPLE_WEIGHED;
    /// Bit n: samples of event n may have the address of data, and data pages are kept.
    SAMPLE_ADDRESSED;
    /// Bit n: samples of event n are memory accesses, or are left out.
    SAMPLE_ACCESSES;
    /// The least weight of an access.
    SAMPLE_LEAST_WEIGHT;
}

/// Samples by owner. Not preallocated: only pairs that were sampled cost memory. User space sets
/// the size.
#[map]
static SAMPLE_ROWS: HashMap<SampleKey, SampleRow> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// The instructions that were sampled, [`SAMPLE_SLOTS`] of each CPU. User space sets the size, and
/// reads it in memory that both share (kernel 5.5).
#[map]
static SAMPLE_ADDRESSES: Array<AddressSlot> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// The data pages that were sampled, apart: where each fault is sampled they are far more.
#[map]
static SAMPLE_PAGES: Array<AddressSlot> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// What became of the samples of each event on each CPU.
#[map]
static SAMPLE_CPU: PerCpuArray<SampleCpu> = PerCpuArray::with_max_entries(SAMPLED_EVENTS as u32, 0);

/// A row that is too large for the stack: zeros.
#[map]
static SAMPLE_ZERO: Array<SampleRow> = Array::with_max_entries(1, 0);

/// By [`SampleSetting`].
#[map]
static SAMPLE_SETTINGS: Array<u64> = Array::with_max_entries(SampleSetting::COUNT, 0);

/// `PERF_SAMPLE_ADDR`, `PERF_SAMPLE_WEIGHT`, `PERF_SAMPLE_DATA_SRC` and `PERF_SAMPLE_WEIGHT_STRUCT`
/// of `linux/perf_event.h`.
const ADDR: u64 = 1 << 3;
const WEIGHT: u64 = 1 << 14;
const DATA_SRC: u64 = 1 << 15;
const WEIGHT_STRUCT: u64 = 1 << 24;

/// What a sample says beside its address and period.
struct Said {
    weight: u64,
    source: DataSource,
    walked: bool,
    page: u64,
}

impl Said {
    /// Takes the weight, where flags say that it holds.
    #[inline(always)]
    fn weigh(&mut self, flags: u64, word: u64) {
        if flags & (WEIGHT | WEIGHT_STRUCT) != 0 {
            // Of a structure the first word is the latency.
            self.weight = if flags & WEIGHT_STRUCT != 0 {
                word & 0xffff_ffff
            } else {
                word
            };
        }
    }

    /// Takes the data source, likewise.
    #[inline(always)]
    fn serve(&mut self, flags: u64, word: u64) {
        if flags & DATA_SRC != 0 {
            self.source = DataSource::of(word);
            self.walked = DataSource::walked(word);
        }
    }
}

/// Adds the sample of the event that raised it.
#[inline(always)]
pub(crate) fn add(ctx: *mut bpf_perf_event_data) {
    // SAFETY: the helper has no preconditions but the context.
    let event = unsafe { bpf_get_attach_cookie(ctx.cast()) } as u32;
    let Some(own) = SAMPLE_CPU.get_ptr_mut(event) else {
        return;
    };
    // SAFETY: a per-CPU value; the kernel lets no second such program run on this CPU meanwhile.
    let own: &mut SampleCpu = unsafe { &mut *own };
    own.samples += 1;
    // Before it looks at the generation: user space waits for runs that may have seen the last one.
    keep_order();
    let began = if own.samples.is_multiple_of(SampleCpu::MEASURE_EVERY) {
        now()
    } else {
        0
    };
    // SAFETY: fields of the context, which the kernel translates.
    let period = unsafe { (&raw const (*ctx).sample_period).read_volatile() };
    own.periods = own.periods.wrapping_add(period);
    let said = said(ctx, event);
    // One without a weight is not known to be a short one.
    let is_short = said.weight != 0 && said.weight < SAMPLE_LEAST_WEIGHT.load();
    if SAMPLE_ACCESSES.load() >> (event & 63) & 1 == 1 && (!said.source.is_said() || is_short) {
        own.others += 1;
    } else {
        keep(own, ctx, event, &said, period);
    }
    if began != 0 {
        own.measured += 1;
        own.nanos += now() - began;
    }
    // User space has no part of a sample: it reads what finished runs have left.
    keep_order();
    own.finished = own.samples;
}

/// Adds a sample to its owner's row, and to where it was.
#[inline(always)]
fn keep(own: &mut SampleCpu, ctx: *mut bpf_perf_event_data, event: u32, said: &Said, period: u64) {
    let generation = setting(SampleSetting::Generation);
    let (owner, cpu) = (owner(), cpu());
    if SAMPLE_WITH_ADDRESSES.load() == 1 || SAMPLE_WITH_PAGES.load() == 1 {
        let key = AddressKey {
            cgroup: owner.cgroup,
            address: 0,
            tgid: Task::current().tgid(),
            event: event as u8,
            page: 0,
            cpu: cpu as u16,
            generation,
        };
        places(own, ctx, key, owner, said, period);
    }
    let key = SampleKey {
        cgroup: owner.cgroup,
        tgid: if BY_PROCESS.load() == 1 {
            owner.tgid
        } else {
            0
        },
        cpu: cpu as u16,
        event: event as u8,
        source: said.source.0,
        generation,
    };
    // SAFETY: the key holds this CPU, or the row is this CPU's own.
    if let Some(row) = unsafe { row(own, &key).as_mut() } {
        row.add(period);
        row.walks += u64::from(said.walked);
        if said.weight != 0 {
            let weight = SampleRow::clamped(said.weight);
            row.weight.add(weight);
            let count = &mut row.histogram[bucket(weight)];
            *count = count.wrapping_add(1);
        }
    }
}

#[inline(always)]
fn setting(setting: SampleSetting) -> u64 {
    SAMPLE_SETTINGS.get(setting as u32).copied().unwrap_or(0)
}

/// The owner of the open slice, as accounting has it.
#[inline(always)]
fn owner() -> Owner {
    let unknown = Owner {
        cgroup: SpeKey::UNATTRIBUTED,
        tgid: 0,
    };
    let Some(state) = this_cpu() else {
        return unknown;
    };
    if state.armed != CpuState::ARMED {
        return unknown;
    }
    if state.owner == CgroupId::UNKNOWN {
        // The hook that sees owners when they leave.
        return owner_of(Task::current());
    }
    slice::stored(state)
}

/// Reads what the event gives beside its address: flags tell which fields hold.
#[inline(always)]
fn said(ctx: *mut bpf_perf_event_data, event: u32) -> Said {
    let mut said = Said {
        weight: 0,
        source: DataSource(0),
        walked: false,
        page: 0,
    };
    let weighed = SAMPLE_WEIGHED.load() >> (event & 63) & 1 == 1;
    let addressed = SAMPLE_ADDRESSED.load() >> (event & 63) & 1 == 1;
    if !weighed && !addressed {
        return said;
    }
    if SAMPLE_FLAGS.load() == u64::MAX || EVENT_DATA.load() == u64::MAX {
        // Without flags all software events have an address, or 0.
        if !weighed {
            said.page = page(ctx);
        }
        return said;
    }
    // The context is the kernel's own structure; its fields are read as memory.
    let Some(data) = read::<u64>(ctx as u64 + EVENT_DATA.load()) else {
        return said;
    };
    let Some(flags) = read::<u64>(data + SAMPLE_FLAGS.load()) else {
        return said;
    };
    // Linux 6.1 and 6.2 leave the address as it was on the stack where they have none.
    if flags & ADDR != 0 {
        said.page = page(ctx);
    }
    if !weighed {
        return said;
    }
    let weight_at = SAMPLE_WEIGHT.load();
    let source_at = SAMPLE_DATA_SRC.load();
    if weight_at.wrapping_add(8) == source_at {
        // So in all kernels up to 7.3; each read costs a call.
        if let Some([weight, source]) = read::<[u64; 2]>(data + weight_at) {
            said.weigh(flags, weight);
            said.serve(flags, source);
        }
        return said;
    }
    if weight_at != u64::MAX {
        said.weigh(flags, read(data + weight_at).unwrap_or(0));
    }
    if source_at != u64::MAX {
        said.serve(flags, read(data + source_at).unwrap_or(0));
    }
    said
}

/// The number of the data page.
#[inline(always)]
fn page(ctx: *mut bpf_perf_event_data) -> u64 {
    // SAFETY: a field of the context, which the kernel translates.
    let address = unsafe { (&raw const (*ctx).addr).read_volatile() };
    address >> (SAMPLE_PAGE_SHIFT.load() & 63)
}

/// Adds the sample to its instruction and to its data page, as far as these are kept. `key` lacks
/// the address.
#[inline(always)]
fn places(
    own: &mut SampleCpu,
    ctx: *mut bpf_perf_event_data,
    key: AddressKey,
    owner: Owner,
    said: &Said,
    period: u64,
) {
    let at = |address: u64, page: u8| AddressKey {
        address,
        tgid: if AddressKey::is_kernel(address) {
            owner.tgid
        } else {
            key.tgid
        },
        page,
        ..key
    };
    let mut gained = AddressRow {
        samples: 1,
        periods: period,
        ..AddressRow::ZERO
    };
    if SAMPLE_WITH_ADDRESSES.load() == 1 {
        let key = at(instruction(ctx), 0);
        own.unplaced += u64::from(!add_to(&SAMPLE_ADDRESSES, &key, &gained));
    }
    if SAMPLE_WITH_PAGES.load() == 1 && said.page != 0 {
        let key = at(said.page << (SAMPLE_PAGE_SHIFT.load() & 63), 1);
        if said.weight != 0 {
            gained.timed = 1;
            gained.cycles = u64::from(SampleRow::clamped(said.weight));
        }
        own.unpaged += u64::from(!add_to(&SAMPLE_PAGES, &key, &gained));
    }
}

/// The address at which the CPU was interrupted, or that a precise event gives.
#[inline(always)]
fn instruction(ctx: *mut bpf_perf_event_data) -> u64 {
    // SAFETY: a field of the context, which the kernel translates.
    #[cfg(bpf_target_arch = "x86_64")]
    let address = unsafe { (&raw const (*ctx).regs.rip).read_volatile() };
    // SAFETY: as above.
    #[cfg(bpf_target_arch = "aarch64")]
    let address = unsafe { (&raw const (*ctx).regs.pc).read_volatile() };
    address
}

/// Adds a sample to its address. False where the table has no slot for it.
#[inline(always)]
fn add_to(table: &Array<AddressSlot>, key: &AddressKey, gained: &AddressRow) -> bool {
    let slots = SAMPLE_SLOTS.load() as u32;
    let (first, own) = (key.hash(), u32::from(key.cpu) * slots);
    let read = setting(SampleSetting::Read);
    let mut tried = 0;
    while tried < TRIES {
        let at = first.wrapping_add(tried) & (slots - 1);
        let Some(slot) = table.get_ptr_mut(own + at) else {
            return false;
        };
        // SAFETY: a slot of this CPU, on which the kernel runs no second such program meanwhile.
        if unsafe { (*slot).add(key, gained, read, now) } {
            return true;
        }
        tried += 1;
    }
    false
}

/// Makes the kernel keep more free rows on this CPU. It keeps one to four at first and fills up
/// after the first one is taken (kernel/bpf/memalloc.c), but only once interrupts are on again: not
/// between the samples of one interrupt.
#[inline(always)]
pub(crate) fn preallocate_rows() {
    let key = SampleKey {
        cgroup: SpeKey::UNATTRIBUTED,
        tgid: u32::MAX,
        cpu: cpu() as u16,
        event: 0,
        source: 0,
        generation: 0,
    };
    if let Some(zero) = SAMPLE_ZERO.get(0) {
        let _ = SAMPLE_ROWS.insert(key, zero, BPF_NOEXIST.into());
        let _ = SAMPLE_ROWS.remove(key);
    }
}

#[inline(always)]
fn row(own: &mut SampleCpu, key: &SampleKey) -> *mut SampleRow {
    if let Some(row) = SAMPLE_ROWS.get_ptr_mut(key) {
        return row;
    }
    let mut refused = None;
    if let Some(zero) = SAMPLE_ZERO.get(0) {
        refused = SAMPLE_ROWS.insert(key, zero, BPF_NOEXIST.into()).err();
    }
    if let Some(row) = SAMPLE_ROWS.get_ptr_mut(key) {
        return row;
    }
    /// The map is full.
    const E2BIG: i32 = -7;
    if refused == Some(E2BIG) {
        own.full += 1;
    } else {
        own.refused += 1;
    }
    &raw mut own.overflow
}

/// `CLOCK_MONOTONIC` nanoseconds.
#[inline(always)]
fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}
