//! The page of a recording, in a browser: compared with the numbers of the recording, with hostile
//! names, and with the data of fifty containers in an hour.

use std::{cell::RefCell, collections::HashSet, fs, path::Path, process::Command, sync::Arc};

use probe_user::{
    join::Entity,
    names::runtime_names::{Container, RuntimeNames},
    recording::{Recording, Replay},
    report::{self, Run, Selection, ShownDifferences},
    snapshot::Names,
};
use serde_json::Value;
use test_harness::{
    browser::Browser,
    hour::{VALUES, hour},
};

use super::{
    recorded::{record, record_with},
    *,
};

/// A name that would end the script that contains it.
const EVIL: &str = "</script><script>document.title='gone'</script><b>&amp;\u{1}\u{1b}]0;gone\u{7}";

pub(crate) fn read_run(path: &Path) -> Run {
    let recording = Recording::open(path).unwrap();
    let (about, view) = (recording.head.about.clone(), recording.head.view.clone());
    let replay = Replay::begin(recording, view).unwrap();
    Run::read("a.jsonl.gz", about, replay).unwrap()
}

pub(crate) fn write_page(run: &Run, path: &Path) -> usize {
    let mut page = Vec::new();
    report::page(&mut page, run).unwrap();
    fs::write(path, &page).unwrap();
    page.len()
}

/// The means that the table of rows should have, by name and metric: the means in JSON, without
/// counters whose rate is a separate metric.
fn table_means(run: &Run) -> Vec<(String, String, f64)> {
    let mut means = means(run);
    let rate = |event: &str| match event {
        "task-clock" => "cpus_used".to_owned(),
        event => format!("{}_per_second", event.replace('-', "_")),
    };
    let metrics: HashSet<String> = means.iter().map(|(_, metric, _)| metric.clone()).collect();
    means.retain(|(_, metric, _)| !metrics.contains(&rate(metric)));
    means
}

/// The means of rows in JSON, by name and metric.
fn means(run: &Run) -> Vec<(String, String, f64)> {
    let all = report::json(run, &Selection::default());
    let lines = all["lines"].as_array().unwrap().iter();
    let rows = lines.filter(|line| line["part"] == "row");
    let mut means: Vec<_> = rows
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap_or_default();
            let name = match text("of") {
                "" => text("label").to_owned(),
                operation => format!("{}, {operation}", text("label")),
            };
            let mean = line["mean"].as_f64().unwrap();
            (name, text("metric").to_owned(), mean)
        })
        .collect();
    means.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    means
}

/// Script that returns the values in the tables of rows, and of rows by operation.
const TABLE: &str = "(() => ['row', 'operation'].flatMap((part) => {
    const select = document.getElementById('part');
    if (![...select.options].some(({ value }) => value === part)) return [];
    select.value = part;
    select.onchange();
    const heads = [...document.querySelectorAll('#values thead th')]
        .map((it) => it.firstChild.data);
    return [...document.querySelectorAll('#values tbody tr')].flatMap((row) =>
        [...row.cells].flatMap((cell, at) => cell.dataset.value === undefined ? []
            : [[row.cells[0].textContent, heads[at], Number(cell.dataset.value)]]));
}))()";

/// Script that also shows the rest of the machine.
pub(crate) const SHOW_REST: &str = "(() => {
    const it = document.getElementById('rest');
    it.checked = true;
    return it.onchange();
})()";

fn in_table(browser: &mut Browser) -> Vec<(String, String, f64)> {
    let cells = browser.evaluate(TABLE);
    let cells = cells.as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut cells: Vec<_> = cells
        .map(|cell| (text(&cell[0]), text(&cell[1]), cell[2].as_f64().unwrap()))
        .collect();
    cells.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    cells
}

/// Scrolls to the element of a selector; returns x and y of its middle, and its width.
fn middle(browser: &mut Browser, selector: &str) -> (f64, f64, f64) {
    let position = browser.evaluate(&format!(
        "(() => {{ const it = document.querySelector('{selector}');
            it.scrollIntoView({{ block: 'center' }});
            const box = it.getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2, box.width]; }})()"
    ));
    let number = |at: usize| position[at].as_f64().unwrap();
    (number(0), number(1), number(2))
}

/// The recordings have samples of accesses, metrics of sockets, and rows of processes.
#[test]
fn the_page_has_the_numbers_of_the_recording() {
    let directory = tempfile::tempdir().unwrap();
    for (name, plots, width) in [
        (
            "spe",
            &["time", "bandwidth", "latency", "sources"][..],
            1280,
        ),
        ("grace", &["time", "bandwidth"], 800),
        ("turns", &["time"], 1280),
    ] {
        let path = directory.path().join(name);
        record(name, &path, false);
        let run = read_run(&path);
        let page = directory.path().join(format!("{name}.html"));
        write_page(&run, &page);
        let Some(mut browser) = Browser::open(&page, width) else {
            return;
        };
        // At first the page leaves out `system`, `idle` and the rest of the machine. One click adds
        // them.
        let rest: Vec<&str> = { run.subjects.iter() }
            .filter(|subject| subject.is_rest())
            .map(|subject| subject.label.as_str())
            .collect();
        let mut without_rest = table_means(&run);
        without_rest.retain(|(name, ..)| !rest.contains(&name.split(", ").next().unwrap()));
        assert!(without_rest.len() < table_means(&run).len(), "{name}");
        assert_eq!(in_table(&mut browser), without_rest, "{name}");
        browser.evaluate(SHOW_REST);
        assert_eq!(in_table(&mut browser), table_means(&run), "{name}");
        let entries = browser.evaluate("Object.entries(page.drawn)");
        let drawn: Vec<&str> = entries
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| it[1].as_u64() > Some(0))
            .map(|it| it[0].as_str().unwrap())
            .collect();
        assert_eq!(drawn, plots, "{name}");
        // Nothing is wider than the window.
        let wide = browser.evaluate("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= u64::from(width), "{name}: {wide}");
        hover_and_zoom(&mut browser, name);
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{name}");
    }
}

/// The position of the first point of the first line in the window.
const FIRST_POINT: &str = "(() => {
    const plot = document.getElementById('time');
    const box = plot.querySelector('.nsewdrag').getBoundingClientRect();
    const [{ x, y }] = plot.data;
    const at = y.findIndex((value) => value !== null);
    const { xaxis, yaxis } = plot._fullLayout;
    return [box.left + xaxis.d2p(x[at]), box.top + yaxis.d2p(y[at])];
})()";

/// Uses the mouse: values appear under it, and dragging zooms.
fn hover_and_zoom(browser: &mut Browser, name: &str) {
    let range = "document.getElementById('time')._fullLayout.xaxis.range";
    let span = |browser: &mut Browser| {
        let range = browser.evaluate(range);
        range[1].as_f64().unwrap() - range[0].as_f64().unwrap()
    };
    let before = span(browser);
    let (x, y, wide) = middle(browser, "#time .nsewdrag");
    let first = browser.evaluate(FIRST_POINT);
    let at = |offset: f64| {
        (
            first[0].as_f64().unwrap() + offset,
            first[1].as_f64().unwrap(),
        )
    };
    browser.mouse("mouseMoved", at(3.0));
    browser.mouse("mouseMoved", at(1.0));
    browser.wait_for("document.querySelector('#time .hoverlayer .hovertext')");
    let shown = browser.evaluate("document.querySelector('#time .hoverlayer').textContent");
    assert!(
        shown.as_str().unwrap().chars().any(|c| c.is_ascii_digit()),
        "{name}: {shown}"
    );
    browser.mouse("mouseMoved", (x - wide / 4.0, y));
    browser.mouse("mousePressed", (x - wide / 4.0, y));
    browser.mouse("mouseMoved", (x, y));
    browser.mouse("mouseMoved", (x + wide / 4.0, y));
    browser.mouse("mouseReleased", (x + wide / 4.0, y));
    browser.wait_for(&format!("{range}[1] - {range}[0] < {}", before * 0.7));
    let after = span(browser) / before;
    assert!((0.4..0.6).contains(&after), "{name}: {after}");
}

/// Of the errors of a share by a weight, only the counting error is known. So JSON and CSV, which
/// have the page's lines, give the share no interval.
#[test]
fn shares_by_a_weight_have_no_interval() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    record("grace", &path, false);
    let run = read_run(&path);
    let all = report::json(&run, &Selection::default());
    let shares: Vec<&Value> = (all["lines"].as_array().unwrap().iter())
        .filter(|line| line["metric"].as_str().unwrap().ends_with("_apportioned"))
        .collect();
    assert!(!shares.is_empty());
    for share in shares {
        assert!(share.get("low").is_none(), "{share}");
    }
    let mut csv = Vec::new();
    report::csv(&mut csv, &run, &Selection::default()).unwrap();
    let text = String::from_utf8(csv).unwrap();
    let values: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("_apportioned,"))
        .filter(|line| !line.ends_with(",,,"))
        .collect();
    assert!(!values.is_empty());
    assert!(values.iter().all(|line| line.ends_with(",,")), "{values:?}");
}

/// A container's name is shown unchanged, and is not interpreted.
#[test]
fn names_are_shown_unchanged_and_not_interpreted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let container = reports("grace")
        .iter()
        .flat_map(|report| report.subjects.clone())
        .find_map(|subject| match subject {
            probe_user::derive::Subject::Entity(Entity::Container { id, .. }) => Some(id),
            _ => None,
        })
        .unwrap();
    record_with("grace", &path, |snapshot| {
        let mut described = RuntimeNames::default();
        let named = Container {
            name: EVIL.to_owned(),
            ..Container::default()
        };
        described
            .containers
            .insert(Arc::clone(&container), Arc::new(named));
        snapshot.names = Arc::new(Names {
            described: Arc::new(described),
            ..(*snapshot.names).clone()
        });
    });
    let run = read_run(&path);
    let selection = Selection {
        metric: Some("ipc".to_owned()),
        ..Selection::default()
    };
    let svg = report::svg(&run, &selection).unwrap();
    assert!(
        svg.contains("&lt;/script&gt;") && !svg.contains("<script"),
        "{svg}"
    );
    let all = ShownDifferences {
        all: true,
        ..ShownDifferences::default()
    };
    let both = report::compare([&run, &run], &Default::default()).unwrap();
    assert!(!report::comparison_html(&both, all).contains("<script"));
    // A terminal does not interpret the name either.
    for words in [
        &["report", "--format", "json"][..],
        &["report", "--format", "csv"],
        &["report", "--format", "svg", "-M", "ipc"],
        &["diff", "--ranges", "0-,0-", "--format", "json"],
        &["diff", "--all", "--ranges", "0-,0-"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmuscope"));
        let output = command.args(words).arg(&path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && text.contains("gone"),
            "{words:?}: {text}"
        );
        let is_interpreted = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(is_interpreted), "{words:?}: {text:?}");
        if words.contains(&"json") {
            let value: Value = serde_json::from_str(&text).unwrap();
            let lines = value["lines"]
                .as_array()
                .or(value["values"].as_array())
                .unwrap();
            assert!(lines.iter().any(|line| line["label"] == EVIL), "{text}");
        }
    }
    let page = directory.path().join("a.html");
    write_page(&run, &page);
    let text = fs::read_to_string(&page).unwrap();
    assert!(!text.contains("document.title="));
    let Some(mut browser) = Browser::open(&page, 1280) else {
        return;
    };
    assert_eq!(browser.evaluate("document.title"), "a.jsonl.gz - pmuscope");
    let names: Vec<String> = in_table(&mut browser)
        .into_iter()
        .map(|cell| cell.0)
        .collect();
    assert!(names.iter().any(|name| name == EVIL), "{names:?}");
    let legend = browser.evaluate("document.querySelector('#time .legend').textContent");
    assert!(legend.as_str().unwrap().contains("</script>"), "{legend}");
    // Search finds the container by a part of its name.
    let search = |browser: &mut Browser, text: &str| {
        browser.evaluate(&format!(
            "(() => {{ const it = document.getElementById('search'); it.value = '{text}';
                it.dispatchEvent(new Event('input')); }})()"
        ));
        in_table(browser).len()
    };
    assert!(search(&mut browser, "</SCRIPT>") > 0);
    assert_eq!(search(&mut browser, "no such name"), 0);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// A mean over time includes time in which nothing ran. In the last window here no count grows.
#[test]
fn means_include_windows_in_which_nothing_ran() {
    let directory = tempfile::tempdir().unwrap();
    let (whole, still) = (directory.path().join("a"), directory.path().join("b"));
    record("grace", &whole, false);
    let whole = read_run(&whole);
    let windows = whole.windows.len();
    let before = RefCell::new(Vec::new());
    record_with("grace", &still, |snapshot| {
        let mut before = before.borrow_mut();
        before.push(snapshot.rows.clone());
        if before.len() > windows {
            snapshot.rows = before[windows - 1].clone();
            snapshot.freed.clear();
        }
    });
    let still = read_run(&still);
    let mut compared = [0, 0];
    for line in &still.lines {
        let (subject, metric) = (&still.subjects[line.subject], &still.metrics[line.metric]);
        let is_ratio = match metric.name.as_str() {
            "cpus_used" | "task-clock" => false,
            "ipc" => true,
            _ => continue,
        };
        let counterpart = whole.lines.iter().find(|other| {
            whole.subjects[other.subject] == *subject && whole.metrics[other.metric] == *metric
        });
        let ran: Vec<f64> = (counterpart.unwrap().shown(metric, &whole.windows))
            .map(|(_, value)| value)
            .take(windows - 1)
            .collect();
        if ran.iter().any(|value| !value.is_finite()) {
            continue;
        }
        let lengths: Vec<f64> = (whole.windows.iter())
            .map(|(start, end)| end - start)
            .collect();
        let sum: f64 = ran
            .iter()
            .zip(&lengths)
            .map(|(value, length)| value * length)
            .sum();
        let included = if is_ratio { windows - 1 } else { windows };
        let mean = sum / lengths[..included].iter().sum::<f64>();
        let summary = line.summary(metric, &still.windows).unwrap();
        assert_eq!(
            summary.windows, included,
            "{} {}",
            subject.label, metric.name
        );
        assert!(
            (summary.mean - mean).abs() <= 1e-9 * mean,
            "{summary:?}, not {mean}"
        );
        compared[usize::from(is_ratio)] += 1;
    }
    assert!(compared.iter().all(|count| *count > 1), "{compared:?}");
}

/// Fifty containers for an hour, with eight metrics. Prints the time to open the page.
#[test]
fn an_hour_of_fifty_containers_fits_in_a_page() {
    let run = hour();
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("hour.html");
    let size = write_page(&run, &page);
    println!("{size} bytes for {VALUES} values");
    assert!(size < 20_000_000, "{size}");
    if let Some(mut browser) = Browser::open(&page, 1280) {
        let ready = browser.evaluate("document.body.dataset.ready");
        println!(
            "drawn after {ready} ms, {:.0} ms of CPU time",
            browser.busy()
        );
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}
