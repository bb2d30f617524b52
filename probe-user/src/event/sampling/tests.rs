//! Sampled events: their syntax, and which are refused.

use test_support::{Tree, sysfs};

use super::*;

fn pmus(machine: &str) -> Pmus {
    Pmus::read(&sysfs(machine)).unwrap()
}

/// The first of the sampled events of a list, on the machine `spr`.
fn sampled_event(text: &str) -> Result<SampledEvent, String> {
    let all = sampled(text, &pmus("spr"), Some(100_000));
    all.map(|mut all| all.remove(0))
        .map_err(|it| it.to_string())
}

#[test]
fn rates_and_precision_are_removed_from_the_event() {
    let event = sampled_event("cycles").unwrap();
    let frequency = Rate::Frequency(DEFAULT_FREQUENCY);
    assert_eq!((event.rate, event.precise), (frequency, 0));
    assert!(event.skids());
    let event = sampled_event("cpu/cache-misses,period=5000/u").unwrap();
    assert_eq!(event.rate, Rate::Period(5000));
    assert!(event.exclude.kernel);
    let event = sampled_event("page-faults/period=3/").unwrap();
    assert_eq!(
        (event.name.as_str(), event.rate),
        ("page-faults", Rate::Period(3))
    );
    assert!(!event.skids());
    // The kernel samples clocks only by a period.
    let event = sampled_event("cpu-clock/freq=1000/").unwrap();
    assert_eq!(event.rate, Rate::Period(1_000_000));
    // A clock that samples one privilege level counts all of them.
    let counted = |text: &str| sampled_event(text).unwrap().counts_as_it_samples();
    assert!(counted("cpu-clock") && counted("page-faults:u") && counted("cycles:k"));
    assert!(!counted("cpu-clock:u") && !counted("task-clock:k"));
}

#[test]
fn a_pmu_of_several_events_needs_one_and_ibs_does_not() {
    let tree = Tree::new();
    let devices = "bus/event_source/devices";
    tree.write(&format!("{devices}/cpu/type"), "4\n");
    tree.write(&format!("{devices}/cpu/format/event"), "config:0-7\n");
    tree.write(&format!("{devices}/cpu/events/slots"), "event=0x00\n");
    tree.write(&format!("{devices}/ibs_op/type"), "11\n");
    tree.write(&format!("{devices}/ibs_op/format/cnt_ctl"), "config:19\n");
    let pmus = Pmus::read(tree.path()).unwrap();
    for text in [
        "cpu/period=1000/",
        "cpu/freq=99/u",
        "cpu/period=1000,name=x/",
    ] {
        assert_eq!(
            sampled(text, &pmus, None).unwrap_err().to_string(),
            "`cpu` is a PMU and not an event; write `cpu/event/` (its events: slots)",
            "{text}"
        );
    }
    for text in [
        "cpu/slots,period=9/",
        "cpu/config=0,period=9/",
        "ibs_op/period=16/",
    ] {
        assert_eq!(sampled(text, &pmus, None).unwrap().len(), 1, "{text}");
    }
}

#[test]
fn with_ibs_the_kernel_decides_on_precision() {
    let tree = Tree::new();
    let devices = "bus/event_source/devices";
    tree.write(&format!("{devices}/cpu/type"), "4\n");
    tree.write(&format!("{devices}/cpu/caps/max_precise"), "0\n");
    let precise = || {
        let pmus = Pmus::read(tree.path()).unwrap();
        let events = sampled("cycles:p", &pmus, None);
        events.map(|events| (events[0].precise, events[0].counters(&pmus).len()))
    };
    let error = precise().unwrap_err().to_string();
    assert!(error.contains("allows 0 at most"), "{error}");
    tree.write(&format!("{devices}/ibs_op/type"), "11\n");
    // IBS counts it, so it occupies no counter of the core.
    assert_eq!(precise().unwrap(), (1, 0));
    let pmus = Pmus::read(tree.path()).unwrap();
    assert!(sampled("task-clock:p", &pmus, None).is_err());
    let core_counters = |text: &str| sampled(text, &pmus, None).unwrap()[0].counters(&pmus).len();
    assert_eq!(
        [core_counters("cycles"), core_counters("cpu-clock")],
        [1, 0]
    );
}

#[test]
fn an_event_that_cannot_be_sampled_is_refused_in_a_sentence() {
    let error = |text: &str| sampled_event(text).unwrap_err();
    let cases = [
        (
            "cpu-clock/period=9999/",
            "below the 10000 ns that the kernel allows at least",
        ),
        ("cpu-clock/freq=100001/", "below the 10000 ns"),
        (
            "cycles/freq=100001/",
            "kernel.perf_event_max_sample_rate allows 100000",
        ),
        (
            "cycles/freq=0/",
            "`freq=0` of `cycles/freq=0/` is no number above 0",
        ),
        ("cycles/period=x/", "is no number above 0"),
        ("cycles/period=5,freq=5/", "has both period= and freq="),
        ("{cycles,instructions}", "is a group"),
        ("duration_time", "it is no counter"),
        ("uncore_imc_0/cas_count_read/", "counts for a whole socket"),
        ("task-clock:p", "allows 0 at most"),
        ("nonsense", "unknown event"),
    ];
    for (text, expected) in cases {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
    // The metric's name contains neither the rate nor the precision.
    for list in ["cycles/freq=99/,cycles/freq=199/", "cycles,cycles:p"] {
        let error = error(list);
        assert!(
            error.starts_with("`cycles` is to be sampled twice"),
            "{error}"
        );
    }
    assert_eq!(
        sampled("cycles:u,cycles:k", &pmus("spr"), None)
            .unwrap()
            .len(),
        2
    );
    // One event for each kind of core.
    assert_eq!(sampled("cycles", &pmus("hybrid"), None).unwrap().len(), 2);
    // One more than the maximum, 8.
    let many: Vec<String> = (0..9).map(|digit| format!("r{digit}c")).collect();
    assert!(error(&many.join(",")).starts_with("9 events are to be sampled"));
}
