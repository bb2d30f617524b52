//! A metric of ours and one of perf's with the same meaning have the same value for the same
//! counts. Events are identified by their encodings, not by their names.

use std::collections::BTreeMap;

use super::{
    Counts,
    real::{models, root, with_directory},
};
use crate::{
    catalogue::{Hardware, Metric},
    formula::{Absent, EventCount, Implicit, Input},
};

/// perf's name of a metric and ours, if they differ. If they are equal, the merged metric of perf
/// has the prefix `perf_`.
const RENAMED: [(&str, &str); 21] = [
    ("umc_mem_read_bandwidth", "memory_bandwidth_read"),
    ("umc_mem_write_bandwidth", "memory_bandwidth_write"),
    ("umc_data_bus_utilization", "memory_bus_utilization"),
    ("frontend_bound_latency", "fetch_latency"),
    ("frontend_bound_by_latency", "fetch_latency"),
    ("frontend_bound_by_bandwidth", "fetch_bandwidth"),
    ("backend_bound_memory", "memory_bound"),
    ("backend_bound_by_memory", "memory_bound"),
    ("backend_bound_cpu", "core_bound"),
    ("backend_bound_by_cpu", "core_bound"),
    ("bad_speculation_mispredicts", "branch_mispredicts"),
    ("bad_speculation_from_mispredicts", "branch_mispredicts"),
    ("bad_speculation_pipeline_restarts", "machine_clears"),
    ("bad_speculation_from_pipeline_restarts", "machine_clears"),
    ("retiring_from_microcode", "retiring_microcode"),
    ("retiring_from_fastpath", "retiring_fastpath"),
    ("tma_retiring", "retiring"),
    ("tma_frontend_bound", "frontend_bound"),
    ("tma_backend_bound", "backend_bound"),
    ("tma_bad_speculation", "bad_speculation"),
    (
        "tma_info_memory_latency_load_l2_miss_latency",
        "l2_miss_latency_cycles",
    ),
];

/// Our metrics whose formula differs from perf's: the platform, the name, and why.
const OTHER_FORMULAS: [(&str, &str, &str); 9] = [
    (
        "spr",
        "io_percent_of_inbound_partial_writes_that_miss_l3",
        "the DDIO paper leaves out ownership requests",
    ),
    (
        "emr",
        "io_percent_of_inbound_partial_writes_that_miss_l3",
        "as on spr",
    ),
    (
        "zen4",
        "smt_contention",
        "the rest of the slots takes no sixth counter",
    ),
    ("zen5", "smt_contention", "as on zen4"),
    (
        "neoverse-n1",
        "ipc",
        "by perf's generic names of the same events",
    ),
    ("neoverse-v1", "ipc", "as on neoverse-n1"),
    ("vera", "ipc", "as on neoverse-n1"),
    (
        "grace",
        "simd_percentage",
        "NVIDIA's guide adds SVE; arm_simd_percentage is perf's",
    ),
    (
        "gnr",
        "memory_bandwidth_total",
        "one event counts what perf adds up",
    ),
];

/// Random counts of the events of a metric, by their encodings.
struct Encoded<'a> {
    metric: &'a Metric,
    counts: Counts,
}

impl Encoded<'_> {
    fn count(&self, encoding: &str) -> f64 {
        self.counts.event(encoding).unwrap().count
    }

    /// The count of an Intel core's event of slots; `None` for other events. Slots are retired,
    /// empty because of the frontend or of the backend, or flushed. perf's pseudo-events are shares
    /// of their sum.
    fn slots(&self, terms: &BTreeMap<String, u64>) -> Option<f64> {
        let [event, umask] = ["event", "umask"].map(|term| terms.get(term).copied().unwrap_or(0));
        let [retired, frontend, backend, flushed] =
            ["retired", "frontend", "backend", "flushed"].map(|name| self.count(name));
        Some(match (event, umask) {
            (0xc2, 0x02) => retired,
            (0x9c, 0x01) => frontend,
            (0xa4, 0x02) => backend,
            (0xa4, 0x10) => backend * 0.7,
            (0xa4, 0x04) => flushed,
            (0xa4, 0x08) => flushed * 0.6,
            (0xa4, 0x01) => retired + frontend + backend + flushed,
            // INT_MISC.UOP_DROPPING
            (0xad | 0x0d, 0x10) => 0.0,
            // Ice Lake has no ordinary event of flushed slots.
            _ if terms.contains_key("topdown-bad-spec") => flushed,
            _ => return None,
        })
    }
}

impl Input for Encoded<'_> {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let spec = &self.metric.pmu.events[name];
        let terms = match spec.id {
            Some(id) => BTreeMap::from([("event".to_owned(), id)]),
            None => terms(&spec.perf),
        };
        let mut names = self.metric.pmu.events.keys();
        let is_intel = names.any(|name| name.starts_with("TOPDOWN."));
        let slots = is_intel.then(|| self.slots(&terms)).flatten();
        Ok(EventCount {
            count: slots.unwrap_or_else(|| self.count(&format!("{terms:?}"))),
            running_ratio: 1.0,
        })
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        match (implicit, self.metric.pmu.slots) {
            (Implicit::Slots, Some(slots)) => Some(slots.into()),
            _ => self.counts.implicit(implicit),
        }
    }
}

/// The terms of perf's `-e` string that are not 0.
fn terms(perf: &str) -> BTreeMap<String, u64> {
    let terms = perf.split('/').nth(1).unwrap_or(perf).split(',');
    let numbers = terms.map(|term| {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let value = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => value.parse(),
        };
        (name.to_owned(), value.unwrap_or(u64::MAX))
    });
    numbers.filter(|(_, value)| *value != 0).collect()
}

/// The number of sets of random counts.
const SEEDS: u32 = 8;

/// The values with each set of counts; `None` for a set without a value.
fn values(metric: &Metric, hardware: &Hardware) -> Vec<Option<f64>> {
    let value = |seed| {
        let counts = Encoded {
            metric,
            counts: Counts {
                seed,
                ..Counts::default()
            },
        };
        metric.evaluate(hardware, &counts).ok().map(|it| it.value)
    };
    (0..SEEDS).map(value).collect()
}

fn agree(ours: &[Option<f64>], theirs: &[Option<f64>]) -> bool {
    let same = |pair: (&Option<f64>, &Option<f64>)| match pair {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1e-6),
        (None, None) => true,
        _ => false,
    };
    ours.iter().any(Option::is_some) && ours.iter().zip(theirs).all(same)
}

#[test]
fn metrics_with_the_same_meaning_have_the_same_value() {
    let Some(root) = root() else { return };
    let mut compared = 0;
    for (below, platform) in models(&root) {
        let (catalogue, hardware) = with_directory(&root, below, platform);
        let here = catalogue.on(&hardware);
        let named = |name: &str| here.iter().copied().find(|metric| metric.name == name);
        let with_our_name = here.iter().filter_map(|metric| {
            let ours = metric.name.strip_prefix("perf_")?;
            Some((metric.name.as_str(), ours))
        });
        for (theirs, ours) in with_our_name.chain(RENAMED) {
            let (Some(theirs), Some(ours)) = (named(theirs), named(ours)) else {
                continue;
            };
            let [their_values, our_values] = [theirs, ours].map(|metric| values(metric, &hardware));
            let mut different = OTHER_FORMULAS.iter();
            let differs = different.any(|it| (it.0, it.1) == (platform, ours.name.as_str()));
            assert_eq!(
                agree(&our_values, &their_values),
                !differs,
                "{below} {platform} {} = {} {their_values:?}\n{} = {} {our_values:?}",
                theirs.name,
                theirs.formula.text(),
                ours.name,
                ours.formula.text()
            );
            compared += usize::from(!differs);
        }
    }
    println!("{compared} pairs of metrics agree");
}
