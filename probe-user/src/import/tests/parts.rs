//! Places, units and intervals of an input.

use super::{
    super::{json, table},
    CATALOGUE, Derived, derived, fixture, readings, rows, value,
};
use crate::catalogue::{Chip, Hardware};

fn golden(name: &str) -> String {
    fixture(&format!("perf/6.1/{name}"))
}

fn chip(name: &str) -> Chip {
    Chip::named(name).unwrap()
}

/// Each metric of sockets has a row for each socket, whatever else was counted there: events about
/// a pair of sockets do not turn the other counts into pairs.
#[test]
fn an_event_about_a_pair_adds_no_rows_to_metrics_of_sockets() {
    for form in ["scf.csv", "scf.json"] {
        // An event that a metric of pairs needs, and one that none needs.
        for event in ["socket_1_rd_access", "socket_1_rd_data"] {
            let text = golden(form).replace("socket_1_rd_data", event);
            let derived = derived(&text, chip("grace-hopper-multi"));
            let places = |name: &str| -> Vec<String> {
                let rows = rows(&derived, name).into_iter();
                let values = rows.filter(|row| row.value.is_ok());
                values.map(|row| row.place.to_string()).collect()
            };
            assert_eq!(places("cmem_read_bandwidth"), ["socket 0", "socket 1"]);
            assert_eq!(places("scf_frequency"), ["socket 0"]);
        }
    }
}

/// perf sums the units of all sockets under one name. The test PMU's sockets have 1 and 2 cycles
/// per ns, and each request waits for one cycle.
#[test]
fn units_of_two_sockets_are_counted_by_their_time() {
    for form in [
        "tor.csv",
        "tor-raw.csv",
        "tor-units.csv",
        "tor-units.json",
        "tor-interval.csv",
    ] {
        let derived = derived(&golden(form), chip("sapphire-rapids"));
        let latencies = rows(&derived, "io_read_tor_latency");
        assert!(!latencies.is_empty());
        for row in latencies {
            let latency = row.value.as_ref().unwrap().value;
            let cycles = latency * 1.5;
            assert!((0.99..1.01).contains(&cycles), "{form}: {cycles}");
        }
    }
    let derived = derived(&golden("tor-socket.csv"), chip("sapphire-rapids"));
    let sockets = rows(&derived, "io_read_tor_latency")
        .into_iter()
        .map(|row| {
            let value = row.value.as_ref().unwrap().value;
            (
                row.set.scope.as_deref().unwrap(),
                (value * 100.0).round() / 100.0,
            )
        });
    assert_eq!(sockets.collect::<Vec<_>>(), [("S0", 1.0), ("S1", 0.5)]);
}

/// Quantities that the input gives have priority.
#[test]
fn the_number_of_units_can_be_given() {
    let text = golden("tor.csv").replace(',', ";") + "2;;num_units;1;100.00;;\n";
    let derived = derived(&text, chip("sapphire-rapids"));
    let latency = rows(&derived, "io_read_tor_latency")[0].value.as_ref();
    // The input gives 2 units in place of the four.
    assert!((latency.unwrap().value * 3.0 - 1.0).abs() < 0.01);
}

/// A line of `perf stat -x,` with this running ratio in percent.
fn line(event: &str, count: u32, percent: u32) -> String {
    format!("{count},,{event},{},{percent}.00,,\n", 1_000 * percent)
}

/// A metric takes the events of one group; of several, the one that ran longest. If none has them
/// all, the output says so.
#[test]
fn events_of_several_groups_are_reported() {
    let input = |groups: &[&[(&str, u32, u32)]]| -> String {
        let lines = groups.iter().copied().flatten();
        lines
            .map(|(event, count, running_ratio)| line(event, *count, *running_ratio))
            .collect()
    };
    let short = [
        ("cycles", 100, 20),
        ("branches", 50, 20),
        ("branch-misses", 20, 20),
    ];
    let long = [
        ("cycles", 300, 60),
        ("branches", 90, 60),
        ("branch-misses", 9, 60),
    ];
    let two_groups = derived(&input(&[&short, &long]), chip("other"));
    assert_eq!(value(&two_groups, "branch_miss_ratio"), 0.1);
    assert!(two_groups.mixed.is_empty());
    // Instructions are in a third group, without any of the other events.
    let with_third = input(&[&short, &long, &[("instructions", 1_000, 10)]]);
    let with_third = derived(&with_third, chip("other"));
    assert_eq!(value(&with_third, "branch_miss_ratio"), 0.1);
    assert_eq!(value(&with_third, "branch_miss_mpki"), 9.0);
    let mixed: Vec<&str> = with_third.mixed.iter().copied().collect();
    assert_eq!(mixed, ["branch_miss_mpki", "ipc"]);
    let text = table_text(&with_third);
    assert!(
        text.contains("branch-misses, branches, cycles: counted more than once"),
        "{text}"
    );
    assert!(text.contains("in no group together"), "{text}");
}

fn table_text(derived: &Derived<'_>) -> String {
    let mut text = Vec::new();
    table(&mut text, derived).unwrap();
    String::from_utf8(text).unwrap()
}

fn as_json(derived: &Derived<'_>) -> serde_json::Value {
    let mut text = Vec::new();
    json(&mut text, derived).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The misses are one more than all requests: one was on its way when counting began.
#[test]
fn a_value_just_above_its_bound_is_shown_and_flagged() {
    let text = "UNC_CHA_TOR_INSERTS.IO_MISS_PCIRDCUR=653,237,921\n\
                UNC_CHA_TOR_INSERTS.IO_PCIRDCUR=653,237,920";
    let derived = derived(text, chip("emerald-rapids"));
    let name = "io_percent_of_inbound_reads_that_miss_l3";
    assert!(value(&derived, name) > 100.0);
    let text = table_text(&derived);
    assert!(text.contains(" 100.00  %"), "{text}");
    assert!(
        text.contains("\nabove the largest possible value"),
        "{text}"
    );
    assert!(text.contains(&format!("\n  {name}: 100.0000001")), "{text}");
    let json = as_json(&derived);
    let metrics = json["metrics"].as_array().unwrap();
    let line = metrics.iter().find(|line| line["metric"] == name).unwrap();
    assert_eq!(line["exceeded_bound"], 100.0);
}

/// Table 8 of the DDIO paper, "non-allocating + 2048 queues", and misses of table 7.
#[test]
fn values_of_devices_are_printed() {
    let text = "UNC_CHA_TOR_INSERTS.IO_CLFLUSH=570,128,486\n\
                UNC_CHA_TOR_INSERTS.IO_WBMTOI=218\n\
                UNC_CHA_TOR_INSERTS.IO_PCIRDCUR=653,237,920\n\
                UNC_CHA_TOR_INSERTS.IO_MISS_PCIRDCUR=576,559,227";
    let derived = derived(text, chip("emerald-rapids"));
    let text = table_text(&derived);
    let finding = "100.0 % of the inbound writes do not allocate in the cache (they end with \
                   CLFLUSH in place of WBMTOI): DDIO is off for them, by the BIOS or by the device";
    assert!(text.contains(&format!("\n{finding}\n")), "{text}");
    assert!(
        text.contains("what lowers misses of devices (DDIO paper, section 4)"),
        "{text}"
    );
    assert!(
        text.contains("\n  use again first what was used last"),
        "{text}"
    );
    let json = as_json(&derived);
    assert_eq!(json["findings"], serde_json::json!([finding]));
    assert_eq!(json["advice"].as_array().unwrap().len(), 5);
    // Of several intervals, only the largest value of a socket is reported.
    let lines =
        [(1, "S0", 10), (1, "S1", 0), (2, "S0", 30), (2, "S1", 0)].map(|(at, socket, part)| {
            let line = |event, count| {
                format!("{at}.000000000,{socket},1,{count},,{event},1000,100.00,,\n")
            };
            line("UNC_CHA_TOR_INSERTS.IO_CLFLUSH", part)
                + &line("UNC_CHA_TOR_INSERTS.IO_WBMTOI", 100 - part)
        });
    let of_sockets = super::derived(&lines.concat(), chip("emerald-rapids"));
    let json = as_json(&of_sockets);
    assert_eq!(
        json["findings"],
        serde_json::json!([
            "30.0 % of the inbound writes of S0 do not allocate in the cache (they end with \
             CLFLUSH in place of WBMTOI)"
        ])
    );
    assert_eq!(json["advice"], serde_json::json!([]));
}

/// A known event that no metric needs is described.
#[test]
fn an_event_without_a_metric_is_reported() {
    let text = "nvidia_scf_pmu_0/scf_cache_wb/=7\nnvidia_scf_pmu_0/socket_1_rd_data/=8\n\
                nvidia_scf_pmu_0/cmem_rd_data/=9\nbogus=1";
    let derived = derived(text, chip("grace-hopper"));
    let unused: Vec<(&str, &str)> = derived
        .unused
        .iter()
        .map(|(event, why)| (&**event, &**why))
        .collect();
    let [bogus, cache, socket] = unused[..] else {
        panic!("{unused:?}");
    };
    assert_eq!(bogus, ("bogus", "no event of this platform"));
    assert_eq!(cache.0, "nvidia_scf_pmu_0/scf_cache_wb/");
    assert!(
        cache
            .1
            .starts_with("no metric needs SCF_CACHE_WB: Lines that"),
        "{cache:?}"
    );
    assert!(
        socket
            .1
            .starts_with("no metric needs SOCKET_n_RD_DATA: Beats"),
        "{socket:?}"
    );
}

/// Twice the intervals take twice the steps.
#[test]
fn the_work_is_linear_in_the_input() {
    let steps = |intervals: u32| {
        let lines = (1..=intervals).map(|second| {
            let events = ["cycles", "instructions", "branches", "branch-misses"];
            let sockets = ["S0", "S1"].map(|socket| {
                let line =
                    |event| format!("{second}.000000000,{socket},1,100,,{event},1000,100.00,,\n");
                events.map(line).concat()
            });
            sockets.concat()
        });
        let text: String = lines.collect();
        let machine = Hardware::of_chip(chip("other"));
        let derived = super::derive(&CATALOGUE, &machine, &readings(&text)).unwrap();
        let rows = rows(&derived, "ipc").len();
        assert_eq!(rows, 2 * usize::try_from(intervals).unwrap());
        derived.work.steps()
    };
    let [once, twice] = [steps(200), steps(400)];
    assert!(once > 200);
    assert!(twice <= 2 * once, "{once} steps, {twice} for twice as much");
}
