//! Tables on screens of several sizes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    grid::{Grid, GridCell, GridColumn, GridRow},
    number::{NumberFormat, TableNumber},
    text::width,
};
use crate::{
    derive::{Report, Subject, Value},
    emit::{
        OutputFormat, Screen,
        names::{SubjectName, shown_names},
        tests::{containers, report, written_on},
    },
    join::Entity,
};

fn screen(width: usize, height: Option<usize>) -> Screen {
    Screen {
        width: Some(width),
        height,
        ..Screen::default()
    }
}

/// The table without self-counters.
fn table(report: &Report, screen: Screen) -> String {
    let mut report = report.clone();
    let own = |subject: u32| report.subjects[subject as usize] == Subject::Pmuscope;
    report.series = report
        .series
        .iter()
        .filter(|series| !own(series.subject))
        .cloned()
        .collect();
    written_on(screen, &report, OutputFormat::Table)
}

/// The table of `rows` containers on a terminal. Asserts that it fits.
#[track_caller]
fn on_terminal(rows: u64, columns: usize, lines: usize) -> String {
    let text = table(&containers(rows), screen(columns, Some(lines)));
    assert!(text.lines().all(|line| width(line) <= columns), "{text}");
    // The last line is free for the prompt.
    assert!(text.lines().count() < lines, "{text}");
    text
}

#[test]
fn three_rows_in_80_columns() {
    insta::assert_snapshot!(on_terminal(3, 80, 50));
}

#[test]
fn three_rows_in_120_columns() {
    insta::assert_snapshot!(on_terminal(3, 120, 40));
}

#[test]
fn three_rows_in_200_columns() {
    insta::assert_snapshot!(on_terminal(3, 200, 40));
}

#[test]
fn three_hundred_rows_in_80_columns() {
    insta::assert_snapshot!(on_terminal(300, 80, 66));
}

#[test]
fn three_hundred_rows_in_120_columns() {
    insta::assert_snapshot!(on_terminal(300, 120, 40));
}

#[test]
fn three_hundred_rows_in_200_columns() {
    insta::assert_snapshot!(on_terminal(300, 200, 50));
}

/// Each block fits on the screen, but not all blocks together.
#[test]
fn a_table_that_is_scrolled() {
    insta::assert_snapshot!(table(&containers(300), screen(80, Some(24))));
}

/// Samples, shares, lists and devices on a low screen.
#[test]
fn everything_on_a_low_screen() {
    insta::assert_snapshot!(table(&report(), screen(100, Some(24))));
}

/// If each window is drawn over the one before, many rows matter more than all columns.
#[test]
fn a_low_screen_in_place_has_most_rows() {
    for (columns, lines) in [(80, 24), (120, 40)] {
        let screen = Screen {
            in_place: true,
            ..screen(columns, Some(lines))
        };
        let name = format!("in_place_in_{columns}_columns");
        insta::assert_snapshot!(name, table(&containers(23), screen));
    }
}

/// Fewer rows with a sum may take more lines than all rows, since the label of a sum is wide.
#[test]
fn no_row_is_hidden_if_all_fit() {
    for rows in 4..8 {
        let mut report = containers(rows);
        for (at, subject) in report.subjects.iter_mut().enumerate() {
            if let Subject::Entity(entity @ Entity::Container { .. }) = subject {
                *entity = Entity::Cgroup(format!("/{at}").into());
            }
        }
        for columns in 40..120 {
            let all = table(&report, screen(columns, None));
            let lines = all.lines().count() + 1;
            let shown = table(&report, screen(columns, Some(lines)));
            assert_eq!(shown, all, "{rows} rows, {columns} columns");
        }
    }
}

/// In a view by pod, rows are pods, and containers of no pod: no heading fits both.
#[test]
fn containers_and_pods_have_no_common_heading() {
    let text = table(&containers(4), screen(80, None));
    assert!(text.contains("\n container  "), "{text}");
    for first in [0, 1] {
        let mut report = containers(4);
        for (at, subject) in report.subjects.iter_mut().take(4).enumerate() {
            *subject = Subject::Entity(if at % 2 == first {
                Entity::Pod(format!("{at}").into())
            } else {
                Entity::Container {
                    id: format!("{at}").repeat(64).into(),
                    pod: None,
                }
            });
        }
        let text = table(&report, screen(80, None));
        assert!(!text.contains("\n container  "), "{text}");
        assert!(text.contains(&format!("\n pod {first}  ")), "{text}");
        let id = format!("{}", 1 - first).repeat(12);
        assert!(text.contains(&format!("\n {id}  ")), "{text}");
    }
}

/// A file has no line about omitted rows.
#[test]
fn a_file_has_every_row() {
    let report = containers(300);
    let text = table(&report, Screen::default());
    assert!(!text.contains("--all-rows"), "{text}");
    let named = report.subjects.iter();
    let named: Vec<_> = named
        .map(|subject| SubjectName::new(subject, &report.described))
        .collect();
    for (subject, name) in report.subjects.iter().zip(shown_names(&named, false)) {
        if let Subject::Entity(Entity::Container { .. }) = subject {
            assert!(text.matches(&name).count() > 1, "{name}");
        }
    }
}

/// The line of omitted rows has their number, even if no column adds up.
#[test]
fn ratios_have_no_sum() {
    let mut report = containers(300);
    let ratio = |metric: u32| report.metrics[metric as usize].name == "ipc";
    report.series = report
        .series
        .iter()
        .filter(|series| ratio(series.metric))
        .cloned()
        .collect();
    let text = table(&report, screen(80, Some(12)));
    let line = text.lines().find(|line| line.contains("--all-rows"));
    assert_eq!(line, Some(" 296 more (--all-rows)"), "{text}");
}

/// A unit of wide characters is broken into lines, like column names.
#[test]
fn a_wide_unit_is_broken_into_lines() {
    let number = TableNumber {
        running_ratio: 0.1,
        ..TableNumber::plain(0.0)
    };
    let labels = ["_a容👩 ", "_0a/a0 a容aaaa"].map(str::to_owned);
    let mut row = GridRow::new(labels.to_vec(), 1, false);
    row.cells[0] = GridCell::Number(number);
    let grid = Grid {
        heads: vec![String::new(); 2],
        columns: vec![GridColumn {
            name: String::new(),
            under: vec!["容/容容容容a容容aa容a容aaa容a容".to_owned()],
            form: NumberFormat {
                factor: 1.0,
                whole: true,
                exact: false,
                percent: false,
            },
            adds_up: true,
        }],
        rows: vec![row],
        key_labels: 0,
    };
    for line in grid.blocks(Some(62), 9).concat() {
        assert!(width(&line) <= 62, "{line:?}");
    }
}

/// Any cell of a row. Numbers can be told apart by their digits.
fn cell() -> impl Strategy<Value = GridCell> {
    prop_oneof![
        Just(GridCell::Empty),
        Just(GridCell::Absent),
        Just(GridCell::NotRun),
        (0..1_000_000_u32, 0.1..1.0_f64).prop_map(|(value, running_ratio)| {
            GridCell::Number(TableNumber {
                running_ratio,
                ..TableNumber::plain(f64::from(value))
            })
        }),
    ]
}

const NAME: &str = "[a-z_/ 0-9容\u{301}\u{fe0f}👩]{0,50}";

fn grid() -> impl Strategy<Value = Grid> {
    (1..3_usize, 0..8_usize, 0..2_usize).prop_flat_map(|(labels, columns, key_labels)| {
        let column = (
            NAME,
            prop::collection::vec("[a-z/容]{0,20}", 0..3),
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(|(name, under, exact, adds_up)| GridColumn {
                name,
                under,
                form: NumberFormat {
                    factor: 1.0,
                    whole: true,
                    exact,
                    percent: false,
                },
                adds_up,
            });
        // Few different last labels, so that rows have some in common.
        let key_labels = key_labels.min(labels - 1);
        let labels_of_row = (
            prop::collection::vec(NAME, labels - key_labels),
            prop::collection::vec("[ab]", key_labels),
        )
            .prop_map(|(other, key)| [other, key].concat());
        let cells = prop::collection::vec(cell(), columns);
        let row = (labels_of_row, cells, any::<bool>()).prop_map(|(labels, cells, one_of_many)| {
            GridRow {
                labels,
                entity: None,
                cells,
                one_of_many,
            }
        });
        let heads = prop::collection::vec(NAME, labels);
        let columns = prop::collection::vec(column, columns);
        let rows = prop::collection::vec(row, 0..12);
        (heads, columns, rows).prop_map(move |(heads, columns, rows)| Grid {
            heads,
            columns,
            rows,
            key_labels,
        })
    })
}

/// The sum of a column by key labels, and whether it has unknown parts.
fn sums(grid: &Grid, rows: &[GridRow], column: usize) -> BTreeMap<Vec<String>, (f64, bool)> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let key = row.labels[grid.heads.len() - grid.key_labels..].to_vec();
        let (sum, unknown) = sums.entry(key).or_insert((0.0, false));
        match row.cells[column] {
            GridCell::Number(number) => {
                *sum += number.value;
                *unknown |= number.at_least;
            }
            GridCell::Absent => *unknown = true,
            GridCell::Empty | GridCell::NotRun | GridCell::NoSum => {}
        }
    }
    sums
}

proptest! {
    /// Blocks have at least 60 columns here: narrower ones may not hold a label and a number.
    #[test]
    fn blocks_are_no_wider_than_asked(grid in grid(), room in 60_usize..200, most in 0_usize..12) {
        for block in grid.blocks(Some(room), most) {
            for line in block {
                prop_assert!(width(&line) <= room, "{line:?} is wider than {room}");
            }
        }
    }

    /// No value is lost: it is in a block, or in the sum of the omitted rows. The sum row marks
    /// columns whose values do not add up.
    #[test]
    fn every_value_is_shown_or_summed(grid in grid(), room in 60_usize..200, most in 0_usize..12) {
        let summed = grid.summed(most);
        for at in 0..grid.columns.len() {
            if grid.columns[at].adds_up {
                prop_assert_eq!(sums(&grid, &summed, at), sums(&grid, &grid.rows, at));
            } else {
                let is_number = |row: &&GridRow| matches!(row.cells[at], GridCell::Number(_));
                let numbers = |rows: &[GridRow]| rows.iter().filter(is_number).count();
                let is_marked = summed.iter().any(|row| row.cells[at] == GridCell::NoSum);
                prop_assert!(is_marked || numbers(&summed) == numbers(&grid.rows));
            }
        }
        let many = summed.iter().filter(|row| row.one_of_many).count();
        prop_assert!(many <= most || summed.len() == grid.rows.len());
        let text = grid.blocks(Some(room), most).concat().join("\n");
        let words: Vec<&str> = text.split_whitespace().collect();
        for row in summed.iter() {
            for (column, cell) in grid.columns.iter().zip(&row.cells) {
                if let GridCell::Number(number) = cell {
                    let text_of_number = column.form.text(number);
                    let number: Vec<&str> = text_of_number.split_whitespace().collect();
                    let mut shown = words.windows(number.len());
                    prop_assert!(shown.any(|shown| shown == number), "{number:?} in {text}");
                }
            }
        }
    }

    /// Names, values and the screen may be any.
    #[test]
    fn no_line_is_wider_than_the_screen(
        rows in 0_u64..12,
        columns in 20_usize..220,
        lines in prop::option::of(1_usize..60),
        names in prop::collection::vec(NAME, 20),
        scale in 1e-12..1e12_f64,
        exact in any::<bool>(),
    ) {
        for mut report in [containers(rows), report()] {
            let subjects = report.subjects.iter_mut();
            for (subject, name) in subjects.zip(&names) {
                if let Subject::Entity(entity @ Entity::Container { .. }) = subject {
                    *entity = Entity::Cgroup(format!("/{name}").into());
                }
            }
            for (metric, name) in report.metrics.iter_mut().zip(&names) {
                metric.name.clone_from(name);
                metric.unit = name.chars().take(5).collect();
            }
            for series in &mut report.series {
                match &mut series.value {
                    Ok(Value::Gauge(estimate)) => estimate.value *= scale,
                    Ok(Value::Counter(counter)) => counter.estimate.value *= scale,
                    _ => {}
                }
            }
            let screen = Screen { exact, ..screen(columns, lines) };
            for line in table(&report, screen).lines() {
                prop_assert!(width(line) <= columns, "{line:?} is wider than {columns}");
            }
        }
    }
}
