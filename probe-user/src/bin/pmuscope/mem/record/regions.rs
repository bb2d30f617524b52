//! `mem record --regions`: the programs to search for markers before they run, and the sums at the
//! end.

use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use probe_user::{
    emit::{
        printable::{printable, printable_json},
        table_lines,
    },
    samples::{
        MarkerPrograms,
        regions::{GroupBy, RegionRow, RegionSummary},
    },
};

use serde_json::json;

use crate::print::Format;

/// The most rows of a table. JSON and the file have all.
const MOST_ROWS: usize = 30;

/// The programs that `--regions` names, and the command's own.
pub(super) fn programs(named: &[OsString], command: Option<&OsString>) -> MarkerPrograms {
    // `--regions` without a program has an empty value.
    let named = named.iter().filter(|path| !path.is_empty());
    MarkerPrograms {
        command: command.and_then(|word| find_in_path(Path::new(word), env::var_os("PATH"))),
        named: named.map(PathBuf::from).collect(),
    }
}

/// Finds the file of a command's first word, as execvp(3) does.
fn find_in_path(word: &Path, path: Option<OsString>) -> Option<PathBuf> {
    if word.components().count() > 1 || word.is_absolute() {
        return Some(word.to_owned());
    }
    let directories = path.unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut files = env::split_paths(&directories).map(|directory| directory.join(word));
    files.find(|file| {
        file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
    })
}

/// The sums as text: tables by region, by phase, and by thread, or a line of JSON for each region
/// in each phase of each thread.
pub(super) fn render(format: Format, summary: &RegionSummary) -> String {
    match format {
        Format::Table => tables(summary),
        Format::Json => {
            let rows = summary.rows(GroupBy::All).into_iter();
            rows.fold(String::new(), |text, row| {
                text + &printable_json(&json!(row)) + "\n"
            })
        }
    }
}

fn tables(summary: &RegionSummary) -> String {
    let region = |row: &RegionRow| row.region.as_deref().map(str::to_owned);
    let phase = |row: &RegionRow| row.phase.as_deref().map(str::to_owned);
    let thread = |row: &RegionRow| {
        let tid = row.tid?;
        Some(format!("{tid} {}", row.comm.as_deref().unwrap_or_default()))
    };
    let mut text = String::new();
    for (by, head, none, label) in [
        (
            GroupBy::Region,
            "region",
            "(not known)",
            &region as &dyn Fn(&RegionRow) -> Option<String>,
        ),
        (GroupBy::Phase, "phase", "(none)", &phase),
        (GroupBy::Thread, "thread", "(not known)", &thread),
    ] {
        let rows = summary.rows(by);
        let _ = writeln!(
            text,
            "{}",
            table(head, &rows, |row| {
                label(row).unwrap_or_else(|| none.to_owned())
            })
        );
    }
    text
}

fn table(head: &str, rows: &[RegionRow], label: impl Fn(&RegionRow) -> String) -> String {
    let total: u64 = rows.iter().map(|row| row.samples).sum();
    let heads = [
        head,
        "samples",
        "share",
        "loads",
        "stores",
        "mean cycles",
        "loads from",
    ];
    let shown = rows.iter().take(MOST_ROWS).map(|row| {
        vec![
            printable(&label(row)).into_owned(),
            row.samples.to_string(),
            percent(row.samples, total),
            row.loads.to_string(),
            row.stores.to_string(),
            row.mean_latency_cycles
                .map_or("-".to_owned(), |mean| format!("{mean:.1}")),
            sources(row),
        ]
    });
    let lines = table_lines(&heads, shown, |at| (1..6).contains(&at));
    let mut text = lines.join("\n") + "\n";
    if let Some(rest) = rows.get(MOST_ROWS..).filter(|rest| !rest.is_empty()) {
        let samples: u64 = rest.iter().map(|row| row.samples).sum();
        let _ = writeln!(
            text,
            "and {} more with {samples} samples (--format json)",
            rest.len()
        );
    }
    text
}

/// The data sources of loads, the most frequent first.
fn sources(row: &RegionRow) -> String {
    let total: u64 = row.sources.values().sum();
    let mut sources: Vec<_> = row.sources.iter().collect();
    sources.sort_by_key(|(_, samples)| std::cmp::Reverse(**samples));
    let sources = sources.into_iter();
    let texts: Vec<String> = sources
        .map(|(source, samples)| format!("{source} {}", percent(*samples, total)))
        .collect();
    if texts.is_empty() {
        "-".to_owned()
    } else {
        texts.join(", ")
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for the eye")]
fn percent(part: u64, total: u64) -> String {
    if total == 0 {
        return "-".to_owned();
    }
    format!("{:.1}%", part as f64 / total as f64 * 100.0)
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroUsize, sync::Arc};

    use probe_common::spe::Records;
    use probe_user::samples::{Sample, SampleData, Sink as _, TaskInfo};

    use super::*;

    /// Programs choose these names. Their control characters are escaped, in tables and in JSON.
    #[test]
    fn control_characters_of_names_do_not_reach_the_terminal() {
        const EVIL: &str = "\u{1b}]0;x\u{7f}\u{202e}\u{9b}31m\n";
        let summary = RegionSummary::new(NonZeroUsize::MIN);
        let sample = Sample {
            time: None,
            cpu: None,
            tid: Some(7),
            task: Some(Arc::new(TaskInfo {
                pid: 7,
                name: EVIL.into(),
                cgroup: None,
            })),
            cgroup: None,
            origin: None,
            region: Some(EVIL.into()),
            phase: Some(EVIL.into()),
            data: SampleData::Record(Records::new(&[0x49, 0, 0x01]).next().unwrap().unwrap()),
        };
        summary.samples(0, &[sample]).unwrap();
        for format in [Format::Table, Format::Json] {
            let text = render(format, &summary);
            let is_dangerous = |char: char| char.is_control() && char != '\n' || char == '\u{202e}';
            assert!(!text.contains(is_dangerous), "{text:?}");
        }
        let row: serde_json::Value = serde_json::from_str(&render(Format::Json, &summary)).unwrap();
        for name in ["region", "phase", "comm"] {
            assert_eq!(row[name], EVIL);
        }
    }
}
