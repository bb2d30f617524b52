//! The files have every metric of the documents, and each metric has the right value.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use test_support::fixture;

use super::{CATALOGUE, metric, pmus};
use crate::{
    catalogue::{Arch, Hardware, MetricSettings, Platform},
    formula::{Absent, EventCount, Formula, Implicit, Input},
};

/// How many metrics of each file come from the documents' own lists of metrics: 138 in all.
///
/// Operation Mix has 13 shares. SCF has 18 with Duration and Cycles, which are events that the
/// guide lists as metrics. The last three numbers of intel-spr are its tables 2, 4 and 6.
#[test]
fn every_metric_of_the_documents_is_there() {
    let documents: &[(&str, &[&str], usize)] = &[
        (
            "neoverse-v2",
            &[
                "Cycle and Instruction Accounting",
                "Computational Intensity",
                "Operation Mix",
                "SVE Predication",
                "Cache Effectiveness",
                "TLB Effectiveness",
                "Branching",
            ],
            5 + 3 + 13 + 3 + 9 + 10 + 2,
        ),
        ("nvidia-grace-scf", &["SCF PMU Metrics"], 18),
        ("nvidia-grace-pcie", &["PCIe PMU Metrics"], 8),
        ("nvidia-grace-nvlink-c2c0", &["NVLink C2C PMU Metrics"], 7),
        ("nvidia-grace-nvlink-c2c1", &["NVLink C2C PMU Metrics"], 7),
        ("tegra410-ucf", &["UCF PMU"], 8),
        ("tegra410-pcie", &["PCIE PMU"], 7),
        ("tegra410-pcie-tgt", &["PCIE-TGT PMU"], 4),
        (
            "tegra410-cmem-latency",
            &["CPU Memory (CMEM) Latency PMU"],
            3,
        ),
        ("tegra410-nvlink-c2c", &["NVLink-C2C PMU"], 9),
        ("tegra410-nvclink", &["NV-CLink PMU"], 5),
        ("tegra410-nvdlink", &["NV-DLink PMU"], 3),
        (
            "intel-spr",
            &["3.1.2, Table 2", "3.2.2, Table 4", "3.3.2, Table 6"],
            3 + 8 + 3,
        ),
    ];
    let mut total = 0;
    for (family, sections, expected) in documents {
        let metrics = CATALOGUE.metrics().filter(|metric| {
            metric.family.name == *family && sections.contains(&metric.section.as_str())
        });
        assert_eq!(metrics.count(), *expected, "{family}");
        total += expected;
    }
    assert_eq!(total, 138);
    let count = |section: &str| {
        let metrics = CATALOGUE.metrics();
        metrics.filter(|metric| metric.section == section).count()
    };
    assert_eq!(count("Operation Mix"), 13);
    assert_eq!(count("Cycle and Instruction Accounting"), 5);
    assert_eq!(count("TLB Effectiveness"), 10);
}

#[test]
fn metrics_beyond_the_documents_exist() {
    for (family, names) in [
        (
            "neoverse-v2",
            &[
                "arm_backend_bound",
                "arm_frontend_bound",
                "arm_simd_percentage",
                "arm_sve_predicate_full_percentage",
                "arm_fp_ops_per_cycle",
            ][..],
        ),
        (
            "intel-spr",
            &[
                "io_read_tor_depth",
                "io_read_tor_latency",
                "l2_miss_latency",
                "memory_stall_share",
                "io_read_bytes_in_flight",
            ],
        ),
        ("intel-snb-stalls", &["memory_stall_share"]),
        ("nvidia-grace-scf", &["cmem_read_bytes_in_flight"]),
        ("tegra410-cmem-latency", &["cmem_read_bytes_in_flight"]),
    ] {
        for name in names {
            metric(family, name);
        }
    }
    let spr = Hardware::of_platform(Platform::named("spr").unwrap());
    for (alias, name) in [
        ("io_bandwidth_read", "cha_io_read_bandwidth"),
        ("io_bandwidth_write", "cha_io_write_bandwidth"),
    ] {
        assert_eq!(CATALOGUE.select(alias, &spr).unwrap()[0].name, name);
    }
}

/// If Arm's formula differs from that of NVIDIA's guide, there is a metric of each.
#[test]
fn arms_formulas_have_names_of_their_own() {
    let formula = |name| metric("neoverse-v2", name).formula.text();
    assert_eq!(
        formula("sve_full_percentage"),
        "(SVE_PRED_FULL_SPEC / INST_SPEC) * 100"
    );
    assert_eq!(
        formula("arm_sve_predicate_full_percentage"),
        "SVE_PRED_FULL_SPEC / SVE_PRED_SPEC * 100"
    );
    assert_eq!(
        formula("simd_percentage"),
        "((SVE_INST_SPEC + ASE_INST_SPEC) / INST_SPEC) * 100"
    );
    assert_eq!(formula("arm_simd_percentage"), "ASE_SPEC / INST_SPEC * 100");
    // The guide warns of the halves of STALL_SLOT, so only Arm's metrics use them.
    for metric in CATALOGUE.metrics() {
        let halves = ["STALL_SLOT_BACKEND", "STALL_SLOT_FRONTEND"];
        let uses = halves
            .iter()
            .any(|half| metric.formula.events().iter().any(|event| event == half));
        assert_eq!(
            uses,
            ["arm_backend_bound", "arm_frontend_bound"].contains(&metric.name.as_str())
        );
    }
}

/// The name in `tests/fixtures/sysfs` of a machine with the PMUs of a platform. A platform without
/// one, such as Sandy Bridge, gets a machine whose core PMU has the same format terms.
fn machine_like(platform: Platform) -> String {
    let spec = platform.spec();
    let has_own = fixture(&format!("sysfs/{}.txt", spec.name)).exists();
    let name = match spec.arch {
        _ if has_own => &spec.name,
        Some(Arch::Arm64) => "grace",
        Some(Arch::X86) | None => "spr",
    };
    name.to_owned()
}

#[test]
fn every_event_resolves_on_its_platform() {
    let mut opened = BTreeSet::new();
    for metric in CATALOGUE.metrics() {
        for platform in &metric.family.platforms {
            let pmus = pmus(&machine_like(*platform));
            if metric.pmu.key == "spe" {
                // No fixture tree has SPE; the VM guests have it.
                continue;
            }
            let groups = metric
                .groups(&pmus, &MetricSettings::default())
                .unwrap_or_else(|error| panic!("{}: {error}", metric.name));
            for group in &groups {
                assert!(!group.text().contains("{}"), "{}", metric.name);
                assert_eq!(group.events.len(), metric.events().len());
                for (event, perf) in &group.events {
                    let has_placeholder = perf.contains('{') || perf.contains('}');
                    assert!(!has_placeholder, "{event}: {perf}");
                    opened.insert((metric.family.name.clone(), event.clone()));
                }
            }
        }
    }
    assert!(opened.len() > 100);
}

/// Events without a metric, such as hits, are part of the catalogue too.
#[test]
fn every_event_without_a_metric_resolves() {
    for family in CATALOGUE.families() {
        let pmus = pmus(&machine_like(family.platforms[0]));
        for spec in family.pmus.iter().filter(|spec| spec.key != "spe") {
            let names: Vec<&str> = if spec.pattern.is_core() {
                pmus.cores().map(|pmu| pmu.name.as_str()).collect()
            } else {
                let names = pmus.names();
                names
                    .filter(|name| spec.pattern.instance(name).is_some())
                    .collect()
            };
            assert!(!names.is_empty(), "{}", spec.pattern);
            for (event, entry) in &spec.events {
                let text = crate::catalogue::template::fill(&entry.perf, |name| match name {
                    "pmu" => Some(names[0].to_owned()),
                    "peer" => Some("1".to_owned()),
                    "part_mask" => Some("0x4".to_owned()),
                    filter => spec.defaults.get(filter).map(u64::to_string),
                });
                crate::event::parse(&text, &pmus)
                    .unwrap_or_else(|error| panic!("{event}: {error}"));
            }
        }
    }
}

/// The `id` of an event is the value that sysfs gives for the event's name.
#[test]
fn event_ids_are_those_of_sysfs() {
    let mut checked = 0;
    for family in CATALOGUE.families() {
        let pmus = pmus(&machine_like(family.platforms[0]));
        for spec in &family.pmus {
            let mut all = pmus.iter();
            let Some(pmu) = all.find(|pmu| {
                spec.pattern.instance(&pmu.name).is_some()
                    || spec.pattern.is_core() && pmu.kind == crate::machine::PmuKind::Core
            }) else {
                continue;
            };
            for (event, entry) in &spec.events {
                let Some(id) = entry.id else { continue };
                let term = entry
                    .perf
                    .trim_start_matches("{pmu}/")
                    .trim_end_matches('/');
                let term = term.split(',').next().unwrap().replace("{peer}", "0");
                let value = match term.strip_prefix("event=0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
                    None => {
                        let terms = &pmu.event(&term).unwrap_or_else(|| panic!("{term}")).terms;
                        assert_eq!(terms[0].0, "event");
                        terms[0].1
                    }
                };
                assert_eq!(value, id, "{} {event}", family.name);
                checked += 1;
            }
        }
    }
    assert!(checked > 150, "{checked}");
}

/// The counts of a line of the table, and which of them the formula asked for.
struct TableLine {
    values: BTreeMap<String, f64>,
    asked: RefCell<BTreeSet<String>>,
}

impl TableLine {
    fn get(&self, name: &str) -> Option<f64> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.values.get(name).copied()
    }
}

impl Input for TableLine {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let count = self.get(name).ok_or(Absent::Missing)?;
        Ok(EventCount {
            count,
            running_ratio: 1.0,
        })
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        self.get(implicit.name())
    }
}

#[test]
fn every_metric_gives_the_value_worked_out_by_hand() {
    let table = std::fs::read_to_string(fixture("derive/hand-computed.tsv")).unwrap();
    let mut seen = BTreeSet::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let [family, name, counts, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not four columns: {line}")
        };
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap();
            (name.to_owned(), value.parse::<f64>().unwrap())
        };
        let counts = TableLine {
            values: counts.split(' ').map(pair).collect(),
            asked: RefCell::default(),
        };
        let metric = metric(family, name);
        let machine = metric.chips().first().copied().map(|chip| {
            let mut machine = Hardware::of_chip(chip);
            machine.gpus_per_socket = Some(1);
            machine
        });
        let value = metric
            .evaluate(&machine.unwrap(), &counts)
            .unwrap_or_else(|reason| panic!("{name}: {reason}"));
        let expected: f64 = expected.parse().unwrap();
        assert!(
            (value.value - expected).abs() <= 1e-12 * expected.abs(),
            "{name}: {} and not {expected}",
            value.value
        );
        // The line has what the formula needs, and nothing else.
        let given: BTreeSet<String> = counts.values.keys().cloned().collect();
        assert_eq!(*counts.asked.borrow(), given, "{name}");
        assert!(seen.insert((family.to_owned(), name.to_owned())), "{name}");
    }
    let all = CATALOGUE
        .metrics()
        .map(|metric| (metric.family.name.clone(), metric.name.clone()));
    assert_eq!(seen, all.collect());
}

#[test]
fn every_formula_is_the_same_after_printing_and_parsing() {
    for metric in CATALOGUE.metrics() {
        assert_eq!(
            Formula::parse(metric.formula.text()).unwrap(),
            metric.formula
        );
        assert!(!metric.title.ends_with('.'), "{}", metric.name);
    }
}
