//! The cache lines that cores and containers share: who touches which bytes of them.
//!
//! A line costs where at least one writes it and another one accesses it too: each write takes the
//! line from all others' caches. Where all touch the same bytes that is their communication (true
//! sharing); where nobody touches what another one writes, they only happen to lie in one line
//! (false sharing), and a distance of 64 bytes ends it.

use std::{cmp::Reverse, collections::BTreeSet};

use probe_common::spe::{LINE_SHIFT, LineKey, LineRow};

use super::{Cell, Estimate, Subject, Table};
use crate::{
    join::{Entity, Line, add_lines},
    window::{Lines, float},
};

const COLUMNS: [&str; 11] = [
    "line",
    "sharing",
    "owner",
    "bytes_read",
    "bytes_written",
    "spe_reads",
    "spe_writes",
    "spe_from_other_cores",
    "spe_latency_mean_cycles",
    "cpus",
    "line_cpus",
];

/// The lines that are shared most, a row for each owner.
pub(super) fn hot(window: &Lines, lines: &[Line], shown: usize) -> Table {
    let kept: u64 = window.rows.iter().map(|(_, row)| row.samples()).sum();
    let mut shared: Vec<Shared<'_>> = lines
        .iter()
        .filter_map(|line| shared(window, line))
        .collect();
    let counts = vec![
        ("spe_line_samples", window.samples.max(kept)),
        ("spe_line_samples_kept", kept),
        ("lines_shared", shared.len() as u64),
    ];
    shared.sort_by_key(|it| (Reverse(it.rank()), it.line.space, it.line.line));
    // Lines whose owners are all hidden are none of the view.
    let visible = shared
        .iter()
        .filter(|it| it.line.owners.keys().any(Option::is_some));
    Table {
        name: "lines",
        columns: COLUMNS.to_vec(),
        rows: visible.take(shown).flat_map(Shared::rows).collect(),
        counts,
    }
}

/// How the accesses to a line lie to each other, by what was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// Accesses to a byte that another one writes: true sharing.
    SameBytes,
    /// None in the same eight bytes: false sharing.
    Disjoint,
    /// At other bytes of the same eight: how many bytes an access takes is not in the record.
    SameWord,
}

impl Sharing {
    const fn name(self) -> &'static str {
        match self {
            Self::SameBytes => "same_bytes",
            Self::Disjoint => "disjoint",
            Self::SameWord => "same_word",
        }
    }

    /// Between parties, of which one writes at least.
    fn of(parties: &[LineRow]) -> Self {
        let mut sharing = Self::Disjoint;
        for (at, writer) in parties.iter().enumerate() {
            let others = parties.iter().enumerate().filter(|(other, _)| *other != at);
            let touched = others.fold(0, |bytes, (_, other)| bytes | other.read | other.written);
            if writer.written & touched != 0 {
                return Self::SameBytes;
            }
            if words(writer.written) & words(touched) != 0 {
                sharing = Self::SameWord;
            }
        }
        sharing
    }
}

/// All bytes of every eight of which one is in the set.
fn words(bytes: u64) -> u64 {
    u64::from_ne_bytes(
        bytes
            .to_ne_bytes()
            .map(|word| if word == 0 { 0 } else { 0xff }),
    )
}

/// A line that several CPUs or owners access, and one writes.
struct Shared<'a> {
    line: &'a Line,
    sum: LineRow,
    /// What the busiest CPU leaves to the others.
    contended: u64,
    /// Samples whose data came from another core; None where that is not known of all.
    peers: Option<u64>,
    cpus: usize,
    sharing: Sharing,
}

/// None where only one CPU accesses the line, or nobody writes it.
fn shared<'a>(window: &Lines, line: &'a Line) -> Option<Shared<'a>> {
    let rows = || line.owners.values().flatten();
    let cpus: BTreeSet<u32> = rows().map(|(cpu, _)| *cpu).collect();
    if cpus.len() < 2 && line.owners.len() < 2 {
        return None;
    }
    let by_cpu = |cpu: &u32| sum(rows().filter(|(of, _)| *of == cpu).map(|(_, row)| row));
    let by_owner = line.owners.values().map(|cpus| sum(cpus.values()));
    let parties: Vec<LineRow> = match line.owners.len() {
        0 | 1 => cpus.iter().map(by_cpu).collect(),
        _ => by_owner.collect(),
    };
    let all = sum(&parties);
    if all.writes() == 0 {
        return None;
    }
    let busiest = cpus.iter().map(|cpu| by_cpu(cpu).samples()).max();
    let known = cpus.iter().all(|cpu| window.tables.contains_key(cpu));
    Some(Shared {
        line,
        contended: all.samples().saturating_sub(busiest.unwrap_or_default()),
        peers: known.then_some(all.peers),
        cpus: cpus.len(),
        sharing: Sharing::of(&parties),
        sum: all,
    })
}

fn sum<'a>(rows: impl IntoIterator<Item = &'a LineRow>) -> LineRow {
    let mut sum = LineRow::ZERO;
    rows.into_iter().for_each(|row| add_lines(&mut sum, row));
    sum
}

impl Shared<'_> {
    /// Lines that other cores served come first, then those that CPUs share evenly.
    fn rank(&self) -> [u64; 3] {
        [
            self.peers.unwrap_or_default(),
            self.contended,
            self.sum.samples(),
        ]
    }

    /// A row for each owner that the user asked for, the busiest first.
    fn rows(&self) -> Vec<Vec<Cell>> {
        let owners = self.line.owners.iter();
        let mut owners: Vec<(&Entity, usize, LineRow)> = owners
            .filter_map(|(owner, cpus)| Some((owner.as_ref()?, cpus.len(), sum(cpus.values()))))
            .collect();
        owners.sort_by_key(|(owner, _, row)| (Reverse(row.samples()), *owner));
        let row = |(owner, cpus, row): (&Entity, usize, LineRow)| {
            vec![
                Cell::Text(place(self.line)),
                Cell::Text(self.sharing.name().to_owned()),
                Cell::Owner(Subject::Entity(owner.clone())),
                Cell::Text(bytes(row.read)),
                Cell::Text(bytes(row.written)),
                Cell::Count(row.loads),
                Cell::Count(row.writes()),
                Cell::Estimate(self.peers.map(|_| Estimate::exact(float(row.peers)))),
                Cell::Estimate(mean(&row)),
                Cell::Count(cpus as u64),
                Cell::Count(self.cpus as u64),
            ]
        };
        owners.into_iter().map(row).collect()
    }
}

/// A line's address with its space.
fn place(line: &Line) -> String {
    let address = line.line << LINE_SHIFT;
    match line.space {
        LineKey::PHYSICAL => format!("phys:{address:#x}"),
        LineKey::KERNEL => format!("kernel:{address:#x}"),
        process => format!("{process}:{address:#x}"),
    }
}

/// The bytes of a set, as `0 8-10`.
fn bytes(set: u64) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < 64 && set >> at != 0 {
        let first = at + (set >> at).trailing_zeros();
        let last = first + (!(set >> first)).trailing_zeros().min(64 - first) - 1;
        let gap = if text.is_empty() { "" } else { " " };
        text += &if first == last {
            format!("{gap}{first}")
        } else {
            format!("{gap}{first}-{last}")
        };
        at = last + 1;
    }
    text
}

/// Of the total latency; how it is distributed is not kept, so its error is not known.
fn mean(row: &LineRow) -> Option<Estimate> {
    (row.timed > 0).then(|| Estimate::exact(float(row.cycles) / float(row.timed)))
}

#[cfg(test)]
mod tests;
