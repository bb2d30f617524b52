//! Records without a known owner.

use probe_common::spe::{SpeCpu, SpeKey, Unattributed};

use crate::owner::Owner;

/// The time of a record without a timestamp: later than the start of any owner. Not an `Option`,
/// for which LLVM would read a register that the verifier considers unset.
pub(super) const NO_TIME: u64 = u64::MAX;

/// Counts a record without a known owner. Returns no `Result`: the verifier does not know which
/// content goes with which tag.
#[inline(always)]
pub(super) fn unattributed(cpu: &mut SpeCpu, reason: Unattributed) -> Owner {
    cpu.unattributed[reason as usize] += 1;
    Owner {
        cgroup: SpeKey::UNATTRIBUTED,
        tgid: 0,
    }
}
