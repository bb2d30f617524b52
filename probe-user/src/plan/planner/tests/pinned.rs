//! Weights of shares next to multiplexed groups.

use super::*;

const READS: &str = "cmem_read_bandwidth";

fn grace(metrics: &str, reserve: usize) -> Plan {
    let chip = Chip::named("grace-cpu-superchip").unwrap();
    plan("grace", chip, "", metrics, reserve)
}

fn groups_of_weights(plan: &Plan) -> Vec<usize> {
    let places = plan
        .weights
        .iter()
        .flat_map(|weight| [Some(weight.all), weight.remote]);
    let groups: BTreeSet<usize> = places.flatten().map(|place| group(plan, place).1).collect();
    groups.into_iter().collect()
}

/// All events fit in one group, which is not multiplexed.
#[test]
fn weights_that_fit_are_in_the_group_of_the_metrics() {
    let plan = grace(&format!("{READS},ipc"), 0);
    assert_eq!(plan.rotated, 0);
    assert_eq!(plan.groups.len(), 1);
    assert_eq!(plan.weights_in_turns, None);
}

/// Multiplexed groups leave room for the weights: these always run, and every metric is whole.
#[test]
fn weights_always_run_if_the_other_groups_fit_beside_them() {
    let metrics = format!("{READS},cmem_write_bandwidth,group:cache,group:tlb,group:branch");
    let plan = grace(&metrics, 0);
    assert!(plan.rotated > 1, "{}", plan.rotated);
    assert_eq!(plan.weights_in_turns, None);
    let fixed = plan.fixed();
    for group in groups_of_weights(&plan) {
        assert!(group < fixed, "group {group} of {fixed} fixed ones");
    }
    assert_eq!(plan.weights.len(), 2);
    assert_metrics_are_whole(&plan);
    // Of 6 counters, the weights take 3, so each group has at most 3. Cycles have a fixed counter.
    for group in &plan.groups[fixed..] {
        let names = names(&plan, group);
        let programmable = names.iter().filter(|name| !name.contains("cycles"));
        assert!(programmable.count() <= 3, "{names:?}");
    }
}

/// One metric needs more counters than the weights would leave.
#[test]
fn weights_are_multiplexed_with_a_reason_if_a_metric_has_no_room() {
    let metrics = format!("{READS},cmem_write_bandwidth,group:cache,group:mix");
    let plan = grace(&metrics, 1);
    let why = plan.weights_in_turns.as_deref().unwrap();
    assert!(why.contains("has no counters left beside them"), "{why}");
    let fixed = plan.fixed();
    assert!(groups_of_weights(&plan).iter().any(|group| *group >= fixed));
    assert_metrics_are_whole(&plan);
}
