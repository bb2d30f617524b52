//! Recordings of `pmuscope mem record`, and the test PMU's account of the same time.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use parquet::{
    file::reader::{FileReader as _, SerializedFileReader},
    record::Field,
    schema::types::Type,
};
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};
use test_harness::{load_binary, machine, pmuscope};

use crate::guest::{skip, value};

/// Exclusive access to the machine. None, with a skip message, if its architecture has no SPE.
pub(crate) fn spe_machine() -> Option<File> {
    if value("ARCH") != "arm64" {
        skip("SPE is Arm's: its timer cannot be read here");
        return None;
    }
    machine()
}

pub(crate) const PMU: &str = "/sys/kernel/debug/testpmu";

/// CPU, thread, process, class, data source.
pub(crate) type Key = (u32, u32, u32, String, Option<u64>);

/// Samples and the sum of their total latencies.
pub(crate) type Sums = BTreeMap<Key, (u64, u64)>;

/// The samples that the PMU wrote.
pub(crate) fn truth() -> Sums {
    let text = fs::read_to_string(format!("{PMU}/spe_truth")).unwrap();
    let mut sums = Sums::new();
    for line in text.lines().skip(1) {
        let f: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| f[at].parse().unwrap();
        let source = f[4]
            .strip_prefix("0x")
            .map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let source = source.or_else(|| f[4].parse().ok());
        let key = (number(0), number(1), number(2), f[3].to_owned(), source);
        let sum = sums.entry(key).or_default();
        sum.0 += u64::from(number(5));
        sum.1 += u64::from(number(6));
    }
    sums
}

/// A column of `spe_stats`, summed over the CPUs.
pub(crate) fn stat(name: &str) -> u64 {
    let text = fs::read_to_string(format!("{PMU}/spe_stats")).unwrap();
    let mut lines = text.lines();
    let mut names = lines.next().unwrap().split(' ');
    let at = names.position(|column| column == name).unwrap();
    lines
        .map(|line| line.split(' ').nth(at).unwrap().parse::<u64>().unwrap())
        .sum()
}

/// A file's rows by column, and its metadata.
pub(crate) struct Rows {
    pub(crate) rows: Vec<BTreeMap<String, Field>>,
    pub(crate) about: BTreeMap<String, String>,
}

impl Rows {
    pub(crate) fn read(path: &Path) -> Self {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata();
        let about = (metadata.key_value_metadata().unwrap().iter())
            .map(|entry| (entry.key.clone(), entry.value.clone().unwrap()))
            .collect();
        let wanted = [
            "time_ns",
            "ticks",
            "va",
            "cpu",
            "pid",
            "tid",
            "comm",
            "cgroup",
            "op",
            "total_latency",
            "data_source",
            "region",
            "phase",
        ];
        let fields = (metadata.schema().get_fields().iter())
            .filter(|field| wanted.contains(&field.name()))
            .cloned();
        let projection = Type::group_type_builder("samples")
            .with_fields(fields.collect())
            .build()
            .unwrap();
        let rows = (reader.get_row_iter(Some(projection)).unwrap())
            .map(|row| row.unwrap().into_columns().into_iter().collect());
        Self {
            rows: rows.collect(),
            about,
        }
    }

    pub(crate) fn sums(&self) -> Sums {
        let mut sums = Sums::new();
        for row in &self.rows {
            let int = |name: &str| match row[name] {
                Field::UInt(value) => value,
                ref other => panic!("{name} is {other:?} in {row:?}"),
            };
            let source = match row["data_source"] {
                Field::ULong(value) => Some(value),
                _ => None,
            };
            let Field::Str(op) = &row["op"] else {
                panic!("no operation in {row:?}")
            };
            let key = (int("cpu"), int("tid"), int("pid"), op.clone(), source);
            let sum = sums.entry(key).or_default();
            sum.0 += 1;
            sum.1 += u64::from(int("total_latency"));
        }
        sums
    }

    /// Number of rows by the text in a column.
    pub(crate) fn texts(&self, name: &str) -> BTreeMap<String, u64> {
        let mut texts = BTreeMap::new();
        for row in &self.rows {
            let text = match &row[name] {
                Field::Str(text) => text.clone(),
                other => format!("{other:?}"),
            };
            *texts.entry(text).or_default() += 1;
        }
        texts
    }

    /// A counter in the file's metadata.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.about[&format!("pmuscope.count.{name}")]
            .parse()
            .unwrap()
    }
}

pub(crate) fn samples(sums: &Sums) -> u64 {
    sums.values().map(|(count, _)| count).sum()
}

/// Asserts that the file has exactly the samples that the PMU wrote.
#[track_caller]
pub(crate) fn assert_exact(rows: &Rows) {
    let (found, truth) = (rows.sums(), truth());
    println!(
        "{} records of {} threads; {:?}",
        samples(&truth),
        truth
            .keys()
            .map(|key| key.1)
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        rows.about
    );
    assert_eq!(stat("truth_lost"), 0);
    assert!(samples(&truth) > 300, "hardly anything was recorded");
    assert_eq!(rows.count("samples"), samples(&truth));
    assert_eq!(found, truth);
}

/// The files of a recording, and commands that make them.
pub(crate) struct Recording {
    directory: tempfile::TempDir,
}

impl Recording {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("samples.parquet")
    }

    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = pmuscope();
        command.args(["mem", "record", "-o"]).arg(self.path());
        command.args(words.split_whitespace());
        command.stdin(Stdio::null());
        command
    }

    /// Records a load to its end.
    pub(crate) fn load(&self, options: &str, load: &str) -> (Rows, Output) {
        let mut command = self.command(options);
        command.arg("--").arg(load_binary()).args(load.split(' '));
        let output = command.output().unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        print!("{messages}");
        assert!(output.status.success(), "{options} -- {load}");
        (Rows::read(&self.path()), output)
    }

    /// Starts recording something that already runs.
    pub(crate) fn begin(&self, options: &str) -> Child {
        let mut command = self.command(options);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("recording") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it has ended");
            print!("{line}");
        }
        // Forwards later messages.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stdout()));
        child
    }
}

/// Interrupts a recording, and waits for its end.
pub(crate) fn end(mut child: Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
}

/// `CLOCK_MONOTONIC` in ns.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
}
