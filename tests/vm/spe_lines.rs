//! Cache lines that containers share, compared with a PMU that knows which bytes were accessed.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
};

use probe_common::{
    CgroupId,
    spe::{LineKey, LineRow},
};
use probe_user::{machine::Pmus, session::spe::SpeEvents};
use test_harness::{Load, TestCgroup, machine, pmuscope};

use crate::{
    guest::{skip, value},
    signals::kill,
    spe_support::{PERIOD, Sampling, SpePull, assert_conserved, counted, samples},
    testpmu::TestPmu,
};

/// Whether data sources are known. On other architectures than Arm's, no access is known to come
/// from another core.
fn sources_are_known() -> bool {
    let known = value("ARCH") == "arm64";
    if !known {
        skip("this architecture has no data sources");
    }
    known
}

/// A line that both containers access, and one that only the second accesses.
const SHARED: u64 = 0x8000_1040;
const PRIVATE: u64 = 0x8000_2000;

/// Sets the accesses: the first process writes or swaps byte 0 of the shared line; the second reads
/// bytes 32 and 40, and gets byte 32 from another core's cache.
fn accesses(pmu: &TestPmu, first: u32, second: u32) {
    pmu.control("spe clear");
    for (process, access) in [
        (first, format!("3 store 0x01 - 6 0 2 1 0x0016 {SHARED:#x}")),
        (
            first,
            format!("1 load 0x06 0x9 90 0 2 1 0x001e {SHARED:#x}"),
        ),
        (
            second,
            format!("3 load 0x00 0x9 100 0 2 1 0x001e {:#x}", SHARED + 32),
        ),
        (
            second,
            format!("2 load 0x00 0x0 4 0 2 1 0x0016 {:#x}", SHARED + 40),
        ),
        (
            second,
            format!("1 store 0x01 - 6 0 2 1 0x0016 {PRIVATE:#x}"),
        ),
        (
            second,
            format!("1 load 0x00 0x0 4 0 2 1 0x0016 {:#x}", PRIVATE + 8),
        ),
    ] {
        pmu.control(&format!("spe op {process} {access}"));
    }
}

/// Samples two loads, one on each CPU, until they have ended.
fn sample(pmu: &TestPmu, terms: &str, loads: [Load; 2]) -> SpePull {
    pmu.control("spe reset");
    let mut sampling = Sampling::with(|config| {
        let pmus = Pmus::read(Path::new("/sys")).unwrap();
        let spe = config.spe.as_mut().unwrap();
        spe.events = SpeEvents::resolve(&pmus, terms, PERIOD).unwrap();
        spe.lines = 4096;
    });
    let mut loads = loads;
    loads.iter_mut().for_each(Load::go);
    loads.into_iter().for_each(|load| drop(load.finish()));
    sampling.end(pmu)
}

/// Accesses of each cgroup to a line of an address space, on all CPUs: a load starts on the CPU
/// where it waited.
fn rows(reading: &SpePull, line: u64, space: u64) -> BTreeMap<CgroupId, LineRow> {
    let mut sums = BTreeMap::new();
    for (key, row) in &reading.lines {
        if key.line != line >> 6 || key.space != space {
            continue;
        }
        let sum: &mut LineRow = sums.entry(key.cgroup).or_default();
        sum.loads += row.loads;
        sum.stores += row.stores;
        sum.atomics += row.atomics;
        sum.peers += row.peers;
        sum.cycles += row.cycles;
        sum.read |= row.read;
        sum.written |= row.written;
        sum.made = row.made;
    }
    sums
}

#[test]
fn lines_have_the_bytes_that_each_cgroup_accessed() {
    let Some(_machine) = machine() else { return };
    if !sources_are_known() {
        return;
    }
    let pmu = TestPmu::load("set=spe");
    for physical in [true, false] {
        pmu.control("spe ops_per_ms 1000000");
        let [a, b] = ["a", "b"].map(TestCgroup::new);
        let loads = [a.load("burn 0 200"), b.load("burn 1 200")];
        let [first, second] = [loads[0].pid(), loads[1].pid()];
        accesses(&pmu, first, second);
        let terms = if physical {
            "pa_enable=1"
        } else {
            "load_filter=1,store_filter=1"
        };
        let reading = sample(&pmu, terms, loads);
        assert_conserved(&reading);
        // The same eBPF program wrote rows of samples: each access must be in the lines exactly
        // once.
        let sampled =
            |cgroup: &TestCgroup| samples(&counted(&reading, |key| key.cgroup == cgroup.id));
        let space = |process: u32| {
            if physical {
                LineKey::PHYSICAL
            } else {
                process.into()
            }
        };
        let mut shared = rows(&reading, SHARED, space(first));
        if !physical {
            shared.extend(rows(&reading, SHARED, space(second)));
        }
        assert_eq!(shared.len(), 2, "{shared:?}");
        let [in_a, in_b] = [a.id, b.id].map(|cgroup| shared[&cgroup]);
        println!("{in_a:?} {in_b:?}");
        assert!(in_a.stores > in_a.atomics && in_a.atomics > 0);
        assert_eq!((in_a.loads, in_a.read, in_a.written), (0, 0, 1));
        // The data of all swaps came from another core.
        assert_eq!((in_a.peers, in_a.samples()), (in_a.atomics, sampled(&a)));
        assert_eq!(in_a.cycles, 6 * in_a.stores + 90 * in_a.atomics);
        assert_eq!((in_b.read, in_b.written), (1 << 32 | 1 << 40, 0));
        assert_eq!(
            in_b.cycles,
            100 * in_b.peers + 4 * (in_b.loads - in_b.peers)
        );
        assert!(in_b.peers > 0 && in_b.made > 0);
        let private = rows(&reading, PRIVATE, space(second));
        assert_eq!(private.len(), 1, "{private:?}");
        let unshared = private[&b.id];
        assert_eq!(
            (unshared.read, unshared.written, unshared.peers),
            (1 << 8, 1, 0)
        );
        assert_eq!(unshared.samples() + in_b.samples(), sampled(&b));
        // The table may drop accesses, which `lined` still counts.
        let sum = &reading.health.sum;
        let retained: u64 = reading.lines.iter().map(|(_, row)| row.samples()).sum();
        println!(
            "{} of {} in {} rows",
            retained,
            sum.lined,
            reading.lines.len()
        );
        assert!(retained <= sum.lined && sum.lined <= sum.records && sum.unlined == 0);
    }
}

/// The output of `mem` on false sharing between two containers, without lines that are not shared.
#[test]
fn mem_shows_false_sharing_between_containers() {
    let Some(_machine) = machine() else { return };
    if !sources_are_known() {
        return;
    }
    let pmu = TestPmu::load("set=spe");
    let [a, b] = ["a", "b"].map(TestCgroup::new);
    let mut loads = [a.load("burn 0 300"), b.load("burn 1 300")];
    accesses(&pmu, loads[0].pid(), loads[1].pid());
    let mut mem = pmuscope()
        .args(["mem", "-I", "400", "--by", "cgroup", "--format", "json"])
        .args([
            "--period",
            "4096",
            "--spe-irq-max",
            "1000ms",
            "--hot-lines",
            "4",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut windows = BufReader::new(mem.stdout.take().unwrap()).lines();
    // Sampling has started.
    windows.next().unwrap().unwrap();
    loads.iter_mut().for_each(Load::go);
    loads.into_iter().for_each(|load| drop(load.finish()));
    kill("-INT", mem.id());
    let mut checked = 0;
    for window in windows {
        let window: serde_json::Value = serde_json::from_str(&window.unwrap()).unwrap();
        let (all, retained) = (
            &window["spe_line_samples"],
            &window["spe_line_samples_kept"],
        );
        assert!(
            retained.as_u64().unwrap() <= all.as_u64().unwrap(),
            "{window}"
        );
        let lines = window["lines"].as_array().unwrap();
        let private = format!("phys:{PRIVATE:#x}");
        assert!(
            // A load that moved between CPUs shares the line with itself.
            lines
                .iter()
                .filter(|row| row["line"] == private.as_str())
                .all(|row| row["owner"]["name"] == b.path.as_str()),
            "{lines:?}"
        );
        let shared = format!("phys:{SHARED:#x}");
        let line_rows: Vec<_> = lines
            .iter()
            .filter(|row| row["line"] == shared.as_str())
            .collect();
        let row = |cgroup: &TestCgroup| {
            line_rows
                .iter()
                .find(|row| row["owner"]["name"] == cgroup.path.as_str())
        };
        // On a busy host only one of the containers may run in a window.
        let (Some(of_a), Some(of_b)) = (row(&a), row(&b)) else {
            continue;
        };
        checked += 1;
        assert_eq!(line_rows.len(), 2, "{line_rows:?}");
        assert_eq!(
            (&of_a["sharing"], &of_a["line_cpus"]),
            (&"disjoint".into(), &2.into())
        );
        assert_eq!(
            (&of_a["bytes_read"], &of_a["bytes_written"]),
            (&"".into(), &"0".into())
        );
        assert_eq!(
            (&of_b["bytes_read"], &of_b["bytes_written"]),
            (&"32 40".into(), &"".into())
        );
        let number = |row: &serde_json::Value, name: &str| row[name].as_u64().unwrap();
        assert!(number(of_a, "spe_writes") > 0 && number(of_a, "spe_reads") == 0);
        assert!(number(of_b, "spe_reads") > 0);
        assert!(
            of_b["spe_from_other_cores"]["value"].as_f64().unwrap() > 0.0,
            "{of_b}"
        );
    }
    assert!(mem.wait().unwrap().success());
    assert!(checked > 0, "no window has both containers");
}
