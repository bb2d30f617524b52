//! The table of cache lines: for each line, owner and CPU, the accesses and their offsets in the
//! line.

use aya_ebpf::{
    Global,
    bindings::BPF_NOEXIST,
    helpers::bpf_get_smp_processor_id,
    macros::map,
    maps::{Array, LruHashMap},
};
use probe_common::spe::{LineKey, LineRow, Record, SpeCpu, SpeKey};

use super::now;
use crate::{
    kernel::offsets,
    owner::{BY_PROCESS, Owner},
};

offsets! {
    /// 1: the table of cache lines is filled.
    SPE_WITH_LINES;
}

/// Recently accessed lines. User space sets the size.
#[map]
static SPE_LINES: LruHashMap<LineKey, LineRow> = LruHashMap::with_max_entries(1, 0);

/// Data sources that mean another core, by CPU: bit n for source n. User space sets the size.
#[map]
static SPE_PEERS: Array<u64> = Array::with_max_entries(1, 0);

/// Adds a load or store to its line, where the table is filled.
#[inline(always)]
pub(super) fn add(cpu: &mut SpeCpu, record: &Record, owner: Owner) {
    if SPE_WITH_LINES.load() != 1 || owner.cgroup == SpeKey::UNATTRIBUTED {
        return;
    }
    let Some((line, space, byte)) = LineKey::locate(record, owner.tgid) else {
        return;
    };
    cpu.lined += 1;
    // SAFETY: the helper has no preconditions.
    let number = unsafe { bpf_get_smp_processor_id() };
    let key = LineKey {
        line,
        space,
        cgroup: owner.cgroup,
        tgid: if BY_PROCESS.load() == 1 {
            owner.tgid
        } else {
            0
        },
        cpu: number,
    };
    let mut row = SPE_LINES.get_ptr_mut(key);
    if row.is_none() {
        let fresh = LineRow {
            made: now(),
            ..LineRow::ZERO
        };
        let _ = SPE_LINES.insert(key, fresh, BPF_NOEXIST.into());
        row = SPE_LINES.get_ptr_mut(key);
    }
    let Some(row) = row else {
        cpu.unlined += 1;
        return;
    };
    let peers = SPE_PEERS.get(number).copied().unwrap_or(0);
    // SAFETY: the key contains this CPU, so no other CPU writes the row.
    unsafe { (*row).add(record, byte, peers) };
}
