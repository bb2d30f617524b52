//! Golden output of a report with every kind of value.

use super::*;
use crate::emit::printable::printable;

mod bound;
mod builder;
mod calibrated;
mod containers;
mod fixture;
mod named;

pub(crate) use self::containers::containers;
pub(super) use self::fixture::{HOSTILE, hostile, report};

pub(super) fn written(report: &Report, format: OutputFormat) -> String {
    on(Screen::default(), report, format)
}

/// Wide output, with a line for each row of a table.
fn wide(report: &Report, format: OutputFormat) -> String {
    let screen = Screen {
        width: None,
        ..Screen::default()
    };
    on(screen, report, format)
}

pub(super) fn on(screen: Screen, report: &Report, format: OutputFormat) -> String {
    let mut bytes = Vec::new();
    let mut emitter = Emitter::new(&mut bytes, format, true);
    emitter.set_screen(screen);
    emitter.write(report).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn table() {
    insta::assert_snapshot!(written(&report(), OutputFormat::Table));
}

#[test]
fn wide_table_with_all_digits() {
    let screen = Screen {
        width: None,
        exact: true,
        ..Screen::default()
    };
    insta::assert_snapshot!(on(screen, &report(), OutputFormat::Table));
}

#[test]
fn json() {
    let text = written(&report(), OutputFormat::Json);
    assert_eq!(text.lines().count(), 1);
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&parsed).unwrap());
}

#[test]
fn csv() {
    let text = written(&report(), OutputFormat::Csv);
    // Each line has all fields.
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    assert!(reader.records().all(|record| record.is_ok()));
    insta::assert_snapshot!(text);
}

#[test]
fn openmetrics() {
    insta::assert_snapshot!(written(&report(), OutputFormat::OpenMetrics));
}

/// Process names with escape sequences do nothing to the terminal, and programs read them
/// unchanged.
#[test]
fn names_with_escape_sequences() {
    let acts = |char: char| char != '\n' && (char.is_control() || char == '\u{202e}');
    let lines = |text: &str| text.lines().count();
    for format in [
        OutputFormat::Table,
        OutputFormat::Csv,
        OutputFormat::Json,
        OutputFormat::OpenMetrics,
    ] {
        assert!(!written(&hostile(), format).contains(acts));
        let [text, usual] = [hostile(), report()].map(|report| wide(&report, format));
        assert!(!text.contains(acts), "{text:?}");
        assert_eq!(lines(&text), lines(&usual), "{text}");
        let shown = printable("\u{1b}]0;gone\u{7}");
        let shown = match format {
            OutputFormat::OpenMetrics => shown.replace('\\', r"\\"),
            _ => shown.into_owned(),
        };
        assert_eq!(
            text.contains(&shown),
            format != OutputFormat::Json,
            "{text}"
        );
    }
    let json: serde_json::Value =
        serde_json::from_str(&written(&hostile(), OutputFormat::Json)).unwrap();
    assert_eq!(json["rows"][0]["name"], HOSTILE);
}

#[test]
fn csv_has_one_heading() {
    let mut bytes = Vec::new();
    let mut emitter = Emitter::new(&mut bytes, OutputFormat::Csv, false);
    emitter.write(&report()).unwrap();
    emitter.write(&report()).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let headings = text.lines().filter(|line| line.starts_with("elapsed_s"));
    assert_eq!(headings.count(), 1);
}

/// A window is written in a single call.
#[test]
fn a_window_is_written_at_once() {
    struct Calls(Vec<usize>);
    impl Write for Calls {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.push(text.len());
            Ok(text.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for format in [
        OutputFormat::Table,
        OutputFormat::Csv,
        OutputFormat::Json,
        OutputFormat::OpenMetrics,
    ] {
        let mut calls = Calls(Vec::new());
        Emitter::new(&mut calls, format, true)
            .write(&report())
            .unwrap();
        assert_eq!(calls.0, [written(&report(), format).len()]);
    }
}
