//! The finding about counters that were tried with a known loop.

use test_support::sysfs;

use super::{
    super::{State, subject::Arch, trials},
    machine::{FakeKernel, Fixture, WORKING, process},
};
use crate::{
    calibration::{CalibratedMachine, CalibratedTraffic, Calibration, Pattern},
    machine::{Machine, Roots},
};

/// The finding about counters: what was found, and what is lost. `counters` are the counts of each
/// counter, and how many more others hold.
fn finding_of(counters: (&'static [u64], usize)) -> (String, String) {
    let trials = FakeKernel {
        counters: Some(counters),
        ..WORKING
    };
    let fixture = Fixture::new(Some("spr"), "none", process(Arch::X86), trials);
    let findings = fixture.examine().findings;
    let finding = findings.iter().find(|finding| finding.check == "counters");
    let finding = finding.unwrap();
    let lost = match &finding.state {
        State::Ok => "",
        State::Degraded(loss) | State::Missing { loss, .. } => &loss.lost,
    };
    (finding.found.clone(), lost.to_owned())
}

#[test]
fn counters_that_count_right_are_ok() {
    let (found, lost) = finding_of((&[1_000_037; 5], 1));
    assert_eq!(
        found,
        "cpu: each of the 5 that are free counts 1000000 instructions; others hold 1 more"
    );
    assert_eq!(lost, "");
}

#[test]
fn a_counter_that_counts_wrong_is_reported() {
    let (found, lost) = finding_of((&[1_000_000, 1_000_000, 200], 0));
    assert_eq!(
        found,
        "counter 3 of the 3 that cpu has free counted 200 of 1000000 instructions: the first 2 \
         are used"
    );
    assert!(lost.starts_with("the counters from that one on"), "{lost}");
}

#[test]
fn counters_that_agree_on_a_wrong_count_are_reported() {
    let (found, lost) = finding_of((&[37_000_000; 2], 0));
    assert_eq!(
        found,
        "the counters of cpu count alike, but 37000000 where 1000000 instructions were executed"
    );
    assert!(lost.starts_with("trust"), "{lost}");
}

#[test]
fn counters_that_could_not_be_tried_are_reported() {
    let (found, lost) = finding_of((&[], 0));
    assert_eq!(found, "cpu: not tried: others hold all of its counters");
    assert!(lost.starts_with("the proof"), "{lost}");
}

/// The events of each kind of core are counted on that kind's CPUs, and share slots with the events
/// of the other kind.
#[test]
fn a_session_is_tried_with_the_counters_of_each_kind_of_core() {
    let machine = Machine::at(Roots {
        sys: sysfs("hybrid"),
        ..Roots::default()
    });
    let plan = trials::plan(&machine, trials::TRIAL_EVENTS).unwrap();
    let names = |group: usize| -> Vec<&str> {
        let columns = plan.groups[group].iter().map(|planned| planned.column);
        columns.map(|at| plan.columns[at].name.as_str()).collect()
    };
    assert_eq!(names(0), ["task-clock"]);
    assert_eq!((plan.fixed(), plan.slots()), (1, 3));
    for (cpu, kind) in [(0, "cpu_core"), (4, "cpu_atom")] {
        let multiplexed: Vec<Vec<&str>> = plan.multiplexed_groups(cpu).map(names).collect();
        let own = ["cycles", "instructions"].map(|event| format!("{kind}/{event}/"));
        assert_eq!(multiplexed, [own]);
    }
}

/// First there is no calibration in the usual directory, then one of another machine, then one of
/// this.
#[test]
fn only_a_calibration_of_this_machine_is_ok() {
    let fixture = Fixture::new(Some("spr"), "none", process(Arch::X86), WORKING);
    let finding = || {
        let mut findings = fixture.examine().findings.into_iter();
        findings.find(|it| it.check == "calibration")
    };
    assert_eq!(finding(), None);
    let traffic = CalibratedTraffic {
        metric: "read_bandwidth".into(),
        events: vec!["misses".into()],
        spreads: vec![0.01],
        patterns: vec![Pattern {
            name: "chase".into(),
            counts: vec![0.5],
        }],
        remote: Vec::new(),
    };
    let own = CalibratedMachine::of(&fixture.machine());
    let mut calibration = Calibration::new(own.clone(), vec![traffic]);
    calibration.machine.sockets += 1;
    let write = |calibration: &Calibration| {
        let text = calibration.text();
        fixture.write("calibrations/a.toml", text.as_bytes());
    };
    write(&calibration);
    let other = finding().unwrap();
    assert!(matches!(other.state, State::Missing { needed: false, .. }));
    assert!(
        other.found.contains("none of its 1 calibrations is of"),
        "{other:?}"
    );
    calibration.machine = own;
    write(&calibration);
    let found = finding().unwrap();
    assert_eq!(found.state, State::Ok);
    assert_eq!(found.found, "of this type of machine, for read_bandwidth");
}
