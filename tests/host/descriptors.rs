//! Open files: the limit, and what a session opens.

use probe_user::{
    session::{Config, Session},
    snapshot::Hook,
};

use crate::support::{limit_files, online_cpus, plan, pmuscope, shared_machine, this_machine};

/// The soft limit is raised to what is opened, all of it, and the command keeps its own.
#[test]
fn a_low_soft_limit_of_open_files_is_no_obstacle() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut command = pmuscope();
    // A dozen for each CPU, and nothing fits the soft limit.
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

/// The number of descriptors that is stated as needed is the number that is opened.
#[test]
fn the_descriptors_of_a_session_are_counted_before() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
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
            let before = open();
            let mut session = Session::start(config, &this_machine()).unwrap();
            session.pull().unwrap();
            let opened = open() - before;
            println!("{opened} opened, said were {needed}");
            assert!(
                opened <= needed.total(),
                "{opened} opened, said were {needed}"
            );
            // Programs that such a session does not load are counted too.
            assert!(
                opened + 80 > needed.total(),
                "{opened} opened, said were {needed}"
            );
        }
    }
}
