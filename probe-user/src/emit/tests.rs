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

/// A report written in a format, as for a file or a pipe.
pub(super) fn written(report: &Report, format: OutputFormat) -> String {
    written_on(Screen::default(), report, format)
}

/// Output without a limit of width, so that each row of a table has one line.
fn wide(report: &Report, format: OutputFormat) -> String {
    let screen = Screen {
        width: None,
        ..Screen::default()
    };
    written_on(screen, report, format)
}

/// A report written in a format, for this screen.
pub(super) fn written_on(screen: Screen, report: &Report, format: OutputFormat) -> String {
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
    insta::assert_snapshot!(written_on(screen, &report(), OutputFormat::Table));
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

/// Escape sequences in names do nothing to a terminal, and programs that parse JSON get the names
/// unchanged.
#[test]
fn escape_sequences_in_names_are_escaped() {
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

#[test]
fn a_window_is_written_by_a_single_call() {
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
