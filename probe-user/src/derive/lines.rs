//! Cache lines that cores and containers share: who accesses which bytes.
//!
//! The parties that share a line are its owners, or the CPUs of its only owner. Sharing costs if
//! one party writes the line and another accesses it: each write invalidates the line in all other
//! caches. In true sharing, parties communicate: one accesses bytes that another writes. In false
//! sharing, they access different bytes, and a distance of 64 bytes between these avoids the cost.

use std::{cmp::Reverse, collections::BTreeSet};

use probe_common::spe::{LINE_SHIFT, LineKey, LineRow};

use super::{Estimate, MEAN_LATENCY, ReportTable, Subject, TableCell};
use crate::{
    join::{CacheLine, Entity, add_lines},
    window::{CacheLines, float},
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
    MEAN_LATENCY,
    "cpus",
    "line_cpus",
];

/// The table of the `shown` most shared lines, with a row for each owner of a line.
pub(super) fn most_shared(window: &CacheLines, lines: &[CacheLine], shown: usize) -> ReportTable {
    let kept_samples: u64 = window.rows.iter().map(|(_, row)| row.samples()).sum();
    let mut shared: Vec<SharedLine<'_>> = lines
        .iter()
        .filter_map(|line| shared_line(window, line))
        .collect();
    let counts = vec![
        ("spe_line_samples", window.samples.max(kept_samples)),
        ("spe_line_samples_kept", kept_samples),
        ("lines_shared", shared.len() as u64),
    ];
    shared.sort_by_key(|it| (Reverse(it.rank()), it.line.space, it.line.line));
    // Lines that only hidden owners access are not shown.
    let visible = shared
        .iter()
        .filter(|it| it.line.owners.keys().any(Option::is_some));
    ReportTable {
        name: "lines",
        columns: COLUMNS.to_vec(),
        rows: visible.take(shown).flat_map(SharedLine::rows).collect(),
        small_rows: BTreeSet::new(),
        counts,
    }
}

/// How the sampled accesses to a line overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// True sharing: a party accesses a byte that another writes.
    SameBytes,
    /// False sharing: a party writes, and no other accesses the same aligned eight bytes.
    Disjoint,
    /// Different bytes of the same aligned eight bytes. A record lacks the size of its access, so
    /// the sharing may be true or false.
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

    /// Sharing between parties, at least one of them a writer.
    fn between(parties: &[LineRow]) -> Self {
        let mut sharing = Self::Disjoint;
        for (at, writer) in parties.iter().enumerate() {
            let others = parties.iter().enumerate().filter(|(other, _)| *other != at);
            let touched = others.fold(0, |bytes, (_, other)| bytes | other.read | other.written);
            if writer.written & touched != 0 {
                return Self::SameBytes;
            }
            if whole_words(writer.written) & whole_words(touched) != 0 {
                sharing = Self::SameWord;
            }
        }
        sharing
    }
}

/// Adds to the set all bytes of each aligned group of eight that has at least one byte in it.
fn whole_words(bytes: u64) -> u64 {
    u64::from_ne_bytes(
        bytes
            .to_ne_bytes()
            .map(|word| if word == 0 { 0 } else { 0xff }),
    )
}

/// A line that several CPUs or owners access, and at least one writes.
struct SharedLine<'a> {
    line: &'a CacheLine,
    sum: LineRow,
    /// Samples of all CPUs but the busiest.
    contended: u64,
    /// Samples served by another core; None if one of the CPUs has no table of data sources.
    peers: Option<u64>,
    cpus: usize,
    sharing: Sharing,
}

/// The sharing of a line. None if only one CPU and one owner access it, or nobody writes it.
fn shared_line<'a>(window: &CacheLines, line: &'a CacheLine) -> Option<SharedLine<'a>> {
    let rows = || line.owners.values().flatten();
    let cpus: BTreeSet<u32> = rows().map(|(cpu, _)| *cpu).collect();
    if cpus.len() < 2 && line.owners.len() < 2 {
        return None;
    }
    let by_cpu = |cpu: &u32| sum(rows().filter(|(at, _)| *at == cpu).map(|(_, row)| row));
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
    let has_source_tables = cpus.iter().all(|cpu| window.tables.contains_key(cpu));
    Some(SharedLine {
        line,
        contended: all.samples().saturating_sub(busiest.unwrap_or_default()),
        peers: has_source_tables.then_some(all.peers),
        cpus: cpus.len(),
        sharing: Sharing::between(&parties),
        sum: all,
    })
}

fn sum<'a>(rows: impl IntoIterator<Item = &'a LineRow>) -> LineRow {
    let mut sum = LineRow::ZERO;
    rows.into_iter().for_each(|row| add_lines(&mut sum, row));
    sum
}

impl SharedLine<'_> {
    /// Sort key: lines served by other cores first, then lines that CPUs share evenly.
    fn rank(&self) -> [u64; 3] {
        [
            self.peers.unwrap_or_default(),
            self.contended,
            self.sum.samples(),
        ]
    }

    /// A row for each visible owner, the busiest first.
    fn rows(&self) -> Vec<Vec<TableCell>> {
        let mut owners: Vec<(&Entity, usize, LineRow)> = self
            .line
            .owners
            .iter()
            .filter_map(|(owner, cpus)| Some((owner.as_ref()?, cpus.len(), sum(cpus.values()))))
            .collect();
        owners.sort_by_key(|(owner, _, row)| (Reverse(row.samples()), *owner));
        let row = |(owner, cpus, row): (&Entity, usize, LineRow)| {
            vec![
                TableCell::Text(address_text(self.line)),
                TableCell::Text(self.sharing.name().to_owned()),
                TableCell::Owner(Subject::Entity(owner.clone())),
                TableCell::Text(byte_ranges(row.read)),
                TableCell::Text(byte_ranges(row.written)),
                TableCell::Count(row.loads),
                TableCell::Count(row.writes()),
                TableCell::Estimate(self.peers.map(|_| Estimate::exact(float(row.peers)))),
                TableCell::Estimate(mean_latency(&row)),
                TableCell::Count(cpus as u64),
                TableCell::Count(self.cpus as u64),
            ]
        };
        owners.into_iter().map(row).collect()
    }
}

/// The address of a line with its address space.
fn address_text(line: &CacheLine) -> String {
    let address = line.line << LINE_SHIFT;
    match line.space {
        LineKey::PHYSICAL => format!("phys:{address:#x}"),
        LineKey::KERNEL => format!("kernel:{address:#x}"),
        process => format!("{process}:{address:#x}"),
    }
}

/// The bytes of a set as ranges: `0 8-10`.
fn byte_ranges(set: u64) -> String {
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

/// The mean total latency in cycles. The distribution is not kept, so the error is unknown.
fn mean_latency(row: &LineRow) -> Option<Estimate> {
    (row.timed > 0).then(|| Estimate::exact(float(row.cycles) / float(row.timed)))
}

#[cfg(test)]
mod tests;
