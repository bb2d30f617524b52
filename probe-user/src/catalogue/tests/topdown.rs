//! Top-down: the levels add up, and agree with perf's formulas.

use proptest::prelude::*;

use super::{
    super::{Chip, Hardware, MetricCounts},
    CATALOGUE,
};
use crate::formula::Formula;

type Counts<'a> = [(&'a str, u32)];

fn counts(events: &Counts<'_>) -> MetricCounts {
    let mut counts = MetricCounts::for_cpus(std::time::Duration::from_secs(1));
    for (event, count) in events {
        counts.add(event, u64::from(*count), 1, 1);
    }
    counts
}

/// The value of a metric in percent.
fn percent(chip: &str, name: &str, events: &Counts<'_>) -> f64 {
    let machine = Hardware::of_chip(Chip::named(chip).unwrap());
    let metrics = CATALOGUE.select(name, &machine).unwrap();
    metrics[0]
        .evaluate(&machine, &counts(events))
        .unwrap()
        .value
}

/// The value of formula `name` of a table, whose formulas name one another in brackets.
fn fraction(table: &[(&str, &str)], name: &str, events: &Counts<'_>) -> f64 {
    let mut text = format!("[{name}]");
    while text.contains('[') {
        for (other, formula) in table {
            text = text.replace(&format!("[{other}]"), &format!("({formula})"));
        }
    }
    let formula = Formula::parse(&text).unwrap();
    formula.evaluate(&counts(events)).unwrap().value
}

/// Asserts that both values are the same share; `what` names it.
#[track_caller]
fn assert_same(percent: f64, fraction: f64, what: &str) {
    let error = (percent - 100.0 * fraction).abs();
    assert!(error < 1e-9, "{what}: {percent}% and not {fraction}");
}

/// Linux 6.12, tools/perf/pmu-events/arch/x86/{sapphirerapids/spr,emeraldrapids/emr}-metrics.json;
/// those of Granite Rapids in intel/perfmon @ 6dadedf3aa48 are the same. perf divides a
/// pseudo-event by the sum of the four; this is written here as the ordinary event divided by the
/// slots.
const SPR: [(&str, &str); 8] = [
    ("retiring", "UOPS_RETIRED.SLOTS / TOPDOWN.SLOTS_P"),
    (
        "frontend_bound",
        "IDQ_BUBBLES.CORE / TOPDOWN.SLOTS_P - INT_MISC.UOP_DROPPING / TOPDOWN.SLOTS_P",
    ),
    (
        "backend_bound",
        "TOPDOWN.BACKEND_BOUND_SLOTS / TOPDOWN.SLOTS_P",
    ),
    (
        "bad_speculation",
        "max(1 - ([frontend_bound] + [backend_bound] + [retiring]), 0)",
    ),
    (
        "memory_bound",
        "TOPDOWN.MEMORY_BOUND_SLOTS / TOPDOWN.SLOTS_P",
    ),
    ("core_bound", "max(0, [backend_bound] - [memory_bound])"),
    (
        "branch_mispredicts",
        "TOPDOWN.BR_MISPREDICT_SLOTS / TOPDOWN.SLOTS_P",
    ),
    (
        "machine_clears",
        "max(0, [bad_speculation] - [branch_mispredicts])",
    ),
];

/// icelakex/icx-metrics.json, written as [`SPR`].
const ICX: [(&str, &str); 7] = [
    ("retiring", "UOPS_RETIRED.SLOTS / TOPDOWN.SLOTS_P"),
    (
        "frontend_bound",
        "IDQ_UOPS_NOT_DELIVERED.CORE / TOPDOWN.SLOTS_P - INT_MISC.UOP_DROPPING / TOPDOWN.SLOTS_P",
    ),
    (
        "backend_bound",
        "TOPDOWN.BACKEND_BOUND_SLOTS / TOPDOWN.SLOTS_P \
         + 5 * INT_MISC.CLEARS_COUNT / TOPDOWN.SLOTS_P",
    ),
    (
        "bad_speculation",
        "max(1 - ([frontend_bound] + [backend_bound] + [retiring]), 0)",
    ),
    (
        "branch_mispredicts",
        "BR_MISP_RETIRED.ALL_BRANCHES \
         / (BR_MISP_RETIRED.ALL_BRANCHES + MACHINE_CLEARS.COUNT) * [bad_speculation]",
    ),
    (
        "machine_clears",
        "max(0, [bad_speculation] - [branch_mispredicts])",
    ),
    (
        "memory_bound",
        "(CYCLE_ACTIVITY.STALLS_MEM_ANY + EXE_ACTIVITY.BOUND_ON_STORES) \
         / (CYCLE_ACTIVITY.STALLS_TOTAL + (EXE_ACTIVITY.1_PORTS_UTIL \
         + [retiring] * EXE_ACTIVITY.2_PORTS_UTIL) + EXE_ACTIVITY.BOUND_ON_STORES) \
         * [backend_bound]",
    ),
];

/// amdzen4/pipeline.json; amdzen5/pipeline.json has 8 in place of 6, and `bp_redirects.resync` in
/// place of `resyncs_or_nc_redirects`. `d_ratio` is written as a division.
const ZEN: [(&str, &str); 14] = [
    ("slots", "6 * LS_NOT_HALTED_CYC"),
    (
        "frontend_bound",
        "DE_NO_DISPATCH_PER_SLOT.NO_OPS_FROM_FRONTEND / [slots]",
    ),
    (
        "bad_speculation",
        "(DE_SRC_OP_DISP.ALL - EX_RET_OPS) / [slots]",
    ),
    (
        "backend_bound",
        "DE_NO_DISPATCH_PER_SLOT.BACKEND_STALLS / [slots]",
    ),
    (
        "smt_contention",
        "DE_NO_DISPATCH_PER_SLOT.SMT_CONTENTION / [slots]",
    ),
    ("retiring", "EX_RET_OPS / [slots]"),
    (
        "fetch_latency",
        "(6 * DE_NO_DISPATCH_PER_SLOT.NO_OPS_FROM_FRONTEND_CYCLES) / [slots]",
    ),
    (
        "fetch_bandwidth",
        "(DE_NO_DISPATCH_PER_SLOT.NO_OPS_FROM_FRONTEND \
         - (6 * DE_NO_DISPATCH_PER_SLOT.NO_OPS_FROM_FRONTEND_CYCLES)) / [slots]",
    ),
    (
        "branch_mispredicts",
        "[bad_speculation] * EX_RET_BRN_MISP / (EX_RET_BRN_MISP + RESYNCS_OR_NC_REDIRECTS)",
    ),
    (
        "machine_clears",
        "[bad_speculation] * RESYNCS_OR_NC_REDIRECTS \
         / (EX_RET_BRN_MISP + RESYNCS_OR_NC_REDIRECTS)",
    ),
    (
        "memory_bound",
        "[backend_bound] * (EX_NO_RETIRE.LOAD_NOT_COMPLETE / EX_NO_RETIRE.NOT_COMPLETE)",
    ),
    (
        "core_bound",
        "[backend_bound] * (1 - EX_NO_RETIRE.LOAD_NOT_COMPLETE / EX_NO_RETIRE.NOT_COMPLETE)",
    ),
    (
        "retiring_fastpath",
        "[retiring] * (1 - EX_RET_UCODE_OPS / EX_RET_OPS)",
    ),
    (
        "retiring_microcode",
        "[retiring] * (EX_RET_UCODE_OPS / EX_RET_OPS)",
    ),
];

proptest! {
    /// Without dropped uops, all values are perf's. Dropped uops are added to `frontend_bound` and
    /// taken from `bad_speculation`, as the metrics' note says.
    #[test]
    fn sapphire_emerald_and_granite_rapids_agree_with_perf(
        numbers in prop::array::uniform6(1_u32..1 << 30),
        dropped in 0_u32..1 << 20,
    ) {
        let [retired, bubbles, backend, memory, mispredict, rest] = numbers;
        let slots = (retired >> 2) + (bubbles >> 2) + (backend >> 2) + (rest >> 2) + 1;
        let mut counts = vec![
            ("TOPDOWN.SLOTS_P", slots),
            ("UOPS_RETIRED.SLOTS", retired >> 2),
            ("IDQ_BUBBLES.CORE", bubbles >> 2),
            ("TOPDOWN.BACKEND_BOUND_SLOTS", backend >> 2),
            ("TOPDOWN.MEMORY_BOUND_SLOTS", memory >> 2),
            ("TOPDOWN.BR_MISPREDICT_SLOTS", mispredict >> 2),
            ("INT_MISC.UOP_DROPPING", 0),
        ];
        for chip in ["sapphire-rapids", "emerald-rapids", "granite-rapids"] {
            for (name, _) in SPR {
                assert_same(percent(chip, name, &counts), fraction(&SPR, name, &counts), name);
            }
        }
        counts[6].1 = dropped;
        let share = f64::from(dropped) / f64::from(slots);
        for (name, difference) in [("frontend_bound", share), ("bad_speculation", -share)] {
            let perf = fraction(&SPR, name, &counts);
            let own = percent("sapphire-rapids", name, &counts);
            assert_same(own, (perf + difference).max(0.0), name);
        }
    }

    #[test]
    fn ice_lake_agrees_with_perf(
        slots in prop::array::uniform5(1_u32..1 << 28),
        cycles in prop::array::uniform7(1_u32..1 << 20),
    ) {
        let [retired, bubbles, backend, rest, clears] = slots;
        let [branches, machine, memory, stores, total, one, two] = cycles;
        let counts = [
            ("TOPDOWN.SLOTS_P", retired + bubbles + backend + rest),
            ("UOPS_RETIRED.SLOTS", retired),
            ("IDQ_UOPS_NOT_DELIVERED.CORE", bubbles),
            ("TOPDOWN.BACKEND_BOUND_SLOTS", backend),
            ("INT_MISC.CLEARS_COUNT", clears >> 8),
            ("INT_MISC.UOP_DROPPING", 0),
            ("BR_MISP_RETIRED.ALL_BRANCHES", branches),
            ("MACHINE_CLEARS.COUNT", machine),
            ("CYCLE_ACTIVITY.STALLS_MEM_ANY", memory),
            ("EXE_ACTIVITY.BOUND_ON_STORES", stores),
            ("CYCLE_ACTIVITY.STALLS_TOTAL", total),
            ("EXE_ACTIVITY.1_PORTS_UTIL", one),
            ("EXE_ACTIVITY.2_PORTS_UTIL", two),
        ];
        let own = |name| percent("ice-lake-server", name, &counts);
        for (name, _) in &ICX[..6] {
            assert_same(own(name), fraction(&ICX, name, &counts), name);
        }
        let memory_bound = own("backend_memory_share") / 100.0 * own("backend_bound");
        assert_same(memory_bound, fraction(&ICX, "memory_bound", &counts), "memory_bound");
    }

    #[test]
    fn zen_agrees_with_perf(
        cycles in 1_u32..1 << 28,
        slots in prop::array::uniform4(1_u32..1 << 26),
        others in prop::array::uniform6(1_u32..1 << 20),
    ) {
        let [frontend, backend, dispatched, retired] = slots;
        let [latency, mispredicts, restarts, loads, all, microcode] = others;
        for (chip, width, restart) in [
            ("epyc-zen4", 6, "RESYNCS_OR_NC_REDIRECTS"),
            ("epyc-zen5", 8, "BP_REDIRECTS.RESYNC"),
        ] {
            let cycles = cycles.max((frontend + backend + dispatched) / width + 1);
            let counts = [
                ("LS_NOT_HALTED_CYC", cycles),
                ("DE_NO_DISPATCH_PER_SLOT.NO_OPS_FROM_FRONTEND", frontend),
                ("DE_NO_DISPATCH_PER_SLOT.NO_OPS_FROM_FRONTEND_CYCLES", latency),
                ("DE_NO_DISPATCH_PER_SLOT.BACKEND_STALLS", backend),
                (
                    "DE_NO_DISPATCH_PER_SLOT.SMT_CONTENTION",
                    width * cycles - frontend - backend - dispatched,
                ),
                ("DE_SRC_OP_DISP.ALL", dispatched),
                ("EX_RET_OPS", retired),
                ("EX_RET_UCODE_OPS", microcode),
                ("EX_RET_BRN_MISP", mispredicts),
                (restart, restarts),
                ("EX_NO_RETIRE.NOT_COMPLETE", all),
                ("EX_NO_RETIRE.LOAD_NOT_COMPLETE", loads),
            ];
            let for_chip = |text: &str| match restart {
                "BP_REDIRECTS.RESYNC" => {
                    text.replace("6 *", "8 *").replace("RESYNCS_OR_NC_REDIRECTS", restart)
                }
                _ => text.to_owned(),
            };
            let formulas = ZEN.map(|(name, text)| (name, for_chip(text)));
            let table: Vec<(&str, &str)> =
                formulas.iter().map(|(name, text)| (*name, text.as_str())).collect();
            for (name, _) in &ZEN[1..] {
                assert_same(percent(chip, name, &counts), fraction(&table, name, &counts), name);
            }
        }
    }
}

const LEVEL_1: [&str; 4] = [
    "retiring",
    "frontend_bound",
    "backend_bound",
    "bad_speculation",
];

#[track_caller]
fn assert_sum(chip: &str, names: &[&str], events: &Counts<'_>, expected: f64) {
    let sum: f64 = names.iter().map(|name| percent(chip, name, events)).sum();
    assert!((sum - expected).abs() < 1e-9, "{chip}, {names:?}: {sum}");
}

#[test]
fn level_1_adds_up_to_all_slots() {
    let intel = [
        ("TOPDOWN.SLOTS_P", 6_000),
        ("UOPS_RETIRED.SLOTS", 1_800),
        ("IDQ_BUBBLES.CORE", 900),
        ("IDQ_UOPS_NOT_DELIVERED.CORE", 900),
        ("TOPDOWN.BACKEND_BOUND_SLOTS", 2_100),
        ("INT_MISC.CLEARS_COUNT", 24),
        ("TOPDOWN.MEMORY_BOUND_SLOTS", 1_500),
        ("TOPDOWN.BR_MISPREDICT_SLOTS", 1_000),
    ];
    let chips = ["sapphire-rapids", "emerald-rapids", "granite-rapids"];
    for chip in chips {
        assert_sum(chip, &LEVEL_1, &intel, 100.0);
        assert_sum(chip, &["memory_bound", "core_bound"], &intel, 35.0);
        assert_sum(
            chip,
            &["branch_mispredicts", "machine_clears"],
            &intel,
            20.0,
        );
    }
    assert_sum("ice-lake-server", &LEVEL_1, &intel, 100.0);
    // The 24 clears add 5 slots each to backend_bound, 2% of all slots, and take them from
    // bad_speculation.
    assert_eq!(percent("ice-lake-server", "backend_bound", &intel), 37.0);
    let amd = [
        ("LS_NOT_HALTED_CYC", 1_000),
        ("DE_NO_DISPATCH_PER_SLOT.NO_OPS_FROM_FRONTEND", 900),
        ("DE_NO_DISPATCH_PER_SLOT.BACKEND_STALLS", 2_100),
        ("DE_SRC_OP_DISP.ALL", 2_400),
        ("EX_RET_OPS", 1_800),
    ];
    let with_sibling = [&LEVEL_1[..], &["smt_contention"]].concat();
    for (chip, contention) in [("epyc-zen4", 10.0), ("epyc-zen5", 32.5)] {
        assert_sum(chip, &with_sibling, &amd, 100.0);
        assert_sum(chip, &["smt_contention"], &amd, contention);
    }
}

/// The three other shares may overlap: here they are 110% of the slots.
#[test]
fn bad_speculation_is_never_negative_on_intel() {
    let counts = [
        ("TOPDOWN.SLOTS_P", 1_000),
        ("UOPS_RETIRED.SLOTS", 600),
        ("IDQ_BUBBLES.CORE", 300),
        ("TOPDOWN.BACKEND_BOUND_SLOTS", 200),
    ];
    assert_eq!(percent("sapphire-rapids", "bad_speculation", &counts), 0.0);
}

/// Shares have the same names on all machines, so that one dashboard or alert rule serves all.
#[test]
fn every_machine_has_level_1_or_stalled_cycles() {
    for chip in Chip::all().iter().filter(|chip| {
        let name = chip.to_string();
        !["sandy-bridge", "other"].contains(&name.as_str())
    }) {
        let machine = Hardware::of_chip(*chip);
        let metrics = CATALOGUE.select("group:topdown", &machine).unwrap();
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        let has_level_1 = LEVEL_1.iter().all(|name| names.contains(name));
        let stalls = ["backend_stalled_cycles", "frontend_stalled_cycles"];
        let has_stalled_cycles = stalls.iter().all(|name| names.contains(name));
        assert!(has_level_1 || has_stalled_cycles, "{chip}: {names:?}");
    }
}
