//! Comparisons with other tools: perf has the same counts, and runc's container has its id.

use std::{
    fs,
    process::{Command, Stdio},
    time::SystemTime,
};

use probe_common::CpuCounts;
use test_harness::{Counting, Load, TestCgroup, assert_within, machine, pmuscope, shared_machine};

use crate::runc::{Container, busybox};

pub(crate) fn has(program: &str) -> bool {
    let is_installed = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !is_installed {
        println!(
            "skipped: {program} is not installed (apt-get install linux-perf runc containerd \
             busybox-static prometheus)"
        );
    }
    is_installed
}

#[test]
fn perf_stat_for_each_cgroup_counts_the_same() {
    let Some(_machine) = machine().filter(|_| has("perf")) else {
        return;
    };
    let cgroups = [TestCgroup::new("a"), TestCgroup::new("b")];
    let names: Vec<_> = cgroups
        .iter()
        .map(|cgroup| cgroup.path.trim_start_matches('/'))
        .collect();
    let mut loads: Vec<Load> = vec![
        cgroups[0].load("burst 0 3000 1000 1500"),
        // The ticks of /proc/stat limit the accuracy: up to three are missing, so the run must be
        // long enough for 1%.
        cgroups[0].load("burn 1 3000"),
        cgroups[0].load("touch 5000"),
        cgroups[1].load("burn 0 3000"),
        cgroups[1].load("forks 50 8"),
    ];
    // The order: perf opens its counters and reports that on its control pipe, then pmuscope
    // starts, then the loads.
    let directory = tempfile::tempdir().unwrap();
    let [control, ack] = ["control", "ack"].map(|name| directory.path().join(name));
    for fifo in [&control, &ack] {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            fifo,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
    }
    let mut perf = Command::new("perf")
        .args([
            "stat",
            "--no-big-num",
            "-x,",
            "-a",
            "-D",
            "-1",
            "-e",
            "cpu-clock,page-faults,context-switches",
        ])
        .args(["--for-each-cgroup", &names.join(",")])
        .arg(format!(
            "--control=fifo:{},{}",
            control.display(),
            ack.display()
        ))
        .arg("cat")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut counting = Counting::start("task-clock,page-faults,context-switches");
    fs::write(&control, "enable\n").unwrap();
    let mut line = [0; 5];
    std::io::Read::read_exact(&mut fs::File::open(&ack).unwrap(), &mut line).unwrap();
    loads.iter_mut().for_each(Load::go);
    loads.into_iter().for_each(|load| drop(load.finish()));
    let window = counting.window();
    let taken = counting.taken();
    let [before, now] = [&counting.first.health, &window.health];
    let estimated = now.sum.missed_nanos - before.sum.missed_nanos;
    let hidden = |sum: &CpuCounts| sum.late + sum.missed_switches;
    let hidden = hidden(&now.sum) - hidden(&before.sum);
    // The end of the pipe ends cat, and so perf.
    drop(perf.stdin.take());
    let printed = String::from_utf8(perf.wait_with_output().unwrap().stderr).unwrap();
    println!("{printed}");

    for (cgroup, name) in cgroups.iter().zip(&names) {
        let by_perf = |event: &str| -> f64 {
            let line = printed.lines().find(|line| {
                let fields: Vec<_> = line.split(',').collect();
                fields.get(2) == Some(&event) && fields.get(3) == Some(name)
            });
            line.unwrap_or_else(|| panic!("no {event} of {name}"))
                .split(',')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        let ours = |event: &str| counting.count(&window, event, cgroup.id).unwrap();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "milliseconds of a test"
        )]
        let clock = (by_perf("cpu-clock") * 1e6) as u64;
        // pmuscope and perf read a counter at different points of a switch. They charge time that
        // the hypervisor takes between these points to different tasks.
        let clocks = clock.saturating_sub(taken + estimated)..=clock + taken + estimated;
        let counted = ours("task-clock");
        println!("{name}: counted {counted}, perf {clock}, taken {taken}, estimated {estimated}");
        let nearest = counted.clamp(*clocks.start(), *clocks.end());
        assert_within("clock", counted, nearest, 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count"
        )]
        let [faults, switches] =
            ["page-faults", "context-switches"].map(|event| by_perf(event) as u64);
        assert_within(
            &format!("{name} page-faults"),
            ours("page-faults"),
            faults,
            1.0,
        );
        // pmuscope counts a switch for the incoming task, perf for the outgoing one. At either end
        // of the window one switch per CPU may be open. A switch that the kernel hid is charged to
        // the task before it.
        let slack = 2 * test_harness::online_cpus().len() as u64 + switches / 100 + hidden;
        assert!(
            ours("context-switches").abs_diff(switches) <= slack,
            "{name}: {} {switches}",
            ours("context-switches")
        );
    }
}

#[test]
fn a_runc_container_shows_as_its_id() {
    let Some(_machine) = shared_machine().filter(|_| has("runc")) else {
        return;
    };
    let Some(busybox) = busybox() else {
        return;
    };
    let container = Container::new(0xabc, &busybox, &[]);
    // Work, so that there are counts.
    let spin = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
    let mut run = container.run(&["/bin/busybox", "sh", "-c", spin]);
    let mut counting = Counting::start("task-clock");
    let status = run.stdin(Stdio::null()).status().unwrap();
    assert!(status.success());
    let window = counting.window();
    let view = probe_user::join::View::default();
    let joined = view.join(counting.session.plan(), &window, None);
    let entity = probe_user::join::Entity::Container {
        id: container.id.as_str().into(),
        pod: None,
    };
    let usage = joined
        .of(&entity)
        .unwrap_or_else(|| panic!("no {entity:?} among {:?}", joined.rows));
    let usage = &usage.delta;
    assert!(
        usage[0]
            .as_ref()
            .is_some_and(|row| row.counts[0] > 1_000_000),
        "{usage:?}"
    );
}

/// The parser of Prometheus reads the counts of a container. Promtool needs timestamps to make a
/// block.
#[test]
fn prometheus_reads_what_stat_writes() {
    let Some(_machine) = shared_machine().filter(|_| has("promtool")) else {
        return;
    };
    let output = pmuscope()
        .args(["stat", "--self", "--format", "openmetrics"])
        .args(["-e", "task-clock,page-faults", "-M", "cpus_used"])
        .args(["--output-fd", "1", "--", "sh", "-c", "true"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |name: &str, labels: &str| {
        let start = format!(r#"pmuscope_{name}{{kind="command",name="sh"{labels}}} "#);
        let value = text.lines().find_map(|line| line.strip_prefix(&start));
        let value = value.unwrap_or_else(|| panic!("no {start} in\n{text}"));
        value.parse::<f64>().unwrap()
    };
    let faults = value("events_total", r#",event="page-faults",group="0""#);
    assert!(faults > 0.0, "{text}");
    let estimated = value("events_estimated_total", r#",event="page-faults""#);
    assert_eq!(estimated, faults, "software events are always running");
    let [enabled, running] = ["enabled", "running"]
        .map(|time| value(&format!("events_{time}_seconds_total"), r#",group="0""#));
    assert_eq!(enabled, running);
    assert!(enabled > 0.0, "{text}");
    let created = value("events_created", r#",event="page-faults",group="0""#);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap().as_secs_f64();
    assert!(created < now && now < created + 3600.0, "{created} {now}");
    let timed = text.lines().map(|line| match line.starts_with('#') {
        true => format!("{line}\n"),
        false => format!("{line} 1700000000\n"),
    });
    let directory = tempfile::tempdir().unwrap();
    let [input, blocks] = ["input", "blocks"].map(|name| directory.path().join(name));
    fs::write(&input, timed.collect::<String>()).unwrap();
    let read = Command::new("promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([input, blocks])
        .output()
        .unwrap();
    assert!(read.status.success(), "{read:?}\n{text}");
}
