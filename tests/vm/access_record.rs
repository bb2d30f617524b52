//! `mem record` with events that sample memory accesses: the file has exactly the samples that test
//! PMUs with AMD's and Intel's names raised for the target.

use std::{collections::BTreeMap, fs, path::Path, time::Instant};

use parquet::record::Field;
use probe_common::spe::Class;
use probe_user::window::MemLevel;
use test_harness::{Load, TestCgroup, load_binary, machine, pmuscope};

use crate::{
    access_support::{MIXES, Op, Truth, set_mix},
    guest::{skip, value},
    mem_support::{Recording, Rows, end, now},
    regions::assert_moments,
    testpmu::TestPmu,
};

/// Operations from one sample to the next. A running task executes 100,000 in a tick, and a guest
/// on a busy machine has few ticks.
const PERIOD: u64 = 6_400;

/// Rings that hold all samples of a load while the recorder does not run: a guest's CPUs are
/// threads of a busy host.
const RING: &str = "--ring 16M";

/// Sets of test PMUs, each with its sampling events. Intel's core PMU is named cpu, and counts
/// generic events only on amd64.
fn sets() -> Vec<(&'static str, &'static [&'static str])> {
    let mut sets: Vec<(&str, &[&str])> = vec![("ibs", &["ibs_op"])];
    if value("ARCH") != "arm64" {
        sets.push(("pebs", &["mem-loads", "mem-stores"]));
    }
    sets
}

/// Samples in the file by data source, latency and address.
fn count_by_access(rows: &Rows) -> BTreeMap<(u64, u64, u64), u64> {
    let number = |field: &Field| match field {
        Field::ULong(number) => *number,
        Field::UInt(number) => (*number).into(),
        Field::Null => 0,
        other => panic!("{other:?}"),
    };
    let mut found = BTreeMap::new();
    for row in &rows.rows {
        let key = ["data_source", "total_latency", "va"].map(|name| number(&row[name]));
        *found.entry(key.into()).or_default() += 1;
    }
    found
}

/// Number of samples of an operation that were raised for a cgroup.
fn raised(events: &[&str], cgroup: &TestCgroup, op: &Op) -> u64 {
    let by_event = |event: &&str| Truth::read(event).raised(cgroup.id, op);
    events.iter().map(by_event).sum()
}

/// The most samples of an event in a tick.
const MAX_PER_TICK: u64 = 100_000_u64.div_ceil(PERIOD);

/// Asserts that the file has exactly the accesses that were raised for a cgroup. An ending task has
/// no id in its last tick: samples of that tick may be missing if `samples_of_ended_tasks` counts
/// them. It also counts other cgroups' tasks, so this cgroup's `tasks` bound the missing samples.
#[track_caller]
fn assert_raised(rows: &Rows, events: &[&str], cgroup: &TestCgroup, tasks: u64, mix: &[Op]) {
    let mut found = count_by_access(rows);
    println!("{found:x?} {:?}", rows.about);
    let mut missing = 0;
    for op in mix {
        let key = (op.data_src, op.latency, op.address);
        let (recorded, raised) = (found.remove(&key).unwrap_or(0), raised(events, cgroup, op));
        if op.kind.is_none() {
            assert_eq!(recorded, 0, "it is no access");
            continue;
        }
        println!("{:?}: {recorded} of {raised}", op.kind);
        assert!(raised > 10 && recorded <= raised, "{recorded} of {raised}");
        missing += raised - recorded;
    }
    assert!(found.is_empty(), "nobody raised {found:x?}");
    let ended = rows.count("samples_of_ended_tasks");
    let most = tasks * MAX_PER_TICK * events.len() as u64;
    assert!(
        missing <= ended.min(most),
        "{missing} of {ended} and {most}"
    );
    assert_eq!(rows.count("lost_samples"), 0);
    assert_eq!(rows.count("samples"), rows.rows.len() as u64);
}

/// A process and its children, while others run on all CPUs.
#[test]
fn every_sample_of_a_process_and_its_children_is_recorded() {
    let Some(_machine) = machine() else { return };
    for (set, events) in sets() {
        let pmu = TestPmu::load(&format!("set={set}"));
        let cgroups = ["one", "two"].map(TestCgroup::new);
        for (cgroup, mix) in cgroups.iter().zip(MIXES) {
            set_mix(&pmu, cgroup.id, mix);
        }
        let mut loads = [
            cgroups[0].load("forks 4 100"),
            cgroups[1].load("burn 0 400"),
            cgroups[1].load("burst 1 300 300 400"),
        ];
        let recording = Recording::new();
        let start = now();
        let options = format!("--period {PERIOD} {RING} -p {}", loads[0].pid());
        let mut child = recording.begin(&options);
        loads.iter_mut().for_each(Load::go);
        loads.into_iter().for_each(|load| drop(load.finish()));
        assert!(child.wait().unwrap().success());
        let rows = Rows::read(&recording.path());
        // The load and its four children.
        assert_raised(&rows, events, &cgroups[0], 5, MIXES[0]);
        let paths: Vec<_> = rows.texts("cgroup").into_keys().collect();
        assert_eq!(paths, std::slice::from_ref(&cgroups[0].path), "{set}");
        assert!(rows.texts("pid").len() > 4, "{:?}", rows.texts("pid"));
        let ops = rows.texts("op");
        assert_eq!(ops.keys().collect::<Vec<_>>(), ["load", "store"]);
        let end = now();
        for row in &rows.rows {
            let Field::ULong(time) = row["time_ns"] else {
                panic!("no time in {row:?}")
            };
            assert!((start..=end).contains(&time), "{time}");
            assert_eq!(row["ticks"], Field::Null);
        }
        let other = raised(events, &cgroups[1], &MIXES[1][0]);
        assert!(other > 10, "nobody else ran");
        assert_eq!(rows.about["pmuscope.period"], PERIOD.to_string());
        assert!(rows.about["pmuscope.events"].contains(&events[0][..3]));
    }
}

/// Sampled loads keep their frequency in a phase of few loads after a phase of many. Their event
/// follows a group leader, and the kernel does not adapt the period of such events (Linux 6.9).
#[test]
fn loads_keep_their_frequency_after_a_burst_of_another_cgroup() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") == "arm64" {
        return skip("Intel's core PMU is named cpu, and counts the generic events of amd64 alone");
    }
    let pmu = TestPmu::load("set=pebs");
    let [first, cgroup] = ["first", "then"].map(TestCgroup::new);
    set_mix(&pmu, cgroup.id, MIXES[0]);
    // pmuscope adapts the rate at least every two seconds.
    let mut load = cgroup.load("burn 0 6000");
    let recording = Recording::new();
    let mut child = recording.begin(&format!("{RING} -p {}", load.pid()));
    pmu.control("sample ops_per_tick 400000");
    let mut burst = first.load("burn 0 600");
    burst.go();
    burst.finish();
    pmu.control("sample ops_per_tick 40000");
    let began = Instant::now();
    load.go();
    load.finish();
    let by_frequency = 997.0 * began.elapsed().as_secs_f64();
    assert!(child.wait().unwrap().success());
    let rows = Rows::read(&recording.path());
    let loads = rows.texts("op")["load"];
    // Printed to distinguish a long period from lost samples.
    let mut by_second = BTreeMap::<u64, u64>::new();
    for row in &rows.rows {
        if let (Field::Str(op), Field::ULong(time)) = (&row["op"], &row["time_ns"])
            && op == "load"
        {
            *by_second.entry(time / 1_000_000_000).or_default() += 1;
        }
    }
    let truth = Truth::read("mem-loads");
    println!("loads by second {by_second:?} of {:?}", truth.raised);
    // The period of the burst, which the kernel would keep, is ten times as long. A guest on a busy
    // host has fewer ticks, and the period has a lower bound.
    let most = truth.executed[&cgroup.id.0] as f64 / 6_268.0;
    let due = most.min(by_frequency);
    println!("{loads} samples of loads, {due:.0} by their frequency, {most:.0} at most");
    assert!(
        (0.3..2.0).contains(&(loads as f64 / due)),
        "{loads} of {due}"
    );
}

#[test]
fn a_cgroup_is_recorded_and_what_a_small_ring_lost_is_counted() {
    let Some(_machine) = machine() else { return };
    if value("CONTROLLERS").is_empty() {
        return skip("without a controller a cgroup has no perf state to record by");
    }
    let page = rustix::param::page_size();
    for (set, events) in sets() {
        for (options, loses) in [
            (format!("--period {PERIOD} {RING}"), false),
            (format!("--period 3200 --ring {page} --threads 2"), true),
        ] {
            let pmu = TestPmu::load(&format!("set={set}"));
            let (a, other) = (TestCgroup::new("a"), TestCgroup::new("other"));
            set_mix(&pmu, a.id, MIXES[0]);
            set_mix(&pmu, other.id, MIXES[1]);
            let mut loads = [
                a.load("burn 0 300"),
                a.load("burn 1 300"),
                other.load("burn 0 300"),
            ];
            let recording = Recording::new();
            let child = recording.begin(&format!("{options} --cgroup {}", a.path));
            loads.iter_mut().for_each(Load::go);
            loads.into_iter().for_each(|load| drop(load.finish()));
            end(child);
            let rows = Rows::read(&recording.path());
            let lost = rows.count("lost_samples");
            let paths: Vec<_> = rows.texts("cgroup").into_keys().collect();
            if !loses {
                assert_eq!(paths, std::slice::from_ref(&a.path), "{set}");
                assert_raised(&rows, events, &a, 2, MIXES[0]);
                continue;
            }
            // The recorder's own samples fill a ring of a page within 2 ms of its drain, so the
            // ring may contain no sample of the cgroup.
            assert!(paths.iter().all(|path| *path == a.path), "{set}: {paths:?}");
            let all: u64 = MIXES[0].iter().map(|op| raised(events, &a, op)).sum();
            let seen = rows.count("samples") + rows.count("samples_left_out");
            println!("{set}: {seen} of {all}, {lost} lost; {:?}", rows.about);
            assert!(lost > 0, "the ring was never full");
            // Samples of the other cgroup are among the lost ones.
            assert!(seen < all && all <= seen + lost, "{seen} + {lost} of {all}");
        }
    }
}

/// The output of `pmuscope report --format json` on these files.
fn report(files: &[&Path]) -> serde_json::Value {
    let mut command = pmuscope();
    command.args(["report", "--format", "json"]).args(files);
    let output = command.output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{files:?}: {messages}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts that `report` reads a file of samples by itself, and together with a recording.
fn assert_reported(file: &Path, rows: &Rows) {
    let samples = rows.rows.len() as u64;
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run.jsonl.gz");
    let mut command = pmuscope();
    command.args(["record", "-e", "task-clock", "-o"]).arg(&run);
    command
        .arg("--")
        .arg(load_binary())
        .args(["burn", "0", "10"]);
    assert!(command.output().unwrap().status.success());
    for files in [&[file][..], &[&run, Path::new("--samples"), file]] {
        let report = report(files);
        assert_eq!(report["samples"]["samples"], samples, "{files:?}");
    }
}

#[test]
fn a_command_is_recorded_from_its_exec_on() {
    let Some(_machine) = machine() else { return };
    for (set, _) in sets() {
        let pmu = TestPmu::load(&format!("set={set}"));
        pmu.control("sample op 0 1 0x142 7 0x7f0000010000");
        pmu.control("sample op 0 1 0x144 0 0x7f0000020000");
        let recording = Recording::new();
        let (rows, output) = recording.load(&format!("--period {PERIOD} {RING}"), "forks 3 100");
        assert!(rows.rows.len() > 100, "{}", rows.rows.len());
        assert_eq!(rows.texts("comm").into_keys().collect::<Vec<_>>(), ["load"]);
        assert!(rows.texts("pid").len() > 3);
        let kinds: Vec<_> = count_by_access(&rows).into_keys().collect();
        assert_eq!(
            kinds,
            [(0x142, 7, 0x7f00_0001_0000), (0x144, 0, 0x7f00_0002_0000)]
        );
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(messages.contains("samples into"), "{messages}");
        assert_reported(&recording.path(), &rows);
    }
}

#[test]
fn short_accesses_are_left_out_of_the_file() {
    let Some(_machine) = machine() else { return };
    for (set, events) in sets() {
        let pmu = TestPmu::load(&format!("set={set}"));
        let cgroup = TestCgroup::new("short");
        set_mix(&pmu, cgroup.id, MIXES[0]);
        let mut load = cgroup.load("burn 0 400");
        let recording = Recording::new();
        let options = format!(
            "--period {PERIOD} {RING} --min-latency 200 -p {}",
            load.pid()
        );
        let mut child = recording.begin(&options);
        load.go();
        load.finish();
        assert!(child.wait().unwrap().success());
        let rows = Rows::read(&recording.path());
        let is_recorded = |op: &&Op| op.latency == 0 || op.latency >= 200;
        let recorded: Vec<Op> = MIXES[0].iter().filter(is_recorded).copied().collect();
        assert_raised(&rows, events, &cgroup, 1, &recorded);
        let dram = count_by_access(&rows)
            .into_iter()
            .filter(|(key, _)| key.1 == 300);
        assert_eq!(dram.count(), 1);
    }
}

/// Regions and phases of accesses are exact.
#[test]
fn each_access_has_its_region_and_phase() {
    let Some(_machine) = machine() else { return };
    for (set, events) in sets() {
        let pmu = TestPmu::load(&format!("set={set}"));
        // A load that hits level 1.
        let op = |address| Op {
            weight: 1,
            data_src: 0x142,
            latency: 20,
            address,
            kind: Some((Class::Load, MemLevel::Unknown)),
        };
        let set_access = |_: &Load, cgroup: &TestCgroup, _, address| {
            set_mix(&pmu, cgroup.id, &[op(address)]);
        };
        assert_moments(
            &format!("--period {PERIOD} {RING}"),
            set_access,
            |rows, cgroup| {
                let addresses = count_by_access(rows)
                    .into_keys()
                    .map(|(_, _, address)| address);
                let mix: Vec<Op> = addresses.map(op).collect();
                assert!(mix.len() >= 4);
                // The load and its thread.
                assert_raised(rows, events, cgroup, 2, &mix);
            },
        );
    }
}

#[test]
fn options_only_for_spe_are_refused_in_one_line() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=ibs");
    let directory = tempfile::tempdir().unwrap();
    for words in [
        "--raw perf.data -- true",
        "--filter load_filter=1 -- true",
        "--per-thread -- true",
        "--aux 1M -- true",
        "--watermark 64K -- true",
        "--period 100 -- true",
    ] {
        let mut command = pmuscope();
        command.args(["mem", "record"]).args(words.split(' '));
        let output = command.current_dir(directory.path()).output().unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        println!("{words}: {messages}");
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert_eq!(messages.lines().count(), 1, "{messages}");
        let expected = match words {
            "--period 100 -- true" => "no multiple of 16".to_owned(),
            _ => format!("{} is for Arm's SPE", words.split(' ').next().unwrap()),
        };
        assert!(messages.contains(&expected), "{messages}");
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            0,
            "{words}"
        );
    }
}
