use std::{collections::BTreeMap, sync::Arc};

use probe_common::{CgroupId, spe::SourceTable};
use proptest::prelude::*;

use super::*;

/// Reads and writes that started at these bytes; another core served `peers` of them.
fn row(read: &[u32], written: &[u32], peers: u64) -> LineRow {
    let set = |bytes: &[u32]| bytes.iter().fold(0, |set, byte| set | 1 << byte);
    LineRow {
        loads: read.len() as u64,
        stores: written.len() as u64,
        peers,
        timed: (read.len() + written.len()) as u64,
        cycles: 10 * (read.len() + written.len()) as u64,
        read: set(read),
        written: set(written),
        ..LineRow::ZERO
    }
}

fn owner(name: &str) -> Option<Entity> {
    Some(Entity::Cgroup(name.into()))
}

/// A line by owner and CPU.
fn line(line: u64, rows: &[(Option<Entity>, u32, LineRow)]) -> CacheLine {
    let mut owners: BTreeMap<Option<Entity>, BTreeMap<u32, LineRow>> = BTreeMap::new();
    for (owner, cpu, row) in rows {
        let cpus = owners.entry(owner.clone()).or_default();
        add_lines(cpus.entry(*cpu).or_default(), row);
    }
    CacheLine {
        line,
        space: LineKey::PHYSICAL,
        owners,
    }
}

/// A window with samples of these lines, on cores with a table of data sources.
fn window(lines: &[CacheLine], samples: u64) -> CacheLines {
    let rows = lines.iter().flat_map(|line| {
        let owners = line.owners.values().flatten();
        owners.map(|(cpu, row)| {
            let key = LineKey {
                line: line.line,
                space: line.space,
                cgroup: CgroupId(1),
                tgid: 0,
                cpu: *cpu,
            };
            (key, *row)
        })
    });
    CacheLines {
        rows: rows.collect(),
        samples,
        tables: Arc::new((0..4).map(|cpu| (cpu, SourceTable::Common)).collect()),
    }
}

fn cells<'a>(table: &'a ReportTable, column: &str) -> Vec<&'a TableCell> {
    let at = table
        .columns
        .iter()
        .position(|name| *name == column)
        .unwrap();
    table.rows.iter().map(|row| &row[at]).collect()
}

fn texts<'a>(table: &'a ReportTable, column: &str) -> Vec<&'a str> {
    let text = |cell: &'a TableCell| match cell {
        TableCell::Text(text) => text.as_str(),
        other => panic!("{other:?}"),
    };
    cells(table, column).into_iter().map(text).collect()
}

#[test]
fn lines_served_by_other_cores_come_first() {
    let lines = [
        // Not shared: one CPU alone, and two CPUs that only read.
        line(1, &[(owner("a"), 0, row(&[0; 9], &[0; 9], 9))]),
        line(
            2,
            &[
                (owner("a"), 0, row(&[0], &[], 9)),
                (owner("b"), 1, row(&[0], &[], 9)),
            ],
        ),
        // Shared: two owners at different bytes, and two CPUs of one owner at the same bytes.
        line(
            3,
            &[
                (owner("a"), 0, row(&[], &[0, 8], 0)),
                (owner("b"), 1, row(&[16, 17], &[], 2)),
            ],
        ),
        line(
            4,
            &[
                (owner("a"), 0, row(&[0], &[8], 1)),
                (owner("a"), 1, row(&[8], &[], 2)),
            ],
        ),
    ];
    let table = most_shared(&window(&lines, 100), &lines, 10);
    let line = |number: u64| format!("phys:{:#x}", number * 64);
    assert_eq!(texts(&table, "line"), [line(4), line(3), line(3)]);
    assert_eq!(
        texts(&table, "sharing"),
        ["same_bytes", "disjoint", "disjoint"]
    );
    assert_eq!(texts(&table, "bytes_read"), ["0 8", "", "16-17"]);
    assert_eq!(texts(&table, "bytes_written"), ["8", "0 8", ""]);
    let count = TableCell::Count;
    assert_eq!(cells(&table, "cpus"), [&count(2), &count(1), &count(1)]);
    assert_eq!(cells(&table, "line_cpus"), [&count(2); 3]);
    assert_eq!(
        cells(&table, "spe_writes"),
        [&count(1), &count(2), &count(0)]
    );
    let mean = TableCell::Estimate(Some(Estimate::exact(10.0)));
    assert_eq!(
        cells(&table, "memory_access_latency_mean_cycles"),
        [&mean; 3]
    );
    // 18 + 2 + 4 + 3 of 100 samples are on lines that the table kept.
    let counts = [
        ("spe_line_samples", 100),
        ("spe_line_samples_kept", 27),
        ("lines_shared", 2),
    ];
    assert_eq!(table.counts, counts);
    // A limit of lines keeps all owners of each line.
    assert_eq!(most_shared(&window(&lines, 100), &lines, 1).rows.len(), 1);
}

/// Without a table of data sources for CPU 9, the number served by other cores is unknown, not 0.
#[test]
fn without_a_table_the_source_is_unknown() {
    let lines = [line(
        3,
        &[
            (owner("a"), 0, row(&[], &[0], 0)),
            (owner("b"), 9, row(&[8], &[], 0)),
        ],
    )];
    let table = most_shared(&window(&lines, 2), &lines, 10);
    assert_eq!(
        cells(&table, "spe_from_other_cores"),
        [&TableCell::Estimate(None); 2]
    );
}

/// A hidden owner is a party without a row; lines that only hidden owners access are not shown.
#[test]
fn hidden_owners_share_too() {
    let line_with = |other| {
        line(
            5,
            &[
                (owner("a"), 0, row(&[0], &[], 0)),
                (other, 1, row(&[], &[0], 0)),
            ],
        )
    };
    let lines = [
        line_with(None),
        line(
            6,
            &[(None, 0, row(&[0], &[0], 0)), (None, 1, row(&[0], &[], 0))],
        ),
    ];
    let table = most_shared(&window(&lines, 5), &lines, 10);
    assert_eq!(texts(&table, "line"), ["phys:0x140"]);
    assert_eq!(texts(&table, "sharing"), ["same_bytes"]);
}

#[test]
fn sets_of_bytes_are_printed_as_ranges() {
    let all = [
        (0, ""),
        (1, "0"),
        (0b1101, "0 2-3"),
        (u64::MAX, "0-63"),
        (1 << 63, "63"),
    ];
    for (set, text) in all {
        assert_eq!(byte_ranges(set), text);
    }
}

fn parties() -> impl Strategy<Value = Vec<LineRow>> {
    let bytes = || prop::collection::vec(0..64_u32, 0..3);
    let party = (bytes(), bytes()).prop_map(|(read, written)| row(&read, &written, 0));
    prop::collection::vec(party, 2..5)
}

proptest! {
    /// The expected sharing is that of all pairs of bytes, one of them written by another party.
    #[test]
    fn sharing_equals_a_pairwise_comparison(parties in parties()) {
        let (mut same_byte, mut same_word) = (false, false);
        for (a, writer) in parties.iter().enumerate() {
            for (b, other) in parties.iter().enumerate() {
                for (i, j) in (0..64).flat_map(|i| (0..64).map(move |j| (i, j))) {
                    let writes = writer.written >> i & 1 == 1;
                    let touches = (other.read | other.written) >> j & 1 == 1;
                    if a != b && writes && touches {
                        same_byte |= i == j;
                        same_word |= i / 8 == j / 8;
                    }
                }
            }
        }
        let expected = match (same_byte, same_word) {
            (true, _) => Sharing::SameBytes,
            (false, true) => Sharing::SameWord,
            (false, false) => Sharing::Disjoint,
        };
        prop_assert_eq!(Sharing::between(&parties), expected);
    }

    /// Parsing the text gives back the set.
    #[test]
    fn byte_ranges_parse_back_to_the_set(set in any::<u64>()) {
        let mut read = 0_u64;
        for range in byte_ranges(set).split_whitespace() {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
            (first..=last).for_each(|byte| read |= 1 << byte);
        }
        prop_assert_eq!(read, set);
    }

    /// The shown lines are those with the highest ranks, in order, whatever the input order.
    #[test]
    fn no_line_with_a_higher_rank_is_left_out(
        peers in prop::collection::vec(0..5_u64, 1..20), shown in 1..10_usize,
    ) {
        let pair = |peers| {
            [(owner("a"), 0, row(&[0], &[], peers)), (owner("b"), 1, row(&[], &[0], 0))]
        };
        let lines: Vec<CacheLine> = (0..)
            .zip(&peers)
            .map(|(at, peers)| line(at, &pair(*peers)))
            .collect();
        let table = most_shared(&window(&lines, 0), &lines, shown);
        let mut expected: Vec<(u64, usize)> = peers.iter().copied().zip(0..).collect();
        expected.sort_by_key(|(peers, at)| (Reverse(*peers), *at));
        let expected: Vec<String> = expected.iter().take(shown)
            .flat_map(|(_, at)| [*at; 2]).map(|at| format!("phys:{:#x}", at * 64)).collect();
        prop_assert_eq!(texts(&table, "line"), expected);
    }
}
