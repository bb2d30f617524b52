//! Plans with sampled events, on a PMU with real counters (QEMU's `PMUv3`): events that the plan
//! accepts run all the time, and events that it refuses would not.

use probe_user::{
    catalogue::{Catalogue, Hardware},
    event::sampling::sampled,
    plan::{Plan, PlanRequest},
    session::SamplingConfig,
};
use test_harness::{Counting, TestCgroup, machine, this_machine};

use crate::{
    counter::pmu_type,
    guest::{skip, value},
};

/// Counters for any event; there is one more for cycles.
const COUNTERS: usize = 6;

/// QEMU's core PMU, if the guest has it.
fn pmu() -> Option<&'static str> {
    let mut names = ["armv8_pmuv3", "armv8_pmuv3_0"].into_iter();
    let name = names.find(|name| pmu_type(name).is_some());
    name.filter(|_| value("ARCH") == "arm64")
}

/// `count` events of the PMU with successive numbers from `first` on. 0x11 is cycles.
fn events(pmu: &str, first: usize, count: usize) -> Vec<String> {
    let numbers = first..first + count;
    numbers.map(|at| format!("{pmu}/event=0x{at:x}/")).collect()
}

/// The plan of `stat -e {COUNTED} --sample SAMPLED`.
fn plan(counted: &[String], sample: &[String]) -> (Result<Plan, String>, SamplingConfig) {
    let machine = this_machine();
    let sampling = SamplingConfig {
        events: sampled(&sample.join(","), machine.pmus().unwrap(), None).unwrap(),
        addresses: true,
        ..SamplingConfig::default()
    };
    let mut wanted = PlanRequest {
        events: vec![format!("{{{}}}", counted.join(","))],
        ..PlanRequest::default()
    };
    wanted.set_sampled(&sampling.events);
    let hardware = Hardware::detect(&machine);
    let plan = wanted.plan(&machine, &Catalogue::builtin().unwrap(), hardware);
    (plan.map_err(|error| error.to_string()), sampling)
}

/// At the limit, with cycles on their own counter: nothing is multiplexed.
#[test]
fn events_of_a_complete_plan_run_all_the_time() {
    let Some(_machine) = machine() else { return };
    let Some(pmu) = pmu() else {
        return skip("this guest's own PMU is switched off, or it has none");
    };
    for sample in 0..=COUNTERS {
        let counted = events(pmu, 0x12, COUNTERS - sample);
        let cycles = format!("{pmu}/cpu_cycles,period=1000000/");
        let sampled = [events(pmu, 0x3, sample), vec![cycles]].concat();
        let counted = match counted.as_slice() {
            [] => vec!["task-clock".to_owned()],
            _ => counted,
        };
        let (plan, sampling) = plan(&counted, &sampled);
        let plan = plan.unwrap_or_else(|error| panic!("{sample} sampled: {error}"));
        assert_eq!((plan.groups.len(), plan.rotated), (1, 0));
        let cgroup = TestCgroup::new("limit");
        let mut counting = Counting::with_plan(plan, |config| config.sampling = Some(sampling));
        cgroup.load("burn 0 100").finish();
        let window = counting.window();
        let group = window.total.delta[0].as_ref().unwrap();
        assert!(group.enabled > 0);
        assert_eq!(group.running, group.enabled, "{sample} sampled");
        let events = &window.samples.as_ref().unwrap().events;
        assert_eq!(events.len(), sample + 1);
        for event in events.iter().map(|event| &event.health) {
            assert!(event.enabled > 0, "{event:?}");
            assert_eq!(event.running, event.enabled, "{event:?}");
        }
        assert!(events[sample].health.sum.samples > 0, "{events:?}");
    }
}

#[test]
fn a_plan_with_too_many_events_is_refused_with_the_reason() {
    let Some(_machine) = machine() else { return };
    let Some(pmu) = pmu() else {
        return skip("this guest's own PMU is switched off, or it has none");
    };
    // Counted and sampled events together are one more than the counters.
    let (refused, _) = plan(&events(pmu, 0x12, 3), &events(pmu, 0x3, COUNTERS - 2));
    let refused = refused.unwrap_err();
    assert!(
        refused.contains("with 4 for what is sampled; sample or count fewer events"),
        "{refused}"
    );
    let all = events(pmu, 0x3, COUNTERS + 1);
    let (refused, _) = plan(&["task-clock".to_owned()], &all);
    let refused = refused.unwrap_err();
    let which = format!("cannot sample {} at one time on {pmu}: ", all.join(","));
    assert!(refused.starts_with(&which), "{refused}");
    assert!(
        refused.ends_with("sample at most the first 6 of them, and the others in another run"),
        "{refused}"
    );
}
