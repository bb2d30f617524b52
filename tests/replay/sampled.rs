//! The page of access samples, in a browser: points, phases and sums, compared with the JSON of the
//! same file.

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use probe_common::spe::{Records, SourceTable};
use probe_user::{
    recording::Recording,
    report::Scatter,
    samples::{Sample, SampleData, SampleFile, SampleReadError, SampleReader, Sink as _, TaskInfo},
};
use serde_json::{Value, json};
use test_harness::browser::Browser;
use test_support::Fields;

/// `CLOCK_MONOTONIC` before the first sample, in ns. A double cannot hold it exactly.
const BEGAN: u64 = 123_456_789_012_345_678;

/// A name that would end the script that contains it.
pub(crate) const EVIL: &str = "</script><script>document.title='gone'</script>";

/// Writes samples of STREAM's triad as in figure 4 of the NMO paper: eight threads work on their
/// parts of the arrays a, b and c, in five repetitions with pauses between them. A second process
/// has a hostile tag.
pub(crate) fn stream(path: &Path, samples: u64) {
    /// From one repetition to the next, in ns.
    const INTERVAL: u64 = 45_000_000;
    let about = [
        // As on x86: only files of SPE have the size of the AUX buffer.
        ("events", json!(["ibs_op"]).to_string()),
        ("frequency", "997".to_owned()),
        ("ring_bytes_per_buffer", "524288".to_owned()),
        ("host", "test".to_owned()),
        ("command", json!(["pmuscope", "mem", "record"]).to_string()),
    ];
    let about = about.map(|(key, value)| (key.to_owned(), value));
    let file = SampleFile::begin(path, NonZeroUsize::MIN, about.to_vec()).unwrap();
    let task_info = |pid: u32, name: &str, cgroup: &str| {
        Arc::new(TaskInfo {
            pid,
            name: name.into(),
            cgroup: Some(cgroup.into()),
        })
    };
    let stream = task_info(700, "stream", "/kubepods.slice/pod1/cri-stream");
    let other = task_info(900, "other", "/kubepods.slice/pod2/cri-other");
    let triad: Arc<str> = "triad".into();
    let names: [Arc<str>; 3] = ["a".into(), "b".into(), "c".into()];
    let untagged: [Arc<str>; 3] = ["[heap]".into(), "[stack]".into(), "[kernel]".into()];
    let evil: Arc<str> = EVIL.into();
    let per_repetition = samples / 5;
    let sample_at = |number: u64| {
        let (repeat, within) = (number / per_repetition, number % per_repetition);
        let since = BEGAN + repeat * INTERVAL + 10_000_000;
        let time = since + within * 35_000_000 / per_repetition;
        let thread = u32::try_from(number % 8).unwrap();
        let array = usize::try_from(number / 8 % 3).unwrap();
        let slice = (1 << 24) / 8;
        let offset = u64::from(thread) * slice + slice * within / per_repetition;
        let address = 0x7f12_3400_0000 + 0x200_0000 * array as u64 + offset;
        let (task, region, address, phase) = match number % 50 {
            0 => (
                &stream,
                &untagged[0],
                0x5555_0000_0000 + within,
                Some(&triad),
            ),
            1 => (&stream, &untagged[2], u64::MAX - within, None),
            2 => (&other, &evil, 0x7f12_3a00_0000 + within, None),
            3 => (&stream, &untagged[1], 0x7fff_ffff_0000 - within, None),
            _ => (&stream, &names[array], address, Some(&triad)),
        };
        let cycles = u16::try_from(10 + number % 300).unwrap();
        let is_store = array == 0;
        let cell = Fields {
            pc: Some(0x40_1000 | 1 << 63),
            context_el2: Some(task.pid + thread),
            operation: Some((1, u8::from(is_store))),
            events: Some((1, 0x16)),
            issue_latency: Some(4),
            total_latency: Some(cycles),
            translation_latency: Some(1),
            virtual_address: Some(address),
            data_source: (!is_store)
                .then_some((0, if number.is_multiple_of(4) { 0x0e } else { 0 })),
            timestamp: Some(time),
            ..Fields::default()
        };
        let bytes = cell.neoverse();
        let record = Records::new(&bytes).next().unwrap().unwrap();
        let source = record.data_source().filter(|_| !is_store);
        Sample {
            // Some samples have no time.
            time: (number % 1000 != 999).then_some(time),
            cpu: Some(thread),
            tid: Some(task.pid + thread),
            task: Some(Arc::clone(task)),
            cgroup: task.cgroup.clone(),
            origin: source.and_then(|source| SourceTable::Common.load(source)),
            region: Some(Arc::clone(region)),
            phase: phase.cloned(),
            data: SampleData::Record(record),
        }
    };
    let all: Vec<Sample> = (0..samples).map(sample_at).collect();
    for some in all.chunks(1000) {
        file.samples(0, some).unwrap();
    }
    let phases = (0..5).map(|repeat| {
        let since = BEGAN + repeat * INTERVAL + 10_000_000;
        let until = (repeat < 4).then(|| (since + 35_000_000).to_string());
        json!({"pid": 700, "tid": 700, "name": "triad", "since_ns": since.to_string(),
            "until_ns": until})
    });
    let phases = Value::Array(phases.collect()).to_string();
    let counts = ("count.aux_buffers_truncated".to_owned(), "3".to_owned());
    file.finish(&[("phases".to_owned(), phases), counts])
        .unwrap();
}

/// The standard output of `pmuscope report` with these arguments, or its error.
#[track_caller]
pub(crate) fn report(words: &[&Path]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmuscope"));
    let output = command.arg("report").args(words).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

pub(crate) fn json_report(path: &Path) -> Value {
    let words = [path, Path::new("--format"), Path::new("json")];
    serde_json::from_str(&report(&words).unwrap()).unwrap()
}

/// Writes the page of a file, into the directory `PMUSCOPE_PAGES` if it is set, to keep the page.
fn page(directory: &Path, name: &str, words: &[&Path]) -> PathBuf {
    let keep = std::env::var_os("PMUSCOPE_PAGES").map(PathBuf::from);
    let page = keep.as_deref().unwrap_or(directory).join(name);
    fs::write(&page, report(words).unwrap()).unwrap();
    page
}

/// Rows of a table by the text of the first cell; each row has its numbers by column.
fn table(browser: &mut Browser, id: &str) -> Value {
    browser.evaluate(&format!(
        "(() => {{
            const heads = [...document.querySelectorAll('#{id} thead th')]
                .map((it) => it.firstChild.data);
            return Object.fromEntries([...document.querySelectorAll('#{id} tbody tr')].map((row) =>
                [row.cells[0].textContent, Object.fromEntries([...row.cells].flatMap((cell, at) =>
                    cell.dataset.value === undefined ? []
                        : [[heads[at], Number(cell.dataset.value)]]))]));
        }})()"
    ))
}

fn choose(browser: &mut Browser, id: &str, value: &str) {
    let value = json!(value);
    browser.evaluate(&format!(
        "(async () => {{ const it = document.getElementById('{id}'); it.value = {value};
            if (it.value !== {value}) throw new Error('no option ' + {value});
            await it.onchange(); }})()"
    ));
}

fn index(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// Numbers of samples by the value of a key, from the sums that are wanted.
fn sums(json: &Value, key: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut by = serde_json::Map::new();
    for sum in json["samples"]["sums"].as_array().unwrap() {
        if wanted(sum) {
            let name = sum[key].as_str().unwrap_or("none");
            let before = by.get(name).and_then(Value::as_u64).unwrap_or(0);
            let samples = sum["samples"].as_u64().unwrap();
            by.insert(name.to_owned(), (before + samples).into());
        }
    }
    by.into()
}

fn samples_column(table: &Value) -> Value {
    let rows = table.as_object().unwrap().iter();
    let samples = rows.map(|(name, row)| (name.clone(), row["samples"].clone()));
    Value::Object(samples.collect())
}

#[test]
fn the_page_has_the_points_phases_and_sums_of_the_file() {
    const SAMPLES: u64 = 40_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples.parquet");
    stream(&path, SAMPLES);
    let all = json_report(&path);
    let samples = &all["samples"];
    assert_eq!(samples["samples"], SAMPLES);
    assert_eq!(samples["without_time_or_address"], SAMPLES / 1000);
    assert_eq!(samples["drawn"], probe_user::report::POINTS);
    assert_eq!(samples["counts"], json!({"aux_buffers_truncated": 3}));
    assert_eq!(samples["phases"].as_array().unwrap().len(), 5);
    assert_eq!(samples["phases"][4]["until_s"], Value::Null);
    // Each region has the same share of the points as of the samples, within a few standard
    // deviations.
    let regions = sums(&all, "region", |_| true);
    assert_eq!(regions[EVIL], SAMPLES / 50);
    let points = samples["points"]["sum"].as_array().unwrap();
    for (region, count) in regions.as_object().unwrap() {
        let region_of = |at: &Value| &samples["sums"][index(at)]["region"];
        let drawn = (points.iter())
            .filter(|at| region_of(at) == region.as_str())
            .count() as f64;
        let expected = count.as_f64().unwrap() * points.len() as f64 / SAMPLES as f64;
        assert!(
            (drawn - expected).abs() < 5.0 * expected.sqrt(),
            "{region}: {drawn} of {expected}"
        );
    }
    // The same file gives the same points.
    assert_eq!(json_report(&path), all);
    let page = page(directory.path(), "samples.html", &[&path]);
    assert!(fs::metadata(&page).unwrap().len() < 20_000_000);
    for width in [1280, 500] {
        let Some(mut browser) = Browser::open(&page, width) else {
            return;
        };
        let ready = browser.evaluate("document.body.dataset.ready");
        println!(
            "{width}: drawn after {ready} ms, {:.0} ms of CPU",
            browser.busy()
        );
        assert_eq!(
            browser.evaluate("document.title"),
            "samples.parquet - pmuscope"
        );
        // At first only tagged memory is shown.
        let is_tagged = |sum: &Value| !sum["region"].as_str().unwrap().starts_with('[');
        let shown = samples_column(&table(&mut browser, "sum-values"));
        assert_eq!(shown, sums(&all, "region", is_tagged));
        choose(&mut browser, "sample-region", "all");
        assert_eq!(samples_column(&table(&mut browser, "sum-values")), regions);
        let drawn = "document.getElementById('samples').data.reduce((n, it) => n + it.x.length, 0)";
        assert_eq!(browser.evaluate(drawn), samples["drawn"]);
        let note = browser.evaluate("document.getElementById('samples-note').textContent");
        let note = note.as_str().unwrap();
        assert!(
            note.contains("12,000 of the 39,960 with a time and an address"),
            "{note}"
        );
        assert!(note.contains("5 of 5 phases are shaded"), "{note}");
        assert!(note.ends_with("; open at the end: triad."), "{note}");
        choose(&mut browser, "sample-process", "process 900");
        let process = |sum: &Value| sum["pid"] == 900;
        let shown = samples_column(&table(&mut browser, "sum-values"));
        assert_eq!(shown, sums(&all, "region", process));
        choose(&mut browser, "sample-process", "all");
        choose(
            &mut browser,
            "sample-cgroup",
            "=/kubepods.slice/pod1/cri-stream",
        );
        choose(&mut browser, "sample-sums", "phase");
        choose(&mut browser, "sample-colour", "source");
        let shown = samples_column(&table(&mut browser, "sum-values"));
        assert_eq!(shown, sums(&all, "phase", |sum| sum["pid"] == 700));
        let names =
            browser.evaluate("document.getElementById('samples').data.map((it) => it.name)");
        let mut names: Vec<&str> = { names.as_array().unwrap().iter() }
            .map(|it| it.as_str().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["dram", "l1", "unknown"]);
        choose(&mut browser, "sample-region", "=a");
        hover(&mut browser, samples);
        let wide = browser.evaluate("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide}");
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}

/// Asserts that the text of the point under the mouse agrees with the JSON.
fn hover(browser: &mut Browser, samples: &Value) {
    let position = browser.evaluate(
        "(() => {
            const plot = document.getElementById('samples');
            plot.scrollIntoView({ block: 'center' });
            const box = plot.querySelector('.nsewdrag').getBoundingClientRect();
            const [{ x, y }] = plot.data;
            const at = Math.floor(x.length / 2);
            const { xaxis, yaxis } = plot._fullLayout;
            return [box.left + xaxis.d2p(x[at]), box.top + yaxis.d2p(y[at])];
        })()",
    );
    let at = |offset: f64| {
        (
            position[0].as_f64().unwrap() + offset,
            position[1].as_f64().unwrap(),
        )
    };
    browser.mouse("mouseMoved", at(2.0));
    browser.mouse("mouseMoved", at(0.0));
    browser.wait_for("document.querySelector('#samples .hoverlayer .hovertext')");
    let lines = browser.evaluate(
        "[...document.querySelectorAll('#samples .hoverlayer .hovertext .nums tspan')]
            .map((it) => it.textContent)",
    );
    let lines: Vec<&str> = { lines.as_array().unwrap().iter() }
        .map(|it| it.as_str().unwrap())
        .collect();
    let points = &samples["points"];
    let drawn_point = (0..points["address"].as_array().unwrap().len()).find(|at| {
        let address = points["address"][*at].as_str().unwrap();
        lines[0].starts_with(&format!("{address} (a) at {} s", points["seconds"][*at]))
    });
    let drawn_point = drawn_point.unwrap_or_else(|| panic!("no such point: {lines:?}"));
    let sum = &samples["sums"][index(&points["sum"][drawn_point])];
    let cycles = format!("store, {} cycles", points["latency_cycles"][drawn_point]);
    let thread = format!("stream 700/{}", sum["tid"]);
    assert_eq!(
        lines[1..],
        [cycles.as_str(), "phase triad", thread.as_str()]
    );
}

/// The parts of a killed recording are read. Damage is an error in one sentence or does not matter,
/// and never ends the process.
#[test]
fn parts_are_read_and_damage_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples.parquet");
    stream(&path, 3000);
    let read = |path: &Path| {
        let samples = SampleReader::open(path)?.ok_or(SampleReadError::Empty(String::new()))?;
        Scatter::read("a.parquet", samples)
    };
    let whole = read(&path).unwrap();
    assert_eq!((whole.samples, whole.phases.len()), (3000, 5));
    let bytes = fs::read(&path).unwrap();
    let parts = directory.path().join("killed.parquet.parts");
    let killed = directory.path().join("killed.parquet");
    fs::create_dir(&parts).unwrap();
    fs::write(&killed, "").unwrap();
    fs::write(parts.join("000000-00.parquet"), &bytes).unwrap();
    fs::write(parts.join("000001-00.parquet"), &bytes).unwrap();
    fs::write(parts.join(".000002-00.parquet"), "PAR1").unwrap();
    for name in [&killed, &parts] {
        let twice = read(name).unwrap();
        assert_eq!(twice.samples, 6000);
        let samples = |scatter: &Scatter| {
            scatter
                .sums
                .iter()
                .map(|sum| sum.samples)
                .collect::<Vec<_>>()
        };
        let expected: Vec<u64> = samples(&whole).iter().map(|it| 2 * it).collect();
        assert_eq!(samples(&twice), expected);
    }
    let other = directory.path().join("b.parquet");
    let mut refused = 0;
    for at in (0..bytes.len()).step_by(31) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        fs::write(&other, damaged).unwrap();
        if let Err(error) = read(&other) {
            let message = error.to_string();
            assert!(!message.is_empty(), "{at}");
            refused += usize::from(message.contains("is damaged after"));
        }
    }
    assert!(refused > 10, "{refused}");
    // A file of samples is no recording of windows, and errors name damaged parts.
    let message = Recording::open(&path).err().unwrap().to_string();
    assert!(
        message.contains("as the samples of `pmuscope mem record` are"),
        "{message}"
    );
    fs::write(parts.join("000000-00.parquet"), &bytes[..bytes.len() - 4]).unwrap();
    for name in [&killed, &parts] {
        let message = report(&[name]).unwrap_err();
        assert!(
            message.contains("000000-00.parquet is damaged"),
            "{message}"
        );
    }
    fs::write(&other, &bytes[..bytes.len() - 4]).unwrap();
    let message = report(&[&other]).unwrap_err();
    assert!(
        message.contains("is damaged, or has lost its end"),
        "{message}"
    );
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let message = report(&[&empty]).unwrap_err();
    assert!(
        message.to_lowercase().contains("is a directory"),
        "{message}"
    );
    fs::write(&other, "name,value\n").unwrap();
    let message = report(&[&other]).unwrap_err();
    assert!(
        message.contains("is no recording of `pmuscope record`"),
        "{message}"
    );
}
