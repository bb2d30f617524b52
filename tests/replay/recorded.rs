//! The same sessions in files of `pmuscope record`: a replay shows the same in every format, and
//! damaged files are refused by a sentence.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::Command,
    time::Duration,
};

use probe_user::{
    catalogue::Catalogue,
    plan::Plan,
    recording::{ReadError, Recording, RecordingFile, RecordingMetadata, Replay},
    snapshot::Snapshot,
};

use super::*;

/// Writes a fixture as a recording; with `cut` the file is not finished.
pub(crate) fn record(name: &str, view: &View, path: &Path, cut: bool) {
    write(name, view, path, cut, |_| {});
}

/// As [`record`], with each snapshot changed first.
pub(crate) fn record_with(name: &str, view: &View, path: &Path, change: impl Fn(&mut Snapshot)) {
    write(name, view, path, false, change);
}

fn write(name: &str, view: &View, path: &Path, cut: bool, change: impl Fn(&mut Snapshot)) {
    let file = fixture(name);
    let mut reader = Reader::new(BufReader::new(File::open(&file).unwrap()), name).unwrap();
    let plan = reader.plan().clone();
    let mut first: Snapshot = reader.next().unwrap().unwrap();
    change(&mut first);
    let about = RecordingMetadata {
        plan: &plan,
        view,
        more: vec![("host".to_owned(), "test".to_owned())],
    };
    let mut recording = RecordingFile::begin(path, about, &first).unwrap();
    let mut stages = Stages::new(view.clone(), first);
    for mut now in reader.map(Result::unwrap) {
        change(&mut now);
        let merged_idle = now.health.hook == Hook::CgroupSwitches;
        stages.advance(&plan, now, merged_idle);
        recording.add(stages.report(), stages.snapshot()).unwrap();
        // Normally time ends parts, but windows of a test follow each other at once.
        if cut {
            recording.end_part().unwrap();
        }
    }
    if !cut {
        recording.finish().unwrap();
    }
}

fn replayed(path: &Path) -> Vec<Report> {
    let recording = Recording::open(path).unwrap();
    assert_eq!(recording.about("host"), Some("test"));
    let view = recording.view.clone();
    let mut replay = Replay::begin(recording, view).unwrap();
    let mut reports = Vec::new();
    while let Some(report) = replay.advance().unwrap() {
        reports.push(report.clone());
    }
    reports
}

/// The golden files also have the text of these reports.
#[test]
fn what_is_replayed_agrees_with_what_was_shown() {
    let directory = tempfile::tempdir().unwrap();
    let accesses = View {
        accesses: Some(Hottest { pages: 4, lines: 4 }),
        ..View::default()
    };
    for (name, view) in [
        ("grace", by(By::Container)),
        ("vera", by(By::Cgroup)),
        ("sapphire-rapids", by(By::Pod)),
        ("turns", by(By::Process)),
        ("spe", accesses),
        ("hotplug", by(By::Cgroup)),
    ] {
        let path = directory.path().join(name);
        record(name, &view, &path, false);
        assert_eq!(
            texts(&replayed(&path)),
            texts(&reports(name, view)),
            "{name}"
        );
        assert!(!path.with_extension("parts").exists());
    }
}

/// After a kill the file is empty and its parts have the windows. The name of their directory also
/// opens them.
#[test]
fn a_recording_that_was_killed_has_its_whole_windows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    record("grace", &by(By::Container), &path, true);
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    let all = texts(&reports("grace", by(By::Container)));
    assert_eq!(texts(&replayed(&path)), all);
    let parts = directory.path().join("a.parquet.parts");
    assert_eq!(texts(&replayed(&parts)), all);
    // Parts that are being written are ignored.
    fs::write(parts.join(".000099.open"), "PAR1").unwrap();
    assert_eq!(texts(&replayed(&parts)), all);
    // A new recording does not overwrite these parts.
    let again = RecordingFile::begin(
        &path,
        RecordingMetadata {
            plan: &Plan::default(),
            view: &View::default(),
            more: Vec::new(),
        },
        &Snapshot::default(),
    );
    let error = again.err().unwrap().to_string();
    assert!(error.contains("did not come to its end"), "{error}");
}

/// A recording that does not start, finish or merge leaves the earlier file unchanged.
#[test]
fn an_earlier_recording_stays_until_the_new_one_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    let parts = directory.path().join("a.parquet.parts");
    record("vera", &by(By::Cgroup), &path, false);
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let earlier = fs::read(&path).unwrap();
    let begin = || {
        let (plan, view) = (Plan::default(), View::default());
        let (plan, view, more) = (&plan, &view, Vec::new());
        let about = RecordingMetadata { plan, view, more };
        RecordingFile::begin(&path, about, &Snapshot::default()).unwrap()
    };
    begin().discard().unwrap();
    assert_eq!(fs::read(&path).unwrap(), earlier);
    assert!(!parts.exists());
    // A part is damaged before the merge.
    let recording = begin();
    fs::write(parts.join("000000.parquet"), "PAR1").unwrap();
    let message = recording.finish().unwrap_err().to_string();
    assert!(
        message.contains("its parts are in") && message.contains("a.parquet.parts"),
        "{message}"
    );
    assert_eq!(fs::read(&path).unwrap(), earlier);
    let left = fs::read_dir(&parts)
        .unwrap()
        .map(|it| it.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["000000.parquet"]);
    fs::remove_dir_all(&parts).unwrap();
    // The recording is killed.
    record("grace", &by(By::Container), &path, true);
    assert_eq!(fs::read(&path).unwrap(), earlier);
    let all = texts(&reports("grace", by(By::Container)));
    assert_eq!(texts(&replayed(&parts)), all);
    // The parts are read instead of an incomplete file.
    fs::write(&path, &earlier[..earlier.len() / 2]).unwrap();
    assert_eq!(texts(&replayed(&path)), all);
    fs::remove_dir_all(&parts).unwrap();
    // The recording is complete.
    record("grace", &by(By::Container), &path, false);
    assert_eq!(texts(&replayed(&path)), all);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    let link = directory.path().join("link");
    symlink(&path, &link).unwrap();
    record("vera", &by(By::Cgroup), &link, false);
    assert!(link.is_symlink());
    assert_eq!(fs::read(&path).unwrap(), earlier);
}

/// A part that could not be written does not block the next attempt.
#[test]
fn a_part_is_written_after_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    let (plan, view, more) = (&Plan::default(), &View::default(), Vec::new());
    let about = RecordingMetadata { plan, view, more };
    let mut snapshot = Snapshot::default();
    let mut recording = RecordingFile::begin(&path, about, &snapshot).unwrap();
    recording.end_part().unwrap();
    snapshot.at += Duration::from_secs(1);
    recording.add(&Report::default(), &snapshot).unwrap();
    // The part cannot be replaced.
    let part = directory.path().join("a.parquet.parts/000001.parquet");
    let taken = part.with_file_name("taken");
    let _ = fs::remove_file(&part);
    fs::create_dir(&part).unwrap();
    snapshot.at += Duration::from_secs(1);
    while recording.add(&Report::default(), &snapshot).is_ok() {
        snapshot.at += Duration::from_millis(1);
    }
    fs::rename(&part, &taken).unwrap();
    let windows = recording.windows();
    recording.finish().unwrap();
    assert_eq!(count_windows(&path).unwrap(), windows as usize);
}

/// A day has 8,640 parts. Here there are more parts than files can be open.
#[test]
fn a_cut_recording_of_many_parts_is_read() {
    const WINDOWS: u32 = 100;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    let (plan, view, more) = (&Plan::default(), &View::default(), Vec::new());
    let about = RecordingMetadata { plan, view, more };
    let mut snapshot = Snapshot::default();
    let mut recording = RecordingFile::begin(&path, about, &snapshot).unwrap();
    for _ in 0..WINDOWS {
        recording.end_part().unwrap();
        snapshot.at += Duration::from_secs(1);
        recording.add(&Report::default(), &snapshot).unwrap();
    }
    recording.end_part().unwrap();
    drop(recording);
    let replay = "ulimit -n 50 && exec \"$0\" stat --format json --replay \"$1\"";
    let output = Command::new("sh")
        .args(["-c", replay, env!("CARGO_BIN_EXE_pmuscope")])
        .arg(&path)
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{message}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), WINDOWS as usize, "{message}");
    // A part is removed before it is opened.
    let lost = directory.path().join("a.parquet.parts/000050.parquet");
    let reader = Recording::open(&path).unwrap().into_snapshots();
    fs::remove_file(lost).unwrap();
    let last = reader.last().unwrap().unwrap_err().to_string();
    assert!(last.contains("000050.parquet: No such file"), "{last}");
}

fn count_windows(path: &Path) -> Result<usize, ReadError> {
    let recording = Recording::open(path)?;
    let view = recording.view.clone();
    let mut replay = Replay::begin(recording, view)?;
    let mut windows = 0;
    while replay.advance()?.is_some() {
        windows += 1;
    }
    Ok(windows)
}

#[test]
fn what_is_foreign_cut_or_damaged_is_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    record("grace", &by(By::Container), &path, false);
    let whole = fs::read(&path).unwrap();
    let windows = count_windows(&path).unwrap();
    assert!(windows > 1);
    let other = directory.path().join("b.parquet");
    let message = |bytes: &[u8]| {
        fs::write(&other, bytes).unwrap();
        let message = count_windows(&other).unwrap_err().to_string();
        assert!(
            message.contains("b.parquet") && !message.contains('\n'),
            "{message}"
        );
        message
    };
    assert!(message(b"").contains("is no Parquet file, or has lost its end"));
    assert!(message(b"name,value\n").contains("is no Parquet file"));
    assert!(message(&whole[..whole.len() / 2]).contains("has lost its end"));
    // Each snapshot is compressed with a checksum: a changed byte is found.
    let gzip = [0x1f, 0x8b, 0x08];
    let positions: Vec<usize> = (0..whole.len() - 3)
        .filter(|at| whole[*at..].starts_with(&gzip))
        .collect();
    assert!(positions.len() > windows, "{positions:?}");
    let mut damaged = whole.clone();
    damaged[positions[1] + 40] ^= 0x10;
    assert!(message(&damaged).contains("is damaged at snapshot 1"));
    // Any other changed byte is an error or does not matter; it never ends the process.
    for at in (0..whole.len()).step_by(97) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        fs::write(&other, damaged).unwrap();
        if let Err(error) = count_windows(&other) {
            assert!(!error.to_string().is_empty(), "{at}");
        }
    }
    let missing = count_windows(&directory.path().join("c"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("No such file"), "{missing}");
}

/// A recording that was killed at once has nothing to show, which is an error.
#[test]
fn what_ended_before_its_first_window_is_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    let file = fixture("grace");
    let mut reader = Reader::new(BufReader::new(File::open(&file).unwrap()), "grace").unwrap();
    let plan = reader.plan().clone();
    let about = RecordingMetadata {
        plan: &plan,
        view: &by(By::Container),
        more: Vec::new(),
    };
    let first = reader.next().unwrap().unwrap();
    let recording = RecordingFile::begin(&path, about, &first).unwrap();
    let message = || count_windows(&path).unwrap_err().to_string();
    let sentence = "has no window: it ended before its first; record it again";
    assert!(message().ends_with(sentence), "{}", message());
    recording.finish().unwrap();
    assert!(message().ends_with(sentence), "{}", message());
}

/// Changes every number of the plan, one at a time: the file is refused, or replayed to the end.
#[test]
fn a_changed_digit_of_the_plan_ends_no_process() {
    for (name, least) in [("grace", 10), ("turns", 10), ("hotplug", 3)] {
        let text = fs::read_to_string(fixture(name)).unwrap();
        let (head, rest) = text.split_once('\n').unwrap();
        // One window is enough.
        let rest: String = rest.split_inclusive('\n').take(2).collect();
        // The definitions of metrics come from the catalogue, and are parsed.
        let catalogue = head.find("\"catalogue\":").unwrap();
        let list = catalogue + head[catalogue..].find("\"list\":").unwrap();
        let numbers = [b':', b'[', b','];
        let positions = (1..catalogue).chain(list..head.len()).filter(|at| {
            head.as_bytes()[*at].is_ascii_digit() && numbers.contains(&head.as_bytes()[at - 1])
        });
        let mut refused = 0;
        for (at, digit) in positions.flat_map(|at| [(at, "4"), (at, "99")]) {
            let changed = format!("{}{digit}{}\n{rest}", &head[..at], &head[at + 1..]);
            match Reader::new(changed.as_bytes(), name) {
                Ok(reader) => drop(texts(&read_reports(reader, by(By::Container)))),
                Err(error) => {
                    let message = error.to_string();
                    assert!(
                        message.contains(name) && !message.contains('\n'),
                        "{message}"
                    );
                    refused += usize::from(message.contains("nothing is counted at"));
                }
            }
        }
        assert!(refused >= least, "{name}: {refused}");
    }
}

/// The values of a metric in all windows.
fn values(reports: &[Report], metric: &str) -> Vec<f64> {
    let series = |report: &Report| {
        (report.series.iter())
            .filter(|series| report.metric(series).name == metric)
            .filter_map(|series| Some(series.estimate()?.value))
            .collect::<Vec<_>>()
    };
    reports.iter().flat_map(series).collect()
}

/// A replay can show other metrics if their events were counted.
#[test]
fn other_metrics_of_what_was_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    record("turns", &by(By::Process), &path, false);
    let shown = replayed(&path);
    let catalogue = Catalogue::builtin().unwrap();
    // The recording was made without this metric, but has its events.
    let mut recording = Recording::open(&path).unwrap();
    let machine = recording.plan.metrics.machine.unwrap();
    let metrics = &mut recording.plan.metrics.list;
    metrics.retain(|planned| planned.metric.name != "branch_miss_ratio");
    let list = "branch_miss_ratio,cache_miss_ratio,ipc";
    let selected = recording.plan.select_metrics(&catalogue, &machine, list);
    selected.unwrap();
    let reasons = recording.plan.metrics.list.iter();
    let reasons: Vec<Option<&str>> = reasons
        .map(|planned| planned.sources.as_ref().err().map(String::as_str))
        .collect();
    let [None, Some(reason), None] = reasons[..] else {
        panic!("{reasons:?}");
    };
    assert!(reason.contains("-M cache_miss_ratio"), "{reason}");
    let view = recording.view.clone();
    let mut replay = Replay::begin(recording, view).unwrap();
    let mut again = Vec::new();
    while let Some(report) = replay.advance().unwrap() {
        again.push(report.clone());
    }
    for metric in ["branch_miss_ratio", "ipc"] {
        assert!(values(&shown, metric).len() > 1, "{metric}");
        assert_eq!(values(&again, metric), values(&shown, metric), "{metric}");
    }
    assert!(!values(&shown, "memory_stall_share").is_empty());
    assert!(values(&again, "memory_stall_share").is_empty());
}
