//! Plans for recorded machines (tests/fixtures/sysfs), by the documented counters.

mod kinds;
mod pinned;
mod sampled;
mod topdown;

use std::collections::BTreeSet;

use test_support::sysfs;

use super::*;
use crate::catalogue::{Catalogue, Chip, PmuFilter};

fn pmus(tree: &str) -> Pmus {
    Pmus::read(&sysfs(tree)).unwrap()
}

/// A plan for `-e events -M metrics` on a chip.
fn plan(tree: &str, chip: Chip, events: &str, metrics: &str, reserve: usize) -> Plan {
    let (pmus, machine) = (pmus(tree), Hardware::of_chip(chip));
    let catalogue = Catalogue::builtin().unwrap();
    let events = match events {
        "" => Vec::new(),
        events => event::parse(events, &pmus).unwrap(),
    };
    let metrics = match metrics {
        "" => Vec::new(),
        metrics => catalogue.select(metrics, &machine).unwrap(),
    };
    let general = catalogue.metrics().filter(|metric| metric.family.fallback);
    let request = ResolvedRequest {
        events: &events,
        metrics: &metrics,
        offered: &general.collect::<Vec<_>>(),
        machine,
        cpus: 2,
        settings: MetricSettings::default(),
    };
    let capacity = Capacity::documented(&catalogue, &machine, &pmus, reserve);
    Plan::packed(&request, &pmus, &capacity).unwrap()
}

fn names(plan: &Plan, group: &[Planned]) -> Vec<String> {
    let columns = group.iter().map(|planned| planned.column);
    columns
        .map(|column| plan.columns[column].name.clone())
        .collect()
}

/// Whether the group of a count source is counted per CPU, and the group's index.
fn group(plan: &Plan, place: CountSource) -> (bool, usize) {
    match place {
        CountSource::Core { group, .. } => (true, group),
        CountSource::Uncore { at } => {
            let mut groups = plan.uncore_groups.iter();
            (false, groups.position(|group| group.contains(&at)).unwrap())
        }
        CountSource::Duration | CountSource::Sampled(_) => panic!("{place:?} is no counter"),
    }
}

/// Asserts that each unit of a place is counted by one group, with every event of the metric.
/// Returns the number of sources.
#[track_caller]
fn assert_metrics_are_whole(plan: &Plan) -> usize {
    let mut counted = 0;
    for planned in &plan.metrics.list {
        for source in planned.sources.iter().flatten() {
            let needed = planned.metric.events().len();
            let mut groups: Vec<(bool, usize)> = Vec::new();
            for unit in source.events.chunks(needed) {
                let places: BTreeSet<_> =
                    unit.iter().map(|(_, place)| group(plan, *place)).collect();
                assert_eq!(places.len(), 1, "{}: {:?}", planned.metric.name, unit);
                let events: BTreeSet<_> = unit.iter().map(|(name, _)| name).collect();
                assert_eq!(events.len(), needed, "{}", planned.metric.name);
                groups.extend(places);
            }
            assert_eq!(source.events.len(), needed * source.units);
            counted += 1;
        }
    }
    counted
}

#[test]
fn all_metrics_of_grace_hopper_need_few_groups() {
    let plan = plan("grace", Chip::named("grace-hopper").unwrap(), "", "all", 1);
    assert!(assert_metrics_are_whole(&plan) > 100);
    // Software events always run; the groups of the core are multiplexed.
    assert_eq!(plan.fixed(), 1);
    assert!(plan.rotated >= 8, "{}", plan.rotated);
    for group in &plan.groups[1..] {
        let names = names(&plan, group);
        let is_cycles = |name: &&String| name.contains("cpu_cycles") || *name == "cycles";
        let hardware = names.iter().filter(|name| *name != "task-clock").count();
        let general = hardware - names.iter().filter(is_cycles).count().min(1);
        assert!(general <= 5, "{names:?}");
    }
    let scf = plan
        .uncore_groups
        .iter()
        .map(|group| &plan.uncore[group.clone()]);
    for group in scf {
        assert!(group.len() <= 8);
    }
    // A group serves more than three metrics on average.
    let is_core = |planned: &&PlannedMetric| planned.metric.pmu.pattern.is_core();
    let cores = plan.metrics.list.iter().filter(is_core).count();
    assert!(
        plan.rotated * 3 < cores,
        "{} groups for {cores}",
        plan.rotated
    );
}

#[test]
fn a_group_of_a_cha_has_at_most_one_occupancy_event() {
    let plan = plan("spr", Chip::named("sapphire-rapids").unwrap(), "", "all", 1);
    assert!(assert_metrics_are_whole(&plan) > 14);
    let mut occupancies = 0;
    for range in &plan.uncore_groups {
        let names = names(&plan, &plan.uncore[range.clone()]);
        let occupancy = names
            .iter()
            .filter(|name| name.contains("event=0x36"))
            .count();
        assert!(occupancy <= 1 && names.len() <= 4, "{names:?}");
        occupancies += occupancy;
    }
    assert!(occupancies >= 5, "{occupancies}");
    let missing = plan
        .metrics
        .list
        .iter()
        .filter(|planned| planned.sources.is_err());
    for planned in missing {
        println!("{}: {:?}", planned.metric.name, planned.sources);
    }
}

#[test]
fn one_group_that_fits_is_not_multiplexed() {
    let plan = plan(
        "grace",
        Chip::named("grace-hopper").unwrap(),
        "task-clock",
        "ipc,l1d_cache_mpki",
        1,
    );
    assert_eq!((plan.fixed(), plan.rotated), (2, 0));
    assert_eq!(
        plan.groups[1].len(),
        3,
        "{:?}",
        names(&plan, &plan.groups[1])
    );
    let shown: Vec<&str> = plan
        .columns
        .iter()
        .filter(|column| column.shown)
        .map(|column| column.name.as_str())
        .collect();
    assert_eq!(shown, ["task-clock"]);
    assert_eq!(plan.metrics.list[2].metric.name, "cpus_used", "offered");
}

#[test]
fn reserved_counters_stay_free() {
    let plan = plan(
        "grace",
        Chip::named("grace-hopper").unwrap(),
        "",
        "ipc,l1d_cache_mpki",
        5,
    );
    let reason = plan.metrics.list[1].sources.as_ref().unwrap_err();
    assert!(
        reason.starts_with(
            "needs more counters at once than there are: 6 for any event, of which 5 stay free"
        ),
        "{reason}"
    );
    assert!(
        plan.metrics.list[0].sources.is_ok(),
        "one counter and the cycle counter"
    );
}

#[test]
fn more_events_than_counters_are_multiplexed() {
    let events = "cycles,instructions,branches,branch-misses,cache-references,cache-misses,\
                  {l2d_cache,l2d_cache_refill},r11b,r11c";
    let plan = plan("grace", Chip::named("grace-hopper").unwrap(), events, "", 1);
    assert_eq!((plan.fixed(), plan.rotated), (0, 2));
    let explicit = plan.groups.iter().filter(|group| {
        let names = names(&plan, group);
        names
            .iter()
            .filter(|name| name.starts_with("l2d_cache"))
            .count()
            == 2
    });
    assert_eq!(
        explicit.count(),
        1,
        "what the user put together stays together"
    );
    let offered: Vec<&str> = plan
        .metrics
        .list
        .iter()
        .map(|planned| planned.metric.name.as_str())
        .collect();
    assert!(
        offered.contains(&"ipc") && offered.contains(&"cache_miss_ratio"),
        "{offered:?}"
    );
    assert_metrics_are_whole(&plan);
}

/// If groups were filled in the order of the list, the two events of the ratio would be in
/// different groups.
#[test]
fn the_events_of_an_offered_metric_are_in_one_group() {
    let events = "cache-references,instructions,branches,branch-misses,r11b,r11c,cache-misses";
    let plan = plan("grace", Chip::named("grace-hopper").unwrap(), events, "", 1);
    assert_eq!(plan.rotated, 2);
    assert_metrics_are_whole(&plan);
    let metric = offered(&plan, "cache_miss_ratio");
    assert_eq!(metric.sources.as_ref().unwrap()[0].events.len(), 2);
}

/// No group of the user can take the metric's events, and another group would take multiplexing
/// time from what is requested.
#[test]
fn an_offered_metric_without_a_group_has_the_reason() {
    let events = "{cache-references,r11b,r11c,r11d,r11e},{cache-misses,r12b,r12c,r12d,r12e}";
    let plan = plan("grace", Chip::named("grace-hopper").unwrap(), events, "", 1);
    assert_eq!((plan.rotated, plan.groups.len()), (2, 2));
    let reason = offered(&plan, "cache_miss_ratio").sources.as_ref();
    assert_eq!(
        reason.unwrap_err(),
        "its events are in groups that take turns, so they were not counted at one time: -M \
         cache_miss_ratio counts them together"
    );
}

/// A group that leaves no counter free is opened as the user wants it, and serves metrics too.
#[test]
fn a_group_that_fills_the_pmu_serves_a_metric() {
    let events = "{cache-references,cache-misses,r11b,r11c,r11d,r11e},instructions";
    let plan = plan("grace", Chip::named("grace-hopper").unwrap(), events, "", 1);
    assert_eq!((plan.rotated, plan.groups.len()), (2, 2));
    assert_metrics_are_whole(&plan);
    let ratio = offered(&plan, "cache_miss_ratio").sources.as_ref();
    assert_eq!(ratio.unwrap()[0].events.len(), 2);
}

/// The user's column is counted in the user's group, and the metric in a group with both events.
#[test]
fn an_event_may_be_in_several_groups() {
    let events = "{cache-references,r11b,r11c,r11d},{cache-misses,r12b,r12c,r12d}";
    let plan = plan("grace", Chip::named("grace-hopper").unwrap(), events, "", 1);
    assert_eq!((plan.rotated, plan.groups.len()), (2, 2));
    assert_metrics_are_whole(&plan);
    let ratio = &offered(&plan, "cache_miss_ratio").sources.as_ref().unwrap()[0];
    let group_of = |place| group(&plan, place).1;
    let groups: Vec<usize> = ratio
        .events
        .iter()
        .map(|(_, place)| group_of(*place))
        .collect();
    assert_eq!(groups[0], groups[1]);
    let column = |name: &str| {
        let mut columns = plan.columns.iter();
        columns.find(|column| column.name == name).unwrap().place
    };
    let own = ["cache-references", "cache-misses"].map(|name| group_of(column(name)));
    assert_ne!(own[0], own[1], "each in the group that the user made");
}

/// `task-clock` is such an event, and always runs.
#[test]
fn an_offered_metric_may_use_software_events() {
    let plan = plan(
        "grace",
        Chip::named("grace-hopper").unwrap(),
        "cycles,task-clock",
        "",
        1,
    );
    for (metric, column) in [("frequency", 0), ("cpus_used", 1)] {
        let source = &offered(&plan, metric).sources.as_ref().unwrap()[0];
        let places: Vec<CountSource> = source.events.iter().map(|(_, place)| *place).collect();
        assert_eq!(places, [plan.columns[column].place], "{metric}");
    }
}

#[track_caller]
fn offered<'a>(plan: &'a Plan, name: &str) -> &'a PlannedMetric {
    let mut metrics = plan.metrics.list.iter();
    metrics.find(|planned| planned.metric.name == name).unwrap()
}

#[test]
fn ratios_of_events_with_different_filters_are_not_offered() {
    let offered = |events| {
        plan("grace", Chip::named("grace-hopper").unwrap(), events, "", 1)
            .metrics
            .list
            .len()
    };
    // The second metric is the frequency, which needs counts of all levels.
    assert_eq!(offered("cycles,instructions"), 2);
    assert_eq!(offered("{cycles,instructions}:u"), 1);
    assert_eq!(offered("cycles:u,instructions"), 0);
}

/// In any order of the events, a metric covers all levels if it can. Else its name says which one
/// it covers.
#[test]
fn the_name_of_an_offered_metric_says_which_level_it_covers() {
    let names = |events| {
        let plan = plan("grace", Chip::named("grace-hopper").unwrap(), events, "", 1);
        let metrics = plan.metrics.list.into_iter();
        metrics.map(|it| it.metric.name).collect::<Vec<_>>()
    };
    let all_levels = ["page_faults_per_second"];
    assert_eq!(names("page-faults:k,page-faults"), all_levels);
    assert_eq!(names("page-faults,page-faults:u"), all_levels);
    assert_eq!(names("page-faults:u"), ["page_faults_per_second_user"]);
    assert_eq!(names("page-faults:k"), ["page_faults_per_second_kernel"]);
    assert_eq!(names("{cycles,instructions}:u"), ["ipc_user"]);
    assert_eq!(names("{cycles,instructions}:uk"), ["ipc"]);
}

/// Each filter is valid alone; the hardware cannot have both.
#[test]
fn filters_of_an_event_and_of_a_metric_exclude_each_other() {
    let pmus = pmus("vera");
    let machine = Hardware::of_chip(Chip::named("tegra410").unwrap());
    let catalogue = Catalogue::builtin().unwrap();
    let packed = |events: &str, metrics: &str, settings: MetricSettings| {
        let events = match events {
            "" => Vec::new(),
            events => event::parse(events, &pmus).unwrap(),
        };
        let request = ResolvedRequest {
            events: &events,
            metrics: &catalogue.select(metrics, &machine).unwrap(),
            offered: &[],
            machine,
            cpus: 2,
            settings,
        };
        let capacity = Capacity::documented(&catalogue, &machine, &pmus, 0);
        Plan::packed(&request, &pmus, &capacity).map_err(|error| error.to_string())
    };
    let to_device = |bdf: u64| MetricSettings {
        device: vec![PmuFilter {
            pmu: "nvidia_pcie_pmu_0_rc_4".to_owned(),
            filters: vec![("src_bdf".to_owned(), bdf), ("src_bdf_en".to_owned(), 1)],
        }],
        ..MetricSettings::default()
    };
    let metric = "pcie_rc_read_bandwidth";
    let by_device = "nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.1/";
    let by_port = "nvidia_pcie_pmu_0_rc_4/rd_bytes,src_rp_mask=1/";
    let refused = |events, settings| packed(events, metric, settings).unwrap_err();

    // The user sets a device, the metric all ports.
    let message = refused(by_device, MetricSettings::default());
    assert_eq!(
        message,
        "the device address of `nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=27:01.1/` would narrow \
         `pcie_rc_read_bandwidth: \
         nvidia_pcie_pmu_0_rc_4/rd_bytes,src_rp_mask=0xff/` too, since `nvidia_pcie_pmu_0_rc_4` \
         has one such filter for \
         all its events; give both the same src_bdf, or count them one after the other"
    );
    // The user sets a port, and the metric a device; then both set a device, but not the same.
    let message = refused(by_port, to_device(0x2709));
    assert!(
        message.contains("would narrow `nvidia_pcie_pmu_0_rc_4/rd_bytes,src_rp_mask=1/`"),
        "{message}"
    );
    let message = refused(by_device, to_device(0x2800));
    assert!(
        message.contains("has one filter by device address"),
        "{message}"
    );
    assert!(message.contains("`pcie_rc_read_bandwidth: "), "{message}");

    for (events, settings) in [
        (by_device, to_device(0x2709)),
        (by_port, MetricSettings::default()),
        (
            "nvidia_pcie_pmu_1_rc_2/rd_bytes,src_bdf=27:01.1/",
            to_device(0x2709),
        ),
    ] {
        packed(events, "pcie_rc_write_bandwidth", settings).unwrap();
    }
    packed("", "group:pcie", MetricSettings::default()).unwrap();
    packed("", "group:pcie", to_device(0x2709)).unwrap();
}
