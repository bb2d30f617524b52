//! The waits of a row: the rows that it waits for, and the rows that wait for it.

use std::cmp::Reverse;

use crate::{
    emit::{SheetWait, Sheets, width as width_of},
    window::float,
};

/// The most names of each list.
const MAX_NAMES: usize = 8;

/// The lines of both lists of a row.
pub(super) fn wait_lines(window: &Sheets, name: &str) -> Vec<String> {
    match &window.waits {
        // Waits are empty, for example, with a sched_ext scheduler that has its own queues.
        Some(waits) if waits.is_empty() => {
            vec![" It is not known what ran meanwhile, or nothing waited.".to_owned()]
        }
        Some(waits) => lists(name, waits),
        None => vec![" Waits are not counted: -M group:wait counts them.".to_owned()],
    }
}

/// Both lists of a row.
fn lists(name: &str, waits: &[SheetWait]) -> Vec<String> {
    let waits_for = waits.iter().filter(|wait| wait.waiting == name);
    let waits_for = waits_for.map(|wait| (wait.behind.as_str(), wait.nanos));
    let is_waited_for = waits.iter().filter(|wait| wait.behind == name);
    let is_waited_for = is_waited_for.map(|wait| (wait.waiting.as_str(), wait.nanos));
    let mut lines = list("Waits for a CPU behind", waits_for.collect());
    lines.push(String::new());
    lines.extend(list("Is waited for by", is_waited_for.collect()));
    lines
}

/// A list with its sum, the longest waits first.
fn list(head: &str, mut waits: Vec<(&str, u64)>) -> Vec<String> {
    waits.sort_by_key(|(name, nanos)| (Reverse(*nanos), *name));
    let sum_of = |waits: &[(&str, u64)]| {
        let nanos = waits.iter().map(|(_, nanos)| *nanos);
        nanos.fold(0, u64::saturating_add)
    };
    let sum = sum_of(&waits);
    let seconds = |nanos: u64| float(nanos) / 1e9;
    let shown = &waits[..waits.len().min(MAX_NAMES)];
    let widest = shown.iter().map(|(name, _)| width_of(name)).max();
    let width = widest.unwrap_or(0).max(head.len());
    let line = |name: &str, nanos: u64| {
        let gap = " ".repeat(width - width_of(name));
        let share = 100.0 * float(nanos) / float(sum.max(1));
        format!("   {name}{gap}  {:>9.4} s  {share:>5.1}% ", seconds(nanos))
    };
    let gap = " ".repeat(width - head.len());
    let mut lines = vec![format!("{head}{gap}    {:>9.4} s ", seconds(sum))];
    lines.extend(shown.iter().map(|(name, nanos)| line(name, *nanos)));
    let others = waits.get(MAX_NAMES..).unwrap_or_default();
    if !others.is_empty() {
        lines.push(line(&format!("{} others", others.len()), sum_of(others)));
    }
    lines
}
