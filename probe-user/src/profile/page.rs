//! A profile as one page that needs no network: its data, and a plotting library, are compressed
//! inside. The values of each metric are apart, so that a browser unpacks only what it shows.

use std::io::{self, Write};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Map, Value, json};

use super::{
    Profile, Selection, Summary,
    svg::escaped,
    text::{about, about_line, made},
};

/// plotly.js, compressed by the build script.
const PLOTLY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plotly.js.gz"));

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    include_str!("page/page.js"),
    include_str!("page/samples.js"),
    include_str!("page/measured.js"),
    include_str!("page/sampling.js"),
    "start().catch(failed);\n",
);

/// Nothing may be loaded, from anywhere.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data: blob:";

/// Writes the page.
///
/// # Errors
///
/// Where the writer fails.
pub fn page(mut out: impl Write, profile: &Profile) -> io::Result<()> {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} - pmuscope</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        escaped(&profile.file)
    )?;
    let lines = Selection::default().lines(profile);
    let mut made = made(profile);
    // Apart from the head, so that the table is there before they are unpacked.
    let parts = ["samples", "roofline", "calibrations", "sampling"];
    let parts = parts.map(|name| (name, made.remove(name).unwrap_or_default()));
    let mut head = head(profile, &lines);
    head.extend(made);
    block(&mut out, "head", Value::Object(head).to_string().as_bytes())?;
    for (name, part) in parts {
        block(
            &mut out,
            &format!("{name}-data"),
            part.to_string().as_bytes(),
        )?;
    }
    for metric in 0..profile.metrics.len() {
        let values = values(profile, &lines, metric);
        block(&mut out, &format!("metric-{metric}"), values.as_bytes())?;
    }
    compressed(&mut out, "plotly", PLOTLY)?;
    write!(out, "<script>\n{SCRIPT}</script>\n</body>\n</html>\n")
}

type Lines<'a> = [(&'a super::Line, Summary)];

/// All but the values of windows.
fn head(profile: &Profile, lines: &Lines<'_>) -> Map<String, Value> {
    let mut map = about(profile);
    let windows = profile.windows.iter();
    let windows = windows.map(|(start, end)| json!([rounded(*start), rounded(*end)]));
    map.insert("windows".to_owned(), windows.collect());
    let metrics = profile.metrics.iter();
    let metrics = metrics.map(|metric| {
        json!({
            "name": metric.name,
            "help": metric.help,
            "unit": metric.shown_unit(),
            "counter": metric.is_counter,
        })
    });
    map.insert("metrics".to_owned(), metrics.collect());
    let lines = lines.iter().map(|(line, summary)| {
        let mut map = about_line(profile, line, summary);
        map.insert("metric_at".to_owned(), line.metric.into());
        map.insert("holder".to_owned(), line.holder.into());
        Value::Object(map)
    });
    map.insert("lines".to_owned(), lines.collect());
    let histograms = profile.histograms.iter().map(|it| {
        json!({
            "label": profile.holders[it.holder].label,
            "metric": profile.metrics[it.metric].name,
            "unit": profile.metrics[it.metric].unit,
            "of": it.of,
            "bounds": it.bounds,
            "counts": it.counts,
        })
    });
    map.insert("histograms".to_owned(), histograms.collect());
    map
}

/// The values over time of the lines of a metric, with the number of each line: what is drawn, so
/// six digits.
fn values(profile: &Profile, lines: &Lines<'_>, metric: usize) -> String {
    let of_metric = lines.iter().enumerate();
    let of_metric = of_metric.filter(|(_, (line, _))| line.metric == metric);
    let lines = of_metric.map(|(at, (line, _))| {
        let known = &profile.metrics[metric];
        let shown = line.shown(known, &profile.windows);
        let shown = shown.map(|(_, value)| rounded(value));
        let mut map = json!({"line": at, "first": line.first, "y": shown.collect::<Vec<_>>()});
        if !line.intervals.is_empty() {
            let by = |end: f64, (from, to): (f64, f64)| match known.is_counter {
                true => rounded(end / (to - from)),
                false => rounded(end),
            };
            let ends = line.windows().map(|at| {
                let ((low, high), window) = (line.interval(at), profile.windows[at]);
                [by(low, window), by(high, window)]
            });
            map["ends"] = ends.collect();
        }
        map
    });
    Value::Array(lines.collect()).to_string()
}

/// With six digits; null where there is none.
fn rounded(value: f64) -> Value {
    let text = format!("{value:.5e}");
    text.parse().map_or(Value::Null, super::text::number)
}

/// Data by name: base64 has no character that HTML knows.
fn block(out: &mut impl Write, id: &str, bytes: &[u8]) -> io::Result<()> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    compressed(out, id, &gzip.finish()?)
}

fn compressed(out: &mut impl Write, id: &str, bytes: &[u8]) -> io::Result<()> {
    let text = STANDARD.encode(bytes);
    writeln!(
        out,
        "<script type=\"text/plain\" id=\"{id}\">{text}</script>"
    )
}
