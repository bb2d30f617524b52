//! The help text of metrics has the caveats of their documents.

use std::path::Path;

use super::{
    super::{MetricKind, pages},
    CATALOGUE, metric,
};

/// Asserts that the help of every metric of `family` that `picks` selects contains all `words`.
fn assert_help(family: &str, picks: impl Fn(&str) -> bool, words: &[&str]) {
    let metrics = CATALOGUE.metrics();
    let mut count = 0;
    for metric in metrics.filter(|metric| metric.family.name == family && picks(&metric.name)) {
        let help = metric.help();
        for word in words {
            assert!(
                help.contains(word),
                "{}: no `{word}` in\n{help}",
                metric.name
            );
        }
        count += 1;
    }
    assert!(count > 0, "{family}: {words:?}");
}

#[test]
fn pcie_and_c2c_latency_exclude_the_interconnect() {
    let latency = |name: &str| name.ends_with("_latency");
    assert_help(
        "nvidia-grace-pcie",
        latency,
        &["not include the latency of the PCIe interconnect"],
    );
    for family in ["nvidia-grace-nvlink-c2c0", "nvidia-grace-nvlink-c2c1"] {
        assert_help(
            family,
            latency,
            &["not include the latency of the NVLink-C2C interconnect"],
        );
    }
}

#[test]
fn c2c_sees_no_cpu_traffic() {
    for family in ["nvidia-grace-nvlink-c2c0", "nvidia-grace-nvlink-c2c1"] {
        assert_help(family, |_| true, &["sees no CPU traffic"]);
    }
}

#[test]
fn c2c0_writes_on_a_superchip_are_relaxed_ordered_only() {
    assert_help(
        "nvidia-grace-nvlink-c2c0",
        |name| name.contains("write") || name == "c2c0_bandwidth",
        &["Superchip only relaxed-ordered"],
    );
}

#[test]
fn shares_by_precision_are_not_computational_intensity() {
    assert_help(
        "neoverse-v2",
        |name| name.starts_with("fp") && name.ends_with("percentage"),
        &["cannot be used for computational intensity"],
    );
}

#[test]
fn a_fused_multiply_add_counts_two() {
    assert_help(
        "neoverse-v2",
        |name| name.ends_with("flops"),
        &["multiply-add counts as two"],
    );
}

#[test]
fn help_warns_of_inaccurate_stall_slot_events() {
    assert_help(
        "neoverse-v2",
        |name| {
            [
                "retiring",
                "bad_speculation",
                "arm_backend_bound",
                "arm_frontend_bound",
            ]
            .contains(&name)
        },
        &["SDEN2332927", "backend_stalled_cycles"],
    );
}

#[test]
fn miss_shares_have_the_caveats_of_the_ddio_paper() {
    assert_help(
        "intel-spr",
        |name| name.ends_with("miss_l3"),
        &[
            "any cache of the socket",
            "on this socket only",
            "cannot be mapped to one device while several are active",
            "no hit share",
        ],
    );
}

#[test]
fn iio_parts_follow_the_pcie_lanes() {
    assert_help(
        "intel-spr",
        |name| name.starts_with("io_inbound") || name.starts_with("io_outbound"),
        &["part 0, or 4", "parts 0 and 2"],
    );
}

#[test]
fn the_data_of_a_read_flows_against_the_name_of_its_event() {
    assert_help(
        "intel-spr",
        |name| name == "io_inbound_read_bandwidth",
        &["inbound reads is counted on DATA_REQ_OF_CPU"],
    );
    assert_help(
        "intel-spr",
        |name| name == "io_outbound_read_bandwidth",
        &["outbound reads is counted on the completions (CMPD)"],
    );
    let formula = |name| metric("intel-spr", name).formula.text();
    assert!(formula("io_inbound_read_bandwidth").contains("DATA_REQ_OF_CPU.MEM_READ"));
    assert!(formula("io_outbound_read_bandwidth").contains("DATA_REQ_OF_CPU.CMPD"));
}

#[test]
fn cas_reads_include_underfills() {
    assert_help(
        "intel-spr",
        |name| name == "memory_bandwidth_read" || name == "memory_bandwidth_total",
        &["includes the underfill reads"],
    );
}

#[test]
fn tegra410_local_is_by_home_socket() {
    for family in ["tegra410-ucf", "tegra410-pcie"] {
        assert_help(
            family,
            |name| name.ends_with("bandwidth"),
            &["by the home socket of the address"],
        );
    }
}

#[test]
fn a_cmem_request_is_32_bytes() {
    assert_help(
        "tegra410-cmem-latency",
        |name| name.contains("latency") && !name.ends_with("frequency"),
        &["RD_REQ is a read of 32 bytes"],
    );
}

#[test]
fn the_help_of_stall_events_says_whether_they_overcount_or_undercount() {
    assert_help(
        "intel-snb-stalls",
        |name| name == "issue_stall_share",
        &["Overcounts"],
    );
    for family in ["intel-snb-stalls", "intel-spr"] {
        assert_help(
            family,
            |name| name == "dispatch_stall_share",
            &["Undercounts", "rejected and retried"],
        );
        assert_help(
            family,
            |name| name == "memory_stall_share",
            &["not their sum", "SSE streaming stores"],
        );
    }
    assert_help(
        "intel-snb-stalls",
        |name| name == "resource_stall_share",
        &["1 % to 3 % less"],
    );
}

#[test]
fn each_help_names_the_root_port_filter() {
    assert_help(
        "nvidia-grace-pcie",
        |_| true,
        &["root_port selects", "0x3ff"],
    );
}

#[test]
fn chips_without_a_value_are_in_the_help() {
    assert_help(
        "nvidia-grace-scf",
        |name| name.starts_with("gmem"),
        &["No value on grace-cpu-superchip: the Grace CPU Superchip has no GPU memory."],
    );
}

#[test]
fn kinds_and_bounds_fit_the_units() {
    for metric in CATALOGUE.metrics() {
        let expected = match metric.unit.as_str() {
            "ns" | "cycles" => [MetricKind::Latency, MetricKind::Counter],
            "GB/s" | "MB/s" | "GHz" | "1/s" => [MetricKind::Rate, MetricKind::Rate],
            "%" | "1" | "1/B" | "1/1000 instructions" | "requests" | "CPU" | "thread" => {
                [MetricKind::Ratio, MetricKind::Ratio]
            }
            "1/cycle" => [MetricKind::Ratio, MetricKind::Rate],
            "B" => [MetricKind::Counter, MetricKind::Counter],
            other => panic!("{}: unit {other}", metric.name),
        };
        assert!(expected.contains(&metric.kind), "{}", metric.name);
        // Shares have a bound; other metrics have none.
        if let Some(bound) = metric.bound {
            assert_eq!(
                bound,
                if metric.unit == "%" { 100.0 } else { 1.0 },
                "{}",
                metric.name
            );
        }
    }
}

/// `cargo xtask docs` writes the pages from the catalogue.
#[test]
fn the_pages_match_the_catalogue() {
    let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference"));
    let pages = pages(&CATALOGUE);
    let mut all = String::new();
    for page in &pages {
        let path = docs.join(&page.path);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == page.text,
            "{} has drifted: run `cargo xtask docs`",
            path.display()
        );
        all.push_str(&text);
    }
    for metric in CATALOGUE.metrics() {
        assert!(all.contains(metric.formula.text()), "{}", metric.name);
        for note in &metric.notes {
            assert!(all.contains(note), "{}: {note}", metric.name);
        }
    }
    let entries = std::fs::read_dir(docs.join("metrics")).unwrap();
    for entry in entries {
        let path = entry.unwrap().path();
        let known = pages.iter().any(|page| docs.join(&page.path) == path);
        assert!(known, "{} is of no family: remove it", path.display());
    }
}

#[test]
fn gpu_memory_is_read_by_the_cpus_of_other_sockets_too() {
    let gpu_memory = |name: &str| name.starts_with("gmem_");
    let words = ["with several sockets the CPUs of the others too"];
    assert_help("nvidia-grace-scf", gpu_memory, &words);
}
