//! The recorded sessions as files of `pmuscope record`: a replay agrees with the live output in
//! every format, and damaged files are refused in one sentence.

use std::{
    fs::{self, Permissions},
    io::Cursor,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use probe_user::{
    catalogue::Catalogue,
    recording::{ReadError, RecordingFile, RecordingHead, Replay},
    snapshot::Snapshot,
};

use super::*;

/// Writes a fixture as a recording; with `cut` the file is not finished.
pub(crate) fn record(name: &str, path: &Path, cut: bool) {
    write(name, path, cut, |_| {});
}

/// As [`record`], with each snapshot changed first.
pub(crate) fn record_with(name: &str, path: &Path, change: impl Fn(&mut Snapshot)) {
    write(name, path, false, change);
}

fn write(name: &str, path: &Path, cut: bool, change: impl Fn(&mut Snapshot)) {
    let mut recording = Recording::open(&fixture(name)).unwrap();
    let mut next = || {
        let mut snapshot = recording.next()?.unwrap();
        change(&mut snapshot);
        Some(snapshot)
    };
    let first = next().unwrap();
    let mut rest = Vec::new();
    rest.extend(std::iter::from_fn(next));
    let head = RecordingHead {
        about: [("host".to_owned(), "test".to_owned())].into(),
        ..recording.head.clone()
    };
    let mut file = RecordingFile::begin(path, &head, &first).unwrap();
    rest.iter().for_each(|it| file.add(it).unwrap());
    if !cut {
        file.finish().unwrap();
    }
}

/// The name of a recording until it is complete.
fn unfinished(path: &Path) -> PathBuf {
    path.with_added_extension("unfinished")
}

fn replayed(path: &Path) -> Vec<Report> {
    let recording = Recording::open(path).unwrap();
    assert_eq!(recording.head.about["host"], "test");
    let view = recording.head.view.clone();
    let mut replay = Replay::begin(recording, view).unwrap();
    let mut reports = Vec::new();
    while let Some(report) = replay.advance().unwrap() {
        reports.push(report.clone());
    }
    reports
}

/// The golden files also have the text of these reports.
#[test]
fn a_replay_agrees_with_the_live_output() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "grace",
        "vera",
        "sapphire-rapids",
        "turns",
        "spe",
        "hotplug",
    ] {
        let path = directory.path().join(name);
        record(name, &path, false);
        assert_eq!(texts(&replayed(&path)), texts(&reports(name)), "{name}");
        assert!(!unfinished(&path).exists());
    }
}

/// A killed recording is opened by its final and by its unfinished name. Half a line at its end is
/// ignored.
#[test]
fn a_killed_recording_has_its_complete_windows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    let partial = unfinished(&path);
    record("grace", &path, true);
    assert!(!path.exists());
    let all = texts(&reports("grace"));
    assert_eq!(texts(&replayed(&path)), all);
    let whole = fs::read(&partial).unwrap();
    fs::write(&partial, [&whole, &whole[..40]].concat()).unwrap();
    assert_eq!(texts(&replayed(&path)), all);
    assert_eq!(texts(&replayed(&partial)), all);
    // A new recording does not overwrite the killed one.
    let again = RecordingFile::begin(&path, &RecordingHead::default(), &Snapshot::default());
    let error = again.err().unwrap().to_string();
    assert!(error.contains("did not come to its end"), "{error}");
    // Under another name the file is an error: it has lost its end.
    let moved = directory.path().join("b.jsonl.gz");
    for (bytes, windows) in [(whole.clone(), 2), ([&whole, &whole[..40]].concat(), 2)] {
        fs::write(&moved, bytes).unwrap();
        let message = count_windows(&moved).unwrap_err().to_string();
        let line = format!("b.jsonl.gz has lost its end, from line {} on", windows + 3);
        assert!(message.contains(&line), "{message}");
    }
}

/// A recording that does not start or finish leaves the earlier file unchanged.
#[test]
fn an_earlier_recording_stays_until_the_new_one_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    let partial = unfinished(&path);
    record("vera", &path, false);
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let earlier = fs::read(&path).unwrap();
    let head = RecordingHead::default();
    let begin = || RecordingFile::begin(&path, &head, &Snapshot::default()).unwrap();
    begin().discard().unwrap();
    assert_eq!(fs::read(&path).unwrap(), earlier);
    assert!(!partial.exists());
    // The recording cannot be renamed to its final name.
    let recording = begin();
    fs::rename(&path, directory.path().join("away")).unwrap();
    fs::create_dir(&path).unwrap();
    let message = recording.finish().unwrap_err().to_string();
    assert!(
        message.contains("the recording is in") && message.contains("a.jsonl.gz.unfinished"),
        "{message}"
    );
    fs::remove_dir(&path).unwrap();
    fs::rename(directory.path().join("away"), &path).unwrap();
    fs::remove_file(&partial).unwrap();
    // The recording is killed.
    record("grace", &path, true);
    assert_eq!(fs::read(&path).unwrap(), earlier);
    let all = texts(&reports("grace"));
    assert_eq!(texts(&replayed(&partial)), all);
    fs::remove_file(&partial).unwrap();
    // The recording is complete.
    record("grace", &path, false);
    assert_eq!(texts(&replayed(&path)), all);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    let old = directory.path().join("a.jsonl.gz.old");
    assert_eq!(fs::read(&old).unwrap(), earlier);
    let link = directory.path().join("link");
    symlink(&path, &link).unwrap();
    record("vera", &link, false);
    assert!(link.is_symlink());
    assert_eq!(fs::read(&path).unwrap(), earlier);
}

/// A link stays, also one to a file that does not exist yet. A pipe is written directly.
/// Directories and the names of unfinished recordings are refused.
#[test]
fn links_and_pipes_are_written_and_other_paths_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let all = texts(&reports("grace"));
    symlink("target", at("link")).unwrap();
    record("grace", &at("link"), true);
    assert_eq!(texts(&replayed(&at("link"))), all);
    fs::remove_file(unfinished(&at("target"))).unwrap();
    record("grace", &at("link"), false);
    assert!(at("link").is_symlink() && at("target").is_file());
    assert_eq!(texts(&replayed(&at("link"))), all);
    // A pipe.
    let fifo = at("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let reader = thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    record("grace", &fifo, false);
    fs::write(at("read"), reader.join().unwrap()).unwrap();
    assert_eq!(texts(&replayed(&at("read"))), all);
    let refused = |path: &Path| {
        let begun = RecordingFile::begin(path, &RecordingHead::default(), &Snapshot::default());
        begun.err().unwrap().to_string()
    };
    let message = refused(directory.path());
    assert!(message.contains("Is a directory"), "{message}");
    let message = refused(&at("a.unfinished"));
    assert!(
        message.contains("is for recordings that are not whole"),
        "{message}"
    );
}

/// gunzip unpacks a recording, and lines that gzip packed in one piece are read.
#[test]
fn lines_are_read_unpacked_and_packed_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    record("grace", &path, false);
    let all = texts(&replayed(&path));
    let unpacked = directory.path().join("a.jsonl");
    let gzip = |script: &str| {
        let mut sh = Command::new("sh");
        sh.current_dir(directory.path()).args(["-c", script]);
        assert!(sh.status().unwrap().success(), "{script}");
    };
    gzip("gunzip < a.jsonl.gz > a.jsonl");
    assert_eq!(texts(&replayed(&unpacked)), all);
    gzip("gzip < a.jsonl > a.jsonl.gz");
    assert_eq!(texts(&replayed(&path)), all);
}

fn count_windows(path: &Path) -> Result<usize, ReadError> {
    let recording = Recording::open(path)?;
    let view = recording.head.view.clone();
    let mut replay = Replay::begin(recording, view)?;
    let mut windows = 0;
    while replay.advance()?.is_some() {
        windows += 1;
    }
    Ok(windows)
}

#[test]
fn foreign_cut_and_damaged_files_are_refused_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    record("grace", &path, false);
    let whole = fs::read(&path).unwrap();
    let windows = count_windows(&path).unwrap();
    assert!(windows > 1);
    let other = directory.path().join("b.jsonl.gz");
    let message = |bytes: &[u8]| {
        fs::write(&other, bytes).unwrap();
        let message = count_windows(&other).unwrap_err().to_string();
        assert!(
            message.contains("b.jsonl.gz") && !message.contains('\n'),
            "{message}"
        );
        message
    };
    assert!(message(b"").contains("is no recording of `pmuscope record`"));
    assert!(message(b"name,value\n").contains("is no recording of `pmuscope record`"));
    assert!(message(b"PAR1").contains("it is a Parquet file"));
    assert!(message(&whole[..whole.len() / 2]).contains("has lost its end, from line 2 on"));
    // Each line has a checksum: a changed byte is found.
    let gzip = [0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0];
    let positions: Vec<usize> = (0..whole.len() - gzip.len())
        .filter(|at| whole[*at..].starts_with(&gzip))
        .collect();
    assert_eq!(positions.len(), windows + 3);
    let mut damaged = whole.clone();
    damaged[positions[1] + 40] ^= 0x10;
    assert!(message(&damaged).contains("is damaged in line 2"));
    // A change of any byte is an error, except for the time and the system in the header of a gzip
    // member.
    for at in (0..whole.len()).step_by(97) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        fs::write(&other, damaged).unwrap();
        let is_ignored = positions
            .iter()
            .any(|begin| (begin + 4..begin + 10).contains(&at));
        let error = count_windows(&other).err();
        assert!(
            is_ignored || error.is_some_and(|error| !error.to_string().is_empty()),
            "{at}"
        );
    }
    let missing = count_windows(&directory.path().join("c"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("No such file"), "{missing}");
}

/// A recording that was killed at once has nothing to show, which is an error.
#[test]
fn a_recording_without_a_window_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    let head = RecordingHead::default();
    let recording = RecordingFile::begin(&path, &head, &Snapshot::default()).unwrap();
    let message = || count_windows(&path).unwrap_err().to_string();
    let sentence = "has no window: it ended before its first; record it again";
    assert!(message().ends_with(sentence), "{}", message());
    recording.finish().unwrap();
    assert!(message().ends_with(sentence), "{}", message());
}

/// Changes every number of the plan, one at a time: the file is refused, or replayed to the end.
#[test]
fn a_changed_digit_of_the_plan_causes_no_panic() {
    for (name, least) in [("grace", 10), ("turns", 10), ("hotplug", 3)] {
        let text = fs::read_to_string(fixture(name)).unwrap();
        let (head, rest) = text.split_once('\n').unwrap();
        // One window is enough.
        let rest: String = rest.split_inclusive('\n').take(2).collect();
        let rest = rest + "{\"windows\":1}\n";
        // Skips the definitions of metrics, which come from the catalogue and are parsed.
        let catalogue = head.find("\"catalogue\":").unwrap();
        let list = catalogue + head[catalogue..].find("\"list\":").unwrap();
        let numbers = [b':', b'[', b','];
        let positions = (1..catalogue).chain(list..head.len()).filter(|at| {
            head.as_bytes()[*at].is_ascii_digit() && numbers.contains(&head.as_bytes()[at - 1])
        });
        let mut refused = 0;
        for (at, digit) in positions.flat_map(|at| [(at, "4"), (at, "99")]) {
            let changed = format!("{}{digit}{}\n{rest}", &head[..at], &head[at + 1..]);
            match Recording::read(Cursor::new(changed), name) {
                Ok(recording) => drop(texts(&read_reports(recording))),
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
fn a_replay_shows_other_metrics_of_counted_events() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    record("turns", &path, false);
    let shown = replayed(&path);
    let catalogue = Catalogue::builtin().unwrap();
    // The recording was made without this metric, but has its events.
    let mut recording = Recording::open(&path).unwrap();
    let machine = recording.head.plan.metrics.machine.unwrap();
    let metrics = &mut recording.head.plan.metrics.list;
    metrics.retain(|planned| planned.metric.name != "branch_miss_ratio");
    let list = "branch_miss_ratio,cache_miss_ratio,ipc";
    let selected = recording
        .head
        .plan
        .select_metrics(&catalogue, &machine, list);
    selected.unwrap();
    let reasons = recording.head.plan.metrics.list.iter();
    let reasons: Vec<Option<&str>> = reasons
        .map(|planned| planned.sources.as_ref().err().map(String::as_str))
        .collect();
    let [None, Some(reason), None] = reasons[..] else {
        panic!("{reasons:?}");
    };
    assert!(reason.contains("-M cache_miss_ratio"), "{reason}");
    let view = recording.head.view.clone();
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
