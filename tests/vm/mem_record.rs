//! `pmuscope mem record` and `mem calibrate` on the test PMU: the file has exactly the records that
//! the PMU wrote, per CPU, thread, class and data source.

mod cpus;
mod losses;

use std::{collections::BTreeSet, fs, process::Stdio};

use parquet::record::Field;
use test_harness::{Load, TestCgroup, load_binary, pmuscope};

use crate::{
    guest::{is_6_1, skip, value},
    mem_support::{Recording, Rows, assert_exact, end, now, spe_machine},
    testpmu::TestPmu,
};

#[test]
fn every_record_of_a_command_and_its_children_is_in_the_file() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let _pmu = TestPmu::load("set=spe");
    let recording = Recording::new();
    let start = now();
    let (rows, _) = recording.load("--period 65536 --filter=", "forks 6 150");
    assert_exact(&rows);
    assert_eq!(rows.texts("comm").into_keys().collect::<Vec<_>>(), ["load"]);
    let tids = rows.sums().into_keys().map(|key| key.1);
    assert!(tids.collect::<BTreeSet<_>>().len() >= 6);
    // Times are in CLOCK_MONOTONIC.
    let end = now();
    for row in &rows.rows {
        match row["time_ns"] {
            Field::ULong(time) => assert!(
                (start..=end).contains(&time),
                "{time} not in {start}..{end}"
            ),
            ref other => panic!("no time but {other:?}"),
        }
    }
}

/// The file has what is needed later to name addresses and times.
#[test]
fn the_metadata_describes_the_settings_and_the_machine() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let _pmu = TestPmu::load("set=spe");
    let recording = Recording::new();
    let (rows, _) = recording.load("--period 65537 --threads 2", "burn 0 100");
    assert_exact(&rows);
    let text = |name: &str| rows.about[&format!("pmuscope.{name}")].clone();
    let json = |name: &str| serde_json::from_str::<serde_json::Value>(&text(name)).unwrap();
    assert_eq!(text("period"), "65537");
    let periods = json("periods");
    let periods: Vec<_> = periods.as_object().unwrap().values().collect();
    assert_eq!(periods, [65536]);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(text("kernel"), kernel.trim());
    let midr = fs::read_to_string("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
    assert!(text("midr").contains(midr.unwrap().trim()));
    let time = json("wall_clock")["time_ns"]
        .as_str()
        .unwrap()
        .parse::<u64>();
    assert!(time.unwrap() < now());
    assert_eq!(json("units")["total_latency"], "cycles");
    let program = load_binary();
    let mappings = json("mappings");
    let matching = mappings.as_array().unwrap().iter().filter(|mapping| {
        mapping["path"] == program.to_str().unwrap() && mapping["executable"] == true
    });
    assert_eq!(matching.count(), 1, "{mappings}");
}

#[test]
fn threads_are_recorded_with_a_buffer_each() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let _pmu = TestPmu::load("set=spe");
    let recording = Recording::new();
    let (rows, _) = recording.load("--period 65536 --per-thread", "threads 4 1000");
    assert_exact(&rows);
    let tids: BTreeSet<_> = rows.sums().into_keys().map(|key| key.1).collect();
    // In a slow guest a thread may end before it is found: then it is counted as missed.
    assert!(tids.len() > 1, "{tids:?}");
    assert_eq!(tids.len() as u64 + rows.count("missed_threads"), 5);
    assert!(
        rows.count("unsampled_ns") > 0,
        "threads are found only after their start"
    );
}

#[test]
fn a_running_process_is_recorded_until_its_end() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let pmu = TestPmu::load("set=spe");
    let cgroup = TestCgroup::new("p");
    for options in ["", "--per-thread"] {
        pmu.control("spe reset");
        let mut load = cgroup.load("threads 3 400");
        let recording = Recording::new();
        let mut child = recording.begin(&format!("--period 32768 {options} -p {}", load.pid()));
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
    let Some(_machine) = spe_machine() else {
        return;
    };
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

/// Records without thread ids belong to the task of their buffer.
#[test]
fn without_context_packets_records_belong_to_the_task_of_the_buffer() {
    let Some(_machine) = spe_machine() else {
        return;
    };
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
fn filters_are_applied_by_the_hardware() {
    let Some(_machine) = spe_machine() else {
        return;
    };
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

/// The wrong input includes a second session: the SPE of a CPU serves one session at a time.
#[test]
fn wrong_input_is_refused_in_one_sentence() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let _pmu = TestPmu::load("set=spe");
    let recording = Recording::new();
    let refused = |words: &str| {
        let output = recording.command(words).output().unwrap();
        assert!(!output.status.success(), "{words}");
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        println!("{words}: {message}");
        message
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
    // Files of an earlier recording stay.
    let raw = recording.path().with_file_name("perf.data");
    fs::write(&raw, "earlier").unwrap();
    let with_raw = |words: &str| refused(&format!("--raw {} {words}", raw.display()));
    assert!(with_raw("-- /no/such").contains("cannot start /no/such"));
    let parts = recording.path().with_file_name("samples.parquet.parts");
    fs::create_dir(&parts).unwrap();
    assert!(with_raw("-- true").contains("move it away"));
    fs::remove_dir(&parts).unwrap();
    assert_eq!(fs::read_to_string(&raw).unwrap(), "earlier");
    let names = fs::read_dir(raw.parent().unwrap()).unwrap();
    assert_eq!(names.count(), 1, "a file was left");
    let cgroup = TestCgroup::new("busy");
    let mut load = cgroup.load("burn 0 10");
    let first = Recording::new();
    let mut child = first.begin(&format!("-p {}", load.pid()));
    assert!(refused("--cgroup /").contains("serves one session at a time"));
    load.go();
    assert!(child.wait().unwrap().success());
}

#[test]
fn calibrate_finds_the_rate_that_the_pmu_has() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    if is_6_1() {
        // 6.1 refuses per-task events to the test PMU: see TP_CORE_CONTEXT in
        // tests/vm/kmod/count.c.
        return skip("the core-like test PMU does not count mem_access per task here");
    }
    let pmu = TestPmu::load("set=spe,core");
    // A million operations per ms; 75% are loads or stores.
    pmu.control("rate armv8_pmuv3_0 0x13 0 0 750000");
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("plot.svg");
    let mut command = pmuscope();
    command.args(["mem", "calibrate", "--runs", "2"]);
    command.args(["--periods", "1000,8192,65536", "--aux", "1M", "--plot"]);
    command.arg(&plot).arg("--").arg(load_binary());
    let output = command
        .args(["burn", "0", "1000"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (printed, warned) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{printed}{warned}");
    assert!(output.status.success());
    assert!(warned.contains("period 1000 is 1024 on this core"));
    for (period, least) in [("1024", 0.0), ("8192", 50.0), ("65536", 80.0)] {
        let row = printed
            .lines()
            .find(|line| line.trim_start().starts_with(period));
        let accuracy = row
            .unwrap()
            .split_whitespace()
            .find(|word| word.ends_with('%'));
        let accuracy: f64 = accuracy.unwrap().trim_end_matches('%').parse().unwrap();
        // On a busy machine the guest is slow, and buffers of small periods are full for long.
        assert!((least..=100.0).contains(&accuracy), "{period}: {accuracy}");
    }
    assert!(printed.contains("recommended: --period "));
    assert!(printed.contains("accuracy over period"));
    assert!(fs::read_to_string(plot).unwrap().contains("<polyline"));
    // The report's page reads the output as one JSON object.
    let mut command = pmuscope();
    command.args(["mem", "calibrate", "--runs", "2", "--format", "json"]);
    command.args(["--periods", "65536", "--aux", "1M", "--"]);
    let output = command
        .arg(load_binary())
        .args(["burn", "0", "300"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    let calibrated = probe_user::report::calibrated(&printed).unwrap();
    assert_eq!((calibrated.runs, calibrated.settings.len()), (2, 1));
    assert_eq!(calibrated.settings[0].period, 65536);
    assert!(calibrated.settings[0].samples.mean > 0.0);
    assert!(calibrated.unsampled[0].mem_access.mean > 0.0);
    assert!(calibrated.about["command"].contains("calibrate"));
}
