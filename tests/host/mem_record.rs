//! `mem record` and `mem calibrate` where they cannot work: one sentence of error and no file. Also
//! recovery of a killed recording, which needs no SPE: the samples are artificial.

use std::process::Stdio;

use test_harness::pmuscope;

/// Runs `mem` with these arguments. Returns stderr and the exit code.
fn refused(directory: &std::path::Path, words: &[&str]) -> (String, Option<i32>) {
    let output = pmuscope()
        .args(["mem"])
        .args(words)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.stdout.is_empty(), "{words:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    println!("{words:?}: {stderr}");
    (stderr, output.status.code())
}

#[test]
fn wrong_input_is_reported_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["record"], "nothing to record: give a command after --"),
        (
            &["record", "--aux", "1.5M", "--", "true"],
            "`1.5M` is no size: write bytes, or a number with K, M or G behind it",
        ),
        (
            &["record", "--period", "0", "--", "true"],
            "0 is not in 1..=4294967040",
        ),
        (
            &["record", "-p", "1", "--cgroup", "/"],
            "cannot be used with",
        ),
        (&["record", "-p", "1", "--", "true"], "cannot be used with"),
        (&["calibrate"], "required arguments were not provided"),
        (&["calibrate", "--aux", "x", "--", "true"], "`x` is no size"),
    ];
    for (words, sentence) in cases {
        let (stderr, code) = refused(directory.path(), words);
        assert!(stderr.contains(sentence), "{words:?}: {stderr}");
        assert!(matches!(code, Some(1 | 2)), "{words:?}: {code:?}");
    }
}

/// Without SPE both subcommands report that, run nothing and leave no file.
#[test]
fn a_machine_without_spe_is_reported() {
    let devices = std::path::Path::new("/sys/bus/event_source/devices/arm_spe_0");
    if devices.exists() {
        println!("skipped: this machine has SPE");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let cases: [&[&str]; 4] = [
        &["record", "--", "touch", "ran"],
        &["record", "--regions", "--", "touch", "ran"],
        &[
            "record",
            "--regions=touch",
            "--regions",
            "--format",
            "json",
            "--",
            "touch",
            "ran",
        ],
        &["calibrate", "--", "touch", "ran"],
    ];
    for words in cases {
        let (stderr, code) = refused(directory.path(), words);
        assert_eq!(code, Some(1));
        assert_eq!(
            stderr,
            "pmuscope: this machine shows nothing that samples memory accesses: no SPE (PMU \
             arm_spe_*), no IBS (PMU ibs_op), no event mem-loads; `pmuscope doctor` says why, and \
             what to do\n"
        );
        let files = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files, 0, "{words:?} left a file");
    }
}

/// The file and its parts after a kill of the writer. Each part can be read on its own and has the
/// metadata that its addresses need. The unfinished part is ignored.
mod killed {
    use std::{
        cell::RefCell,
        env, fs,
        io::{BufRead as _, BufReader},
        num::NonZeroUsize,
        os::unix::process::ExitStatusExt as _,
        path::{Path, PathBuf},
        process::{Command, Stdio},
        sync::Arc,
    };

    use parquet::{
        file::reader::{FileReader as _, SerializedFileReader},
        record::Field,
    };
    use probe_common::{MarkerEvent, MarkerRecord};
    use probe_user::{
        report::Scatter,
        samples::{
            Mapping, Sample, SampleData, SampleFile, SampleReader, Sink as _, metadata,
            regions::RegionIndex,
        },
    };

    /// The environment variable that makes this test the writer, with the path to write to.
    const WRITER_PATH: &str = "PMUSCOPE_TEST_WRITES";

    /// Number of samples of a thread in a part.
    const SAMPLES: u64 = 70_000;

    fn sample(ticks: u64) -> Sample {
        // A load packet, a timestamp packet and padding. A record with a timestamp needs no end
        // packet.
        let mut bytes = vec![0x49, 0x00, 0x71];
        bytes.extend(ticks.to_le_bytes());
        let record = probe_common::spe::Records::new(&bytes).next();
        Sample {
            time: Some(ticks),
            cpu: Some(3),
            tid: Some(7),
            task: None,
            cgroup: None,
            origin: None,
            region: None,
            phase: None,
            data: SampleData::Record(record.unwrap().unwrap()),
        }
    }

    /// Writes two parts with two threads, and then samples without an end.
    fn write(path: &Path) {
        let threads = NonZeroUsize::new(2).unwrap();
        let properties = [("kernel", "6.12"), ("ring_bytes_per_buffer", "65536")];
        let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let properties = properties.to_vec();
        let file = SampleFile::begin(path, threads, properties).unwrap();
        let batch = |from: u64| -> Vec<Sample> { (from..from + SAMPLES).map(sample).collect() };
        let index = RefCell::new(RegionIndex::new(Path::new("/proc")));
        let mark = |time: u64, what: MarkerEvent<'_>| {
            let marked = MarkerRecord {
                time,
                tgid: 7,
                tid: 7,
                what,
            };
            index.borrow_mut().mark(&marked);
        };
        let start = |time, name: &str| {
            let name = Some(name.as_bytes());
            mark(time, MarkerEvent::Start { name });
        };
        let take_metadata = || {
            let (tags, phases) = index.borrow_mut().take_new();
            metadata(tags, phases)
        };
        for part in 0..2_u64 {
            // The first part starts two phases. The second part ends one of these and starts a
            // third.
            match part {
                0 => {
                    start(1, "solve");
                    start(2, "first");
                }
                _ => {
                    mark(SAMPLES, MarkerEvent::Stop);
                    start(2 * SAMPLES, "second");
                }
            }
            file.mapping(&Arc::new(Mapping {
                pid: 7,
                start: part << 12,
                end: (part + 1) << 12,
                offset: 0,
                executable: true,
                path: format!("/lib/{part} \"\u{1b}[31m\n\u{1f600}"),
                build_id: None,
            }));
            for thread in 0..2_u64 {
                let from = (2 * part + thread) * SAMPLES;
                file.samples(thread.try_into().unwrap(), &batch(from))
                    .unwrap();
            }
            file.end_parts(&take_metadata).unwrap();
        }
        // No part contains this phase.
        start(5 * SAMPLES, "third");
        println!("two parts");
        for from in (4 * SAMPLES..).step_by(1000) {
            file.samples(0, &batch(from)).unwrap();
            file.round(&Vec::new).unwrap();
        }
    }

    #[test]
    fn a_killed_recording_can_be_read() {
        if let Some(path) = env::var_os(WRITER_PATH) {
            return write(Path::new(&path));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("samples.parquet");
        let name = "mem_record::killed::a_killed_recording_can_be_read";
        let mut child = Command::new(env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(WRITER_PATH, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            stdout
                .map(Result::unwrap)
                .any(|line| line.contains("two parts"))
        );
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));

        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        let parts = directory.path().join("samples.parquet.parts");
        let mut whole: Vec<PathBuf> = fs::read_dir(parts)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "parquet"))
            .collect();
        whole.sort();
        // The kill may come after the end of the third part.
        assert!(whole.len() >= 4, "{whole:?}");
        for (at, path) in (0_u64..).zip(&whole[..4]) {
            let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
            let properties = reader
                .metadata()
                .file_metadata()
                .key_value_metadata()
                .unwrap();
            let value = |name: &str| {
                let entry = properties
                    .iter()
                    .find(|entry| entry.key == format!("pmuscope.{name}"));
                entry.unwrap().value.clone().unwrap()
            };
            assert_eq!(value("kernel"), "6.12");
            assert!(value("units").contains("\"total_latency\":\"cycles\""));
            let mappings: serde_json::Value = serde_json::from_str(&value("mappings")).unwrap();
            let part = at / 2;
            assert_eq!(mappings.as_array().unwrap().len(), 1);
            assert_eq!(mappings[0]["start"], format!("{:#x}", part << 12));
            assert_eq!(
                mappings[0]["path"],
                format!("/lib/{part} \"\u{1b}[31m\n\u{1f600}")
            );
            let mut rows = 0;
            for (row, expected) in reader.get_row_iter(None).unwrap().zip(at * SAMPLES..) {
                let mut columns = row.unwrap().into_columns().into_iter();
                let time = columns.find(|(name, _)| name == "time_ns").unwrap().1;
                assert_eq!(time, Field::ULong(expected));
                rows += 1;
            }
            assert_eq!(rows, SAMPLES);
        }
        // Each part has only the changes of phases. All parts together give the open phases.
        let samples = SampleReader::open(&path).unwrap().unwrap();
        let read = Scatter::read("samples.parquet", samples).unwrap();
        let phases = read.phases.iter();
        let phases: Vec<_> = phases
            .map(|it| (it.name.as_str(), it.since, it.until))
            .collect();
        assert_eq!(
            phases,
            [
                ("solve", 1, None),
                ("solve/first", 2, Some(SAMPLES)),
                ("solve/second", 2 * SAMPLES, None),
            ]
        );
    }
}
