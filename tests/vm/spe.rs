//! SPE records decoded and attributed in the kernel, compared with a PMU that knows what it wrote.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
    thread,
    time::Duration,
};

use probe_user::{
    machine::Pmus,
    session::spe::{SpeEvents, Timeline},
};
use test_harness::{Load, TestCgroup, machine, pmuscope};

use crate::{
    cli::{command, run_with_load},
    signals::{kill, stop},
    spe_support::{
        PERIOD, Sampling, Sums, assert_conserved, assert_exact, counted, sample, samples, stat,
        truth, written,
    },
    testpmu::TestPmu,
};

#[test]
fn every_record_is_charged_to_its_container() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let [a, b, c, d] = ["a", "b", "c", "d"].map(TestCgroup::new);
    let loads = [
        (&a, "burst 0 500 700 400"),
        (&b, "burn 0 300"),
        (&c, "burst 1 300 300 400"),
        (&d, "forks 20 2 ids"),
    ];
    let (mut sampling, processes) = sample(&pmu, &loads, Sampling::start);
    let reading = sampling.end(&pmu);
    println!("hook {:?}", reading.health.hook);
    let truth = truth();
    for (cgroup, processes) in [&a, &b, &c, &d].into_iter().zip(&processes) {
        assert_exact(&reading, &truth, &cgroup.path, cgroup.id, processes);
    }
    assert_conserved(&reading);
    assert_eq!(reading.health.sum.unattributed, [0; 4]);
    assert!(stat("full") > 10, "few buffers ran full");
}

/// Records of 32, 44 and other sizes, unaligned or mixed with records of 64 bytes. Each belongs to
/// its container, also across pages and at the buffer's end.
#[test]
fn records_of_every_layout_are_charged() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    for layout in 0..=2 {
        // Starts the PMU again: the end of the previous sampling stopped it.
        pmu.control("spe ops_per_ms 1000000");
        pmu.control(&format!("spe layout {layout}"));
        let a = TestCgroup::new("a");
        let (mut sampling, processes) = sample(&pmu, &[(&a, "burn 0 300")], Sampling::start);
        let reading = sampling.end(&pmu);
        let sum = &reading.health.sum;
        println!("layout {layout}: {:?}", reading.health);
        assert_exact(&reading, &truth(), "a", a.id, &processes[0]);
        assert_eq!((sum.undecoded, sum.bad, sum.skipped), (0, [0; 4], 0));
        if sum.missed_bytes == 0 {
            assert_eq!(sum.records, stat("written"));
        }
        // The last bytes of a half buffer, into which no record fits, are not in a chunk.
        assert!(sum.written() >= stat("bytes"));
        assert!(stat("full") > 3, "few buffers ran full");
    }
}

/// Cores without `ERnd` add jitter to each interval, others do not. In both cases estimates are
/// right.
#[test]
fn estimates_include_jitter() {
    let Some(_machine) = machine() else { return };
    for ernd in [0, 1] {
        let pmu = TestPmu::load(&format!("set=spe ernd={ernd}"));
        let a = TestCgroup::new("a");
        let (mut sampling, _) = sample(&pmu, &[(&a, "burn 0 500")], || {
            Sampling::with(|config| {
                let pmus = Pmus::read(Path::new("/sys")).unwrap();
                let spe = config.spe.as_mut().unwrap();
                spe.events = SpeEvents::resolve(&pmus, "jitter=1", PERIOD).unwrap();
            })
        });
        let reading = sampling.end(&pmu);
        let estimated: f64 = reading.rows.values().map(|counts| counts.operations).sum();
        let (executed, taken) = (stat("ops") as f64, stat("taken"));
        let error = estimated / executed - 1.0;
        println!("ernd {ernd}: {taken} samples, error {:+.3}%", error * 100.0);
        // The mean of jitter is 3.0% of this period.
        assert!(taken > 1000 && error.abs() < 0.005, "ernd {ernd}: {error}");
    }
}

/// Each process runs briefly; most have ended when their records are decoded.
#[test]
fn records_of_a_thousand_short_processes_are_charged() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    // The PMU's own account has 4,096 rows, and each process needs two.
    pmu.control("spe clear");
    pmu.control("spe op 0 3 load 0x00 0x8 12 8 2 1 0x001e");
    pmu.control("spe op 0 1 store 0x01 - 6 6 2 1 0x0016");
    let a = TestCgroup::new("a");
    let (mut sampling, processes) = sample(&pmu, &[(&a, "forks 1000 0 ids")], Sampling::start);
    let reading = sampling.end(&pmu);
    assert_eq!((processes[0].len(), stat("truth_lost")), (1001, 0));
    assert_exact(&reading, &truth(), "a", a.id, &processes[0]);
    assert_conserved(&reading);
    assert_eq!(reading.health.sum.unattributed, [0; 4]);
}

/// When all threads of a process are moved, their earlier records stay with the old cgroup.
#[test]
fn earlier_records_of_moved_threads_stay_with_the_old_cgroup() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let [a, b] = ["a", "b"].map(TestCgroup::new);
    // Long enough for a guest on a busy host to start `kill`.
    let mut load = a.load("threads 4 1500");
    let pid = load.pid();
    pmu.control("spe reset");
    let mut sampling = Sampling::start();
    load.go();
    let own = || samples(&written(&truth(), |row| row.tgid == pid));
    while own() < 200 {
        thread::sleep(Duration::from_millis(5));
    }
    stop(pid);
    // A stopped thread still runs, and is sampled, until its switch.
    let mut before = written(&truth(), |row| row.tgid == pid);
    loop {
        thread::sleep(Duration::from_millis(20));
        let now = written(&truth(), |row| row.tgid == pid);
        if now == before {
            break;
        }
        before = now;
    }
    b.adopt(pid);
    kill("-CONT", pid);
    load.finish();
    let reading = sampling.end(&pmu);
    let all = written(&truth(), |row| row.tgid == pid);
    let in_cgroup = |cgroup: &TestCgroup| counted(&reading, |key| key.cgroup == cgroup.id);
    println!("{} before, {} in all", samples(&before), samples(&all));
    assert_eq!(in_cgroup(&a), before);
    assert_eq!(
        samples(&in_cgroup(&a)) + samples(&in_cgroup(&b)),
        samples(&all)
    );
    assert!(samples(&in_cgroup(&b)) > 200);
    assert_conserved(&reading);
}

/// Owners of records without a thread id are found by the times of switches. Each container has its
/// own data source, so that each record in a wrong row is noticed even if sums are right.
#[test]
fn without_thread_ids_owners_are_found_by_time() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe context 0");
    let shares: Vec<f64> = (0..3).map(|_| misattributed(&pmu)).collect();
    println!("misattributed at switch boundaries: {shares:.3?} %");
    assert!(shares.iter().all(|share| *share < 1.0), "{shares:?}");
}

/// Misattributed records in percent of the containers' records: records of containers in other
/// rows, and records of others in containers' rows.
fn misattributed(pmu: &TestPmu) -> f64 {
    // Starts the PMU again: the end of the previous sampling stopped it.
    pmu.control("spe ops_per_ms 1000000");
    let [a, b, c] = ["a", "b", "c"].map(TestCgroup::new);
    // Data sources that no other load has.
    let loads = [
        (&a, "burst 0 8000 8000 600", 0x81),
        (&b, "burn 0 300", 0x82),
        (&c, "burst 1 9000 6000 600", 0x83),
    ];
    let mut running = loads.map(|(cgroup, words, source)| {
        let load = cgroup.load(words);
        pmu.control(&format!(
            "spe op {} 1 load 0x00 {source:#x} 12 8 2 1 0x001e",
            load.pid()
        ));
        load
    });
    pmu.control("spe reset");
    let mut sampling =
        Sampling::with(|config| config.spe.as_mut().unwrap().timeline = Timeline::On);
    running.iter_mut().for_each(Load::go);
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(50));
        sampling.pull();
    }
    running.into_iter().for_each(|load| drop(load.finish()));
    let reading = sampling.end(pmu);
    assert_conserved(&reading);
    assert_eq!(reading.health.sum.unattributed, [0; 4]);
    let truth = truth();
    let (mut all, mut lost, mut gained) = (0, 0, 0);
    for (cgroup, _, source) in loads {
        let of_source = |other: Option<u64>| other == Some(source);
        let own = |sums: &Sums| -> u64 {
            let own = sums.iter().filter(|((_, source), _)| of_source(*source));
            own.map(|(_, [samples, ..])| samples).sum()
        };
        let written = own(&written(&truth, |_| true));
        let in_own_row = own(&counted(&reading, |key| key.cgroup == cgroup.id));
        let in_all = own(&counted(&reading, |_| true));
        // Records of the other two containers already count as missing from their own rows.
        let watched = |source: Option<u64>| loads.iter().any(|load| source == Some(load.2));
        let others_in_row = samples(&counted(&reading, |key| {
            key.cgroup == cgroup.id && !watched(key.access.source())
        }));
        // With the kprobe a chunk may be lost, which is counted.
        let missing = reading.health.sum.missed_bytes / 64;
        let path = &cgroup.path;
        assert!(
            in_all <= written && written <= in_all + missing,
            "{path}: {in_all} of {written}"
        );
        println!(
            "{}: written {written}, {} of them in other rows; {others_in_row} of others in its row",
            cgroup.path,
            written - in_own_row
        );
        all += written;
        lost += written - in_own_row;
        gained += others_in_row;
    }
    assert!(all > 1000, "{all} records");
    (lost + gained) as f64 / all as f64 * 100.0
}

#[test]
fn sampling_continues_on_a_cpu_after_it_was_offline() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let a = TestCgroup::new("a");
    let online = |on: bool| {
        let value = if on { "1" } else { "0" };
        fs::write("/sys/devices/system/cpu/cpu1/online", value).unwrap();
    };
    let mut running: Vec<Load> = ["burst 0 300 300 600", "burn 1 500"]
        .map(|words| a.load(words))
        .into();
    pmu.control("spe reset");
    let mut sampling = Sampling::start();
    running.iter_mut().for_each(Load::go);
    let processes: Vec<u32> = running.iter().map(Load::pid).collect();
    for round in 0..3 {
        thread::sleep(Duration::from_millis(60));
        online(false);
        // In one round there is no pull while CPU 1 is offline.
        if round != 1 {
            sampling.pull();
        }
        online(true);
        sampling.session.drain().unwrap();
    }
    let again = a.load("burn 1 100");
    let later = again.pid();
    let before = samples(&written(&truth(), |row| row.tgid == later));
    again.finish();
    running.into_iter().for_each(|load| drop(load.finish()));
    let reading = sampling.end(&pmu);
    assert_conserved(&reading);
    let truth = truth();
    let own = samples(&written(&truth, |row| {
        processes.contains(&row.tgid) || row.tgid == later
    }));
    // Samples from before the load's move to the cgroup are not charged to this cgroup.
    let counted = samples(&counted(&reading, |key| key.cgroup == a.id));
    println!("counted {counted}, written {own}, {before} of them before the move");
    // With the kprobe a chunk may be lost, which is counted.
    let missing = reading.health.sum.missed_bytes / 64;
    let known = counted + before;
    assert!(known <= own && own <= known + missing, "missing {missing}");
    assert_eq!(reading.health.sum.unattributed, [0; 4]);
    let on_cpu_1 = reading.rows.keys().filter(|key| key.cpu == 1).count();
    assert!(on_cpu_1 > 0);
}

/// Each process has its own rows, and its hottest pages.
#[test]
fn pages_and_processes() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let a = TestCgroup::new("a");
    let mut running = ["burn 0 200", "burn 1 200"].map(|words| a.load(words));
    let processes = [0, 1].map(|at: usize| running[at].pid());
    pmu.control("spe reset");
    let mut sampling = Sampling::with(|config| {
        config.by_process = true.into();
        config.spe.as_mut().unwrap().pages = 4096;
    });
    // There is no pull before the processes end: it would free the rows of ended processes.
    running.iter_mut().for_each(Load::go);
    running.into_iter().for_each(|load| drop(load.finish()));
    let reading = sampling.end(&pmu);
    assert_conserved(&reading);
    let truth = truth();
    for process in processes {
        let written = written(&truth, |row| row.tgid == process);
        assert_eq!(counted(&reading, |key| key.tgid == process), written);
        let pages: Vec<_> = reading
            .pages
            .iter()
            .filter(|(key, _)| key.tgid == u64::from(process))
            .collect();
        let on_pages: u64 = pages.iter().map(|(_, row)| row.samples).sum();
        println!("{process}: {} pages, {on_pages} samples", pages.len());
        assert_eq!(on_pages, samples(&written));
        // The PMU's addresses are within 64 KiB of the process.
        assert!((1..=65_536 / rustix::param::page_size()).contains(&pages.len()));
    }
}

/// The output of `mem` on a command: its rows, and its exit code.
#[test]
fn mem_shows_the_command() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=spe");
    let (json, _) = run_with_load(
        "mem --format json --period 4096 --spe-irq-max 1ms --hot-pages 2 --self",
        "burn 0 200",
    );
    let loads = &command(&json)["classes"]["load"];
    let (samples, low, high) = (
        loads["memory_accesses"]["raw"].as_f64().unwrap(),
        loads["memory_accesses"]["low"].as_f64().unwrap(),
        loads["memory_accesses"]["high"].as_f64().unwrap(),
    );
    assert!(samples > 100.0);
    // Emulated decoding is slow: the estimate includes what the time limit skips.
    assert!(high >= samples * 4096.0 && low < high);
    assert!(
        loads["memory_access_latency_mean_cycles"]["value"]
            .as_f64()
            .unwrap()
            > 4.0
    );
    let pages = json["pages"].as_array().unwrap().iter();
    let page = pages
        .max_by_key(|page| page["memory_access_samples"].as_u64())
        .unwrap();
    assert!(
        page["memory_access_samples"].as_u64().unwrap() > 1,
        "{page}"
    );
    // The distribution of a page's latencies is not kept, so the error of their mean is unknown.
    let mean = &page["memory_access_latency_mean_cycles"];
    assert!(mean["value"].as_f64().unwrap() > 4.0, "{page}");
    assert!(mean["low"].is_null() && mean["high"].is_null(), "{page}");
    let mean = |end: &str| {
        loads["memory_access_latency_mean_cycles"][end]
            .as_f64()
            .unwrap()
    };
    assert!(
        mean("low") < mean("value") && mean("value") < mean("high"),
        "{loads}"
    );
    assert!(json["self"]["spe_decode_ns"].as_u64().unwrap() > 0);
}

/// Each interval has its own samples, and all intervals together have all samples.
#[test]
fn intervals_of_mem_add_up() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=spe");
    let a = TestCgroup::new("a");
    let mut mem = pmuscope()
        .args(["mem", "-I", "150", "--by", "process", "--format", "json"])
        .args(["--period", "4096", "--spe-irq-max", "1000ms", "--self"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(mem.stdout.take().unwrap()).lines();
    // Sampling has started.
    lines.next().unwrap().unwrap();
    let sampled = |window: String, pids: &[u32]| -> u64 {
        let window: serde_json::Value = serde_json::from_str(&window).unwrap();
        assert_eq!(window["self"]["spe_skipped_bytes"], 0, "{window}");
        let rows = (window["rows"].as_array().unwrap().iter())
            .filter(|row| pids.iter().any(|pid| row["pid"] == *pid));
        let classes = rows.flat_map(|row| row["classes"].as_object().unwrap().values());
        let samples = classes.map(|class| class["memory_accesses"]["raw"].as_u64().unwrap());
        samples.sum()
    };
    let (mut counted, mut pids) = (Vec::new(), Vec::new());
    // On a busy host all of a load may be in one window, so the second load starts after the window
    // with the first.
    for _ in 0..2 {
        let load = a.load("burn 0 400");
        pids.push(load.pid());
        load.finish();
        let first = counted.len();
        // A window without samples shows that all of the load's samples are in windows.
        while counted.last() != Some(&0) || counted[first..].iter().all(|samples| *samples == 0) {
            counted.push(sampled(lines.next().unwrap().unwrap(), &pids));
        }
    }
    kill("-INT", mem.id());
    counted.extend(lines.map(|window| sampled(window.unwrap(), &pids)));
    assert!(mem.wait().unwrap().success());
    let written = samples(&written(&truth(), |row| pids.contains(&row.tgid)));
    println!("{counted:?} of {written}");
    assert!(counted.iter().filter(|counted| **counted > 0).count() >= 2);
    assert_eq!(counted.iter().sum::<u64>(), written);
}
