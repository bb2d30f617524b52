//! The layout of the pinned maps, as a name.

use probe_common::{CpuState, ProgramClock, SLOTS, UsageKey, UsageRow, WaitTask};

/// To be raised if words of the pinned maps change their meaning but not their number.
const LAYOUT: u32 = 1;

/// Identifies the layout of the pinned maps in names. Counts of one layout cannot continue in
/// another.
#[must_use]
pub fn layout() -> String {
    let words = [
        CpuState::WORDS,
        UsageKey::WORDS,
        UsageRow::WORDS,
        ProgramClock::WORDS,
        WaitTask::WORDS,
        SLOTS,
    ]
    .map(|words| format!("x{words}"));
    format!("{LAYOUT}{}", words.concat())
}
