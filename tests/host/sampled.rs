//! Sampled events: the estimates from samples match the counts, and functions have their names. All
//! tests use software events, which every machine can sample.

mod perf;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use probe_common::CgroupId;
use probe_user::{
    derive::statistics,
    event::sampling::sampled,
    machine::Pmus,
    session::SamplingConfig,
    snapshot::{OVERFLOW, SampledAddress, SampledEventHealth, Snapshot},
    window::{Owner, SampleKind, SampleWindow},
};
use test_harness::{
    Counting, Load, TestCgroup, load_binary, machine, online_cpus, pmuscope, shared_machine,
    this_machine,
};

pub(crate) fn config(events: &str) -> SamplingConfig {
    let machine = this_machine();
    let pmus: &Pmus = machine.pmus().unwrap();
    SamplingConfig {
        events: sampled(events, pmus, None).unwrap(),
        addresses: true,
        pages: true,
        ..SamplingConfig::default()
    }
}

fn counting(count: &str, sampling: SamplingConfig) -> Counting {
    Counting::with(count, |config| config.sampling = Some(sampling))
}

/// Number of samples of an event for a cgroup in a window, and the estimate with its confidence
/// interval.
fn cgroup_samples(
    window: &SampleWindow,
    cgroup: CgroupId,
    event: u8,
) -> (u64, statistics::ConfidenceInterval) {
    let usage = window.usage.get(&Owner { cgroup, tgid: 0 });
    let counts = usage.and_then(|usage| usage.get(&SampleKind::event(event, None)));
    let counts = counts.copied().unwrap_or_default();
    let estimate = statistics::count(counts.operations, counts.variance);
    (counts.samples, estimate)
}

fn health(snapshot: &Snapshot) -> &SampledEventHealth {
    &snapshot.samples.as_ref().unwrap().events[0]
}

#[test]
fn in_95_of_100_windows_the_interval_holds_what_was_counted() {
    const RUNS: usize = 100;
    let Some(_machine) = machine() else {
        return;
    };
    let cgroups = [TestCgroup::new("two"), TestCgroup::new("one")];
    let sampling = SamplingConfig {
        addresses: false,
        pages: false,
        ..config("minor-faults/period=10/,page-faults/freq=50000/")
    };
    let mut counting = counting("minor-faults", sampling);
    // Number of windows whose interval holds the count, by event and cgroup.
    let mut covered = [[0; 2]; 2];
    let (mut ratios, mut widths) = ([0.0; 2], Vec::new());
    for _ in 0..RUNS {
        let mut loads = [cgroups[0].load("touch 2000"), cgroups[1].load("touch 1000")];
        counting.first = counting.session.pull().unwrap();
        loads.iter_mut().for_each(Load::go);
        for load in loads {
            load.finish();
        }
        let window = counting.window();
        let sampled = window.samples.as_ref().unwrap();
        for (at, cgroup) in cgroups.iter().enumerate() {
            let exact = counting.count(&window, "minor-faults", cgroup.id).unwrap() as f64;
            for (event, covered) in (0..).zip(&mut covered) {
                let (_, estimate) = cgroup_samples(sampled, cgroup.id, event);
                covered[at] += usize::from((estimate.low..=estimate.high).contains(&exact));
            }
            let (samples, estimate) = cgroup_samples(sampled, cgroup.id, 0);
            assert!(samples > 20, "{samples} samples of {exact} faults");
            let width = (estimate.high - estimate.low) / estimate.value;
            widths.push(width * (samples as f64).sqrt());
            ratios[at] += estimate.value;
        }
    }
    println!("covered {covered:?} of {RUNS}, sums {ratios:?}");
    assert!(covered.as_flattened().iter().all(|covered| *covered >= 93));
    // The width must be appropriate too. The relative width for n samples is 3.9 / sqrt(n).
    widths.sort_by(f64::total_cmp);
    let median = widths[RUNS];
    assert!((3.0..5.0).contains(&median), "{median}");
    // With 30,000 samples the ratio is accurate to 2%. The loads have some faults in addition.
    let ratio = ratios[0] / ratios[1];
    assert!((1.8..2.2).contains(&ratio), "{ratio}");
}

/// The timer of a sample coincides with the timer that wakes a sleeping task, so samples hit the
/// task's work too rarely. The row shows the counted time.
#[test]
fn a_task_that_sleeps_by_timers_has_its_whole_time() {
    let Some(_machine) = machine() else { return };
    let load = load_binary();
    let output = pmuscope()
        .args(["stat", "--sample", "cpu-clock", "-e", "task-clock"])
        .args(["--format", "json", "--runtime-endpoint", "off"])
        .args(["--output-fd", "1", "--"])
        .arg(&load)
        .args(["bursts", "0", "200", "300", "3000"])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut rows = report["rows"].as_array().unwrap().iter();
    let row = rows.find(|row| row["kind"] == "command").unwrap();
    let [sampled, counted] = ["sampled_cpu-clock", "task-clock"].map(|name| &row["events"][name]);
    println!("{sampled}, {counted}");
    assert_eq!(sampled["value"], counted["value"]);
    assert_eq!(sampled["method"], "sampled");
    assert!(sampled["raw"].as_u64().unwrap() > 100, "{sampled}");
    let bounds = ["low", "high", "counting_error"].map(|key| sampled.get(key));
    assert_eq!(bounds, [None; 3], "{sampled}");
}

/// Where no clock is counted, a confidence interval of clock samples would be wrong.
#[test]
fn samples_of_a_clock_alone_have_no_interval() {
    let Some(_machine) = machine() else { return };
    let output = pmuscope()
        .args([
            "stat",
            "--sample",
            // In a guest, an interrupt each millisecond would take most of the time at user level.
            "cpu-clock/period=5003333/,cpu-clock/period=5003333/u",
            "-e",
            "minor-faults",
        ])
        .args(["--format", "json", "--runtime-endpoint", "off"])
        .args(["--output-fd", "1", "--"])
        .arg(load_binary())
        .args(["burn", "0", "600"])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut rows = report["rows"].as_array().unwrap().iter();
    let row = rows.find(|row| row["kind"] == "command").unwrap();
    for event in ["sampled_cpu-clock", "sampled_cpu-clock:u"] {
        let sampled = &row["events"][event];
        println!("{sampled}");
        // A part of the load's time is in the kernel.
        assert!(sampled["value"].as_f64().unwrap() > 50e6, "{sampled}");
        assert_eq!(["low", "high"].map(|key| sampled.get(key)), [None; 2]);
    }
}

/// The kernel counts a clock at all privilege levels, also where its samples exclude one.
#[test]
fn a_clock_of_one_level_stands_for_the_time_at_that_level() {
    // Not a multiple of the tick, because a sample at a tick is always in the kernel.
    const PERIOD: u32 = 207_143;
    let Some(_machine) = machine() else {
        return;
    };
    let cgroup = TestCgroup::new("levels");
    let sampling = SamplingConfig {
        addresses: false,
        ..config(&format!(
            "cpu-clock/period={PERIOD}/u,task-clock/period={PERIOD}/k"
        ))
    };
    let mut counting = counting("cpu-clock", sampling);
    // The load runs in user mode, except for some system calls.
    cgroup.load("count 1000000 1500").finish();
    let window = counting.window();
    let counted = counting.count(&window, "cpu-clock", cgroup.id).unwrap() as f64;
    let sampled = window.samples.as_ref().unwrap();
    let owner = Owner {
        cgroup: cgroup.id,
        tgid: 0,
    };
    let load_time = |event: u8| {
        let counts = sampled.usage[&owner].get(&SampleKind::event(event, None));
        let counts = counts.copied().unwrap_or_default();
        let due = f64::from(PERIOD) * counts.samples as f64;
        assert_eq!(counts.operations, due);
        counts.operations
    };
    let [user, kernel] = [0, 1].map(load_time);
    let taken = counting.taken() as f64;
    println!("user {user}, kernel {kernel} of {counted} ns, {taken} taken");
    if taken > 0.05 * counted {
        // The clock includes the time that interrupts and the hypervisor take. Samples miss this
        // time, or hit the interrupts.
        println!("skipped: interrupts and the hypervisor take much of this machine's time");
        return;
    }
    assert!((0.9 * counted..1.1 * counted).contains(&user), "{user}");
    assert!(kernel < 0.1 * counted, "{kernel}");
    assert!(sampled.events.iter().all(|it| it.gained.missed == 0));
}

/// The time to resolve function names is not part of the window: counts are read before.
#[test]
fn naming_does_not_change_the_counts_of_a_window() {
    let Some(_machine) = machine() else {
        return;
    };
    let busy = TestCgroup::new("busy");
    let cpus = online_cpus();
    let mut loads: Vec<Load> = cpus
        .iter()
        .map(|cpu| busy.load(&format!("burn {cpu} 60000")))
        .collect();
    loads.iter_mut().for_each(Load::go);
    let mut counting = counting("task-clock", config("cpu-clock/freq=10000/"));
    // Some pulls wait for a CPU while they read counts.
    let mut parts: Vec<f64> = (0..9)
        .map(|_| {
            let began = Instant::now();
            let window = counting.window();
            let took = began.elapsed().as_nanos() as f64;
            let counted = window.total.delta[0].as_ref().unwrap().counts[0];
            counting.assert_whole_time(&window, counted, 1.0);
            counting.first = counting.session.pull().unwrap();
            window.health.skew.unwrap() as f64 / took
        })
        .collect();
    parts.sort_by(f64::total_cmp);
    println!("parts of pulls in which counts are read: {parts:.2?}");
    assert!(parts[4] < 0.25, "{parts:?}");
}

/// Page faults of the ended children that this process has waited for (`proc_pid_stat(5)`).
fn faults_of_children() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // cminflt and cmajflt.
    [8, 10]
        .map(|at: usize| fields[at].parse::<u64>().unwrap())
        .iter()
        .sum()
}

/// With a period of 1 each fault is a sample. For each of many processes the samples match the
/// counts.
#[test]
fn thousands_of_processes_have_a_sample_for_each_fault() {
    const PROCESSES: usize = 10_000;
    let Some(_machine) = machine() else {
        return;
    };
    let cgroup = TestCgroup::new("many");
    let mut counting = Counting::with("page-faults", |config| {
        config.by_process = true.into();
        config.sampling = Some(SamplingConfig {
            addresses: false,
            pages: false,
            ..self::config("page-faults/period=1/")
        });
    });
    let faults_before = faults_of_children();
    let mut load = cgroup.load(&format!("forks {PROCESSES} 0"));
    load.go();
    while !load.has_ended() {
        // `hot` and `stat` drain the rings in this way between rare pulls.
        counting.session.upkeep().unwrap();
    }
    let now = counting.session.pull().unwrap();
    let before = health(&counting.first).clone();
    let window = SampleWindow::between(&counting.first, &now).unwrap();
    let ours = |owner: &&Owner| owner.cgroup == cgroup.id;
    let processes = window.usage.keys().filter(ours).count();
    let sampled: f64 = window
        .usage
        .iter()
        .filter(|(owner, _)| owner.cgroup == cgroup.id)
        .flat_map(|(_, usage)| usage.values())
        .map(|counts| counts.operations)
        .sum();
    let rows = now.rows.iter();
    let rows = rows.chain(now.freed.iter().map(|(key, row)| (key, row)));
    let counted: u64 = rows
        .filter(|(key, _)| key.cgroup == cgroup.id)
        .map(|(_, row)| row.counts[0])
        .sum();
    let after = health(&now);
    let missed = after.missed - before.missed;
    println!("{processes} rows, counted {counted}, sampled {sampled}, missed {missed}");
    let kernel_count = faults_of_children() - faults_before;
    println!("the kernel's own count: {kernel_count}");
    // The kernel's count includes the pages of arguments and environment, which it writes at exec.
    let environment = std::fs::read("/proc/self/environ").unwrap().len();
    let written = PROCESSES as u64 * (environment as u64 / 4096 + 2);
    assert!(
        (kernel_count - written..=kernel_count).contains(&counted),
        "{counted}"
    );
    // Each process has its own row, or is in the sum of those that ended.
    assert!(processes > 100, "{processes}");
    assert_eq!(after.sum.overflow.samples, 0);
    // While a pull reads thousands of rows, the kernel suppresses the samples on that CPU.
    assert!(missed < counted / 2, "{missed} missed of {counted}");
    // The next sample of the CPU stands for the missed ones.
    let difference = (sampled - counted as f64).abs();
    assert!(
        difference <= missed as f64 + 0.001 * counted as f64,
        "{difference} of {counted}, missed {missed}"
    );
}

#[test]
fn rows_without_room_are_counted() {
    let Some(_machine) = machine() else {
        return;
    };
    let cgroups: Vec<TestCgroup> = (0..8).map(|_| TestCgroup::new("full")).collect();
    let mut counting = counting(
        "page-faults",
        SamplingConfig {
            max_rows: Some(2),
            max_addresses: Some(4),
            ..config("page-faults/period=1/")
        },
    );
    for cgroup in &cgroups {
        cgroup.load("touch 500").finish();
    }
    // Other processes are sampled meanwhile. The second pull reads rows and addresses before the
    // number of samples. So its rows and addresses have at least the samples of the first pull, and
    // at most those of the second.
    let [first, now] = [(); 2].map(|()| counting.session.pull().unwrap());
    let (least, most) = (health(&first).sum.samples, health(&now).sum.samples);
    let reading = now.samples.as_ref().unwrap();
    let health = health(&now);
    let overflow = reading
        .rows
        .iter()
        .filter(|(key, _)| key.cgroup == OVERFLOW);
    let overflow: u64 = overflow.map(|(_, counts)| counts.samples).sum();
    assert!(
        overflow > 1000 && overflow == health.sum.overflow.samples,
        "{overflow}"
    );
    assert!(health.sum.full > 0, "{health:?}");
    let assert_all = |what: &str, samples: u64| {
        assert!(
            (least..=most).contains(&samples),
            "{what}: {samples} of {least} to {most}"
        );
    };
    let freed = reading.freed.iter().map(|(_, counts)| counts);
    let rows: u64 = reading
        .rows
        .values()
        .chain(freed)
        .map(|it| it.samples)
        .sum();
    assert_all("rows", rows);
    let address_samples = |page: bool| -> u64 {
        let addresses = reading.addresses.iter().filter(|(key, _)| key.page == page);
        addresses.map(|(_, counts)| counts.samples).sum()
    };
    assert_all("instructions", address_samples(false) + health.sum.unplaced);
    assert_all("pages", address_samples(true) + health.sum.unpaged);
    assert!(health.sum.unpaged > 1000, "{health:?}");
}

/// Compiles a program with a function of this name that takes some time and then executes the
/// program's argument. The function is at the same address in all such programs.
fn program(directory: &Path, function: &str) -> PathBuf {
    let source = directory.join(format!("{function}.c"));
    let text = "#include <unistd.h>\n\
                __attribute__((noinline)) void FUNCTION(void)\n\
                { for (volatile long i = 0; i < 4000000000; i++); }\n\
                int main(int n, char **all)\n\
                { FUNCTION(); return n > 1 ? execv(all[1], all + 1) : 0; }\n";
    std::fs::write(&source, text.replace("FUNCTION", function)).unwrap();
    let program = directory.join(function);
    let compiler = Command::new("cc")
        .args(["-O1", "-no-pie", "-o"])
        .args([&program, &source])
        .status();
    assert!(compiler.unwrap().success());
    program
}

#[test]
fn a_program_that_is_executed_at_the_same_addresses_has_its_own_names() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| program(directory.path(), name));
    let mut counting = counting("task-clock", config("cpu-clock/period=100000/u"));
    let mut child = Command::new(first).arg(second).spawn().unwrap();
    let pid = child.id();
    let samples = |window: &SampleWindow, function: &str| -> u64 {
        let named = |key: &SampledAddress| {
            let place = window.places.get(&key.code_key());
            place.is_some_and(|place| place.function.as_deref() == Some(function))
        };
        let all = window.addresses.iter();
        let all = all.filter(|(key, _)| key.tgid == pid && !key.page && named(key));
        all.map(|(_, counts)| counts.samples).sum()
    };
    // Samples at one address between two reads get the name from the first mapping, so reads are
    // frequent.
    while child.try_wait().unwrap().is_none() {
        counting.session.pull().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let window = counting.window().samples.unwrap();
    let [first, second] = ["first", "second"].map(|name| samples(&window, name));
    println!("{first} and {second} samples");
    assert!(first > 1000 && second > 1000, "{first} {second}");
    assert!(first < 3 * second && second < 3 * first, "{first} {second}");
}

#[test]
fn samples_of_an_ended_container_are_in_one_more_snapshot() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let cgroup = TestCgroup::new("ended");
    let id = cgroup.id;
    let mut counting = counting("page-faults", config("page-faults/period=1/"));
    cgroup.load("touch 300").finish();
    drop(cgroup);
    let owners = |snapshot: &Snapshot| -> HashSet<CgroupId> {
        let samples = snapshot.samples.as_ref().unwrap();
        let freed = samples.freed.iter().map(|(key, _)| key);
        samples
            .rows
            .keys()
            .chain(freed)
            .map(|key| key.cgroup)
            .collect()
    };
    let pull = |counting: &mut Counting| counting.session.pull().unwrap();
    let first = pull(&mut counting);
    assert!(owners(&first).contains(&id));
    let window = SampleWindow::between(&counting.first, &first).unwrap();
    let (samples, _) = cgroup_samples(&window, id, 0);
    assert!(samples >= 300, "{samples}");
    // The end of the process may be sampled in a later snapshot.
    let later: Vec<Snapshot> = (0..4).map(|_| pull(&mut counting)).collect();
    assert!(!owners(&later[3]).contains(&id));
}
