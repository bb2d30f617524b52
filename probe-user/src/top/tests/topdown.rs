//! The stacked bar of top-down.

use super::*;

const INTEL: [(&str, f64); 4] = [
    ("retiring", 30.0),
    ("frontend_bound", 12.5),
    ("backend_bound", 37.5),
    ("bad_speculation", 20.0),
];

const AMD: [(&str, f64); 5] = [
    ("retiring", 30.0),
    ("frontend_bound", 12.5),
    ("backend_bound", 27.5),
    ("bad_speculation", 20.0),
    ("smt_contention", 10.0),
];

/// A report in which every row has these shares.
fn with_shares(rows: u64, shares: &[(&str, f64)]) -> Report {
    let mut report = containers(rows);
    for (name, share) in shares {
        let metric = report.add_metric(MetricInfo::gauge(*name, "", "%"));
        let series: Vec<Series> = (0..)
            .zip(&report.subjects)
            .take(usize::try_from(rows).unwrap())
            .map(|(subject, _)| Series {
                subject,
                metric,
                attributes: 0,
                value: Ok(Value::Gauge(Estimate::exact(*share))),
                total: None,
            })
            .collect();
        report.add_to_rows(series.into_iter());
    }
    report
}

fn view(shares: &[(&str, f64)]) -> Top {
    let mut top = empty(LIVE);
    top.window(later(&with_shares(3, shares), 0));
    top
}

/// Shows the columns of the shares.
fn scrolled(shares: &[(&str, f64)], columns: u16) -> String {
    let mut top = view(shares);
    press(&mut top, &[KeyCode::Right; 40]);
    drawn(&mut top, columns, 24)
}

#[test]
fn level_1_is_one_bar() {
    for columns in [80, 120, 200] {
        let screen = scrolled(&INTEL, columns);
        insta::assert_snapshot!(format!("topdown_on_{columns}x24"), screen);
    }
    let screen = scrolled(&AMD, 200);
    assert!(screen.contains("RRRRRRFFFBBBBBSSSSTT"), "{screen}");
}

#[test]
fn there_is_no_bar_without_all_shares() {
    let screen = scrolled(&INTEL[..3], 200);
    assert!(!screen.contains("topdown"), "{screen}");
}

/// Shares above 100% together do not make the bar longer, and a negative share has no cell.
#[test]
fn a_bar_has_no_more_cells_than_100_percent() {
    let shares = [
        ("retiring", 90.0),
        ("frontend_bound", 40.0),
        ("backend_bound", 10.0),
        ("bad_speculation", -2.0),
    ];
    let screen = scrolled(&shares, 200);
    assert!(screen.contains("  RRRRRRRRRRRRRRRRRRFF  "), "{screen}");
}

#[test]
fn the_parts_of_a_bar_have_colours() {
    let colour = |colours, part| {
        let mut top = Top::new(TopOptions {
            colours,
            ..options(LIVE)
        });
        top.window(later(&with_shares(3, &INTEL), 0));
        press(&mut top, &[KeyCode::Right; 40]);
        style_of(&mut top, part).fg.unwrap()
    };
    assert_eq!(
        [colour(true, "RRRRR"), colour(true, "BBBBB")],
        [Color::Green, Color::Red]
    );
    assert_eq!(colour(false, "RRRRR"), Color::Reset);
}
