//! What a reader of a page sees first: rows and changes, in units for people, in a narrow window
//! and with a dark colour scheme.

use std::path::Path;

use probe_user::report::{self, LineMetric, LineSubject, Run, RunLine, Selection};
use serde_json::{Value, json};
use test_harness::{browser::Browser, hour::container};

use super::{
    page::{SHOW_REST, read_run, write_page},
    recorded::record,
    sampled::report,
};

const WINDOWS: usize = 40;

/// Three containers for 40 s, with a partial window at the end whose rates are a hundred times as
/// high. The second container doubles its CPU time after 20 s; `system` uses the most CPU time.
fn run() -> Run {
    let metric = |name: &str, unit: &str, is_counter| LineMetric {
        name: name.to_owned(),
        help: name.to_owned(),
        unit: unit.to_owned(),
        is_counter,
        replaced_by_rates: false,
    };
    let mut windows: Vec<(f64, f64)> = (0_u32..40)
        .map(|at| (f64::from(at), f64::from(at + 1)))
        .collect();
    windows.push((40.0, 40.02));
    let system = LineSubject {
        part: "row",
        label: "system".to_owned(),
        labels: [("kind", "system".to_owned()), ("name", "system".to_owned())].into(),
    };
    let mut run = Run {
        file: "look.jsonl.gz".to_owned(),
        windows,
        subjects: (0..3).map(container).chain([system]).collect(),
        metrics: vec![
            metric("cpus_used", "CPU", false),
            metric("task-clock", "ns", true),
            metric("memory_bandwidth", "MB/s", false),
        ],
        ..Run::default()
    };
    // Noise of 1%, the same in each run.
    let noise = |at: usize| [0.99, 1.0, 1.01, 1.0, 0.995][at % 5];
    for (subject, cpus) in [0.2, 0.1, 0.05, 3.5].into_iter().enumerate() {
        for (metric, scale) in [1.0, 1e9, 40_000.0].into_iter().enumerate() {
            let in_window = |at: usize| {
                let changed = if subject == 1 && at >= 20 { 2.0 } else { 1.0 };
                cpus * scale * changed * noise(at + subject)
            };
            let mut values: Vec<f64> = (0..WINDOWS).map(in_window).collect();
            values.push(cpus * scale * if metric == 1 { 2.0 } else { 100.0 });
            run.lines.push(RunLine {
                subject,
                metric,
                qualifier: String::new(),
                first: 0,
                values,
                intervals: Vec::new(),
                reason: None,
            });
        }
    }
    run
}

/// Opens the page of a run in a browser.
fn open(run: &Run, directory: &Path) -> Option<Browser> {
    let keep = std::env::var_os("PMUSCOPE_PAGES").map(std::path::PathBuf::from);
    let page = keep.as_deref().unwrap_or(directory).join("look.html");
    write_page(run, &page);
    Browser::open(&page, 1280)
}

/// The upper end of the y axis when the plot over time shows this metric.
fn y_axis_end(browser: &mut Browser, metric: &str) -> f64 {
    browser.evaluate(&format!(
        "(() => {{ const it = document.getElementById('metric');
            it.value = page.head.metrics.findIndex(({{ name }}) => name === '{metric}');
            return it.onchange(); }})()"
    ));
    let end = browser.evaluate("document.getElementById('time')._fullLayout.yaxis.range[1]");
    end.as_f64().unwrap()
}

#[test]
fn the_rest_of_the_machine_and_a_partial_window_do_not_set_the_scale() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut browser) = open(&run(), directory.path()) else {
        return;
    };
    assert!(y_axis_end(&mut browser, "cpus_used") < 0.25);
    // Nanoseconds of a clock are shown as CPUs; the table has one column for both CPU metrics.
    // Large values in MB/s are shown in GB/s.
    assert!(y_axis_end(&mut browser, "task-clock") < 0.25);
    assert!(y_axis_end(&mut browser, "memory_bandwidth") < 10.0);
    let texts = "[...document.querySelectorAll('#values thead th small')].map((it) => \
                 it.textContent)";
    assert_eq!(
        browser.evaluate(texts),
        json!(["cpus_used", "CPUs", "GB/s"])
    );
    // Means include the partial window, by its length: (40 x 0.2 + 0.02 x 20) / 40.02.
    let first = "[...document.querySelectorAll('#values tbody tr:first-child td')]
        .slice(2).map((it) => it.textContent)";
    assert_eq!(browser.evaluate(first), json!(["0.210", "8.39"]));
    // The text that the mouse pointer shows at the first point.
    let point = "document.getElementById('time').data[0].text[0]";
    assert_eq!(browser.evaluate(point), "7.92\u{a0}GB/s");
    browser.evaluate(SHOW_REST);
    assert!(y_axis_end(&mut browser, "cpus_used") > 3.5);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn the_planted_change_is_first() {
    let run = run();
    let directory = tempfile::tempdir().unwrap();
    let Some(mut browser) = open(&run, directory.path()) else {
        return;
    };
    let changes = "[...document.querySelectorAll('#changes li')].map((it) => it.textContent)";
    let changes = browser.evaluate(changes);
    let changes: Vec<&str> = { changes.as_array().unwrap().iter() }
        .map(|it| it.as_str().unwrap())
        .collect();
    // `cpus_used` and the bandwidth. `task-clock` is the count of `cpus_used`.
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert!(
        changes.iter().all(|it| it.starts_with("shop/web-1/app ")),
        "{changes:?}"
    );
    // The second half includes the partial window: (20 x 0.2 + 0.02 x 10) / 20.02.
    let text = "cpus_used: 0.0999\u{a0}CPUs → 0.210\u{a0}CPUs, 2.10 times";
    assert!(changes.iter().any(|it| it.ends_with(text)), "{changes:?}");
    // A click draws only this container.
    browser.evaluate("document.querySelector('#changes button').click()");
    browser.wait_for("document.getElementById('time').data.length === 1");
    let name = browser.evaluate("document.getElementById('time').data[0].name");
    assert_eq!(name, "shop/web-1/app");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// In a narrow window the first values are beside the names, and the page itself does not scroll
/// sideways. With a dark colour scheme text is light on dark, also in plots.
#[test]
fn a_narrow_dark_page_shows_names_and_values() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut browser) = open(&run(), directory.path()) else {
        return;
    };
    browser.show_in(400, "dark");
    browser.wait_for("matchMedia('(prefers-color-scheme: dark)').matches");
    browser.wait_for("document.documentElement.clientWidth === 400");
    browser.evaluate("page.redraw()");
    browser.wait_for("document.documentElement.scrollWidth <= 400");
    let right_edges = browser.evaluate(
        "[...document.querySelectorAll('#values tbody tr:first-child td')].slice(0, 3)
            .map((it) => it.getBoundingClientRect().right)",
    );
    assert!(right_edges[2].as_f64().unwrap() < 390.0, "{right_edges}");
    // The brightness of a colour, from 0 to 255.
    let brightness = |browser: &mut Browser, colour: &str| {
        let green = browser.evaluate(&format!(
            "(() => {{ const it = document.createElement('canvas').getContext('2d');
                it.fillStyle = {colour}; it.fillRect(0, 0, 1, 1);
                return it.getImageData(0, 0, 1, 1).data[1]; }})()"
        ));
        green.as_u64().unwrap()
    };
    let background = "getComputedStyle(document.querySelector('section')).backgroundColor";
    assert!(brightness(&mut browser, background) < 60);
    let text = "document.getElementById('time')._fullLayout.font.color";
    assert!(brightness(&mut browser, text) > 180);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// `--search` and `--top` choose the rows of a page, as they do in other formats.
#[test]
fn a_page_has_the_chosen_rows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("grace.jsonl.gz");
    record("grace", &path, false);
    let run = read_run(&path);
    let all = report::json(&run, &Selection::default());
    let rows: Vec<&str> = { all["lines"].as_array().unwrap().iter() }
        .filter(|line| line["part"] == "row" && line["kind"] == "container")
        .map(|line| line["label"].as_str().unwrap())
        .collect();
    let page = directory.path().join("page.html");
    for words in [&["--search", &rows[0][..12]][..], &["--top", "1"]] {
        let mut all = vec![path.as_path(), Path::new("-o"), &page];
        all.extend(words.iter().map(Path::new));
        report(&all).unwrap();
        let Some(mut browser) = Browser::open(&page, 1280) else {
            return;
        };
        let shown = "[...document.querySelectorAll('#values tbody tr')].map((it) => \
                     it.cells[0].textContent)";
        let shown = browser.evaluate(shown);
        let names = shown.as_array().unwrap();
        assert!(!names.is_empty(), "{words:?}");
        let equals_all = |it: &Value| names.iter().all(|other| other == it);
        assert!(names.iter().all(equals_all), "{words:?}: {names:?}");
        let note = browser.evaluate("document.getElementById('notes').textContent");
        assert!(
            note.as_str().unwrap().contains("not on this page"),
            "{note}"
        );
    }
    let words = [path.as_path(), Path::new("--search"), Path::new("no such")];
    let message = report(&words).unwrap_err();
    assert!(message.contains("nothing that --search finds"), "{message}");
}

/// A finding states the waits of the whole recording, not only of its last window.
#[test]
fn findings_about_waits_cover_all_windows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("waits.jsonl.gz");
    record("waits", &path, false);
    let run = read_run(&path);
    let all = report::json(&run, &Selection::default());
    let mut checked = 0;
    for finding in all["findings"].as_array().unwrap() {
        let text = finding["text"].as_str().unwrap();
        let Some(seconds) = text.strip_prefix("its threads waited ") else {
            continue;
        };
        let seconds: f64 = seconds.split(' ').next().unwrap().parse().unwrap();
        let sum_of_lines: f64 = { all["lines"].as_array().unwrap().iter() }
            .filter(|line| line["metric"] == "cpu_wait_behind" && line["label"] == finding["of"])
            .map(|line| line["total"].as_f64().unwrap())
            .sum();
        assert!(
            (seconds - sum_of_lines / 1e9).abs() < 0.006,
            "{text}: {sum_of_lines}"
        );
        checked += 1;
    }
    assert!(checked > 0, "{}", all["findings"]);
}
