//! Samples of events whose counters overflow: each is added to the row of the open slice's owner on
//! this CPU, and to the sampled address. No perf record is written.
//!
//! Hardware events raise NMIs. This module uses only map types that are safe in NMI context: LRU
//! maps would deadlock on a lock that their own CPU holds. Plain hash maps refuse the row instead,
//! and the refusal is counted.
//!
//! Nearly every sample may have a new address. So addresses are in arrays, with a part for each
//! CPU: inserting into a hash map costs most of a microsecond, for kernel code and memory that the
//! CPU's caches no longer hold.

use aya_ebpf::{
    Global,
    bindings::{
        BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_NOEXIST, bpf_perf_event_data, bpf_perf_event_value,
    },
    helpers::{
        bpf_ktime_get_ns,
        generated::{bpf_get_attach_cookie, bpf_perf_prog_read_value},
    },
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
    account::preallocate,
    asm::{bucket, keep_order},
    kernel::{Task, offsets, read},
    owner::{BY_PROCESS, Owner, owner_of},
    slice,
    state::{cpu, this_cpu},
};

offsets! {
    /// `bpf_perf_event_data_kern.data`
    EVENT_DATA;
    /// `bpf_perf_event_data_kern.event`
    DATA_EVENT;
    /// `perf_event.count`
    EVENT_COUNT;
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
    /// 1: the table of instructions is filled.
    SAMPLE_WITH_ADDRESSES;
    /// 1: the table of data pages is filled.
    SAMPLE_WITH_PAGES;
    /// Bit n: the counter of event n counts only what the event samples.
    SAMPLE_COUNTED;
    /// Bit n: event n is precise.
    SAMPLE_PRECISE;
    /// Bit n: samples of event n may have a weight and a data source.
    SAMPLE_WEIGHED;
    /// Bit n: samples of event n may have a data address, and the table of data pages is filled.
    SAMPLE_ADDRESSED;
    /// Bit n: samples of event n that are not memory accesses are left out.
    SAMPLE_ACCESSES;
    /// With [`SAMPLE_ACCESSES`]: accesses of a lower known weight are left out too.
    SAMPLE_LEAST_WEIGHT;
}

/// Samples by owner. Not preallocated: only keys that were sampled cost memory. User space sets the
/// size.
#[map]
static SAMPLE_ROWS: HashMap<SampleKey, SampleRow> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// Sampled instructions: [`SAMPLE_SLOTS`] slots for each CPU. User space sets the size, and reads
/// the map through shared memory (kernel 5.5).
#[map]
static SAMPLE_ADDRESSES: Array<AddressSlot> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Sampled data pages, in a table of their own: if every page fault is sampled, they are far more
/// numerous than instructions.
#[map]
static SAMPLE_PAGES: Array<AddressSlot> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Counts of samples for each event and CPU: added, left out and refused.
#[map]
static SAMPLE_CPU: PerCpuArray<SampleCpu> = PerCpuArray::with_max_entries(SAMPLED_EVENTS as u32, 0);

/// A row of zeros, which is too large for the stack.
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

/// The fields of a sample other than its instruction address and period.
struct SampleData {
    weight: u64,
    source: DataSource,
    walked: bool,
    page: u64,
}

impl SampleData {
    /// Sets the weight, if the flags mark it as valid.
    #[inline(always)]
    fn set_weight(&mut self, flags: u64, word: u64) {
        if flags & (WEIGHT | WEIGHT_STRUCT) != 0 {
            // The first word of a structure is the latency.
            self.weight = if flags & WEIGHT_STRUCT != 0 {
                word & 0xffff_ffff
            } else {
                word
            };
        }
    }

    /// Sets the data source, if the flags mark it as valid.
    #[inline(always)]
    fn set_source(&mut self, flags: u64, word: u64) {
        if flags & DATA_SRC != 0 {
            self.source = DataSource::from_word(word);
            self.walked = DataSource::walked(word);
        }
    }
}

/// Adds the sample of an overflow.
#[inline(always)]
pub(crate) fn add(ctx: *mut bpf_perf_event_data) {
    // SAFETY: the helper has no preconditions but the context.
    let event = unsafe { bpf_get_attach_cookie(ctx.cast()) } as u32;
    let Some(counts) = SAMPLE_CPU.get_ptr_mut(event) else {
        return;
    };
    // SAFETY: a per-CPU value; the kernel runs no second such program on this CPU meanwhile.
    let counts: &mut SampleCpu = unsafe { &mut *counts };
    counts.samples += 1;
    // The count is stored before the generation is read: user space waits for runs that may have
    // read the previous generation.
    keep_order();
    let started = if counts.samples.is_multiple_of(SampleCpu::MEASURE_EVERY) {
        now()
    } else {
        0
    };
    let period = period(counts, ctx, event);
    counts.periods = counts.periods.wrapping_add(period);
    let data = sample_data(ctx, event);
    // A sample without a weight is not known to be short.
    let is_short = data.weight != 0 && data.weight < SAMPLE_LEAST_WEIGHT.load();
    if is_set(SAMPLE_ACCESSES.load(), event) && (!data.source.is_access() || is_short) {
        counts.others += 1;
    } else {
        add_to_tables(counts, ctx, event, &data, period);
    }
    if started != 0 {
        counts.measured += 1;
        counts.nanos += now() - started;
    }
    // User space reads only the results of finished runs, so it sees no partly added sample.
    keep_order();
    counts.finished = counts.samples;
}

/// Whether the bit of an event is set.
#[inline(always)]
fn is_set(bits: u64, event: u32) -> bool {
    bits >> (event & 63) & 1 == 1
}

/// What the event counted since its last sample on this CPU.
///
/// The kernel reports its current period. While the kernel adapts the period to a frequency, the
/// number of events since the last sample may be very different. Dropped samples are in no reported
/// period.
#[inline(always)]
fn period(counts: &mut SampleCpu, ctx: *mut bpf_perf_event_data, event: u32) -> u64 {
    // SAFETY: a field of the context, which the kernel translates.
    let reported = unsafe { (&raw const (*ctx).sample_period).read_volatile() };
    counts.reported = counts.reported.wrapping_add(reported);
    if !is_set(SAMPLE_COUNTED.load(), event) {
        return reported;
    }
    let last = counts.last_count;
    let Some(count) = count(ctx, is_set(SAMPLE_PRECISE.load(), event)) else {
        counts.last_count = last.wrapping_add(reported);
        return reported;
    };
    counts.last_count = count;
    if count < last {
        return reported;
    }
    count - last
}

/// The count of the event at its overflow. Drivers update it before they report an overflow, but
/// Intel's PEBS from Linux 6.14 on does so later. So the counter of a precise event is read, though
/// that makes a sample take nearly twice as long.
#[inline(always)]
fn count(ctx: *mut bpf_perf_event_data, precise: bool) -> Option<u64> {
    if !precise {
        // The context is the kernel's own structure; its fields are read as memory.
        let event = read::<u64>(ctx as u64 + DATA_EVENT.load())?;
        return read(event + EVENT_COUNT.load());
    }
    let mut value = bpf_perf_event_value {
        counter: 0,
        enabled: 0,
        running: 0,
    };
    let size = size_of::<bpf_perf_event_value>() as u32;
    // SAFETY: `value` has that size.
    let error = unsafe { bpf_perf_prog_read_value(ctx, &raw mut value, size) };
    (error == 0).then_some(value.counter)
}

/// Adds a sample to its owner's row, and to its instruction and data page.
#[inline(always)]
fn add_to_tables(
    counts: &mut SampleCpu,
    ctx: *mut bpf_perf_event_data,
    event: u32,
    data: &SampleData,
    period: u64,
) {
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
        add_addresses(counts, ctx, key, owner, data, period);
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
        source: data.source.0,
        generation,
    };
    // SAFETY: the key contains this CPU, or the row is this CPU's own.
    if let Some(row) = unsafe { row(counts, &key).as_mut() } {
        row.add(period);
        row.walks += u64::from(data.walked);
        if data.weight != 0 {
            let weight = SampleRow::clamped(data.weight);
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

/// The owner of the open slice; unattributed where this CPU counts nothing.
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
        // `cgroup_switch` finds an owner only when the owner's task is switched out.
        return owner_of(Task::current());
    }
    slice::stored_owner(state)
}

/// Reads the fields of a sample other than its instruction address and period. Flags mark the valid
/// fields.
#[inline(always)]
fn sample_data(ctx: *mut bpf_perf_event_data, event: u32) -> SampleData {
    let mut data = SampleData {
        weight: 0,
        source: DataSource(0),
        walked: false,
        page: 0,
    };
    let weighed = is_set(SAMPLE_WEIGHED.load(), event);
    let addressed = is_set(SAMPLE_ADDRESSED.load(), event);
    if !weighed && !addressed {
        return data;
    }
    if SAMPLE_FLAGS.load() == u64::MAX || EVENT_DATA.load() == u64::MAX {
        // Without flags all software events have an address, or 0.
        if !weighed {
            data.page = page(ctx);
        }
        return data;
    }
    // The context is the kernel's own structure; its fields are read as memory.
    let Some(kernel_data) = read::<u64>(ctx as u64 + EVENT_DATA.load()) else {
        return data;
    };
    let Some(flags) = read::<u64>(kernel_data + SAMPLE_FLAGS.load()) else {
        return data;
    };
    // Linux 6.1 and 6.2 leave a stale address on the stack where a sample has none.
    if flags & ADDR != 0 {
        data.page = page(ctx);
    }
    if !weighed {
        return data;
    }
    let weight_at = SAMPLE_WEIGHT.load();
    let source_at = SAMPLE_DATA_SRC.load();
    if weight_at.wrapping_add(8) == source_at {
        // True for all kernels up to 7.3. One read saves a call.
        if let Some([weight, source]) = read::<[u64; 2]>(kernel_data + weight_at) {
            data.set_weight(flags, weight);
            data.set_source(flags, source);
        }
        return data;
    }
    if weight_at != u64::MAX {
        data.set_weight(flags, read(kernel_data + weight_at).unwrap_or(0));
    }
    if source_at != u64::MAX {
        data.set_source(flags, read(kernel_data + source_at).unwrap_or(0));
    }
    data
}

/// The number of the data page.
#[inline(always)]
fn page(ctx: *mut bpf_perf_event_data) -> u64 {
    // SAFETY: a field of the context, which the kernel translates.
    let address = unsafe { (&raw const (*ctx).addr).read_volatile() };
    address >> (SAMPLE_PAGE_SHIFT.load() & 63)
}

/// Adds the sample to its instruction and to its data page, where these tables are filled. `key`
/// lacks the address.
#[inline(always)]
fn add_addresses(
    counts: &mut SampleCpu,
    ctx: *mut bpf_perf_event_data,
    key: AddressKey,
    owner: Owner,
    data: &SampleData,
    period: u64,
) {
    let key_at = |address: u64, page: u8| AddressKey {
        address,
        tgid: if AddressKey::is_kernel(address) {
            owner.tgid
        } else {
            key.tgid
        },
        page,
        ..key
    };
    let mut increment = AddressRow {
        samples: 1,
        periods: period,
        ..AddressRow::ZERO
    };
    if SAMPLE_WITH_ADDRESSES.load() == 1 {
        let key = key_at(instruction(ctx), 0);
        counts.unplaced += u64::from(!add_to(&SAMPLE_ADDRESSES, &key, &increment));
    }
    if SAMPLE_WITH_PAGES.load() == 1 && data.page != 0 {
        let key = key_at(data.page << (SAMPLE_PAGE_SHIFT.load() & 63), 1);
        if data.weight != 0 {
            increment.timed = 1;
            increment.cycles = u64::from(SampleRow::clamped(data.weight));
        }
        counts.unpaged += u64::from(!add_to(&SAMPLE_PAGES, &key, &increment));
    }
}

/// The address at which the CPU was interrupted, or the address that a precise event gives.
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

/// Adds a sample to its address. False if the table has no slot for it.
#[inline(always)]
fn add_to(table: &Array<AddressSlot>, key: &AddressKey, increment: &AddressRow) -> bool {
    let slots = SAMPLE_SLOTS.load() as u32;
    let (hash, base) = (key.hash(), u32::from(key.cpu) * slots);
    let read = setting(SampleSetting::Read);
    let mut tried = 0;
    while tried < TRIES {
        let index = hash.wrapping_add(tried) & (slots - 1);
        let Some(slot) = table.get_ptr_mut(base + index) else {
            return false;
        };
        // SAFETY: a slot of this CPU; the kernel runs no second such program on it meanwhile.
        if unsafe { (*slot).add(key, increment, read, now) } {
            return true;
        }
        tried += 1;
    }
    false
}

/// Lets the period of an event's next sample on this CPU begin at `count`: 0 for an event that is
/// about to be opened.
#[inline(always)]
pub(crate) fn count_from(event: u64, count: u64) {
    if let Some(counts) = SAMPLE_CPU.get_ptr_mut(event as u32) {
        // SAFETY: a per-CPU value; a sample in between only makes the next period too long.
        unsafe { (*counts).last_count = count };
    }
}

/// Preallocates rows on this CPU: the samples of one interrupt may need many.
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
        preallocate(&SAMPLE_ROWS, &key, zero);
    }
}

/// The row of `key`, inserted if it is missing; this CPU's overflow row if the map refuses it.
#[inline(always)]
fn row(counts: &mut SampleCpu, key: &SampleKey) -> *mut SampleRow {
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
        counts.full += 1;
    } else {
        counts.refused += 1;
    }
    &raw mut counts.overflow
}

/// `CLOCK_MONOTONIC` nanoseconds.
#[inline(always)]
fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}
