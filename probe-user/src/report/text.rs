//! Views of a run for programs: JSON and CSV.

use std::io;

use serde_json::{Map, Value, json};

use super::{
    Calibration, LineMetric, LineSubject, LineSummary, Run, RunLine, Selection,
    roofline::RunRoofline,
};
use crate::{
    emit::printable::printable,
    samples::{Calibrated, Sweep},
};

/// A JSON number; null for NaN and infinity.
pub(super) fn number(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// JSON fields of a line: subject, metric and summary.
pub(super) fn line_fields(run: &Run, line: &RunLine, summary: &LineSummary) -> Map<String, Value> {
    let (subject, metric) = (&run.subjects[line.subject], &run.metrics[line.metric]);
    let mut map = subject_fields(subject);
    map.extend(metric_fields(metric));
    if !line.qualifier.is_empty() {
        map.insert("of".to_owned(), line.qualifier.as_str().into());
    }
    let total = summary.total.map(number).map(|total| ("total", total));
    let rest = [
        ("windows", summary.windows.into()),
        ("mean", number(summary.mean)),
        ("min", number(summary.min)),
        ("max", number(summary.max)),
    ];
    for (key, value) in rest.into_iter().chain(total) {
        map.insert(key.to_owned(), value);
    }
    if let Some(reason) = &line.reason {
        map.insert("reason".to_owned(), reason.as_str().into());
    }
    map
}

fn subject_fields(subject: &LineSubject) -> Map<String, Value> {
    let own = [("part", subject.part), ("label", subject.label.as_str())];
    let labels = subject.labels.iter();
    own.into_iter()
        .chain(labels.map(|(name, value)| (*name, value.as_str())))
        .map(|(key, text)| (key.to_owned(), text.into()))
        .collect()
}

fn metric_fields(metric: &LineMetric) -> Map<String, Value> {
    let unit = metric.shown_unit();
    let texts = [("metric", metric.name.as_str()), ("unit", unit.as_str())];
    texts
        .map(|(key, text)| (key.to_owned(), text.into()))
        .into_iter()
        .collect()
}

/// Metadata for people: without long lists and counts.
pub(super) fn metadata(about: &[(String, String)]) -> Map<String, Value> {
    let long = ["units", "mappings", "tags", "phases", "regions"];
    let known = about
        .iter()
        .filter(|(key, _)| !long.contains(&key.as_str()) && !key.starts_with("count."));
    known
        .map(|(key, value)| (key.clone(), value.as_str().into()))
        .collect()
}

/// Derived data: samples, roofline, estimates with their counts, and the accuracy of sampling.
pub(super) fn derived_views(run: &Run) -> Map<String, Value> {
    let mut map = Map::new();
    if let Some(samples) = &run.samples {
        map.insert("samples".to_owned(), samples.json(run.origin));
    }
    let (key, roofline) = match RunRoofline::for_run(run, run.peaks.as_ref()) {
        Ok(roofline) => ("roofline", roofline.json(run)),
        Err(reason) => ("no_roofline", reason.into()),
    };
    map.insert(key.to_owned(), roofline);
    let calibrations = Calibration::all(run);
    let pairs = calibrations.iter().map(|it| it.json(run));
    map.insert("calibrations".to_owned(), pairs.collect());
    if let Some(calibrated) = &run.calibrated {
        map.insert("sampling".to_owned(), sampling_json(calibrated));
    }
    map
}

/// Results of `mem calibrate`, with sweeps.
pub(super) fn sampling_json(calibrated: &Calibrated) -> Value {
    let sweeps = calibrated
        .sweeps()
        .into_iter()
        .map(|Sweep { over, settings }| {
            let name = |at: &usize| over.value_of(&calibrated.settings[*at]);
            let names: Vec<String> = settings.iter().map(name).collect();
            json!({"over": over.title(), "settings": settings, "names": names})
        });
    let mut all = json!(calibrated);
    all["sweeps"] = sweeps.collect();
    all
}

/// JSON fields of the whole recording.
pub(super) fn recording_fields(run: &Run) -> Map<String, Value> {
    let mut map = Map::new();
    let texts = |list: &[(String, String)], names: [&str; 2]| -> Value {
        let entry = |(a, b): &(String, String)| json!({names[0]: a, names[1]: b});
        list.iter().map(entry).collect()
    };
    map.insert("file".to_owned(), run.file.as_str().into());
    map.insert("about".to_owned(), metadata(&run.about).into());
    map.insert("began".to_owned(), number(run.began));
    map.insert("findings".to_owned(), texts(&run.findings, ["of", "text"]));
    map.insert(
        "missing".to_owned(),
        texts(&run.missing, ["metric", "reason"]),
    );
    map.insert("warnings".to_owned(), run.warnings.clone().into());
    map.insert("left_out".to_owned(), run.left_out.into());
    map
}

/// The run as one JSON object: fields of the recording, its windows, and lines with a value for
/// each window. Values of counters are of whole windows, as in a live run; their `mean`, `min` and
/// `max` are per second.
#[must_use]
pub fn json(run: &Run, selection: &Selection) -> Value {
    let mut map = recording_fields(run);
    let windows = run
        .windows
        .iter()
        .map(|(start, end)| json!({"start_s": start, "end_s": end}));
    map.insert("windows".to_owned(), windows.collect());
    let lines = selection.lines(run).into_iter().map(|(line, summary)| {
        let mut map = line_fields(run, line, &summary);
        let all = || 0..run.windows.len();
        let values = all().map(|at| number(line.value(at)));
        map.insert("values".to_owned(), values.collect());
        if !line.intervals.is_empty() {
            let ends = |pick: fn(&(f64, f64)) -> f64| -> Value {
                all().map(|at| number(pick(&line.interval(at)))).collect()
            };
            map.insert("low".to_owned(), ends(|it| it.0));
            map.insert("high".to_owned(), ends(|it| it.1));
        }
        Value::Object(map)
    });
    map.insert("lines".to_owned(), lines.collect());
    let histograms = selection.histograms(run).map(|it| {
        let mut map = subject_fields(&run.subjects[it.subject]);
        map.extend(metric_fields(&run.metrics[it.metric]));
        map.insert("of".to_owned(), it.qualifier.as_str().into());
        map.insert("bounds".to_owned(), it.bounds.clone().into());
        map.insert("counts".to_owned(), it.counts.clone().into());
        Value::Object(map)
    });
    map.insert("histograms".to_owned(), histograms.collect());
    map.extend(derived_views(run));
    map.into()
}

/// Writes a CSV line for each window of each selected line, printable on a terminal.
///
/// # Errors
///
/// If the writer fails.
pub fn csv(out: impl io::Write, run: &Run, selection: &Selection) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "start_s", "end_s", "part", "kind", "name", "label", "metric", "of", "unit", "value",
        "low", "high",
    ])?;
    for (line, _) in selection.lines(run) {
        let (subject, metric) = (&run.subjects[line.subject], &run.metrics[line.metric]);
        for (at, (start, end)) in run.windows.iter().enumerate() {
            let (value, (low, high)) = (line.value(at), line.interval(at));
            let field = |value: f64| match value.is_finite() {
                true => value.to_string(),
                false => String::new(),
            };
            let record = [
                &format!("{start:.6}"),
                &format!("{end:.6}"),
                subject.part,
                subject.get("kind").unwrap_or_default(),
                subject.name(),
                &subject.label,
                &metric.name,
                &line.qualifier,
                &metric.unit,
                &field(value),
                &field(low),
                &field(high),
            ];
            csv.write_record(record.map(|field| printable(field).into_owned()))?;
        }
    }
    csv.flush()
}
