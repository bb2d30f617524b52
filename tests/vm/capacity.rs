//! The capacity of the core PMU: which counters work, and which events are counted by default.

use std::path::Path;

use serde_json::Value;
use test_harness::machine;

use crate::{
    cli::{command, run, run_with_load},
    guest::{skip, value},
    testpmu::{TestPmu, core},
};

/// State and text of doctor's finding on counters.
fn doctor() -> (String, String) {
    let (diagnosis, _) = run("doctor --format json");
    let findings = diagnosis["findings"].as_array().unwrap();
    let finding = findings
        .iter()
        .find(|finding| finding["check"] == "counters");
    let text = |key: &str| finding.unwrap()[key].as_str().unwrap().to_owned();
    (text("state"), text("found"))
}

/// The test PMU as the only core PMU of the guest.
fn only_pmu(parameters: &str) -> Option<TestPmu> {
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists()
        || value("ARCH") == "arm64"
            && Path::new("/sys/bus/event_source/devices/armv8_pmuv3_0").exists()
    {
        skip("with QEMU's own PMU beside it there are two core PMUs");
        return None;
    }
    Some(TestPmu::load(&format!("set=core {parameters}")))
}

/// The events of a command of `stat` without `-e`, and the messages.
fn default_run(options: &str) -> (Value, String) {
    let (report, messages) =
        run_with_load(&format!("stat --self --format json{options}"), "burn 0 100");
    assert_eq!(report["self"]["group_exchanges"], 0);
    let events = command(&report)["events"].clone();
    for (name, event) in events.as_object().unwrap() {
        assert_eq!(event["running"], 1.0, "{name}");
    }
    (events, messages)
}

/// The test PMU counts cycles and instructions as 1 : 2. A switch reads both at one instant. A pull
/// that comes before the command's last switch reads them some 5 us apart.
fn assert_twice_as_many_instructions_as_cycles(events: &Value) {
    let count = |name: &str| events[name]["raw"].as_u64().unwrap();
    let (cycles, instructions) = (count("cycles"), count("instructions"));
    assert!(cycles > 0);
    assert!(
        instructions.abs_diff(2 * cycles) < cycles / 10_000,
        "{events}"
    );
}

#[test]
fn each_counter_counts_the_instructions_that_were_executed() {
    let Some(_machine) = machine() else { return };
    if value("ICOUNT").is_empty() || value("ARCH") != "arm64" {
        return skip("this guest has no PMU that counts instructions");
    }
    let names = ["armv8_pmuv3", "armv8_pmuv3_0"];
    let Some(name) = names
        .into_iter()
        .find(|name| crate::counter::pmu_type(name).is_some())
    else {
        return skip("this guest's own PMU is switched off");
    };
    let (state, found) = doctor();
    assert_eq!(state, "ok");
    let each = format!("{name}: each of the 6 that are free counts 1000000 instructions");
    assert_eq!(found, each);
}

#[test]
fn a_broken_counter_is_found_and_not_used() {
    let Some(_machine) = machine() else { return };
    let Some(_pmu) = only_pmu("broken=5") else {
        return;
    };
    let (name, _) = core();
    let (state, found) = doctor();
    assert_eq!(state, "degraded");
    let wrong = format!("counter 6 of the 6 that {name} has free counted ");
    assert!(found.starts_with(&wrong), "{found}");
    assert!(found.ends_with("the first 5 are used"), "{found}");
    // One of the five is reserved for other programs.
    let (events, messages) = default_run("");
    assert!(messages.contains(&wrong), "{messages}");
    assert!(
        messages.contains("no counter is left for it: cache-references, branches;"),
        "{messages}"
    );
    assert_eq!(events.as_object().unwrap().len(), 5);
    assert_twice_as_many_instructions_as_cycles(&events);
}

/// If two groups were multiplexed, a short command would have no value for one of them.
#[test]
fn default_events_are_not_multiplexed() {
    let Some(_machine) = machine() else { return };
    let Some(_pmu) = only_pmu("") else { return };
    let (events, messages) = default_run("");
    assert_eq!(events.as_object().unwrap().len(), 7);
    assert!(!messages.contains("no counter is left"), "{messages}");
    assert_twice_as_many_instructions_as_cycles(&events);
    let (events, messages) = default_run(" --reserve-counters 3");
    assert_eq!(events.as_object().unwrap().len(), 5);
    assert!(
        messages.contains("no counter is left for it: cache-references, branches;"),
        "{messages}"
    );
    assert_twice_as_many_instructions_as_cycles(&events);
}
