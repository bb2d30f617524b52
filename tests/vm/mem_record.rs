//! `pmuscope mem record` and `mem calibrate` on the test PMU: what is in the file is what the PMU
//! wrote, to the record, per CPU, thread, class and data source.

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

use crate::{
    guest::{skip, value},
    support::{Load, TestCgroup, load_binary, machine, pmuscope},
    testpmu::TestPmu,
};

const PMU: &str = "/sys/kernel/debug/testpmu";

/// CPU, thread, process, class, data source.
type Key = (u32, u32, u32, String, Option<u64>);

/// Samples and the sum of their total latencies.
type Sums = BTreeMap<Key, (u64, u64)>;

/// What the PMU wrote.
fn truth() -> Sums {
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
fn stat(name: &str) -> u64 {
    let text = fs::read_to_string(format!("{PMU}/spe_stats")).unwrap();
    let mut lines = text.lines();
    let mut names = lines.next().unwrap().split(' ');
    let at = names.position(|column| column == name).unwrap();
    lines
        .map(|line| line.split(' ').nth(at).unwrap().parse::<u64>().unwrap())
        .sum()
}

/// The file's rows, as text by column; null is none.
struct Rows {
    rows: Vec<BTreeMap<String, Field>>,
    about: BTreeMap<String, String>,
}

impl Rows {
    fn read(path: &Path) -> Self {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata();
        let about = metadata.key_value_metadata().unwrap().iter();
        let about = about
            .map(|entry| (entry.key.clone(), entry.value.clone().unwrap()))
            .collect();
        let wanted = [
            "time_ns",
            "cpu",
            "pid",
            "tid",
            "comm",
            "cgroup",
            "op",
            "total_latency",
            "data_source",
        ];
        let fields = metadata.schema().get_fields().iter();
        let fields = fields
            .filter(|field| wanted.contains(&field.name()))
            .cloned();
        let projection = Type::group_type_builder("samples")
            .with_fields(fields.collect())
            .build()
            .unwrap();
        let rows = reader.get_row_iter(Some(projection)).unwrap();
        let rows = rows.map(|row| row.unwrap().into_columns().into_iter().collect());
        Self {
            rows: rows.collect(),
            about,
        }
    }

    fn sums(&self) -> Sums {
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

    fn texts(&self, name: &str) -> BTreeMap<String, u64> {
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

    fn count(&self, name: &str) -> u64 {
        self.about[&format!("pmuscope.count.{name}")]
            .parse()
            .unwrap()
    }
}

fn samples(sums: &Sums) -> u64 {
    sums.values().map(|(count, _)| count).sum()
}

/// Asserts that the file has what the PMU wrote, and says how much that was.
#[track_caller]
fn assert_exact(rows: &Rows) {
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

/// A recording's files, and the pmuscope that makes them.
struct Recording {
    directory: tempfile::TempDir,
}

impl Recording {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("samples.parquet")
    }

    fn command(&self, words: &str) -> Command {
        let mut command = pmuscope();
        command.args(["mem", "record", "-o"]).arg(self.path());
        command.args(words.split_whitespace());
        command.stdin(Stdio::null());
        command
    }

    /// Records a load to its end.
    fn load(&self, options: &str, load: &str) -> (Rows, Output) {
        let mut command = self.command(options);
        command.arg("--").arg(load_binary()).args(load.split(' '));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        print!("{said}");
        assert!(output.status.success(), "{options} -- {load}");
        (Rows::read(&self.path()), output)
    }

    /// Begins to record something that is there.
    fn begin(&self, options: &str) -> Child {
        let mut command = self.command(options);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("recording") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it has ended");
            print!("{line}");
        }
        // It goes on to write there.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::stdout()));
        child
    }
}

fn end(mut child: Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
}

#[test]
fn a_command_and_what_it_starts_is_in_the_file_to_the_record() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=spe");
    let recording = Recording::new();
    let start = now();
    let (rows, _) = recording.load("--period 8192 --filter=", "forks 6 30");
    assert_exact(&rows);
    assert_eq!(rows.texts("comm").into_keys().collect::<Vec<_>>(), ["load"]);
    let tids = rows.sums().into_keys().map(|key| key.1);
    assert!(tids.collect::<std::collections::BTreeSet<_>>().len() >= 7);
    // Times are of CLOCK_MONOTONIC; only Arm's timer can be converted.
    let end = now();
    for row in &rows.rows {
        match row["time_ns"] {
            Field::ULong(time) => assert!(
                (start..=end).contains(&time),
                "{time} not in {start}..{end}"
            ),
            _ => assert_eq!(value("ARCH"), "amd64"),
        }
    }
}

#[test]
fn threads_of_a_process_with_a_buffer_each() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=spe");
    let recording = Recording::new();
    let (rows, _) = recording.load("--period 8192 --per-thread", "threads 4 150");
    assert_exact(&rows);
    let tids: std::collections::BTreeSet<_> = rows.sums().into_keys().map(|key| key.1).collect();
    assert!(tids.len() >= 4, "{tids:?}");
    assert_eq!(rows.count("missed_threads"), 0);
}

#[test]
fn a_process_that_runs_is_recorded_until_its_end() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=spe");
    let cgroup = TestCgroup::new("p");
    for options in ["", "--per-thread"] {
        let pmu = "reset";
        fs::write(format!("{PMU}/control"), format!("spe {pmu}")).unwrap();
        let mut load = cgroup.load("threads 3 150");
        let recording = Recording::new();
        let mut child = recording.begin(&format!("--period 8192 {options} -p {}", load.pid()));
        load.go();
        load.finish();
        assert!(child.wait().unwrap().success());
        let rows = Rows::read(&recording.path());
        assert_exact(&rows);
        let path: Vec<_> = rows.texts("cgroup").into_keys().collect();
        assert_eq!(path, std::slice::from_ref(&cgroup.path), "{options}");
    }
}

#[test]
fn a_cgroup_is_recorded_and_nothing_else() {
    let Some(_machine) = machine() else { return };
    if value("CONTROLLERS").is_empty() {
        return skip("without a controller a cgroup has no perf state to record by");
    }
    let _pmu = TestPmu::load("set=spe");
    let (a, other) = (TestCgroup::new("a"), TestCgroup::new("other"));
    let below = a.child("below");
    let recording = Recording::new();
    let mut loads = [
        a.load("burn 0 150"),
        a.load("burst 1 500 300 150"),
        below.load("forks 3 30"),
        other.load("burn 0 150"),
        other.load("burn 1 150"),
    ];
    let child = recording.begin(&format!("--period 8192 --cgroup {}", a.path));
    loads.iter_mut().for_each(Load::go);
    loads.into_iter().for_each(|load| drop(load.finish()));
    end(child);
    let rows = Rows::read(&recording.path());
    assert_exact(&rows);
    let paths: Vec<_> = rows.texts("cgroup").into_keys().collect();
    assert_eq!(paths, [a.path.clone(), below.path.clone()]);
}

/// The smallest buffers: sampling stops again and again, and nothing that was written is missing.
#[test]
fn small_buffers_lose_no_record_that_was_written() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=spe");
    let page = rustix::param::page_size();
    let recording = Recording::new();
    let options = format!("--period 1024 --filter= --ring {page} --aux {}", 2 * page);
    let (rows, _) = recording.load(&options, "forks 4 60");
    assert_exact(&rows);
    assert!(stat("no_space") > 0, "the buffers were never full");
    assert!(rows.count("aux_buffers_truncated") > 0);
    assert!(rows.count("restarts") > 0);
}

/// Flags that the core sets are counted under their names.
#[test]
fn collisions_and_lost_data_are_counted() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe collision_every 3");
    pmu.control("spe loss_every 5");
    let page = rustix::param::page_size();
    let recording = Recording::new();
    let options = format!("--period 2048 --filter= --aux {}", 4 * page);
    let (rows, output) = recording.load(&options, "burn 0 300");
    assert_exact(&rows);
    let (collided, lost) = (stat("collided"), stat("lost_data"));
    assert!(collided > 0 && lost > 0, "{collided} {lost}");
    assert_eq!(rows.count("aux_buffers_with_collision"), collided);
    assert_eq!(rows.count("aux_buffers_partial"), lost);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(&format!("{collided} buffers with collisions")),
        "{said}"
    );
}

/// Random bytes among the records: each such record is a bad one, the others are all there.
#[test]
fn garbage_is_counted_as_bad_records() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe garbage_every 10");
    let recording = Recording::new();
    let (rows, _) = recording.load("--period 8192 --filter=", "burn 0 200");
    let bad: u64 = rows
        .about
        .iter()
        .filter(|(name, _)| name.starts_with("pmuscope.count.bad_records"))
        .map(|(_, count)| count.parse::<u64>().unwrap())
        .sum();
    let (written, garbage) = (stat("written"), stat("garbage"));
    println!("{written} written, {garbage} of them garbage; {bad} bad");
    assert!(garbage > 50);
    // A few random bytes happen to be a whole record.
    let found = rows.rows.len() as u64;
    assert_eq!(found + bad, written);
    assert!(garbage - bad <= garbage / 10 && found >= samples(&truth()));
}

/// Without thread ids in the records, each goes to the task whose buffer it is in.
#[test]
fn without_context_packets_a_stretch_is_its_tasks() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe context 0");
    let recording = Recording::new();
    let (rows, _) = recording.load("--period 8192 --per-thread", "threads 3 100");
    assert_exact(&rows);
    pmu.control("spe reset");
    let (rows, _) = recording.load("--period 8192", "burn 0 200");
    assert_exact(&rows);
    assert_eq!(
        rows.count("samples_with_thread_by_buffer"),
        rows.count("samples")
    );
}

#[test]
fn filters_are_those_of_the_hardware() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let recording = Recording::new();
    for (options, holds) in [
        (
            "--filter store_filter",
            Box::new(|op: &str, _| op == "store") as Box<dyn Fn(&str, u64) -> bool>,
        ),
        (
            "--filter branch_filter,load_filter",
            Box::new(|op: &str, _| op == "branch" || op == "load"),
        ),
        (
            "--filter load_filter --min-latency 100",
            Box::new(|op: &str, total| op == "load" && total >= 100),
        ),
        ("", Box::new(|op: &str, _| op == "load" || op == "store")),
    ] {
        pmu.control("spe reset");
        let (rows, _) = recording.load(&format!("--period 1024 {options}"), "burn 0 100");
        assert_exact(&rows);
        for row in &rows.rows {
            let (Field::Str(op), Field::UInt(total)) = (&row["op"], &row["total_latency"]) else {
                panic!("{row:?}")
            };
            assert!(holds(op, u64::from(*total)), "{options}: {row:?}");
        }
    }
}

/// One session at a time has the SPE of a CPU; the second is told so.
#[test]
fn wrong_input_is_refused_in_one_sentence() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=spe");
    let recording = Recording::new();
    let refused = |words: &str| {
        let output = recording.command(words).output().unwrap();
        assert!(!output.status.success(), "{words}");
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        println!("{words}: {said}");
        said
    };
    assert!(refused("-p 4194303").contains("there is no process 4194303"));
    assert!(refused("--cgroup /nowhere").contains("no cgroup /nowhere"));
    assert!(refused("--aux 1 -- true").contains("--aux 1: with pages of"));
    assert!(refused("--aux 48K -- true").contains("it must be a power of two"));
    assert!(refused("--filter loads -- true").contains("loads"));
    assert!(refused("--min-latency 5000 -- true").contains("min_latency"));
    assert!(refused("--raw /no/such/file -- true").contains("cannot write /no/such/file"));
    assert!(!recording.path().exists() || fs::remove_file(recording.path()).is_ok());
    assert!(refused("-- /no/such").contains("cannot start /no/such"));
    assert!(!recording.path().exists(), "a file was left");
    let own = std::process::id();
    let mut cgroup_load = TestCgroup::new("busy").load("burn 0 10");
    let first = Recording::new();
    let child = first.begin(&format!("-p {}", cgroup_load.pid()));
    assert!(
        refused("--cgroup /").contains("serves one session at a time"),
        "{own}"
    );
    cgroup_load.go();
    let mut child = child;
    assert!(child.wait().unwrap().success());
}

#[test]
fn calibrate_finds_the_rate_that_the_pmu_has() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") != "arm64" || value("RELEASE").starts_with("6.1.") {
        // amd64 has no mem_access; with the real PMUv3 beside it, 6.1 refuses per-task events to the
        // test PMU.
        return skip("the core-like test PMU does not count mem_access per task here");
    }
    let pmu = TestPmu::load("set=spe,core");
    // A million operations per ms, of which 75 in 100 are loads or stores.
    pmu.control("rate armv8_pmuv3_0 0x13 0 0 750000");
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("plot.svg");
    let mut command = pmuscope();
    command.args(["mem", "calibrate", "--runs", "2"]);
    command.args(["--periods", "1000,8192,65536", "--aux", "1M", "--plot"]);
    command.arg(&plot).arg("--").arg(load_binary());
    let output = command
        .args(["burn", "0", "300"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (said, warned) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{said}{warned}");
    assert!(output.status.success());
    assert!(warned.contains("period 1000 is 1024 on this core"));
    for period in ["1024", "8192", "65536"] {
        let row = said
            .lines()
            .find(|line| line.trim_start().starts_with(period));
        let accuracy = row
            .unwrap()
            .split_whitespace()
            .find(|word| word.ends_with('%'));
        let accuracy: f64 = accuracy.unwrap().trim_end_matches('%').parse().unwrap();
        assert!((70.0..=100.0).contains(&accuracy), "{period}: {accuracy}");
    }
    assert!(said.contains("recommended: --period "));
    assert!(said.contains("accuracy over period"));
    assert!(fs::read_to_string(plot).unwrap().contains("<polyline"));
}
