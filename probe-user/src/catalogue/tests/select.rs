//! The selection of metrics by name, alias, group and platform.

use super::{
    super::{Chip, Hardware},
    CATALOGUE,
};

fn names(list: &str, chip: Chip) -> Vec<&'static str> {
    let metrics = CATALOGUE
        .select(list, &Hardware::of_chip(chip))
        .unwrap_or_else(|error| panic!("{error}"));
    metrics.iter().map(|metric| metric.name.as_str()).collect()
}

fn refusal(list: &str, chip: Chip) -> String {
    let selected = CATALOGUE.select(list, &Hardware::of_chip(chip));
    selected.unwrap_err().to_string()
}

#[test]
fn each_metric_comes_once_in_the_order_of_the_list() {
    assert_eq!(
        names(
            "l1d_cache_mpki, ipc,l1d_cache_mpki",
            Chip::named("grace-hopper").unwrap()
        ),
        ["l1d_cache_mpki", "ipc"]
    );
    assert_eq!(
        names(
            "io_bandwidth_write,cha_io_write_bandwidth",
            Chip::named("emerald-rapids").unwrap()
        ),
        ["cha_io_write_bandwidth"]
    );
}

#[test]
fn groups_and_all_metrics_can_be_selected() {
    assert_eq!(
        names("group:branch", Chip::named("sapphire-rapids").unwrap()),
        ["branch_miss_ratio", "branch_miss_mpki"]
    );
    // 9 metrics of neoverse-v2.toml, and 2 of generic.toml that it does not hide.
    let cache = names("group:cache", Chip::named("grace-hopper").unwrap());
    assert_eq!(cache.len(), 9 + 2);
    assert!(
        names("group:ddio", Chip::named("sapphire-rapids").unwrap()).contains(&"l2_miss_latency")
    );
    let all = names("all", Chip::named("grace-hopper").unwrap());
    assert!(all.contains(&"retiring") && all.contains(&"c2c1_bandwidth"));
    assert!(!all.contains(&"memory_bandwidth_read"));
}

#[test]
fn a_core_with_a_family_of_its_own_hides_the_generic_metric() {
    let family = |chip| {
        let machine = Hardware::of_chip(chip);
        CATALOGUE.select("ipc", &machine).unwrap()[0]
            .family
            .name
            .clone()
    };
    assert_eq!(family(Chip::named("neoverse-v2").unwrap()), "neoverse-v2");
    assert_eq!(family(Chip::named("emerald-rapids").unwrap()), "intel-spr");
    assert_eq!(family(Chip::named("tegra410").unwrap()), "generic");
    assert_eq!(family(Chip::named("other").unwrap()), "generic");
    // All metrics of generic.toml and arm-spe.toml.
    assert_eq!(names("all", Chip::named("other").unwrap()).len(), 16 + 13);
}

#[test]
fn refusals_say_what_to_do() {
    let message = refusal("ipx", Chip::named("other").unwrap());
    assert!(
        message.starts_with("there is no metric ipx; near: ipc, "),
        "{message}"
    );
    assert_eq!(
        refusal("ipc,retiring", Chip::named("other").unwrap()),
        "metric retiring is for emr, gnr, grace, icx, neoverse-v2, spr, zen4, zen5, and this \
         machine is generic: --chip selects another"
    );
    assert_eq!(
        refusal("group:ddio", Chip::named("other").unwrap()),
        "there is no metric group ddio on generic; there are: branch, cache, cpu, cycles, faults, \
         spe, switches, tlb, wait"
    );
    assert_eq!(
        refusal("ipc,,", Chip::named("other").unwrap()),
        "the list of metrics has an empty element: remove the comma before or after it"
    );
}
