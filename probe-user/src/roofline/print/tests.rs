use super::*;
use crate::roofline::{
    Bandwidth, Disturbance, FORMAT, Latency, Peak, Roof, RunStats, bytes_in_flight, lines_per_core,
};

fn runs(best: f64, median: f64) -> RunStats {
    RunStats {
        best,
        median,
        runs: 10,
        waited: 0.125,
    }
}

/// The Xeon Phi in John `McCalpin`'s note: 175 GB/s at 275 ns, 61 cores.
fn xeon_phi() -> Roofline {
    let on = MeasuredCpus {
        socket: Some(0),
        threads: 61,
        cores: 61,
        cpus: "0-60".into(),
    };
    let in_flight = bytes_in_flight(175e9, 275.0);
    Roofline {
        format: FORMAT,
        platform: "generic".into(),
        vectors: "avx512f",
        line: 64,
        cpus: "0-60".into(),
        latencies: vec![Latency {
            socket: 0,
            cpu: 0,
            level: "memory".into(),
            bytes: 512 << 20,
            nanoseconds: runs(275.0, 280.25),
            huge_pages: Some(1.0),
        }],
        peaks: vec![Peak {
            on: on.clone(),
            flops: runs(1.07e12, 1e12),
        }],
        bandwidths: vec![
            Bandwidth {
                on: on.clone(),
                level: "L1".into(),
                bytes: 976 << 10,
                stores: Stores::Plain,
                bytes_per_second: runs(2e12, 1.9e12),
                huge_pages: None,
                latency_ns: None,
                bytes_in_flight: None,
                lines_in_flight_per_core: None,
            },
            Bandwidth {
                on: on.clone(),
                level: "memory".into(),
                bytes: 1536 << 20,
                stores: Stores::NonTemporal,
                bytes_per_second: runs(175e9, 171e9),
                huge_pages: Some(1.0),
                latency_ns: Some(275.0),
                bytes_in_flight: Some(in_flight),
                lines_in_flight_per_core: Some(lines_per_core(in_flight, 64, 61)),
            },
        ],
        roofs: vec![Roof {
            on,
            flops: 1.07e12,
            bytes_per_second: 175e9,
            ridge: 1.07e12 / 175e9,
        }],
        disturbance: Disturbance {
            seconds: 12.34,
            cpus: 61,
            others: Some(1.5),
            stolen: Some(0.0),
            waited: 0.125,
        },
        notes: vec!["the machine tells no caches: only memory is measured".into()],
    }
}

#[test]
fn a_table_has_all_that_was_measured() {
    let mut text = Vec::new();
    table(&mut text, &xeon_phi()).unwrap();
    insta::assert_snapshot!(String::from_utf8(text).unwrap());
}

#[test]
fn json_has_the_fields_of_the_page() {
    let mut text = Vec::new();
    json(&mut text, &xeon_phi()).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap());
    let page = include_str!("../../../../docs/reference/roofline.md");
    let mut open = vec![&value];
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    assert!(
                        page.contains(&format!("`{name}`")),
                        "docs/reference/roofline.md: {name}"
                    );
                    open.push(value);
                }
            }
            serde_json::Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
}

#[test]
fn a_quiet_machine_is_reported_as_quiet() {
    let mut roofline = xeon_phi();
    roofline.notes.clear();
    roofline.disturbance.others = Some(0.01);
    roofline.disturbance.waited = 0.001;
    let quiet = ["- other tasks used 0.01 of 61 CPUs during these 12.3 s"];
    assert_eq!(sentences(&roofline), quiet);
    roofline.disturbance.others = None;
    roofline.disturbance.stolen = Some(0.5);
    let lines = sentences(&roofline);
    assert!(lines[0].contains("/proc/stat cannot be read"), "{lines:?}");
    assert_eq!(lines[1], "! the hypervisor took 0.50 CPUs");
}
