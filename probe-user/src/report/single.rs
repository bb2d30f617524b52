//! Single views of derived data, as JSON, CSV or a picture.

use std::io;

use serde_json::{Map, Value};

use super::{Calibration, Run, Scatter, Selection, roofline::RunRoofline, svg::points, text};
use crate::{emit::printable::printable, samples::Calibrated};

/// Most rows of a picture, or regions with their own colour.
const DEFAULT_TOP: usize = 10;

/// A view that is not of one metric over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Single {
    /// Addresses of samples over time.
    Samples,
    /// Rows below the peaks of the machine (with --roofline).
    Roofline,
    /// Estimates beside counts.
    Estimates,
    /// Accuracy and cost of sampling (with --calibration).
    Calibration,
}

impl Single {
    /// The view as JSON, with the selected rows.
    ///
    /// # Errors
    ///
    /// The reason if there is no such view, as a sentence.
    pub fn json(self, run: &Run, selection: &Selection) -> Result<Value, String> {
        let mut view = match self {
            Self::Samples => matching_samples(run, selection)?.json(run.origin),
            Self::Roofline => RunRoofline::for_run(run, run.peaks.as_ref())?.json(run),
            Self::Estimates => {
                let all = Calibration::all(run);
                let wanted =
                    |it: &&Calibration| selection.wants(&it.estimate) || selection.wants(&it.count);
                let pairs: Vec<Value> = all.iter().filter(wanted).map(|it| it.json(run)).collect();
                if pairs.is_empty() {
                    return Err(format!(
                        "{} has no such metric both estimated and counted \
                         (docs/reference/recordings.md, Estimates and counts)",
                        run.file
                    ));
                }
                pairs.into()
            }
            Self::Calibration => text::sampling_json(run.calibrated.as_ref().ok_or(
                "no calibration was given: `pmuscope mem calibrate --format json > FILE` makes \
                 one on the machine, and --calibration FILE takes it",
            )?),
        };
        match (self, &mut view) {
            (Self::Roofline, view) => keep_matching(&mut view["points"], selection, "flops"),
            (Self::Estimates, Value::Array(pairs)) => {
                for pair in pairs {
                    keep_matching(&mut pair["points"], selection, "count");
                }
            }
            _ => {}
        }
        Ok(view)
    }

    /// The rows of the view as CSV, printable on a terminal.
    ///
    /// # Errors
    ///
    /// The reason if there is no such view, as a sentence.
    pub fn csv(self, run: &Run, selection: &Selection) -> Result<Vec<u8>, String> {
        let view = self.json(run, selection)?;
        let rows = match self {
            Self::Samples => sample_rows(&view),
            Self::Roofline => rows_of(&view["points"], &Map::new()),
            Self::Estimates => {
                let pairs = view.as_array().into_iter().flatten();
                let rows = pairs.flat_map(|pair| {
                    let mut before = Map::new();
                    for (name, key) in [("estimated", "estimate"), ("counted", "count")] {
                        before.insert(name.to_owned(), pair[key].clone());
                    }
                    before.insert("unit".to_owned(), pair["unit"].clone());
                    rows_of(&pair["points"], &before)
                });
                rows.collect()
            }
            Self::Calibration => rows_of(&view["settings"], &Map::new()),
        };
        let mut out = Vec::new();
        write_csv(&mut out, &rows).map_err(|error| error.to_string())?;
        Ok(out)
    }

    /// The view as an SVG picture.
    ///
    /// # Errors
    ///
    /// The reason if there is none, as a sentence.
    pub fn svg(self, run: &Run, selection: &Selection) -> Result<String, String> {
        let nothing = || format!("nothing that --search finds in {} can be drawn", run.file);
        let top = selection.top.unwrap_or(DEFAULT_TOP);
        let selection = Selection {
            top: Some(top),
            ..selection.clone()
        };
        match self {
            Self::Samples => {
                let scatter = matching_samples(run, &selection)?;
                let began = run.origin.unwrap_or(scatter.times.0);
                let all = selection.search.is_some();
                points::samples(&scatter, began, all, top).ok_or_else(nothing)
            }
            Self::Roofline => points::roofline(&self.json(run, &selection)?).ok_or_else(nothing),
            Self::Estimates => {
                let view = self.json(run, &selection)?;
                let pairs = view.as_array().map(Vec::as_slice).unwrap_or_default();
                match pairs {
                    [pair] => points::estimate(pair).ok_or_else(nothing),
                    pairs => {
                        let names = pairs
                            .iter()
                            .filter_map(|it| it["estimate"].as_str())
                            .collect::<Vec<_>>()
                            .join(", ");
                        Err(format!(
                            "a picture is of one estimate: name it with -M: {names}"
                        ))
                    }
                }
            }
            Self::Calibration => {
                self.json(run, &selection)?;
                run.calibrated
                    .as_ref()
                    .map(Calibrated::svg)
                    .ok_or_else(nothing)
            }
        }
    }
}

/// The samples, with only the points whose region, thread or container matches.
fn matching_samples(run: &Run, selection: &Selection) -> Result<Scatter, String> {
    let samples = run.samples.as_ref().ok_or_else(|| {
        format!(
            "{} has no samples: give a file of `pmuscope mem record`, or --samples beside a \
             recording",
            run.file
        )
    })?;
    let mut scatter = samples.clone();
    let matches: Vec<bool> = { samples.sums.iter() }
        .map(|sum| {
            let names = [&sum.region, &sum.comm, &sum.cgroup].into_iter().flatten();
            selection.matches_any(names.map(String::as_str))
        })
        .collect();
    scatter.points.retain(|point| matches[point.sum]);
    Ok(scatter)
}

/// Keeps the matching points. With `selection.top` only those with the largest field `by`, in
/// descending order.
fn keep_matching(points: &mut Value, selection: &Selection, by: &str) {
    let Value::Array(points) = points else {
        return;
    };
    points.retain(|it| {
        let names = ["label", "name"]
            .into_iter()
            .filter_map(|key| it[key].as_str());
        selection.matches_any(names)
    });
    if let Some(top) = selection.top {
        let size = |it: &Value| it[by].as_f64().unwrap_or(f64::MIN);
        points.sort_by(|a, b| size(b).total_cmp(&size(a)));
        points.truncate(top);
    }
}

type CsvRow = Vec<(String, Value)>;

/// A row for each object: the columns `before`, then its fields. A mean becomes two columns.
fn rows_of(objects: &Value, before: &Map<String, Value>) -> Vec<CsvRow> {
    let objects = objects.as_array().into_iter().flatten();
    let fields = |object: &Value| {
        let all = before
            .iter()
            .chain(object.as_object().into_iter().flatten())
            .flat_map(|(key, value)| match value.get("mean") {
                Some(mean) => vec![
                    (key.clone(), mean.clone()),
                    (format!("{key}_deviation"), value["deviation"].clone()),
                ],
                None => vec![(key.clone(), value.clone())],
            });
        all.collect()
    };
    objects.map(fields).collect()
}

/// A row for each point of the samples, with the names of its sum.
fn sample_rows(view: &Value) -> Vec<CsvRow> {
    let points = &view["points"];
    let sums = points["sum"].as_array().into_iter().flatten();
    let rows = sums.enumerate().map(|(at, sum)| {
        let own = [
            "seconds",
            "address",
            "latency_cycles",
            "operation",
            "source",
        ]
        .map(|key| (key.to_owned(), points[key][at].clone()));
        let sum_at = sum.as_u64().and_then(|it| usize::try_from(it).ok());
        let sum = &view["sums"][sum_at.unwrap_or(usize::MAX)];
        let of_sum = ["region", "phase", "cgroup", "pid", "tid", "comm"]
            .map(|key| (key.to_owned(), sum[key].clone()));
        own.into_iter().chain(of_sum).collect()
    });
    rows.collect()
}

fn write_csv(out: &mut Vec<u8>, rows: &[CsvRow]) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    if let Some(first) = rows.first() {
        csv.write_record(first.iter().map(|(name, _)| name))?;
    }
    for row in rows {
        let fields = row.iter().map(|(_, value)| match value {
            Value::Null => String::new(),
            Value::String(text) => printable(text).into_owned(),
            value => value.to_string(),
        });
        csv.write_record(fields)?;
    }
    csv.flush()
}
