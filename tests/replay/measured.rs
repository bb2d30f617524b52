//! The page's plots of several metrics, in a browser, compared with the JSON of the same recording:
//! containers below the machine's roofline, and estimates against counts.

use std::{fs, path::Path};

use probe_user::report::{self, LineMetric, Peaks, Run, RunLine, Selection};
use serde_json::{Value, json};
use test_harness::{browser::Browser, hour::container};

use super::{
    page::write_page,
    recorded::record,
    sampled::{report, stream},
    *,
};

/// The output of `pmuscope roofline --format json` on two sockets.
fn peaks(platform: &str) -> String {
    let on = |socket: Option<u32>, threads: u32, cpus: &str| json!({"socket": socket, "threads": threads, "cores": threads, "cpus": cpus});
    let with = |mut object: Value, fields: Value| {
        let fields = fields.as_object().unwrap().clone();
        object.as_object_mut().unwrap().extend(fields);
        object
    };
    let runs = |best: f64| json!({"best": best, "median": best, "runs": 5, "waited": 0.0});
    let cpu_groups = [
        (Some(0), 1, "0", 1.0),
        (Some(0), 72, "0-71", 60.0),
        (None, 144, "0-143", 118.0),
    ];
    let bandwidths = cpu_groups
        .iter()
        .flat_map(|(socket, threads, cpus, factor)| {
            [("L1", 1.2e11), ("L2", 6e10), ("memory", 7e9)].map(|(level, best)| {
                let rate = runs(best * factor);
                with(
                    on(*socket, *threads, cpus),
                    json!({"level": level, "bytes": 1 << 20, "stores": "plain",
                "bytes_per_second": rate}),
                )
            })
        });
    let roofs = cpu_groups.iter().map(|(socket, threads, cpus, factor)| {
        let (flops, bytes) = (5.4e10 * factor, 7e9 * factor);
        let rest = json!({"flops": flops, "bytes_per_second": bytes, "ridge": flops / bytes});
        with(on(*socket, *threads, cpus), rest)
    });
    json!({
        "format": 1, "platform": platform, "vectors": "neon", "line": 64, "cpus": "0-143",
        "latencies": [], "peaks": [], "bandwidths": bandwidths.collect::<Vec<_>>(),
        "roofs": roofs.collect::<Vec<_>>(), "disturbance": {}, "notes": [],
    })
    .to_string()
}

/// A run of twelve containers with FLOPS, and with both counted and sampled accesses.
pub(crate) fn run() -> Run {
    const CONTAINERS: usize = 12;
    const WINDOWS: usize = 30;
    let metric = |name: &str, unit: &str, is_counter| LineMetric {
        name: name.to_owned(),
        help: name.to_owned(),
        unit: unit.to_owned(),
        is_counter,
        replaced_by_rates: false,
    };
    let mut run = Run {
        file: "measured.jsonl.gz".to_owned(),
        windows: (0_u32..30)
            .map(|at| (f64::from(at), f64::from(at + 1)))
            .collect(),
        subjects: (0..CONTAINERS).map(container).collect(),
        metrics: vec![
            metric("flops", "1/s", false),
            metric("flops_per_ll_read_miss_byte", "1/B", false),
            metric("mem_access", "", true),
            metric("memory_accesses", "", true),
        ],
        peaks: Some(Peaks::parse(&peaks("neoverse-v2")).unwrap()),
        ..Run::default()
    };
    for subject in 0..CONTAINERS {
        let scale = 2_f64.powi(i32::try_from(subject).unwrap());
        let mut add = |metric, qualifier: &str, value: f64, error: f64| {
            let intervals = match error > 0.0 {
                true => vec![(value - error, value + error); WINDOWS],
                false => Vec::new(),
            };
            run.lines.push(RunLine {
                subject,
                metric,
                qualifier: qualifier.to_owned(),
                first: 0,
                values: vec![value; WINDOWS],
                intervals,
                reason: None,
            });
        };
        add(0, "", 4e8 * scale, 0.0);
        add(1, "", 0.05 * scale, 0.0);
        add(2, "", 1e7 * scale, 0.0);
        // The last container has collisions: its estimate is too low by 30%.
        let ratio = if subject == CONTAINERS - 1 {
            0.7
        } else {
            1.002
        };
        add(3, "load", 7e6 * scale * ratio, 4e5 * scale);
        add(3, "store", 3e6 * scale * ratio, 3e5 * scale);
    }
    run
}

/// A function that returns the markers of a plot: name of the trace, x, y.
const MARKERS: &str = "(id) => document.getElementById(id).data
    .filter((it) => it.mode.endsWith('markers')).map((it) => [it.name, it.x[0], it.y[0]])";

#[track_caller]
fn assert_drawn(drawn: &Value, points: &[Value], x: &str, y: &str) {
    let drawn = drawn.as_array().unwrap();
    assert_eq!(drawn.len(), points.len().min(10));
    for one in drawn {
        let point = points.iter().find(|it| it["label"] == one[0]).unwrap();
        for (drawn, key) in [(&one[1], x), (&one[2], y)] {
            assert_eq!(drawn.as_f64(), point[key].as_f64(), "{key} of {}", one[0]);
        }
    }
}

/// The hover text of the first marker of a plot.
pub(crate) fn hover(browser: &mut Browser, id: &str) -> String {
    let position = browser.evaluate(&format!(
        "(() => {{
            const plot = document.getElementById('{id}');
            plot.scrollIntoView({{ block: 'center' }});
            const box = plot.querySelector('.nsewdrag').getBoundingClientRect();
            const {{ x, y }} = plot.data.find((it) => it.mode.endsWith('markers'));
            const {{ xaxis, yaxis }} = plot._fullLayout;
            // On an axis of categories the position is the index.
            const first = xaxis.type === 'category' ? 0 : x[0];
            return [box.left + xaxis.d2p(first), box.top + yaxis.d2p(y[0])];
        }})()"
    ));
    let at = |offset: f64| {
        (
            position[0].as_f64().unwrap() + offset,
            position[1].as_f64().unwrap(),
        )
    };
    browser.mouse("mouseMoved", at(2.0));
    browser.mouse("mouseMoved", at(0.0));
    browser.wait_for(&format!(
        "document.querySelector('#{id} .hoverlayer .hovertext')"
    ));
    let text = browser.evaluate(&format!(
        "document.querySelector('#{id} .hoverlayer').textContent"
    ));
    text.as_str().unwrap().to_owned()
}

#[test]
fn plots_of_roofline_and_calibration_agree_with_json() {
    let directory = tempfile::tempdir().unwrap();
    let run = run();
    let all = report::json(&run, &Selection::default());
    let points = all["roofline"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 12);
    let pairs = all["calibrations"].as_array().unwrap();
    assert_eq!(pairs.len(), 1);
    let pages = std::env::var_os("PMUSCOPE_PAGES").map(PathBuf::from);
    let page = pages
        .as_deref()
        .unwrap_or(directory.path())
        .join("measured.html");
    write_page(&run, &page);
    for width in [1280, 500] {
        let Some(mut browser) = Browser::open(&page, width) else {
            return;
        };
        let drawn = browser.evaluate(&format!("({MARKERS})('roofline')"));
        assert_drawn(&drawn, points, "flops_per_byte", "flops");
        // The roof of memory is that of all sockets, 826 GB/s.
        let roof = browser.evaluate(
            "(() => { const it = document.getElementById('roofline').data
                .find((it) => it.name.startsWith('memory'));
                return [it.name, Math.max(...it.y), it.y[0] / it.x[0]]; })()",
        );
        assert_eq!(roof[0], "memory: 826 GB/s");
        assert_eq!(roof[1], 5.4e10 * 118.0);
        assert!(
            (roof[2].as_f64().unwrap() / 8.26e11 - 1.0).abs() < 1e-9,
            "{roof}"
        );
        // 2^11 times 4e8 FLOP/s at 102.4 FLOP/B, where the peak is the limit.
        let text = hover(&mut browser, "roofline");
        assert!(
            text.contains("819.2GFLOP/s at 102.4 FLOP/B, 12.86% of the roof"),
            "{text}"
        );
        let drawn = browser.evaluate(&format!("({MARKERS})('calibration-0')"));
        assert_drawn(
            &drawn,
            pairs[0]["points"].as_array().unwrap(),
            "count",
            "ratio",
        );
        let value = browser.evaluate("document.getElementById('calibration-note-0').textContent");
        let note = value.as_str().unwrap();
        assert!(note.contains("95% interval in 11 of 12 rows"), "{note}");
        let text = hover(&mut browser, "calibration-0");
        assert!(text.contains("ratio 0.7, 30 windows"), "{text}");
        let no_roofline = browser.evaluate("document.getElementById('no-roofline')");
        assert_eq!(no_roofline, Value::Null);
        let wide = browser.evaluate("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide}");
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}

/// A recording of the test PMU has no FLOPS: the page gives the reason instead of an empty plot.
/// The page also shows the given samples.
#[test]
fn without_flops_there_is_a_reason_and_no_plot() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (recording, samples) = (at("grace.jsonl.gz"), at("samples.parquet"));
    record("grace", &recording, false);
    stream(&samples, 5000);
    for (file, platform) in [("peaks", "grace"), ("others", "spr"), ("none", "")] {
        fs::write(
            at(file),
            if platform.is_empty() {
                "{}".to_owned()
            } else {
                peaks(platform)
            },
        )
        .unwrap();
    }
    let with =
        |option: &'static str, file: &str| [option.to_owned(), at(file).display().to_string()];
    let run = |words: &[String]| {
        let mut all = vec![recording.as_path()];
        all.extend(words.iter().map(Path::new));
        report(&all)
    };
    for (words, sentence) in [
        (
            with("--roofline", "others"),
            "were measured on spr, and grace.jsonl.gz was recorded on grace",
        ),
        (
            with("--roofline", "none"),
            "is no output of `pmuscope roofline --format json`",
        ),
        (with("--roofline", "absent"), "No such file"),
        (
            with("--samples", "grace.jsonl.gz"),
            "has no samples: give a file of `pmuscope mem record`",
        ),
    ] {
        let message = run(&words).unwrap_err();
        assert!(
            message.contains(sentence) && message.trim().lines().count() == 1,
            "{message}"
        );
    }
    let page = at("page.html");
    let words = [
        with("--roofline", "peaks"),
        with("--samples", "samples.parquet"),
    ]
    .concat();
    fs::write(&page, run(&words).unwrap()).unwrap();
    let Some(mut browser) = Browser::open(&page, 1280) else {
        return;
    };
    let message = browser.evaluate("document.getElementById('no-roofline').textContent");
    assert!(
        message
            .as_str()
            .unwrap()
            .contains("no FLOPS and no FLOPs per byte"),
        "{message}"
    );
    let plots = browser.evaluate("[...document.querySelectorAll('.plot')].map((it) => it.id)");
    assert_eq!(plots, json!(["time", "bandwidth", "samples"]));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
