//! The view on screens of several sizes, controlled by keys.

mod chosen;
mod topdown;

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proptest::prelude::*;
use ratatui::{
    Terminal,
    backend::TestBackend,
    style::{Color, Style},
};

use super::*;
use crate::{
    derive::{Estimate, MetricInfo, Report, ReportTable, Series, Subject, TableCell, Value},
    emit::tests::containers,
    join::Entity,
};

const LIVE: WindowSource = WindowSource::Live {
    interval: Duration::from_secs(1),
};
const REPLAY: WindowSource = WindowSource::Replay {
    speed: 1.0,
    ended: false,
};

/// The window of a report, `seconds` later and with counters larger by a factor of 1 + `seconds`.
fn later(report: &Report, seconds: u8) -> Sheets {
    let mut report = report.clone();
    let more = Duration::from_secs(seconds.into());
    for time in [&mut report.start, &mut report.end, &mut report.time] {
        *time += more;
    }
    for series in &mut report.series {
        if let Ok(Value::Counter(counter)) = &mut series.value {
            counter.estimate.value *= f64::from(1 + seconds);
        }
    }
    Sheets::from_report(&report, false)
}

fn options(source: WindowSource) -> TopOptions {
    TopOptions {
        source,
        by: By::Container,
        process_rows: ProcessRows::Restart,
        hidden: &[],
        colours: true,
    }
}

fn empty(source: WindowSource) -> Top {
    Top::new(options(source))
}

fn view(source: WindowSource, rows: u64, windows: u8) -> Top {
    let report = containers(rows);
    let mut top = empty(source);
    (0..windows).for_each(|at| top.window(later(&report, at)));
    top
}

fn drawn(top: &mut Top, columns: u16, lines: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal.draw(|frame| top.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let lines = buffer.content.chunks(usize::from(columns)).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn press(top: &mut Top, codes: &[KeyCode]) -> Vec<KeyAction> {
    let keys = codes
        .iter()
        .map(|code| KeyEvent::new(*code, KeyModifiers::NONE));
    keys.map(|key| top.key(key)).collect()
}

fn typed(top: &mut Top, text: &str) -> Vec<KeyAction> {
    let codes: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
    press(top, &codes)
}

/// A report as of `pmuscope top` without options: with the memory of containers.
fn with_memory(rows: u64) -> Report {
    let mut report = containers(rows);
    let info = MetricInfo::gauge("memory_used", "", "B");
    let metric = report.add_metric(info);
    let of_containers = (0..)
        .zip(&report.subjects)
        .filter(|(_, subject)| matches!(subject, Subject::Entity(Entity::Container { .. })));
    let series = of_containers.map(|(subject, _)| Series {
        subject,
        metric,
        attributes: 0,
        value: Ok(Value::Gauge(Estimate::exact(7e9 / f64::from(subject + 1)))),
        total: None,
    });
    let series: Vec<Series> = series.collect();
    report.add_to_rows(series.into_iter());
    report
}

/// The screens that people have, with few and many containers.
#[test]
fn a_view_fits_screens_of_several_sizes() {
    for rows in [3, 23, 300] {
        for (columns, lines) in [(80, 24), (120, 40), (200, 60)] {
            let report = with_memory(rows);
            let mut top = empty(LIVE);
            (0..9).for_each(|at| top.window(later(&report, at)));
            insta::assert_snapshot!(
                format!("{rows}_containers_on_{columns}x{lines}"),
                drawn(&mut top, columns, lines)
            );
        }
    }
}

#[test]
fn many_rows_in_120_columns_sorted_in_another_column() {
    let mut top = view(LIVE, 40, 30);
    press(
        &mut top,
        &[
            KeyCode::Right,
            KeyCode::Right,
            KeyCode::Char('s'),
            KeyCode::Down,
        ],
    );
    insta::assert_snapshot!(drawn(&mut top, 120, 40));
}

#[test]
fn help_and_notes_lie_over_the_rows() {
    let mut top = view(LIVE, 3, 1);
    typed(&mut top, "?");
    insta::assert_snapshot!(drawn(&mut top, 80, 24));
    typed(&mut top, "?n");
    top.message("WARN CPU 3 came online");
    let notes = drawn(&mut top, 80, 24);
    assert!(
        notes.contains("Notes") && notes.contains("CPU 3 came online"),
        "{notes}"
    );
    typed(&mut top, "n");
    assert!(!drawn(&mut top, 80, 24).contains("Notes"));
}

#[test]
fn a_view_without_a_window_says_so() {
    let mut top = empty(LIVE);
    // There is nothing to move over.
    press(
        &mut top,
        &[
            KeyCode::Down,
            KeyCode::Tab,
            KeyCode::Char('s'),
            KeyCode::Char(','),
        ],
    );
    assert!(drawn(&mut top, 80, 24).contains("the first window is running"));
}

#[test]
fn a_filter_leaves_the_rows_with_its_text_and_those_that_are_pinned() {
    let mut top = view(LIVE, 40, 1);
    let all = drawn(&mut top, 120, 60);
    // Filters for the first container, by a part of its name.
    let row = all
        .lines()
        .find(|line| line.contains("containerd") || line.starts_with(" pod"));
    let name = row
        .unwrap_or_else(|| all.lines().nth(4).unwrap())
        .trim()
        .split(' ')
        .next()
        .unwrap();
    typed(&mut top, "/");
    typed(&mut top, name);
    press(&mut top, &[KeyCode::Enter]);
    let some = drawn(&mut top, 120, 60);
    assert!(some.contains(&format!("only /{name}")), "{some}");
    assert!(
        some.lines().any(|line| line.trim().starts_with(name)),
        "{some}"
    );
    assert!(some.contains("total") && all.contains("total"), "{some}");
    assert!(some.lines().filter(|line| !line.is_empty()).count() + 30 < all.lines().count());
    press(&mut top, &[KeyCode::Esc]);
    assert_eq!(drawn(&mut top, 120, 60), all);
}

#[test]
fn a_filter_without_a_match_says_so() {
    let mut top = view(LIVE, 40, 1);
    typed(&mut top, "/nobody");
    let text = drawn(&mut top, 80, 24);
    assert!(
        text.contains("None of 40 rows has /nobody in its name."),
        "{text}"
    );
    assert!(
        text.contains("q end") && text.contains("Esc ends it"),
        "{text}"
    );
}

/// A message has a line of its own.
#[test]
fn messages_leave_the_keys_in_view() {
    let mut top = view(LIVE, 3, 1);
    top.message("WARN CPU 3 came online");
    let text = drawn(&mut top, 80, 24);
    let last: Vec<&str> = text.lines().skip(22).collect();
    assert_eq!(last[0], " WARN CPU 3 came online (n)");
    assert!(last[1].starts_with(" q end"), "{text}");
    press(&mut top, &[KeyCode::Down]);
    assert!(!drawn(&mut top, 80, 24).contains("came online"));
}

/// Columns on the left come back when the terminal has room for them.
#[test]
fn columns_scroll_and_come_back() {
    let mut top = view(LIVE, 3, 1);
    press(&mut top, &[KeyCode::Right; 20]);
    let text = drawn(&mut top, 80, 24);
    assert!(
        text.contains("◂columns") && text.contains("of 13\n"),
        "{text}"
    );
    assert!(!text.contains("cpus_used"), "{text}");
    let wide = drawn(&mut top, 240, 24);
    assert!(wide.contains("cpus_used") && !wide.contains('◂'), "{wide}");
    // The chosen column stays in view when the terminal is narrow again.
    let text = drawn(&mut top, 80, 24);
    assert!(text.contains("◂columns"), "{text}");
}

/// Style of the first cell of this text on the screen.
fn style_of(top: &mut Top, text: &str) -> Style {
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
    terminal.draw(|frame| top.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer
        .content
        .iter()
        .map(ratatui::buffer::Cell::symbol)
        .collect();
    let letters: Vec<String> = text.chars().map(String::from).collect();
    let at = cells
        .windows(letters.len())
        .position(|window| window == letters);
    buffer.content[at.unwrap()].style()
}

/// The first of three rows has more than half of the cycles.
#[test]
fn the_largest_values_have_colours() {
    let colours = |colours: bool| {
        let mut top = Top::new(TopOptions {
            colours,
            ..options(LIVE)
        });
        top.window(later(&containers(3), 0));
        press(&mut top, &[KeyCode::End]);
        ["2.79 G", "1.40 G", "930 M"].map(|text| style_of(&mut top, text).fg.unwrap())
    };
    assert_eq!(colours(true), [Color::Red, Color::Yellow, Color::Yellow]);
    assert_eq!(colours(false), [Color::Reset; 3]);
}

#[test]
fn a_paused_view_stays_where_it_is_while_windows_come() {
    let mut top = view(LIVE, 3, 5);
    typed(&mut top, "p");
    let then = drawn(&mut top, 80, 24);
    top.window(later(&containers(3), 9));
    let now = drawn(&mut top, 80, 24);
    assert!(now.contains("paused, 1 window back"), "{now}");
    let body = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&now), body(&then));
    // Two back, one forward, then to the end.
    typed(&mut top, ",,.");
    assert!(drawn(&mut top, 80, 24).contains("paused, 2 windows back"));
    typed(&mut top, "p");
    assert!(!drawn(&mut top, 80, 24).contains("paused"));
}

#[test]
fn a_replay_is_asked_for_windows_that_it_has_not_given_yet() {
    let mut top = view(REPLAY, 3, 2);
    assert_eq!(
        typed(&mut top, ",.."),
        [
            KeyAction::Nothing,
            KeyAction::Nothing,
            KeyAction::Windows(1)
        ]
    );
    assert_eq!(typed(&mut top, ">"), [KeyAction::Windows(10)]);
    top.window(later(&containers(3), 7));
    top.show_last();
    assert!(drawn(&mut top, 80, 24).contains("replay x1  paused"));
    typed(&mut top, "++-");
    assert_eq!(
        top.source(),
        WindowSource::Replay {
            speed: 2.0,
            ended: false
        }
    );
    top.ended();
    assert_eq!(typed(&mut top, "."), [KeyAction::Nothing]);
    assert!(drawn(&mut top, 80, 24).contains("at its end"));
}

#[test]
fn control_c_and_q_end() {
    let mut top = view(LIVE, 3, 1);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(top.key(interrupt), KeyAction::End);
    assert_eq!(typed(&mut top, "q"), [KeyAction::End]);
    // In a filter it is a letter.
    assert_eq!(
        typed(&mut top, "/q"),
        [KeyAction::Nothing, KeyAction::Nothing]
    );
    assert_eq!(top.key(interrupt), KeyAction::End);
}

#[test]
fn memory_is_bounded() {
    let report = containers(2_000);
    let mut top = empty(LIVE);
    typed(&mut top, "p");
    for at in 0..40 {
        top.window(later(&report, at));
    }
    assert!(top.history.first() > 0);
    // The paused window left the history: the oldest one is shown.
    assert!(drawn(&mut top, 80, 24).contains("paused"));
    assert_eq!(top.paused, Some(top.history.first()));
}

proptest! {
    /// Drawing never fails, for any keys and any screen.
    #[test]
    fn no_keys_make_drawing_fail(
        keys in prop::collection::vec(prop::sample::select(vec![
            KeyCode::Up, KeyCode::Down, KeyCode::Left, KeyCode::Right, KeyCode::PageUp,
            KeyCode::PageDown, KeyCode::Home, KeyCode::End, KeyCode::Tab, KeyCode::BackTab,
            KeyCode::Enter, KeyCode::Esc, KeyCode::Backspace, KeyCode::Char('s'),
            KeyCode::Char('/'), KeyCode::Char('a'), KeyCode::Char('p'), KeyCode::Char(','),
            KeyCode::Char('.'), KeyCode::Char('<'), KeyCode::Char('>'), KeyCode::Char('n'),
            KeyCode::Char('?'), KeyCode::Char('+'), KeyCode::Char('-'), KeyCode::Char('c'),
            KeyCode::Char('b'),
        ]), 0..40),
        columns in 1_u16..200,
        lines in 1_u16..60,
        rows in 0_u64..20,
        windows in 0_u8..4,
    ) {
        let mut top = view(REPLAY, rows, windows);
        for key in keys {
            press(&mut top, &[key]);
            drawn(&mut top, columns, lines);
        }
    }
}
