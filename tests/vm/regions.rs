//! `mem record --regions` on the test PMU, which writes known addresses: each sample has the region
//! and the phase that the program had marked at that moment.

use std::{collections::BTreeMap, fs, process::Stdio};

use parquet::record::Field;
use probe_user::{report::Scatter, samples::SampleReader};
use serde_json::Value;
use test_harness::{Load, TestCgroup};

use crate::{
    mem_support::{Recording, Rows, assert_exact, spe_machine},
    testpmu::TestPmu,
};

/// Samples within this many ns of a marker are not checked: the clocks of samples and markers are
/// compared only once a round.
const NEAR: u64 = 1_000_000;

/// A call of a marker, as the program printed it: its thread, and the times before and after.
struct Call {
    word: String,
    tid: u32,
    before: u64,
    after: u64,
}

fn calls(printed: &str) -> Vec<Call> {
    let lines = printed
        .lines()
        .filter_map(|line| line.strip_prefix("marked "));
    let call = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        Call {
            word: words[0].to_owned(),
            tid: words[1].parse().unwrap(),
            before: words[2].parse().unwrap(),
            after: words[3].parse().unwrap(),
        }
    };
    lines.map(call).collect()
}

/// The open phases of a thread at a time.
fn phase(calls: &[Call], tid: u32, time: u64) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let own = calls
        .iter()
        .filter(|call| call.tid == tid && call.after <= time);
    for call in own {
        if let Some(name) = call.word.strip_prefix("start=") {
            open.push(name);
        } else if call.word == "stop" {
            open.pop();
        }
    }
    (!open.is_empty()).then(|| open.join("/"))
}

fn text(field: &Field) -> Option<&str> {
    match field {
        Field::Str(text) => Some(text),
        _ => None,
    }
}

fn long(field: &Field) -> u64 {
    match field {
        Field::ULong(number) => *number,
        Field::UInt(number) => (*number).into(),
        other => panic!("no number but {other:?}"),
    }
}

/// Samples by region, from the file's rows.
fn by_region(rows: &Rows) -> BTreeMap<Option<String>, u64> {
    let mut sums = BTreeMap::new();
    for row in &rows.rows {
        *sums
            .entry(text(&row["region"]).map(str::to_owned))
            .or_default() += 1;
    }
    sums
}

/// Samples by region, from a summary.
fn summed(rows: &[Value]) -> BTreeMap<Option<String>, u64> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let region = row["region"].as_str().map(str::to_owned);
        *sums.entry(region).or_default() += row["samples"].as_u64().unwrap();
    }
    sums
}

#[test]
fn each_sample_has_its_region_and_phase() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let pmu = TestPmu::load("set=spe");
    let set_access = |load: &Load, _: &TestCgroup, source: u64, address: u64| {
        let pid = load.pid();
        let op = format!("spe op {pid} 1 load 0x00 {source:#x} 20 10 5 2 0x16 {address:#x}");
        pmu.control(&op);
    };
    // Each address has its own data source, and the PMU counts the samples of each.
    assert_moments("--period 32768", set_access, |rows, _| assert_exact(rows));
}

/// Records a program with markers and asserts the region and phase of each sample. `set_access`
/// makes the PMU write an address; `check` asserts that no sample is missing.
pub(crate) fn assert_moments(
    options: &str,
    set_access: impl Fn(&Load, &TestCgroup, u64, u64),
    check: impl Fn(&Rows, &TestCgroup),
) {
    let cgroup = TestCgroup::new("regions");
    let mut load = cgroup.load(
        "mark tag=array@100000-200000 tag=part@180000-190000 start=outer burn=150 start=inner \
         burn=150 stop thread=own:100 tag=renamed@100000-200000 burn=150 stop burn=150 \
         tag=@0-ffffff stop burn=100",
    );
    let pid = load.pid();
    // An address in each kind of the program's memory.
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mapping_start = |wanted: &dyn Fn(&str) -> bool| {
        let mut lines = maps.lines().filter(|line| {
            let name = line.splitn(6, ' ').nth(5).unwrap_or_default().trim();
            line.contains(" rw") && wanted(name)
        });
        let start = lines.next()?.split('-').next()?;
        u64::from_str_radix(start, 16).ok()
    };
    let mappings = [
        ("[stack]", mapping_start(&|name| name == "[stack]")),
        ("[heap]", mapping_start(&|name| name == "[heap]")),
        ("[file]", mapping_start(&|name| name.ends_with("load"))),
        ("[anonymous]", mapping_start(&str::is_empty)),
    ];
    let mut expected: Vec<(u64, &str)> = vec![(0x10_0010, "array"), (0x18_0010, "part")];
    expected.extend(
        mappings
            .iter()
            .filter_map(|(name, at)| Some(((*at)? + 16, *name))),
    );
    println!("{expected:x?}\n{maps}");
    assert!(expected.len() >= 4, "hardly any kind of memory: {maps}");
    for (source, (address, _)) in (0..).zip(&expected) {
        set_access(&load, &cgroup, source, *address);
    }
    let recording = Recording::new();
    let mut child = recording.begin(&format!("{options} --regions -p {pid}"));
    load.go();
    let calls = calls(&load.finish());
    assert!(child.wait().unwrap().success());
    assert_eq!(calls.len(), 11);
    let rows = Rows::read(&recording.path());
    check(&rows, &cgroup);
    let at = |word: &str| {
        let call = calls.iter().find(|call| call.word.starts_with(word));
        call.map_or(0, |call| call.after)
    };
    let (renamed, ended) = (at("tag=renamed"), at("tag=@0"));
    let tagged = [at("tag=array"), at("tag=part")];
    let mut near = 0;
    for row in &rows.rows {
        let (time, address) = (long(&row["time_ns"]), long(&row["va"]));
        if calls
            .iter()
            .any(|call| time + NEAR > call.before && time < call.after + NEAR)
        {
            near += 1;
            continue;
        }
        let (_, name) = expected
            .iter()
            .find(|(known, _)| *known == address)
            .unwrap();
        let region = match *name {
            // Without a tag, no memory is mapped at that address.
            "array" | "part" if time < tagged[0] || time >= ended => None,
            "part" if time < tagged[1] => Some("array"),
            "array" if time >= renamed => Some("renamed"),
            other => Some(other),
        };
        assert_eq!(
            text(&row["region"]),
            region,
            "{address:#x} at {time}: {row:?}"
        );
        // Samples of a thread that ended have no id.
        let tid = match &row["tid"] {
            Field::Null => pid,
            tid => u32::try_from(long(tid)).unwrap(),
        };
        let phase = phase(&calls, tid, time).or_else(|| phase(&calls, pid, time));
        assert_eq!(
            text(&row["phase"]),
            phase.as_deref(),
            "thread {tid} at {time}"
        );
    }
    println!(
        "{near} of {} samples are near a marker: {:?}",
        rows.rows.len(),
        by_region(&rows)
    );
    assert!(near * 10 < rows.rows.len());
    let threads: Vec<_> = rows.texts("phase").into_keys().collect();
    assert_eq!(threads, ["Null", "outer", "outer/inner", "own"]);
    let summary: Vec<Value> = serde_json::from_str(&rows.about["pmuscope.regions"]).unwrap();
    assert_eq!(summed(&summary), by_region(&rows));
    let count = |name| rows.count(name);
    assert_eq!(
        (
            count("tag_calls"),
            count("start_calls"),
            count("stop_calls")
        ),
        (4, 3, 4)
    );
    assert_eq!((count("unbalanced_stops"), count("lost_markers")), (1, 0));
    assert_eq!(count("late_programs"), 0);
}

#[test]
fn a_command_is_observed_from_its_first_marker() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let _pmu = TestPmu::load("set=spe");
    let recording = Recording::new();
    let load = "mark tag=first@1000-2000 start=first burn=100 stop tag=last@3000-4000";
    let (rows, output) = recording.load("--period 65536 --regions --format json", load);
    assert_exact(&rows);
    let printed = String::from_utf8_lossy(&output.stdout);
    let lines = printed.lines().filter(|line| line.starts_with('{'));
    let summary: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(summed(&summary), by_region(&rows));
    let tags: Value = serde_json::from_str(&rows.about["pmuscope.tags"]).unwrap();
    let names: Vec<_> = tags
        .as_array()
        .unwrap()
        .iter()
        .map(|tag| &tag["name"])
        .collect();
    assert_eq!(names, ["first", "last"], "{tags}");
    assert_eq!(
        (&tags[0]["start"], &tags[0]["end"]),
        (&"0x1000".into(), &"0x2000".into())
    );
    let phases: Value = serde_json::from_str(&rows.about["pmuscope.phases"]).unwrap();
    assert_eq!(phases[0]["name"], "first", "{phases}");
    // The command's samples are in its phase.
    assert!(
        rows.texts("phase")["first"] > 300,
        "{:?}",
        rows.texts("phase")
    );

    // Without `--format json` sums are tables. A program without markers causes a message.
    let mut command = recording.command("--period 65536 --regions");
    let output = command
        .args(["--", "sh", "-c", "exit 3"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let warned = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{warned}");
    assert_eq!(output.status.code(), Some(3));
    assert!(warned.contains("until a marker is found"), "{warned}");
    for head in ["region ", "phase ", "thread "] {
        assert!(
            printed
                .lines()
                .any(|line| line.trim_start().starts_with(head)),
            "{printed}"
        );
    }
}

/// A recording, as bytes, of STREAM's triad as in the NMO paper, with eight threads.
pub(crate) fn recorded_stream() -> Vec<u8> {
    const SIZE: u64 = 16 << 20;
    let pmu = TestPmu::load("set=spe");
    let cgroup = TestCgroup::new("stream");
    let arrays = [
        ("a", 0x1_0000_0000_u64),
        ("b", 0x1_0200_0000),
        ("c", 0x1_0400_0000),
    ];
    let tags = arrays.map(|(name, at)| format!("tag={name}@{at:x}-{:x}", at + SIZE));
    let triad = "burn=10 start=triad threads=8:8 stop";
    let words = format!("mark {} {} burn=10", tags.join(" "), [triad; 5].join(" "));
    let mut load = cgroup.load(&words);
    let pid = load.pid();
    for (class, op, (_, at)) in [
        ("store", "0x01", arrays[0]),
        ("load", "0x00", arrays[1]),
        ("load", "0x00", arrays[2]),
    ] {
        let mix = format!("{class} {op} 0xd 100 50 5 2 0x16");
        pmu.control(&format!("spe op {pid} 1 {mix} {at:#x} {SIZE:#x} 8 40"));
    }
    let recording = Recording::new();
    let mut child = recording.begin(&format!("--period 131072 --regions -p {pid}"));
    load.go();
    load.finish();
    assert!(child.wait().unwrap().success());
    let rows = Rows::read(&recording.path());
    assert_exact(&rows);
    let regions: Vec<_> = by_region(&rows).into_keys().flatten().collect();
    assert_eq!(regions, ["a", "b", "c"]);
    fs::read(recording.path()).unwrap()
}

/// After a kill, the parts list all phases that began, and whether each is still open.
#[test]
fn phases_open_at_a_kill_are_reported() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let pmu = TestPmu::load("set=spe");
    let cgroup = TestCgroup::new("killed");
    let mut load = cgroup.load("mark start=outer burn=300 start=inner burn=300 stop burn=20000");
    let pid = load.pid();
    pmu.control(&format!(
        "spe op {pid} 1 load 0x00 0 20 10 5 2 0x16 0x100010"
    ));
    let recording = Recording::new();
    let mut child = recording.begin(&format!("--regions -p {pid}"));
    load.go();
    // The first part is complete after ten seconds.
    let parts = recording.path().with_extension("parquet.parts");
    let has_part = || {
        let files = fs::read_dir(&parts).unwrap();
        let mut names = files.map(|file| file.unwrap().file_name());
        names.any(|name| {
            let name = name.to_string_lossy();
            !name.starts_with('.') && name.ends_with(".parquet")
        })
    };
    while !has_part() {
        assert!(child.try_wait().unwrap().is_none(), "the recording ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let samples = SampleReader::open(&recording.path()).unwrap().unwrap();
    let read = Scatter::read("samples.parquet", samples).unwrap();
    let own = read.phases.iter().filter(|phase| phase.pid == pid);
    let phases: Vec<(&str, bool)> = own
        .map(|phase| (phase.name.as_str(), phase.until.is_some()))
        .collect();
    assert_eq!(phases, [("outer", false), ("outer/inner", true)]);
    let outer = read
        .sums
        .iter()
        .filter(|sum| sum.phase.as_deref() == Some("outer"));
    assert!(outer.map(|sum| sum.samples).sum::<u64>() > 0);
}
