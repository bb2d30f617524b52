//! How the maps are laid out that a snapshot is read from.

use probe_common::{Clock, CpuState, SLOTS, UsageKey, UsageRow};

/// To be raised where words of the pinned maps change their meaning, and not their number.
const LAYOUT: u32 = 1;

/// What tells one layout of the pinned maps from another, for names: what was counted in one cannot
/// go on in another.
#[must_use]
pub fn layout() -> String {
    let words = [
        CpuState::WORDS,
        UsageKey::WORDS,
        UsageRow::WORDS,
        Clock::WORDS,
        SLOTS,
    ];
    let words = words.map(|words| format!("x{words}"));
    format!("{LAYOUT}{}", words.concat())
}
