//! File descriptors and memory: the limit, and what a session needs.

use std::collections::BTreeMap;

use probe_user::{
    session::{Config, Session},
    snapshot::Hook,
};
use test_harness::{
    limit_files, machine, online_cpus, plan, pmuscope, shared_machine, this_machine,
};

/// pmuscope raises its soft limit to what it needs, and the command runs with the original limit.
#[test]
fn a_low_soft_limit_of_open_files_is_raised() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut command = pmuscope();
    // With about a dozen descriptors per CPU the session exceeds the soft limit.
    let events = ["task-clock"; 12].join(",");
    command.args([
        "stat",
        "-e",
        &events,
        "--format",
        "json",
        "--",
        "sh",
        "-c",
        "ulimit -n >&2",
    ]);
    limit_files(&mut command, 30, 4096);
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    assert!(log.lines().any(|line| line == "30"), "{log}");
}

/// A session opens at most the number of descriptors that it states in advance, and not much fewer.
#[test]
fn the_stated_number_of_descriptors_is_opened() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let count_open = || std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    for (events, hook) in [
        ("task-clock", Hook::SchedSwitch),
        ("task-clock,page-faults,context-switches", Hook::SchedSwitch),
        ("task-clock", Hook::CgroupSwitches),
    ] {
        let config = |by_process: bool| Config {
            plan: plan(events),
            hook,
            by_process: by_process.into(),
            follow_command: by_process,
            ..Config::default()
        };
        for by_process in [false, true] {
            let config = config(by_process);
            let needed = config.descriptors(&this_machine(), &online_cpus());
            let before = count_open();
            let mut session = Session::start(config, &this_machine()).unwrap();
            session.pull().unwrap();
            let opened = count_open() - before;
            println!("{opened} opened, stated were {needed}");
            assert!(
                opened <= needed.total(),
                "{opened} opened, stated were {needed}"
            );
            // The stated number includes programs that this session does not load.
            assert!(
                opened + 80 > needed.total(),
                "{opened} opened, stated were {needed}"
            );
        }
    }
}

/// The memory that a session states for its maps is what the kernel reports (`memlock` of
/// `proc_pid_fdinfo(5)`, which is the memory in use since Linux 6.4), apart from free elements of
/// the allocator.
#[test]
fn the_stated_memory_of_maps_is_what_the_kernel_reports() {
    let Some(_machine) = machine() else { return };
    let release = rustix::system::uname();
    let release = release.release().to_str().unwrap();
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let version = [(); 2].map(|()| numbers.next().unwrap().unwrap());
    if version < [6, 4] {
        println!("skipped: Linux {release} does not report it");
        return;
    }
    // Not `Counting`, which may have a second session.
    let config = Config {
        plan: plan("task-clock,page-faults"),
        ..Config::default()
    };
    let mut session = Session::start(config, &this_machine()).unwrap();
    let stated = session.pull().unwrap().health.memory;
    let mut used = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse::<usize>().ok()
        };
        used.extend(value("map_id:").zip(value("memlock:")));
    }
    let (used, stated) = (used.values().sum::<usize>(), stated.total());
    println!("{used} bytes, {stated} stated");
    // The allocator keeps up to 96 free elements of each size on each CPU.
    let free_elements = 96 * 256 * this_machine().possible().unwrap().len();
    assert!(
        (used..used + free_elements).contains(&(stated + used / 50)),
        "{stated} of {used}"
    );
}
