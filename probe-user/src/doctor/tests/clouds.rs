//! Doctor's findings about the counters of cloud machines, as snapshots: text and JSON.

use serde_json::Value;

use super::{
    super::{Area, State, subject::Arch},
    machine::{FakeKernel, Fixture, WORKING, process},
};
use crate::plan::simulated::SimulatedCore;

fn machine(tree: &str, arch: Arch, core: SimulatedCore) -> Fixture {
    let trials = FakeKernel {
        core: Some(core),
        ..WORKING
    };
    Fixture::new(Some(tree), "none", process(arch), trials)
}

/// A small Graviton4 instance.
pub(super) fn graviton4(general: usize, fixed: bool) -> Fixture {
    let core = SimulatedCore {
        general,
        fixed,
        architectural_only: false,
    };
    machine("graviton4-small", Arch::Arm64, core)
}

/// An AMD guest of Zen 4 without fixed counters.
fn zen4(general: usize) -> Fixture {
    let core = SimulatedCore {
        general,
        fixed: false,
        architectural_only: false,
    };
    machine("zen4-guest", Arch::X86, core)
}

/// An Emerald Rapids guest with only architectural events.
pub(super) fn architectural() -> Fixture {
    let core = SimulatedCore {
        general: 8,
        fixed: true,
        architectural_only: true,
    };
    let fixture = machine("emr-guest", Arch::X86, core);
    fixture.write("proc/cpuinfo", b"flags\t\t: fpu hypervisor\n");
    fixture.write("proc/sys/kernel/osrelease", b"6.12.95+deb12-cloud-amd64\n");
    fixture
}

/// The JSON of the report.
fn json(fixture: &Fixture) -> Value {
    let mut text = Vec::new();
    fixture.examine().write_json(&mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The section about counters as text, and the counters and the machine as JSON.
fn section(fixture: &Fixture) -> String {
    let report = fixture.report();
    let begin = report.find("\ncounters\n").unwrap() + 1;
    let end = report.find("\ntrials\n").unwrap() + 1;
    let json = json(fixture);
    let pretty = |key: &str| serde_json::to_string_pretty(&json[key]).unwrap();
    let (machine, counters) = (pretty("machine"), pretty("counters"));
    format!("{}{machine}\n{counters}", &report[begin..end])
}

#[test]
fn two_counters_of_a_small_graviton4() {
    insta::assert_snapshot!(section(&graviton4(2, true)));
}

#[test]
fn five_counters_of_an_amd_guest() {
    insta::assert_snapshot!(section(&zen4(5)));
}

#[test]
fn architectural_events_of_an_intel_guest() {
    insta::assert_snapshot!(section(&architectural()));
}

/// A guest may lack the fixed counters that its core has.
#[test]
fn counters_of_an_intel_guest_without_fixed_ones() {
    let core = SimulatedCore {
        general: 4,
        fixed: false,
        architectural_only: false,
    };
    let profile = machine("emr-guest", Arch::X86, core).examine().counters;
    assert_eq!(profile.unwrap().name(), "4 general counters, none fixed");
}

/// What a command counts at one time, and how many counters stay free.
fn at_one_time(fixture: &Fixture, command: &str) -> (Vec<String>, Option<usize>) {
    let counters = fixture.examine().counters.unwrap();
    let mut defaults = counters.defaults.iter();
    let defaults = defaults.find(|it| it.verbs.contains(&command)).unwrap();
    assert_eq!((&defaults.multiplexed, &defaults.error), (&vec![], &None));
    let core = counters.pmus[0].counters.as_ref();
    (defaults.at_one_time.clone(), core.map(|core| core.reserve))
}

/// Whatever the number of counters, no command fails or multiplexes what it counts by default.
#[test]
fn every_number_of_counters_has_a_plan() {
    let events = ["cycles", "instructions", "cache-misses", "branch-misses"];
    for (general, counted, reserve) in [
        // With one counter, only cycles: a ratio needs two counters.
        (1, 1, 0),
        (2, 2, 0),
        (3, 2, 1),
        (4, 3, 1),
        (5, 4, 1),
    ] {
        for command in ["stat", "top", "agent"] {
            let found = at_one_time(&zen4(general), command);
            let (names, free) = (found.0, found.1.unwrap());
            assert_eq!(
                (names.as_slice(), free),
                (&events.map(str::to_owned)[..counted], reserve)
            );
        }
        // A separate cycle counter adds one event.
        let (names, _) = at_one_time(&graviton4(general, true), "stat");
        assert_eq!(
            names,
            events
                .iter()
                .chain(["cache-references"].iter())
                .take(counted + 1)
                .copied()
                .collect::<Vec<_>>()
        );
    }
}

/// The agent's profile needs six counters at one time; with fewer, the agent counts the default
/// events.
#[test]
fn an_agent_with_too_few_counters_counts_the_default_events() {
    let profile = |fixture: &Fixture| at_one_time(fixture, "agent").0;
    assert_eq!(
        profile(&graviton4(6, true)).last().unwrap(),
        "bus_access_wr"
    );
    assert_eq!(
        profile(&graviton4(5, true)).last().unwrap(),
        "cache-references"
    );
    let counters = graviton4(5, true).examine().counters.unwrap();
    let left_out = counters.defaults[1].left_out.iter();
    let names: Vec<&str> = left_out.map(|event| event.name.as_str()).collect();
    // inst_retired is not left out: it is counted as instructions.
    let profile_events = [
        "stall_backend",
        "l2d_cache_refill",
        "ll_cache_miss_rd",
        "bus_access_wr",
    ];
    assert_eq!(names, [profile_events.as_slice(), &["branches"]].concat());
}

#[test]
fn without_a_pmu_the_json_has_the_software_events() {
    let fixture = Fixture::new(None, "vm", process(Arch::X86), WORKING);
    let findings = fixture.examine().findings;
    let of_counters = findings.iter().filter(|it| it.area == Area::Counters);
    assert!(
        of_counters
            .into_iter()
            .all(|it| !it.check.contains("events of"))
    );
    let counters = &json(&fixture)["counters"];
    assert_eq!(counters["profile"], "no core PMU");
    assert_eq!(counters["pmus"], Value::Array(Vec::new()));
    let stat = &counters["defaults"][0];
    assert_eq!(stat["at_one_time"], Value::Array(Vec::new()));
    assert_eq!(stat["without_counter"][0], "task-clock");
    assert_eq!(stat["metrics"][0], "cpus_used");
}

/// Without the capabilities nothing is known of the counters.
#[test]
fn without_capabilities_there_is_no_profile() {
    let mut fixture = zen4(5);
    fixture.process.capabilities = rustix::thread::CapabilitySet::empty();
    assert_eq!(fixture.examine().counters, None);
    assert_eq!(json(&fixture)["counters"], Value::Null);
}

/// Machines with all of their documented counters count all default events.
#[test]
fn the_documented_counters_suffice_for_the_default_events() {
    let fixture = graviton4(6, true);
    let findings = fixture.examine().findings;
    let defaults = findings
        .iter()
        .filter(|it| it.check.starts_with("default events"));
    let states: Vec<&State> = defaults.map(|it| &it.state).collect();
    assert_eq!(states, [&State::Ok, &State::Ok]);
}

/// The instance type decides: guests do not see the PMUs of sockets, and metal instances do.
#[test]
fn an_instance_of_aws_is_a_virtual_machine_unless_it_is_metal() {
    let fixture = graviton4(2, true);
    let uncore = || {
        let mut findings = fixture.examine().findings.into_iter();
        let finding = findings.find(|it| it.check == "uncore PMUs");
        finding.unwrap().found
    };
    assert_eq!(uncore(), "none: this is a virtual machine");
    fixture.write("sys/class/dmi/id/product_name", b"c8g.metal-24xl\n");
    assert_eq!(uncore(), "none");
}
