//! The agent's samples of memory accesses without SPE, compared with test PMUs that know their
//! samples: AMD's `ibs_op`, and Intel's events of loads and stores.

use std::{
    collections::BTreeMap,
    fs, mem,
    time::{Duration, Instant, SystemTime},
};

use probe_common::spe::Class;
use probe_user::window::MemLevel;
use rustix::process::Signal;
use serde_json::Value;
use test_harness::{
    Load, TestCgroup,
    agent::{Agent, AgentOptions, Series, assert_no_step_back, container_id, find, own},
    collector::{Collector, Point, unix_time},
    machine,
};

use crate::{
    access_support::{MIXES, OTHER, Op, Truth, set_mix},
    guest::{skip, value},
    testpmu::TestPmu,
};

/// Two containers, each with its own mix of accesses and its own CPU.
struct Containers {
    // Dropped before their parent.
    all: Vec<(String, TestCgroup)>,
    /// Run before the containers, one on each CPU.
    first: [TestCgroup; 2],
    _pods: TestCgroup,
    pmu: TestPmu,
}

impl Containers {
    fn new(set: &str) -> Self {
        let pmu = TestPmu::load(&format!("set={set}"));
        pmu.control("sample ops_per_tick 0");
        let pods = TestCgroup::new("pods");
        let container = |number| {
            let id = container_id(number);
            let cgroup = pods.child(&format!("docker-{id}.scope"));
            (id, cgroup)
        };
        let all: Vec<_> = [1, 2].map(container).into();
        for ((_, cgroup), mix) in all.iter().zip(MIXES) {
            set_mix(&pmu, cgroup.id, mix);
        }
        let first = ["first", "second"].map(TestCgroup::new);
        for cgroup in &first {
            set_mix(&pmu, cgroup.id, &[OTHER]);
        }
        Self {
            all,
            first,
            _pods: pods,
            pmu,
        }
    }

    /// Runs both containers. No operations are executed before and after.
    ///
    /// Other cgroups run first, until the kernel has found the periods. The kernel begins with a
    /// period of one operation, so a tick of these PMUs raises a burst of samples, after which the
    /// period may be as long as hundreds of ticks.
    fn work(&self) {
        let raised = || {
            let truth = Truth::read("ibs_op");
            self.first.each_ref().map(|it| truth.raised(it.id, &OTHER))
        };
        let mut before = raised();
        let adapted = (0..50).any(|_| {
            self.run(self.first.each_ref(), 100_000, 100);
            let last = mem::replace(&mut before, raised());
            let mut samples = before.iter().zip(last).map(|(now, last)| now - last);
            // The frequency gives twenty samples; a busy machine has fewer.
            samples.all(|samples| (5..40).contains(&samples))
        });
        assert!(adapted, "the kernel has not found the periods: {before:?}");
        self.run_containers();
    }

    /// Runs only the two containers.
    fn run_containers(&self) {
        self.run([&self.all[0].1, &self.all[1].1], 100_000, 600);
    }

    /// Runs two cgroups, each on its CPU, for `millis`, with `operations` in a tick (1 ms). Returns
    /// the time for which both ran.
    fn run(&self, cgroups: [&TestCgroup; 2], operations: u64, millis: u32) -> Duration {
        let mut loads: Vec<Load> = (0..)
            .zip(cgroups)
            .map(|(cpu, it)| it.load(&format!("burn {cpu} {millis}")))
            .collect();
        self.pmu
            .control(&format!("sample ops_per_tick {operations}"));
        let began = Instant::now();
        loads.iter_mut().for_each(Load::go);
        loads.into_iter().for_each(|load| drop(load.finish()));
        let took = began.elapsed();
        self.pmu.control("sample ops_per_tick 0");
        took
    }
}

fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{value}\"")
}

/// A counter of a container's accesses by class and, if `source` is given, by source.
fn counter(
    series: &Series,
    family: &str,
    id: &str,
    class: Class,
    source: Option<&str>,
) -> Option<f64> {
    let (family, source) = match source {
        Some(source) => (
            format!("pmuscope_by_source_{family}_total{{"),
            label("source", source),
        ),
        None => (format!("pmuscope_{family}_total{{"), String::new()),
    };
    let class = label("operation", class.name());
    find(series, &[&family, &label("name", id), &class, &source])
}

/// The class of an operation, and the name of its source.
fn class_and_source(op: &Op) -> Option<(Class, String)> {
    let (class, level) = op.kind?;
    let name = match level {
        MemLevel::By(source) => source.name().to_owned(),
        _ => "not_said".to_owned(),
    };
    Some((class, name))
}

/// Samples in the agent's lines of JSON, by container, class and source.
#[derive(Default)]
struct JsonSamples(BTreeMap<(String, Class, String), u64>);

impl JsonSamples {
    /// Adds all windows up to one that began after now.
    fn read_windows(&mut self, agent: &Agent) {
        let now = unix_time();
        for _ in 0..2 {
            loop {
                let line = agent.window();
                self.add(&line);
                let time = humantime::parse_rfc3339(line["time"].as_str().unwrap()).unwrap();
                if time.duration_since(SystemTime::UNIX_EPOCH).unwrap() > now {
                    break;
                }
            }
        }
    }

    fn add(&mut self, line: &Value) {
        for row in line["rows"].as_array().unwrap() {
            for class in [Class::Load, Class::Store] {
                let sources = row["classes"][class.name()]["sources"].as_object();
                for (source, values) in sources.into_iter().flatten() {
                    let name = row["name"].as_str().unwrap_or_default().to_owned();
                    let taken = self.0.entry((name, class, source.clone())).or_default();
                    *taken += values["memory_accesses"]["raw"]
                        .as_u64()
                        .unwrap_or_default();
                }
            }
        }
    }
}

/// Asserts that each container has the raised samples, source by source, and that estimates match
/// its executed accesses.
#[track_caller]
fn assert_executed(what: &str, containers: &Containers, series: &Series, taken: &JsonSamples) {
    let truth = Truth::read("ibs_op");
    for ((id, cgroup), mix) in containers.all.iter().zip(MIXES) {
        let executed = truth.executed[&cgroup.id.0] as f64;
        let weights: u64 = mix.iter().map(|op| op.weight).sum();
        let (mut all, mut accesses) = (0.0, 0.0);
        for op in mix {
            let Some((class, source)) = class_and_source(op) else {
                continue;
            };
            let raised = truth.raised(cgroup.id, op);
            let key = (id.clone(), class, source.clone());
            let samples = taken.0.get(&key).copied().unwrap_or(0);
            let expected = executed * op.weight as f64 / weights as f64;
            let family = "memory_accesses_estimated";
            let estimate = counter(series, family, id, class, Some(&source)).unwrap();
            println!(
                "{what}: {} {source}: {samples} of {raised} samples, {estimate:.0} of \
                 {expected:.0}",
                class.name()
            );
            // Samples are missed at times, during the bpf(2) calls of a pull.
            assert!(
                samples <= raised && samples * 2 > raised,
                "{what}: {source}"
            );
            // The error of a hundred samples or more, with unequal periods.
            assert!(
                (estimate - expected).abs() < 0.25 * executed,
                "{what}: {source}"
            );
            all += estimate;
            accesses += expected;
        }
        assert!(
            (all / accesses - 1.0).abs() < 0.35,
            "{what}: {all} of {accesses}"
        );
    }
}

/// Number of series of a container's accesses.
fn count(series: &Series, id: &str) -> usize {
    let id = label("name", id);
    let names = series.keys();
    names
        .filter(|name| name.contains("_access") && name.contains(&id))
        .count()
}

#[test]
fn accesses_are_charged_to_their_containers_across_sessions() {
    let Some(_machine) = machine() else { return };
    let containers = Containers::new("ibs");
    let collector = Collector::start();
    let state = tempfile::tempdir().unwrap();
    let config = |interval: u32, events: &str| {
        format!(
            "interval = \"{interval}ms\"\n[otlp]\nendpoint = \"http://{}\"\n\
             [pins]\npath = \"/sys/fs/bpf/pmuscope\"\n[state]\npath = {:?}\n\
             [count]\nevents = \"{events}\"\nsample = \"cpu-clock/freq=97/\"\n\
             [spe]\nbudget = \"100%\"\n",
            collector.address,
            state.path()
        )
    };
    let text = config(200, "task-clock");
    let options = AgentOptions {
        config: &text,
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    let (mut last, mut taken) = (Series::new(), JsonSamples::default());
    let mut check = |what: &str, agent: &Agent| {
        taken.read_windows(agent);
        let mut now = agent.series();
        // An agent's own series start with its process.
        now.retain(|name, _| !name.starts_with("pmuscope_self_"));
        assert_no_step_back(&last, &now);
        assert_executed(what, &containers, &now, &taken);
        last = now;
    };
    let (id, _) = &containers.all[0];

    containers.work();
    check("at first", &agent);
    let log = agent.log();
    assert!(
        log.contains("sampled by AMD's ibs_op, by operations"),
        "{log}"
    );
    let points = collector.next_points();
    let pushed = points.iter().map(Point::series).filter(|(name, labels)| {
        name.contains("by_source_memory_accesses_estimated") && labels.contains(id.as_str())
    });
    assert_eq!(
        pushed.count(),
        3,
        "loads from level 1 and from memory, and stores of an unknown source"
    );
    agent.reload(&config(150, "task-clock"));
    containers.work();
    check("in the same session", &agent);
    assert_eq!(own(&agent.series(), "sessions_total"), 1.0);

    agent.reload(&config(200, "task-clock,minor-faults"));
    containers.work();
    check("in another session", &agent);

    let off = agent.run_file("spe.off");
    fs::write(&off, "").unwrap();
    let clock = |series: &Series| {
        let family = "pmuscope_sampled_cpu_clock_estimated_seconds_total{";
        find(series, &[family, &label("name", id)])
    };
    let without = agent.wait_until(|series| count(series, id) == 0);
    assert!(agent.log().contains("sampling of memory accesses ended"));
    containers.run_containers();
    agent.next_window();
    let series = agent.series();
    assert_eq!(count(&series, id), 0, "absent, not zero");
    assert!(
        clock(&series) > clock(&without),
        "other events are sampled on"
    );
    fs::remove_file(&off).unwrap();
    agent.wait_until(|series| own(series, "sessions_total") == 3.0);
    containers.work();
    check("after spe.off", &agent);

    agent.signal(Signal::KILL);
    agent.ended();
    let text = config(200, "task-clock,minor-faults");
    let options = AgentOptions {
        config: &text,
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    containers.work();
    check("after a kill", &agent);
    let series = agent.series();
    assert!(count(&series, id) <= 20, "{}", count(&series, id));
    assert_eq!(own(&series, "failures_total"), 0.0, "{}", agent.log());
}

/// If all counters are used, the events of Intel's cores are not sampled unless they are demanded.
/// Sampled loads keep their frequency in a phase of few loads after a phase of many, although the
/// kernel does not adapt the period (Linux 6.9).
#[test]
fn intel_events_take_no_counter_unless_demanded() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") == "arm64" {
        return skip("Intel's core PMU is named cpu, and counts the generic events of amd64 alone");
    }
    let containers = Containers::new("pebs");
    let config = |events: &str, enabled: &str| {
        format!(
            "interval = \"200ms\"\n[count]\nevents = \"{events}\"\n\
             [spe]\nenabled = {enabled}\nbudget = \"100%\"\n"
        )
    };
    let text = config("task-clock", "\"auto\"");
    let options = AgentOptions {
        config: &text,
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    containers.run(containers.first.each_ref(), 400_000, 400);
    let cgroups = [&containers.all[0].1, &containers.all[1].1];
    let took = containers.run(cgroups, 40_000, 2500);
    agent.next_window();
    let first = agent.series();
    let (loads, stores) = (Truth::read("mem-loads"), Truth::read("mem-stores"));
    for ((id, cgroup), mix) in containers.all.iter().zip(MIXES) {
        let raised: u64 = mix.iter().map(|op| loads.raised(cgroup.id, op)).sum();
        // The period of the burst, which the kernel would keep, is ten times as long. A guest on a
        // busy host has fewer ticks. Loads are executed in ticks, and the loads after a pause have
        // the period of the pause. The shortest period bounds the number of samples.
        let most = loads.executed[&cgroup.id.0] as f64 / 31_407.0;
        let due = most.min(199.0 * took.as_secs_f64());
        println!("{raised} samples of loads, {due:.0} by their frequency, {most:.0} at most");
        assert!(
            (0.3 * due..=most).contains(&(raised as f64)),
            "{raised} of {due}"
        );
        for op in mix {
            let Some((Class::Load, source)) = class_and_source(op) else {
                continue;
            };
            // The number of loads is unknown, so the samples are shown.
            let raised = loads.raised(cgroup.id, op) as f64;
            let taken = counter(
                &first,
                "chosen_access_samples",
                id,
                Class::Load,
                Some(&source),
            )
            .unwrap();
            println!("{source}: {taken} of {raised} samples");
            // Samples are missed at times, during the bpf(2) calls of a pull.
            assert!(
                taken <= raised && taken * 2.0 > raised,
                "{source}: {taken} of {raised}"
            );
        }
        let operations = "memory_accesses_estimated";
        assert_eq!(counter(&first, operations, id, Class::Load, None), None);
        let executed = stores.executed[&cgroup.id.0] as f64;
        let estimate = counter(&first, operations, id, Class::Store, None).unwrap();
        assert!(
            (estimate / executed - 1.0).abs() < 0.35,
            "{estimate} of {executed}"
        );
    }

    // The PMU has eight counters: five count, one is reserved, and two are left.
    let aux = |n: u32| format!("cpu/event=0x03,umask=0x82,ldlat={n}/");
    let five = (1..=5).map(aux).collect::<Vec<_>>().join(",");
    let (id, _) = &containers.all[0];
    agent.reload(&config(&five, "\"auto\""));
    containers.run_containers();
    agent.next_window();
    assert_eq!(count(&agent.series(), id), 0);
    let log = agent.log();
    assert!(
        log.contains("they take counters that events are counted with"),
        "{log}"
    );

    agent.reload(&config(&five, "true"));
    containers.run_containers();
    let again = agent.wait_until(|series| count(series, id) > 0);
    assert_no_step_back(&first, &again);
}

/// Events that the kernel refuses are not sampled. They are only an error if they are demanded.
#[test]
fn refused_events_are_not_sampled_unless_demanded() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") == "arm64" {
        return skip("Intel's core PMU is named cpu, and counts the generic events of amd64 alone");
    }
    let _pmu = TestPmu::load("set=pebs-noaux");
    let why = "another event leads (`mem-loads-aux`)";
    let options = AgentOptions {
        config: "interval = \"200ms\"\n[count]\nevents = \"task-clock\"\n",
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    agent.next_window();
    let log = agent.log();
    assert!(log.contains("memory accesses are not sampled: "), "{log}");
    assert!(log.contains(why), "{log}");
    agent.reload("interval = \"200ms\"\n[count]\nevents = \"task-clock\"\n[spe]\nenabled = true\n");
    let log = agent.log();
    let refused = log.split_once("the settings stay as they are: ").unwrap().1;
    assert!(
        refused.contains("cannot sample cpu/mem-loads,ldlat=3/ on CPU 0"),
        "{log}"
    );
    agent.next_window();
    assert_eq!(own(&agent.series(), "refused_reloads_total"), 1.0);
}
