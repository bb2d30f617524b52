//! The agent's samples of memory accesses without SPE, against PMUs that know what they raised:
//! AMD's `ibs_op`, and Intel's events of loads and stores.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant, SystemTime},
};

use probe_common::spe::Class;
use probe_user::window::Served;
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    access_support::{MIXES, Op, Truth, give},
    agent_process::{Agent, Given, Series, assert_no_step_back, container_id, find, own},
    collector::{Collector, Point, unix_time},
    guest::{skip, value},
    support::{Load, TestCgroup, machine},
    testpmu::TestPmu,
};

/// Two containers, each with a mix of accesses of its own and a CPU.
struct Containers {
    // Before what they are in.
    all: Vec<(String, TestCgroup)>,
    /// Runs before them.
    first: TestCgroup,
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
            give(&pmu, cgroup.id, mix);
        }
        Self {
            all,
            first: TestCgroup::new("first"),
            _pods: pods,
            pmu,
        }
    }

    /// Both run; nobody executes anything before and after. Before them somebody else does, until
    /// the kernel has found the periods: it begins with one operation, for which a tick of these
    /// PMUs is a burst.
    fn work(&self) {
        self.work_after_burst(100_000, 600);
    }

    /// The same with so many operations in a tick, of a millisecond, and for so many milliseconds;
    /// those before them execute 100,000 in each. Returns for how long both ran.
    fn work_after_burst(&self, operations: u64, millis: u32) -> Duration {
        let run = |cgroups: [&TestCgroup; 2], millis: u32| {
            let mut loads: Vec<Load> = (0..)
                .zip(cgroups)
                .map(|(cpu, it)| it.load(&format!("burn {cpu} {millis}")))
                .collect();
            loads.iter_mut().for_each(Load::go);
            loads.into_iter().for_each(|load| drop(load.finish()));
        };
        self.pmu.control("sample ops_per_tick 100000");
        run([&self.first, &self.first], 400);
        self.pmu
            .control(&format!("sample ops_per_tick {operations}"));
        let began = Instant::now();
        run([&self.all[0].1, &self.all[1].1], millis);
        let took = began.elapsed();
        self.pmu.control("sample ops_per_tick 0");
        took
    }
}

fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{value}\"")
}

/// A counter of a container's accesses, by class and, where one is given, by source.
fn of(series: &Series, family: &str, id: &str, class: Class, source: Option<&str>) -> Option<f64> {
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

/// How the source of an operation is called.
fn source(op: &Op) -> Option<(Class, String)> {
    let (class, served) = op.kind?;
    let name = match served {
        Served::By(source) => source.name().to_owned(),
        _ => "not_said".to_owned(),
    };
    Some((class, name))
}

/// Samples that the lines of JSON tell of, by container, class and source.
#[derive(Default)]
struct Taken(BTreeMap<(String, Class, String), u64>);

impl Taken {
    /// Takes in all windows up to one that began after now.
    fn follow(&mut self, agent: &Agent) {
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
                    *taken += values["spe_operations"]["raw"].as_u64().unwrap_or_default();
                }
            }
        }
    }
}

/// Asserts that the samples of each container are those that were raised, source by source, and
/// that they stand for what it executed.
#[track_caller]
fn assert_executed(what: &str, containers: &Containers, series: &Series, taken: &Taken) {
    let truth = Truth::of("ibs_op");
    for ((id, cgroup), mix) in containers.all.iter().zip(MIXES) {
        let executed = truth.executed[&cgroup.id.0] as f64;
        let weights: u64 = mix.iter().map(|op| op.weight).sum();
        let (mut all, mut accesses) = (0.0, 0.0);
        for op in mix {
            let Some((class, source)) = source(op) else {
                continue;
            };
            let raised = truth.raised(cgroup.id, op);
            let key = (id.clone(), class, source.clone());
            let samples = taken.0.get(&key).copied().unwrap_or(0);
            let expected = executed * op.weight as f64 / weights as f64;
            let family = "spe_operations_estimated";
            let found = of(series, family, id, class, Some(&source)).unwrap();
            println!(
                "{what}: {} {source}: {samples} of {raised} samples, {found:.0} of {expected:.0}",
                class.name()
            );
            // A bpf(2) call, as a pull makes it, has a sample missed now and then.
            assert!(
                samples <= raised && samples * 2 > raised,
                "{what}: {source}"
            );
            // Of a hundred samples or more, with unequal periods.
            assert!(
                (found - expected).abs() < 0.25 * executed,
                "{what}: {source}"
            );
            all += found;
            accesses += expected;
        }
        assert!(
            (all / accesses - 1.0).abs() < 0.35,
            "{what}: {all} of {accesses}"
        );
    }
}

/// How many series the accesses of a container have.
fn count(series: &Series, id: &str) -> usize {
    let id = label("name", id);
    let names = series.keys();
    names
        .filter(|name| name.contains("_spe_") && name.contains(&id))
        .count()
}

#[test]
fn accesses_are_their_containers_whatever_happens_to_the_session() {
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
    let given = Given {
        config: &text,
        ..Given::default()
    };
    let mut agent = Agent::with(&given, |_| {});
    let (mut last, mut taken) = (Series::new(), Taken::default());
    let mut check = |what: &str, agent: &Agent| {
        taken.follow(agent);
        let mut now = agent.series();
        // What an agent says of itself begins with it.
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
    let pushed = points.iter().map(Point::series);
    let pushed = pushed.filter(|(name, labels)| {
        name.contains("by_source_spe_operations_estimated") && labels.contains(id.as_str())
    });
    assert_eq!(
        pushed.count(),
        3,
        "level 1, memory, and of stores nothing is said"
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
    containers.work();
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
    let given = Given {
        config: &text,
        ..Given::default()
    };
    let agent = Agent::with(&given, |_| {});
    containers.work();
    check("after a kill", &agent);
    let series = agent.series();
    assert!(count(&series, id) <= 20, "{}", count(&series, id));
    assert_eq!(own(&series, "failures_total"), 0.0, "{}", agent.log());
}

/// Where all counters are taken the events of Intel's cores stay out, unless they are demanded. What
/// is sampled keeps its frequency in a phase of few loads that follows one of many: the kernel does
/// not see to it (Linux 6.9).
#[test]
fn intels_events_take_no_counter_unasked() {
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
    let given = Given {
        config: &text,
        ..Given::default()
    };
    let mut agent = Agent::with(&given, |_| {});
    let took = containers.work_after_burst(10_000, 1500);
    agent.next_window();
    let first = agent.series();
    let (loads, stores) = (Truth::of("mem-loads"), Truth::of("mem-stores"));
    for ((id, cgroup), mix) in containers.all.iter().zip(MIXES) {
        let raised: u64 = mix.iter().map(|op| loads.raised(cgroup.id, op)).sum();
        let due = 199.0 * took.as_secs_f64();
        println!("{raised} samples of loads, {due:.0} by their frequency");
        assert!(
            (0.5..2.0).contains(&(raised as f64 / due)),
            "{raised} of {due}"
        );
        for op in mix {
            let Some((Class::Load, source)) = source(op) else {
                continue;
            };
            // Nobody knows how many loads there were: the samples are shown.
            let raised = loads.raised(cgroup.id, op) as f64;
            let taken = of(&first, "spe_samples", id, Class::Load, Some(&source)).unwrap();
            println!("{source}: {taken} of {raised} samples");
            // A bpf(2) call, as a pull makes it, has a sample missed now and then.
            assert!(
                taken <= raised && taken * 2.0 > raised,
                "{source}: {taken} of {raised}"
            );
        }
        let operations = "spe_operations_estimated";
        assert_eq!(of(&first, operations, id, Class::Load, None), None);
        let executed = stores.executed[&cgroup.id.0] as f64;
        let found = of(&first, operations, id, Class::Store, None).unwrap();
        assert!(
            (found / executed - 1.0).abs() < 0.35,
            "{found} of {executed}"
        );
    }

    // The PMU has room for eight: five that are counted, one that stays free, and two more.
    let aux = |n: u32| format!("cpu/event=0x03,umask=0x82,ldlat={n}/");
    let five = (1..=5).map(aux).collect::<Vec<_>>().join(",");
    let (id, _) = &containers.all[0];
    agent.reload(&config(&five, "\"auto\""));
    containers.work();
    agent.next_window();
    assert_eq!(count(&agent.series(), id), 0);
    let log = agent.log();
    assert!(
        log.contains("they take counters that events are counted with"),
        "{log}"
    );

    agent.reload(&config(&five, "true"));
    containers.work();
    let again = agent.wait_until(|series| count(series, id) > 0);
    assert_no_step_back(&first, &again);
}

/// What the kernel refuses is not sampled, and ends the start only where it is demanded.
#[test]
fn what_is_refused_is_not_sampled_unless_demanded() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") == "arm64" {
        return skip("Intel's core PMU is named cpu, and counts the generic events of amd64 alone");
    }
    let _pmu = TestPmu::load("set=pebs-noaux");
    let why = "another event leads (`mem-loads-aux`)";
    let given = Given {
        config: "interval = \"200ms\"\n[count]\nevents = \"task-clock\"\n",
        ..Given::default()
    };
    let mut agent = Agent::with(&given, |_| {});
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
