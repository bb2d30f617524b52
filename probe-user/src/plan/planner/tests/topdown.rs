//! Level 1 of top-down is one group on each machine, beside a reserved counter.

use super::{assert_metrics_are_whole, names, plan};
use crate::{catalogue::Chip, plan::Plan};

/// A plan of metrics that must all be counted, and the sizes of its groups.
fn plan_and_sizes(tree: &str, chip: &str, metrics: &str) -> (Plan, Vec<usize>) {
    let plan = plan(tree, Chip::named(chip).unwrap(), "", metrics, 1);
    for planned in &plan.metrics.list {
        let name = &planned.metric.name;
        assert!(planned.sources.is_ok(), "{name}: {:?}", planned.sources);
    }
    assert_eq!(assert_metrics_are_whole(&plan), plan.metrics.list.len());
    let sizes = plan.groups.iter().map(Vec::len).collect();
    (plan, sizes)
}

#[test]
fn level_1_is_one_group() {
    for (tree, chip, events) in [
        ("spr", "sapphire-rapids", 4),
        ("spr", "emerald-rapids", 4),
        ("gnr", "granite-rapids", 4),
        ("icx", "ice-lake-server", 5),
        ("zen4", "epyc-zen4", 5),
        ("zen5", "epyc-zen5", 5),
    ] {
        let (plan, sizes) = plan_and_sizes(tree, chip, "group:topdown");
        assert_eq!((sizes, plan.rotated), (vec![events], 0), "{chip}");
    }
}

/// Both levels are one group if the counters suffice.
#[test]
fn both_levels_need_few_groups() {
    for (tree, chip, events) in [
        ("spr", "sapphire-rapids", vec![6]),
        ("gnr", "granite-rapids", vec![6]),
        // `memory_bound` would need nine events, so the memory share of the backend has its own
        // group.
        ("icx", "ice-lake-server", vec![7, 7]),
        // Both levels need eleven events, and the core has six counters.
        ("zen4", "epyc-zen4", vec![5, 5, 4, 3]),
        ("zen5", "epyc-zen5", vec![5, 5, 4, 3]),
    ] {
        let (_, sizes) = plan_and_sizes(tree, chip, "group:topdown,group:topdown_l2");
        assert_eq!(sizes, events, "{chip}");
    }
}

/// Six events and the cycles, on five counters (one of six is reserved) and the cycle counter.
#[test]
fn neoverse_v2_has_two_groups() {
    let (_, sizes) = plan_and_sizes("grace", "grace-hopper", "group:topdown");
    assert_eq!(sizes, [6, 2]);
}

/// perf's pseudo-events stop the PMU at each read.
#[test]
fn no_event_is_a_pseudo_event_of_topdown() {
    let (plan, _) = plan_and_sizes("spr", "sapphire-rapids", "group:topdown,group:topdown_l2");
    let names = names(&plan, &plan.groups[0]);
    let is_ordinary = |name: &String| !name.contains("event=0x00") && !name.contains("topdown-");
    assert!(names.iter().all(is_ordinary), "{names:?}");
}

/// Two files of the catalogue describe this core: four events of one need counters 0 to 3, and one
/// event of the other needs counter 0.
#[test]
fn counter_constraints_of_all_families_hold() {
    let metrics = "dtlb_walk_ratio,branch_mispredicts";
    let (_, sizes) = plan_and_sizes("spr", "sapphire-rapids", metrics);
    assert_eq!(sizes, [4, 2]);
}
