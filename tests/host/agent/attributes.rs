//! Attribution: the agent shows for each container the CPU time that the kernel charged to it.

use std::path::Path;

use probe_user::machine::cgroup::Hierarchy;
use test_harness::{
    TestCgroup,
    agent::{Agent, Series, assert_no_step_back, container_id, find, nanos, own, uncertain_time},
    assert_within, cpu_time, hierarchy, machine, taken_time,
};

#[test]
fn container_cpu_time_matches_cpu_stat() {
    let Some(_machine) = machine() else { return };
    let agent = Agent::start();
    let id = container_id(1);
    let pods = TestCgroup::new("agent");
    let container = pods.child(&format!("docker-{id}.scope"));
    let taken = taken_time();
    let loads = [
        container.load("burn 0 300"),
        container.load("burst 1 1000 10000 300"),
    ];
    loads.into_iter().for_each(|load| drop(load.finish()));
    agent.next_window();
    let series = agent.series();
    let name = format!("name=\"{id}\"");
    let time = |family: &str| {
        let family = format!("pmuscope_events_{family}_total{{");
        find(&series, &[&family, &name, "event=\"task-clock\""])
    };
    let (raw, estimated) = (time("seconds").unwrap(), time("estimated_seconds").unwrap());
    assert!((raw - estimated).abs() < 1e-9, "{raw} {estimated}");
    // The same bound as in `Counting::assert_cpu_time`.
    let counted = nanos(raw);
    let uncertain = uncertain_time(&series);
    let charged = container.cpu_time();
    let taken = taken_time() - taken;
    let nearest = counted.clamp(
        charged.saturating_sub(uncertain),
        charged + taken + uncertain,
    );
    assert_within("task-clock", counted, nearest, 1.0);
}

/// CPU time in ns that the kernel charged to other cgroups: to all except `own`, the cgroups that
/// contain this process, and the root.
fn time_of_others(own: &TestCgroup) -> u64 {
    let hierarchy = hierarchy();
    let here = Hierarchy::current_cgroup(Path::new("/proc")).unwrap();
    let is_above =
        |path: &str| format!("{here}/").starts_with(&format!("{}/", path.trim_end_matches('/')));
    let mut time = 0;
    for (_, path) in hierarchy.walk().unwrap() {
        let (above, _) = path.rsplit_once('/').unwrap();
        if is_above(above) && !is_above(&path) && path != own.path {
            // The cgroup may have been removed since the walk.
            let directory = hierarchy.directory(&path);
            time += directory.and_then(|it| cpu_time(&it)).unwrap_or(0);
        }
    }
    time
}

/// The limit on series folds small containers into the row `other`, and no count is lost by that.
#[test]
fn the_smallest_containers_are_folded_at_the_series_limit() {
    let Some(_machine) = machine() else { return };
    let mut agent = Agent::start();
    let pods = TestCgroup::new("agent");
    let ids: Vec<String> = (100..112).map(container_id).collect();
    let containers: Vec<TestCgroup> = ids
        .iter()
        .map(|id| pods.child(&format!("docker-{id}.scope")))
        .collect();
    let work = || {
        for (at, container) in containers.iter().enumerate() {
            container.load(&format!("burn 0 {}", 5 * (at + 1))).finish();
        }
    };
    work();
    agent.next_window();
    let before = agent.series();
    let time = "pmuscope_events_estimated_seconds_total{";
    let clock = "event=\"task-clock\"";
    // The rows of the containers of this test, and the folded row.
    let sum = |series: &Series| -> f64 {
        let is_of_test = |name: &str| {
            ids.iter()
                .any(|id| name.contains(&format!("name=\"{id}\"")))
        };
        let rows = series.iter().filter(|(name, _)| {
            name.starts_with(time)
                && name.contains(clock)
                && (is_of_test(name) || name.contains("kind=\"other\""))
        });
        rows.map(|(_, value)| value).sum()
    };
    assert_eq!(find(&before, &[time, "kind=\"other\"", clock]), None);
    let max_series = own(&before, "series") - 160.0;
    let others = time_of_others(&pods);
    agent.reload(&format!(
        "interval = \"200ms\"\n[series]\nmax = {max_series}\n"
    ));
    work();
    agent.next_window();
    let folded = agent.series();
    assert!(own(&folded, "series") <= max_series);
    assert!(own(&folded, "folded_containers") >= 4.0);
    let other = find(&folded, &[time, "kind=\"other\"", clock]).unwrap();
    assert!(other > 0.0);
    // The limit is removed: each container has its own row again, and the counts of `other` stay
    // there.
    agent.reload("interval = \"200ms\"\n");
    work();
    agent.next_window();
    let after = agent.series();
    let others = time_of_others(&pods).saturating_sub(others);
    assert_no_step_back(&before, &after);
    assert_no_step_back(&folded, &after);
    assert_eq!(own(&after, "folded_containers"), 0.0);
    assert!(find(&after, &[time, "kind=\"other\"", clock]).unwrap() >= other);
    let charged: u64 = containers.iter().map(TestCgroup::cpu_time).sum();
    let [counted, charged, others] = [sum(&after), charged as f64 / 1e9, others as f64 / 1e9];
    println!("counted {counted}, charged {charged}, others used {others} meanwhile");
    // Containers of other tests may be in the folded row, so only the sum is checked here. Other
    // tests check each row.
    assert!(counted > 0.9 * charged && counted < 1.1 * (charged + others));
}
