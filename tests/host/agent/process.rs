//! The process: signals, and the service manager.

use rustix::process::Signal;

use crate::{agent::Agent, support::shared_machine};

#[test]
fn a_signal_ends_it_well() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    for signal in [Signal::TERM, Signal::INT] {
        let mut agent = Agent::start();
        agent.next_window();
        agent.signal(signal);
        agent.is_told("STOPPING=1");
        assert!(agent.ended().success());
    }
}
