//! Adds a decoded record to its owner's row.

use aya_ebpf::{
    Global,
    bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST},
    helpers::bpf_get_smp_processor_id,
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray},
};
use probe_common::{
    CgroupId,
    spe::{Class, Events, PageKey, PageRow, Record, SpeAccess, SpeCpu, SpeKey, SpeRow},
};

use super::{lines, now, tasks, timeline, unattributed::NO_TIME, walk::ChunkWalk};
use crate::{
    account::preallocate,
    asm::{add_shared, bucket},
    kernel::offsets,
    owner::{BY_PROCESS, Owner},
};

offsets! {
    /// Log2 of the size of a data page.
    SPE_DATA_PAGE_SHIFT;
    /// 1: the table of pages is filled.
    SPE_WITH_PAGES;
}

/// Samples by owner. Not preallocated: only keys that were sampled cost memory. User space sets the
/// size.
#[map]
static SPE_ROWS: HashMap<SpeKey, SpeRow> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// Records for which [`SPE_ROWS`] has no room, by class.
#[map]
static SPE_OVERFLOW: PerCpuArray<SpeRow> =
    PerCpuArray::with_max_entries(Class::ALL.len() as u32, 0);

/// A row of zeros, which is too large for the stack.
#[map]
static SPE_ZERO: Array<SpeRow> = Array::with_max_entries(1, 0);

/// Recently accessed pages. User space sets the size.
#[map]
static SPE_PAGES: LruHashMap<PageKey, PageRow> = LruHashMap::with_max_entries(1, 0);

/// Adds the walk's current record to its owner's row, its page and its cache line.
#[inline(always)]
pub(super) fn add(cpu: &mut SpeCpu, walk: &ChunkWalk) {
    let record = &walk.record;
    let class = Class::from_record(record);
    if class.is_invalid(record) {
        cpu.invalid += 1;
        return;
    }
    let time = match record.timestamp() {
        Some(ticks) => walk.clock.nanos(ticks),
        None => NO_TIME,
    };
    let owner = match record.thread() {
        Some(0) => Owner {
            cgroup: CgroupId::IDLE,
            tgid: 0,
        },
        Some(thread) => tasks::owner(cpu, thread, time),
        None => timeline::owner(cpu, time),
    };
    if SPE_WITH_PAGES.load() == 1 && owner.cgroup != SpeKey::UNATTRIBUTED {
        add_page(cpu, record, owner.tgid);
    }
    if matches!(class, Class::Load | Class::Store) {
        lines::add(cpu, record, owner);
    }
    let key = SpeKey {
        cgroup: owner.cgroup,
        tgid: if BY_PROCESS.load() == 1 {
            owner.tgid
        } else {
            0
        },
        // SAFETY: the helper has no preconditions.
        cpu: unsafe { bpf_get_smp_processor_id() } as u16,
        access: SpeAccess::new(class, record.data_source()),
    };
    // SAFETY: the key contains this CPU, or the row is this CPU's own.
    let Some(row) = (unsafe { row(cpu, &key, class).as_mut() }) else {
        return;
    };
    row.samples += 1;
    if record
        .events()
        .is_some_and(|events| events.contains(Events::TLB_WALK))
    {
        row.walks += 1;
    }
    if let Some(cycles) = record.issue_latency() {
        row.issue += u64::from(cycles);
    }
    if let Some(cycles) = record.translation_latency() {
        row.translation += u64::from(cycles);
    }
    if let Some(cycles) = record.total_latency() {
        row.total.add(cycles);
        let count = &mut row.histogram[bucket(cycles)];
        *count = count.wrapping_add(1);
    }
}

/// Preallocates rows on this CPU: a chunk may need many.
#[inline(always)]
pub(crate) fn preallocate_rows() {
    let key = SpeKey {
        cgroup: SpeKey::UNATTRIBUTED,
        tgid: u32::MAX,
        // SAFETY: the helper has no preconditions.
        cpu: unsafe { bpf_get_smp_processor_id() } as u16,
        access: SpeAccess::new(Class::Other, None),
    };
    if let Some(zero) = SPE_ZERO.get(0) {
        preallocate(&SPE_ROWS, &key, zero);
    }
}

/// The row of `key`, inserted if it is missing; the overflow row of its class if the map refuses
/// it.
#[inline(always)]
fn row(cpu: &mut SpeCpu, key: &SpeKey, class: Class) -> *mut SpeRow {
    if let Some(row) = SPE_ROWS.get_ptr_mut(key) {
        return row;
    }
    if let Some(zero) = SPE_ZERO.get(0) {
        let _ = SPE_ROWS.insert(key, zero, BPF_NOEXIST.into());
    }
    if let Some(row) = SPE_ROWS.get_ptr_mut(key) {
        return row;
    }
    cpu.overflowed += 1;
    SPE_OVERFLOW.get_ptr_mut(class as u32).unwrap_or_default()
}

/// Adds a sample to its data page, inserted if it is missing.
#[inline(always)]
fn add_page(cpu: &mut SpeCpu, record: &Record, tgid: u32) {
    let Some(address) = record.virtual_address() else {
        return;
    };
    let key = PageKey {
        page: address.address() >> (SPE_DATA_PAGE_SHIFT.load() & 63),
        tgid: u64::from(tgid),
    };
    let mut sample = PageRow::from_sample(record.total_latency());
    if add_to_page(&key, &sample) {
        return;
    }
    sample.made = now();
    // Another CPU may insert the same page meanwhile: a process runs on several.
    if SPE_PAGES
        .insert(key, sample, u64::from(BPF_NOEXIST))
        .is_err()
        && !add_to_page(&key, &sample)
    {
        cpu.unpaged += 1;
    }
}

/// Adds a sample to its page. False if the table does not have the page.
#[inline(always)]
fn add_to_page(key: &PageKey, sample: &PageRow) -> bool {
    let Some(row) = SPE_PAGES.get_ptr_mut(key) else {
        return false;
    };
    // SAFETY: words of a map value that all CPUs only add to.
    unsafe {
        add_shared(&raw mut (*row).samples, sample.samples);
        add_shared(&raw mut (*row).timed, sample.timed);
        add_shared(&raw mut (*row).cycles, sample.cycles);
    }
    true
}
