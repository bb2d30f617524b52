//! Compares the formula with the memory of a session, and with the chart and its page.

use proptest::prelude::*;

use super::*;
use crate::session::memory::tests::{agent_bytes, sampled_event_bytes, user_bytes};

const CHART: &str = include_str!("../../../../deploy/helm/pmuscope/templates/_helpers.tpl");
/// The number of groups of every profile: one of software events, and one of hardware events.
const GROUPS: usize = 2;

const PAGE: &str = include_str!("../../../../docs/reference/chart.md");

proptest! {
    /// The terms are large enough for any number of CPUs.
    #[test]
    fn the_terms_cover_a_session(cpus in 1..1025_usize, timeline in any::<bool>()) {
        let taken = agent_bytes(cpus, access_rows(cpus), timeline);
        prop_assert!(taken.row_of_counts <= ROW);
        // The 2 MiB that do not depend on CPUs are part of PROCESS (32 MiB), of which an agent with
        // 1,000 containers takes 21 MB.
        prop_assert!(taken.counts_without_rows <= CPU * cpus + 2 * MIB, "{taken:?}");
        let samples = taken.samples + user_bytes(access_rows(cpus));
        prop_assert!(samples <= SAMPLES + SAMPLED_CPU * cpus, "{taken:?}");
        let events = sampled_event_bytes(cpus, event_rows(cpus));
        prop_assert!(events <= EVENTS + EVENTS_CPU * cpus, "{events}");
        // Accesses that events sample, alone and together with other events.
        let accesses = sampled_event_bytes(cpus, access_rows(cpus));
        prop_assert!(accesses <= SAMPLES + SAMPLED_CPU * cpus, "{accesses}");
        let both = sampled_event_bytes(cpus, event_rows(cpus) + access_rows(cpus));
        let terms = EVENTS + SAMPLES + (EVENTS_CPU + SAMPLED_CPU) * cpus;
        prop_assert!(both <= terms, "{both}");
    }
}

#[test]
fn the_terms_are_no_larger_than_needed() {
    let taken = agent_bytes(144, access_rows(144), false);
    assert!(taken.row_of_counts * 10 >= ROW * 9, "{taken:?}");
    let samples = taken.samples + user_bytes(access_rows(144));
    assert!(samples * 5 >= SAMPLES * 4, "{samples}");
    let events = sampled_event_bytes(256, event_rows(256));
    assert!(events * 5 >= (EVENTS + EVENTS_CPU * 256) * 4, "{events}");
}

/// The chart computes in KiB, and this module in bytes.
#[test]
fn the_chart_has_the_same_terms() {
    for term in [
        format!("mul {} 1024", PROCESS / MIB),
        format!("mul $rows {}", GROUPS * ROW),
        format!("mul $processes {}", PROCESS_ROW / KIB),
        format!(
            "mul {} 1024) (mul (int64 $m.cpus) {})",
            EVENTS / MIB,
            EVENTS_CPU / KIB
        ),
        format!("mul (int64 $m.containers) {}", CONTAINER / KIB),
        format!("mul (int64 $m.cpus) {}", CPU / KIB),
        format!(
            "mul {} 1024) (mul (int64 $m.cpus) (add {} ",
            SAMPLES / MIB,
            SAMPLED_CPU / KIB
        ),
        "mul $kib 5) 4".to_owned(),
    ] {
        assert!(
            CHART.contains(&term),
            "templates/_helpers.tpl lacks `{term}`"
        );
    }
}

#[test]
fn the_page_has_the_limits() {
    for (what, cpus, containers) in [
        ("16 CPUs, 1,000 containers", 16, 1000),
        ("128 CPUs, 250 containers (default)", 128, 250),
        ("144 CPUs, 1,000 containers", 144, 1000),
    ] {
        let limit = |buffer| {
            let node = Node {
                cpus,
                containers,
                processes: 0,
                groups: GROUPS,
                events: false,
                buffer,
            };
            node.limit()
        };
        let row = format!(
            "| {what} | {} MiB | {} MiB |",
            limit(None),
            limit(Some(128 * KIB))
        );
        assert!(PAGE.contains(&row), "docs/reference/chart.md lacks:\n{row}");
    }
}
