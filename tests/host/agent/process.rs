//! The process: signals and notifications of the service manager.

use std::{
    sync::mpsc::{TryRecvError, channel},
    thread,
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    net::{RecvFlags, recv},
    process::{Pid, Signal, kill_process},
};
use test_harness::{
    agent::{Agent, own},
    shared_machine,
};

#[test]
fn sigterm_and_sigint_end_the_agent_cleanly() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    for signal in [Signal::TERM, Signal::INT] {
        let mut agent = Agent::start();
        agent.next_window();
        agent.signal(signal);
        agent.wait_for_notification("STOPPING=1");
        assert!(agent.ended().success());
    }
}

/// The reload hangs because its configuration file is a pipe without a writer.
#[test]
fn sigterm_ends_the_agent_while_its_loop_hangs() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut agent = Agent::start();
    agent.next_window();
    agent.replace_configuration(|file| {
        mknodat(CWD, file, FileType::Fifo, Mode::RWXU, 0).unwrap();
    });
    agent.signal(Signal::HUP);
    agent.wait_for_notification("RELOADING=1");
    agent.signal(Signal::TERM);
    // The agent exits with an error: the signal does not kill it, and there is no orderly end.
    assert_eq!(agent.ended().code(), Some(1));
}

/// Each SIGHUP makes the agent read its configuration again. The signals also arrive while the
/// kernel verifies a program for the agent.
#[test]
fn counting_continues_under_repeated_sighups() {
    const RELOADS: usize = 12;
    let Some(_machine) = shared_machine() else {
        return;
    };
    let agent = Agent::start();
    let manager = agent.manager();
    let pid = Pid::from_raw(agent.pid().cast_signed()).unwrap();
    thread::scope(|scope| {
        // The drop at the end of this block, also on a panic, ends the thread below.
        let (_sender, stopped) = channel::<()>();
        scope.spawn(move || {
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                kill_process(pid, Signal::HUP).unwrap();
                // The agent blocks when nothing receives its notifications.
                while recv(&manager, &mut [0; 64], RecvFlags::DONTWAIT).is_ok() {}
                thread::yield_now();
            }
        });
        let names = ["minor-faults", "major-faults"].into_iter().cycle();
        for (at, name) in names.take(RELOADS).enumerate() {
            let config = format!("interval = \"50ms\"\n[count]\nevents = [\"{name}\"]\n");
            agent.configure(&config);
            // The start has opened the first session.
            let sessions = (at + 2) as f64;
            let series = agent.wait_until(|series| {
                own(series, "sessions_total") >= sessions
                    || own(series, "refused_reloads_total") > 0.0
            });
            assert_eq!(
                own(&series, "refused_reloads_total"),
                0.0,
                "{}",
                agent.log()
            );
        }
    });
    agent.next_window();
    let series = agent.series();
    let log = agent.log();
    assert_eq!(own(&series, "refused_reloads_total"), 0.0, "{log}");
    assert_eq!(own(&series, "failures_total"), 0.0, "{log}");
    assert_eq!(
        own(&series, "sessions_total"),
        (RELOADS + 1) as f64,
        "{log}"
    );
}
