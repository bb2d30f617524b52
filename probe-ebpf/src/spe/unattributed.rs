//! Records whose owner is not known.

use probe_common::spe::{SpeCpu, SpeKey, Unattributed};

use crate::owner::Owner;

/// Of a record without a timestamp: later than any owner. No `Option`: LLVM would keep a register
/// for its content that the verifier finds unset.
pub(super) const NO_TIME: u64 = u64::MAX;

/// Counts a record without a known owner. No `Result`: the verifier does not see that what is in
/// one is there only where its tag says so.
#[inline(always)]
pub(super) fn unattributed(cpu: &mut SpeCpu, reason: Unattributed) -> Owner {
    cpu.unattributed[reason as usize] += 1;
    Owner {
        cgroup: SpeKey::UNATTRIBUTED,
        tgid: 0,
    }
}
