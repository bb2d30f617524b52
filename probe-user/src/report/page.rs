//! Writes a run as one self-contained HTML page, with its data and a plotting library compressed
//! inside. The values of each metric are a block of their own, so that a browser unpacks only what
//! it shows.

use std::io::{self, Write};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Map, Value, json};

use super::{
    LineSummary, Run, Selection,
    text::{derived_views, line_fields, recording_fields},
};
use crate::plot::escaped;

/// plotly.js, compressed by the build script.
const PLOTLY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plotly.js.gz"));

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    include_str!("page/text.js"),
    include_str!("page/page.js"),
    include_str!("page/rows.js"),
    include_str!("page/time.js"),
    include_str!("page/accesses.js"),
    include_str!("page/waits.js"),
    include_str!("page/samples.js"),
    include_str!("page/measured.js"),
    include_str!("page/sampling.js"),
    "start().catch(failed);\n",
);

/// Content-Security-Policy: nothing may be loaded.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data: blob:";

/// Writes the page.
///
/// # Errors
///
/// If the writer fails.
pub fn page(mut out: impl Write, run: &Run) -> io::Result<()> {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} - pmuscope</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        escaped(&run.file)
    )?;
    let lines = Selection::default().lines(run);
    let mut derived = derived_views(run);
    // These parts are separate from the head, so that the table appears before a browser unpacks
    // them.
    let parts = ["samples", "roofline", "calibrations", "sampling"]
        .map(|name| (name, derived.remove(name).unwrap_or_default()));
    let mut head = head(run, &lines);
    // The reason for a missing roofline matters only to a user who gave the machine's peaks.
    head.extend(
        derived
            .into_iter()
            .filter(|(name, _)| name != "no_roofline" || run.peaks.is_some()),
    );
    write_block(&mut out, "head", Value::Object(head).to_string().as_bytes())?;
    for (name, part) in parts {
        write_block(
            &mut out,
            &format!("{name}-data"),
            part.to_string().as_bytes(),
        )?;
    }
    for metric in 0..run.metrics.len() {
        let values = values(run, &lines, metric);
        write_block(&mut out, &format!("metric-{metric}"), values.as_bytes())?;
    }
    write_compressed(&mut out, "plotly", PLOTLY)?;
    write!(out, "<script>\n{SCRIPT}</script>\n</body>\n</html>\n")
}

type SummarizedLines<'a> = [(&'a super::RunLine, LineSummary)];

/// The head: everything but the values of windows.
fn head(run: &Run, lines: &SummarizedLines<'_>) -> Map<String, Value> {
    let mut map = recording_fields(run);
    let windows = run
        .windows
        .iter()
        .map(|(start, end)| json!([rounded(*start), rounded(*end)]));
    map.insert("windows".to_owned(), windows.collect());
    let twice = run.metrics_counted_twice();
    let metrics = run.metrics.iter().enumerate().map(|(at, metric)| {
        json!({
            "name": metric.name,
            "help": metric.help,
            "unit": metric.shown_unit(),
            "hidden": metric.replaced_by_rates || twice.contains(&at),
        })
    });
    map.insert("metrics".to_owned(), metrics.collect());
    let lines = lines.iter().map(|(line, summary)| {
        let mut map = line_fields(run, line, summary);
        map.insert("metric_at".to_owned(), line.metric.into());
        map.insert("holder".to_owned(), line.subject.into());
        map.insert(
            "rest".to_owned(),
            run.subjects[line.subject].is_rest().into(),
        );
        Value::Object(map)
    });
    map.insert("lines".to_owned(), lines.collect());
    let histograms = run.histograms.iter().map(|it| {
        json!({
            "label": run.subjects[it.subject].label,
            "metric": run.metrics[it.metric].name,
            "unit": run.metrics[it.metric].unit,
            "of": it.qualifier,
            "bounds": it.bounds,
            "counts": it.counts,
            "rest": run.subjects[it.subject].is_rest(),
        })
    });
    map.insert("histograms".to_owned(), histograms.collect());
    map.insert("ordered_by".to_owned(), run.ordering_metric().into());
    map.insert("changes".to_owned(), run.changes());
    map
}

/// The values over time of a metric's lines, each line with its index, rounded for drawing.
fn values(run: &Run, lines: &SummarizedLines<'_>, metric: usize) -> String {
    let of_metric = lines
        .iter()
        .enumerate()
        .filter(|(_, (line, _))| line.metric == metric);
    let lines = of_metric.map(|(at, (line, _))| {
        let info = &run.metrics[metric];
        let shown = line
            .drawn(info, &run.windows)
            .map(|(_, value)| rounded(value));
        let mut map = json!({"line": at, "first": line.first, "y": shown.collect::<Vec<_>>()});
        if !line.intervals.is_empty() {
            let ends = line.windows().map(|at| {
                let ((low, high), (from, to)) = (line.interval(at), run.windows[at]);
                [low, high].map(|end| rounded(end * info.shown_factor(to - from)))
            });
            map["ends"] = ends.collect();
        }
        map
    });
    Value::Array(lines.collect()).to_string()
}

/// A number with six digits; null for NaN and infinity.
fn rounded(value: f64) -> Value {
    let text = format!("{value:.5e}");
    text.parse().map_or(Value::Null, super::text::number)
}

/// Writes a block of data with an id. Base64 has no characters that are special in HTML.
fn write_block(out: &mut impl Write, id: &str, bytes: &[u8]) -> io::Result<()> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    write_compressed(out, id, &gzip.finish()?)
}

fn write_compressed(out: &mut impl Write, id: &str, bytes: &[u8]) -> io::Result<()> {
    let text = STANDARD.encode(bytes);
    writeln!(
        out,
        "<script type=\"text/plain\" id=\"{id}\">{text}</script>"
    )
}
