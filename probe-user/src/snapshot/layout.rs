//! A text that identifies the layout of the pinned maps.

use probe_common::{CpuState, ProgramClock, SLOTS, UsageKey, UsageRow, WaitTask};

/// Must be raised if words of the pinned maps change their meaning but not their number.
const LAYOUT: u32 = 1;

/// Identifies the layout of the pinned maps, for names of pins and for state files. Counts of one
/// layout cannot continue in another.
#[must_use]
pub fn layout() -> String {
    let sizes = [
        CpuState::WORDS,
        UsageKey::WORDS,
        UsageRow::WORDS,
        ProgramClock::WORDS,
        WaitTask::WORDS,
        SLOTS,
    ]
    .map(|size| format!("x{size}"));
    format!("{LAYOUT}{}", sizes.concat())
}
