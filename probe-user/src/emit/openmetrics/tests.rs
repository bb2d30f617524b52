//! The grammar of `OpenMetrics`, checked by a separate reader, and by Prometheus's `promtool` if
//! installed.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    process::{Command, Stdio},
};

use crate::{
    derive::{Histogram, MetricKind, PowerBuckets, Report, Value},
    emit::{
        OutputFormat,
        tests::{HOSTILE, hostile, report, written},
    },
};

/// The value of each sample, by name and labels.
pub(super) type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// A report with histograms that a scrape shows, such as those of waits.
pub(super) fn with_histograms(mut report: Report) -> Report {
    for metric in &mut report.metrics {
        if metric.kind == MetricKind::Histogram {
            (metric.name, metric.unit) = ("cpu_wait_duration".to_owned(), "s".to_owned());
        }
    }
    for series in &mut report.series {
        if let Ok(Value::Histogram(histogram)) = &mut series.value {
            **histogram = Histogram {
                start: histogram.start,
                bounds: vec![0.25, 1.0],
                counts: vec![7, 3, 12],
                sum: 21.5,
                powers: Some(PowerBuckets {
                    first: -3,
                    counts: vec![2, 5, 0, 3, 0, 0, 1, 11],
                }),
            };
        }
    }
    report
}

/// A report with an event in milliseconds after one in nanoseconds.
pub(super) fn with_milliseconds() -> Report {
    let mut report = report();
    let cycles = { report.metrics.iter_mut() }.find(|metric| metric.name == "cycles");
    cycles.unwrap().unit = "ms".to_owned();
    report
}

/// The samples of a histogram in a scrape. `buckets` has the bounds and cumulative counts of all
/// buckets but the last.
pub(super) fn histogram_samples(
    (name, labels): (&str, &BTreeMap<String, String>),
    buckets: impl Iterator<Item = (f64, u64)>,
    (sum, count): (f64, u64),
) -> Samples {
    let bounds = buckets.map(|(bound, count)| (format!("{bound:?}"), count));
    let all = bounds.chain([("+Inf".to_owned(), count)]);
    let bucket = |(bound, count): (String, u64)| {
        let mut labels = labels.clone();
        labels.insert("le".to_owned(), bound);
        ((format!("{name}_bucket"), labels), float(count))
    };
    let suffixed = |suffix: &str, value| ((format!("{name}_{suffix}"), labels.clone()), value);
    all.map(bucket)
        .chain([suffixed("sum", sum), suffixed("count", float(count))])
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn float(number: u64) -> f64 {
    number as f64
}

/// Parses an exposition; panics if it is invalid.
pub(super) fn read(text: &str) -> Samples {
    let mut samples = Samples::new();
    let mut families = BTreeSet::new();
    let mut family: Option<(String, String)> = None;
    let body = text.strip_suffix("# EOF\n").expect("it ends");
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let [keyword, name, rest] = *comment.splitn(3, ' ').collect::<Vec<_>>() else {
                panic!("{line}");
            };
            assert_name(name);
            match keyword {
                "HELP" => {
                    assert!(families.insert(name.to_owned()), "{name} is there twice");
                    family = Some((name.to_owned(), String::new()));
                }
                "TYPE" => family = Some((name.to_owned(), rest.to_owned())),
                "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                _ => panic!("{line}"),
            }
            assert_eq!(family.as_ref().unwrap().0, name, "{line}");
            continue;
        }
        let (name, labels, value) = sample(line);
        let (family_name, type_name) = family.as_ref().expect("a head comes first");
        let suffix = name
            .strip_prefix(family_name.as_str())
            .expect("it is of its family");
        let suffixes: &[&str] = match type_name.as_str() {
            "counter" => &["_total", "_created"],
            "histogram" => &["_bucket", "_count", "_sum", "_created"],
            "info" => &["_info"],
            "gauge" | "stateset" => &[""],
            _ => panic!("{type_name}"),
        };
        assert!(suffixes.contains(&suffix), "{line} in {type_name}");
        assert_eq!(labels.contains_key("le"), suffix == "_bucket", "{line}");
        let twice = samples.insert((name, labels), value);
        assert_eq!(twice, None, "{line} is there twice");
    }
    samples
}

fn assert_name(name: &str) {
    let valid = |char: char| char.is_ascii_alphanumeric() || char == '_';
    assert!(
        name.starts_with("pmuscope_") && name.chars().all(valid),
        "{name}"
    );
}

/// `name{label="value",...} number`.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (name, mut rest) = line.split_at(line.find(['{', ' ']).expect("a value"));
    assert_name(name);
    let mut labels = BTreeMap::new();
    if let Some(list) = rest.strip_prefix('{') {
        rest = list;
        loop {
            let (label, value) = rest.split_once("=\"").expect("a label");
            let mut text = String::new();
            let mut chars = value.char_indices();
            let end = loop {
                match chars.next().expect("it is closed") {
                    (at, '"') => break at,
                    (_, '\\') => text.push(match chars.next().expect("an escape").1 {
                        'n' => '\n',
                        char @ ('\\' | '"') => char,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, char) => text.push(char),
                }
            };
            assert!(super::is_reserved_label(label), "{label} is not reserved");
            assert!(labels.insert(label.to_owned(), text).is_none(), "{line}");
            rest = &value[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect("it is closed");
    }
    let value = rest
        .strip_prefix(' ')
        .expect("a value")
        .parse()
        .expect("a number");
    (name.to_owned(), labels, value)
}

fn value(samples: &Samples, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels = labels
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
    samples.get(&(name.to_owned(), labels.collect())).copied()
}

#[test]
fn every_kind_of_value_is_read_back() {
    let samples = read(&written(&report(), OutputFormat::OpenMetrics));
    let value_of = |name: &str, labels: &[(&str, &str)]| value(&samples, name, labels);
    let command = [("kind", "command"), ("name", "make")];
    let with = |others: &[(&'static str, &'static str)]| [&command[..], others].concat();
    // Totals since the row began, in base units: raw, by counter group, and estimated.
    let clock = ("event", "task-clock");
    let cycles = ("event", "cycles");
    let group = ("group", "0");
    let seconds = value_of("pmuscope_events_seconds_total", &with(&[clock, group]));
    assert_eq!(seconds, Some(0.01));
    let counted = value_of("pmuscope_events_total", &with(&[cycles, group]));
    assert_eq!(counted, Some(500.0));
    let estimated = value_of("pmuscope_events_estimated_total", &with(&[cycles]));
    assert_eq!(estimated, Some(2_000.0));
    let estimated = value_of("pmuscope_events_estimated_seconds_total", &with(&[clock]));
    assert_eq!(estimated, Some(0.01));
    // The events of the group share its time.
    for (name, seconds) in [("enabled", 2.0), ("running", 2.0)] {
        let name = format!("pmuscope_events_{name}_seconds_total");
        assert_eq!(value_of(&name, &with(&[group])), Some(seconds), "{name}");
    }
    let began = 1_700_000_100.0;
    for (name, labels) in [
        ("events_seconds_created", with(&[clock, group])),
        ("events_estimated_created", with(&[cycles])),
        ("events_running_seconds_created", with(&[group])),
    ] {
        let name = format!("pmuscope_{name}");
        assert_eq!(value_of(&name, &labels), Some(began), "{name}");
    }
    // Estimates have errors.
    let error = value_of("pmuscope_events_estimated_counting_error", &with(&[cycles]));
    assert!((error.unwrap() - 750.0 * 2.0_f64.sqrt()).abs() < 1e-9);
    let name = "pmuscope_events_estimated_counting_error_seconds";
    assert_eq!(
        value_of(name, &with(&[clock])),
        None,
        "nothing was estimated"
    );
    assert_eq!(value_of("pmuscope_ipc_per_cycle", &command), Some(1.5));
    assert_eq!(value_of("pmuscope_machine_ipc_per_cycle", &[]), Some(1.25));
    let bandwidth = "pmuscope_read_bandwidth_bytes_per_second";
    assert_eq!(value_of(bandwidth, &[("socket", "0")]), Some(12.5e9));
    // Multiplexed metrics have their running ratio and error.
    for (word, value) in [("live", 0.25), ("counting_error", 1.5 / 800.0)] {
        let name = format!("pmuscope_branch_miss_{word}_ratio");
        assert_eq!(value_of(&name, &command), Some(value), "{name}");
    }
    assert_eq!(value_of("pmuscope_ipc_live_ratio", &command), None);
    // Samples have their number, the events that they represent, and its interval.
    let loads = with(&[("method", "sampled"), ("operation", "load")]);
    for (name, value) in [
        ("memory_accesses_samples_total", 31.0),
        ("memory_accesses_estimated_total", 1e6),
        ("memory_accesses_estimated_lower", 0.75e6),
        ("memory_accesses_estimated_upper", 1.25e6),
        ("memory_access_latency_mean_cycles", 64.0),
        ("memory_access_latency_mean_lower_cycles", 48.0),
        ("memory_access_latency_mean_upper_cycles", 80.0),
        ("memory_access_latency_cycles_created", began),
    ] {
        let name = format!("pmuscope_{name}");
        assert_eq!(value_of(&name, &loads), Some(value), "{name}");
    }
    let histogram = "pmuscope_memory_access_latency_cycles";
    for (bound, count) in [("1.0", 1.0), ("3.0", 1.0), ("+Inf", 11.0)] {
        let labels = [&loads[..], &[("le", bound)]].concat();
        assert_eq!(
            value_of(&format!("{histogram}_bucket"), &labels),
            Some(count)
        );
    }
    assert_eq!(value_of(&format!("{histogram}_count"), &loads), Some(11.0));
    assert_eq!(value_of(&format!("{histogram}_sum"), &loads), Some(9.0));
    let version = [("version", "1.2.3")];
    assert_eq!(value_of("pmuscope_self_build_info", &version), Some(1.0));
    for (hook, state) in [("sched-switch", 1.0), ("cgroup-switches", 0.0)] {
        let labels = [("pmuscope_self_hook", hook)];
        assert_eq!(value_of("pmuscope_self_hook", &labels), Some(state));
    }
    // Missing values are counted, but a total remains.
    let lost = [("kind", "cgroup"), ("name", "id 99 (name lost)")];
    let event = |name| [&lost[..], &[("event", name)]].concat();
    let total = value_of(
        "pmuscope_events_estimated_seconds_total",
        &event("task-clock"),
    );
    assert_eq!(total, Some(1.0));
    assert_eq!(
        value_of("pmuscope_events_estimated_total", &event("cycles")),
        None
    );
    // The total starts with the first window of its row.
    let created = value_of(
        "pmuscope_events_estimated_seconds_created",
        &event("task-clock"),
    );
    assert_eq!(created, Some(1_700_000_101.5));
    // A reason is one of a few words: a sentence with numbers would be a new series each time.
    let reason = [("reason", "denominator_zero")];
    assert_eq!(value_of("pmuscope_absent_values", &reason), Some(1.0));
}

/// Events in ns and in ms are in one family, in seconds.
#[test]
fn events_of_one_family_have_their_own_units() {
    let samples = read(&written(&with_milliseconds(), OutputFormat::OpenMetrics));
    for (event, seconds) in [("task-clock", 0.01), ("cycles", 0.5)] {
        let labels = [
            ("kind", "command"),
            ("name", "make"),
            ("event", event),
            ("group", "0"),
        ];
        let value = value(&samples, "pmuscope_events_seconds_total", &labels);
        assert_eq!(value, Some(seconds), "{event}");
    }
}

#[test]
fn hostile_names_stay_labels() {
    let samples = read(&written(&hostile(), OutputFormat::OpenMetrics));
    let printable = crate::emit::printable::printable(HOSTILE);
    let mut labels = samples.keys().map(|(_, labels)| labels);
    let name = labels.find_map(|labels| labels.get("name").filter(|_| labels["kind"] == "command"));
    assert_eq!(name.unwrap(), &*printable);
}

fn promtool(arguments: &[&str], text: &str) -> Option<String> {
    let child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: promtool (Debian: prometheus) is not installed");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{messages}{text}");
    Some(messages)
}

/// The parser of Prometheus accepts the text. It requires times for samples that go into a block.
#[test]
fn prometheus_reads_the_text() {
    for report in [report(), hostile()] {
        let text = written(&report, OutputFormat::OpenMetrics);
        let lines = text.lines().map(|line| match line.starts_with('#') {
            true => format!("{line}\n"),
            false => format!("{line} 1700000000\n"),
        });
        let directory = tempfile::tempdir().unwrap();
        let [input, blocks] = ["input", "blocks"].map(|name| directory.path().join(name));
        std::fs::write(&input, lines.collect::<String>()).unwrap();
        let [input, blocks] = [&input, &blocks].map(|path| path.to_str().unwrap());
        let arguments = ["tsdb", "create-blocks-from", "openmetrics", input, blocks];
        if promtool(&arguments, "").is_none() {
            return;
        }
    }
}

/// Names, help texts and units follow the conventions of Prometheus. `promtool check metrics` reads
/// the older format, in which the header of a counter has the name of its sample, and two types
/// have other names.
#[test]
fn promtool_has_no_complaint() {
    let text = written(&report(), OutputFormat::OpenMetrics);
    let typed: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    let older = text
        .lines()
        .filter(|line| !line.starts_with("# UNIT") && *line != "# EOF")
        // The older format has no creation times.
        .filter(|line| !line.contains("_created{") && !line.contains("_created "));
    let older: String = older
        .map(|line| {
            let Some(head) = line.strip_prefix("# ") else {
                return format!("{line}\n");
            };
            let [keyword, name, rest] = *head.splitn(3, ' ').collect::<Vec<_>>() else {
                panic!("{line}");
            };
            let (_, type_name) = typed
                .iter()
                .find(|(typed_name, _)| *typed_name == name)
                .unwrap();
            let (suffix, older) = match *type_name {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "stateset" => ("", "gauge"),
                other => ("", other),
            };
            let rest = if keyword == "TYPE" { older } else { rest };
            format!(
                "# {keyword} {name}{suffix} {}\n",
                rest.replace("\\\"", "\"")
            )
        })
        .collect();
    if let Some(messages) = promtool(&["check", "metrics"], &older) {
        assert_eq!(messages, "", "{older}");
    }
}
