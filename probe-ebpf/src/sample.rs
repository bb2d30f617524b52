//! Samples that events raise when their counters overflow: each is added to the row of the owner
//! that accounting has open on this CPU, and to the address that was sampled. No record is made.
//!
//! Hardware events interrupt with NMIs. So no map here is of a kind whose locks such an interrupt
//! may meet held by its own CPU (LRU maps are): plain hash maps refuse the row then, and it is
//! counted.

use aya_ebpf::{
    Global,
    bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST, bpf_perf_event_data},
    helpers::{bpf_ktime_get_ns, generated::bpf_get_attach_cookie},
    macros::map,
    maps::{Array, HashMap, PerCpuArray},
};
use probe_common::{
    CgroupId, CpuState,
    sample::{
        AddressKey, AddressRow, DataSource, SAMPLED_EVENTS, SampleCpu, SampleKey, SampleRow,
        SampleSetting,
    },
    spe::SpeKey,
};

use crate::{
    kernel::{Task, offsets, read},
    owner::{BY_PROCESS, Owner, owner_of},
    slice,
    state::{cpu, this_cpu},
    words::{add_shared, bucket},
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
    /// 1: the table of instructions is kept.
    SAMPLE_WITH_ADDRESSES;
    /// 1: the table of data pages is kept.
    SAMPLE_WITH_PAGES;
    /// Bit n: samples of event n may have a weight and a data source.
    SAMPLE_WEIGHED;
    /// Bit n: samples of event n are memory accesses, or are left out.
    SAMPLE_ACCESSES;
    /// The least weight of an access.
    SAMPLE_LEAST_WEIGHT;
}

/// Samples by owner. Not preallocated: only pairs that were sampled cost memory. User space sets
/// the size.
#[map]
static SAMPLE_ROWS: HashMap<SampleKey, SampleRow> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// The instructions that were sampled. User space sets the size.
#[map]
static SAMPLE_ADDRESSES: HashMap<AddressKey, AddressRow> =
    HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// The data pages that were sampled, apart: where each fault is sampled they are far more. User
/// space sets the size.
#[map]
static SAMPLE_PAGES: HashMap<AddressKey, AddressRow> =
    HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

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
}

/// Adds a sample to its owner's row, and to where it was.
#[inline(always)]
fn keep(own: &mut SampleCpu, ctx: *mut bpf_perf_event_data, event: u32, said: &Said, period: u64) {
    let generation = SAMPLE_SETTINGS
        .get(SampleSetting::Generation as u32)
        .copied()
        .unwrap_or(0);
    let owner = owner();
    places(own, ctx, (event, generation), owner, said, period);
    let key = SampleKey {
        cgroup: owner.cgroup,
        tgid: if BY_PROCESS.load() == 1 {
            owner.tgid
        } else {
            0
        },
        cpu: cpu() as u16,
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
    if flags & (WEIGHT | WEIGHT_STRUCT) != 0 && SAMPLE_WEIGHT.load() != u64::MAX {
        let weight = read::<u64>(data + SAMPLE_WEIGHT.load()).unwrap_or(0);
        // Of a structure the first word is the latency.
        said.weight = if flags & WEIGHT_STRUCT != 0 {
            weight & 0xffff_ffff
        } else {
            weight
        };
    }
    if flags & DATA_SRC != 0 && SAMPLE_DATA_SRC.load() != u64::MAX {
        let word = read::<u64>(data + SAMPLE_DATA_SRC.load()).unwrap_or(0);
        said.source = DataSource::of(word);
        said.walked = DataSource::walked(word);
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

/// Adds the sample to its instruction and to its data page, as far as these are kept.
#[inline(always)]
fn places(
    own: &mut SampleCpu,
    ctx: *mut bpf_perf_event_data,
    (event, generation): (u32, u64),
    owner: Owner,
    said: &Said,
    period: u64,
) {
    let process = Task::current().tgid();
    let key = |address: u64, page: u8| AddressKey {
        cgroup: owner.cgroup,
        address,
        tgid: if AddressKey::is_kernel(address) {
            owner.tgid
        } else {
            process
        },
        event: event as u8,
        page,
        cpu: cpu() as u16,
        generation,
    };
    let mut gained = AddressRow {
        samples: 1,
        periods: period,
        ..AddressRow::ZERO
    };
    if SAMPLE_WITH_ADDRESSES.load() == 1 {
        let address = instruction(ctx);
        own.unplaced += u64::from(!add_to(&SAMPLE_ADDRESSES, &key(address, 0), &mut gained));
    }
    if SAMPLE_WITH_PAGES.load() == 1 && said.page != 0 {
        let address = said.page << (SAMPLE_PAGE_SHIFT.load() & 63);
        if said.weight != 0 {
            gained.timed = 1;
            gained.cycles = u64::from(SampleRow::clamped(said.weight));
        }
        own.unpaged += u64::from(!add_to(&SAMPLE_PAGES, &key(address, 1), &mut gained));
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

/// Adds a sample to its address. False where the table takes no row for it.
#[inline(always)]
fn add_to(
    table: &HashMap<AddressKey, AddressRow>,
    key: &AddressKey,
    gained: &mut AddressRow,
) -> bool {
    if add_known(table, key, gained) {
        return true;
    }
    gained.first = now();
    // Another sample of this CPU may have added it meanwhile, where these programs nest.
    table.insert(key, *gained, u64::from(BPF_NOEXIST)).is_ok() || add_known(table, key, gained)
}

#[inline(always)]
fn add_known(
    table: &HashMap<AddressKey, AddressRow>,
    key: &AddressKey,
    gained: &AddressRow,
) -> bool {
    let Some(row) = table.get_ptr_mut(key) else {
        return false;
    };
    // SAFETY: words of a map value that all CPUs only add to.
    unsafe {
        add_shared(&raw mut (*row).samples, gained.samples);
        add_shared(&raw mut (*row).periods, gained.periods);
        if gained.timed != 0 {
            add_shared(&raw mut (*row).timed, gained.timed);
            add_shared(&raw mut (*row).cycles, gained.cycles);
        }
    }
    true
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
