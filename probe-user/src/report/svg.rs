//! Draws a metric of a run: its lines over time, or its distributions.

pub(super) mod points;

use super::{Distribution, Run, RunLine, Selection};
use crate::plot::{Axis, Look, Plane, PlotSeries, extent, short};

/// The selected metric as an SVG picture: values over time, or distributions. None if nothing is
/// selected. `selection` must name the metric.
#[must_use]
pub fn svg(run: &Run, selection: &Selection) -> Option<String> {
    let mut histograms: Vec<&Distribution> = selection.histograms(run).collect();
    histograms.sort_by_key(|it| std::cmp::Reverse(it.counts.iter().sum::<u64>()));
    histograms.truncate(selection.top.unwrap_or(usize::MAX));
    if let Some(first) = histograms.first() {
        let metric = &run.metrics[first.metric];
        // One axis needs equal buckets, which distributions of one metric have.
        let alike = histograms
            .iter()
            .filter(|it| (it.metric, &it.bounds) == (first.metric, &first.bounds));
        let bars = alike.map(|it| series(run, it.subject, &it.qualifier, shares(it)));
        let title = format!("{} ({}), % of samples by bucket", metric.name, metric.unit);
        let x_axis = XAxis::Buckets(&first.bounds, &metric.unit);
        return Some(draw(&title, x_axis, bars.collect()));
    }
    let lines = selection.lines(run);
    let (first, _) = lines.first()?;
    let metric = &run.metrics[first.metric];
    let drawn = { lines.iter() }
        .map(|(line, _)| series(run, line.subject, &line.qualifier, pieces(run, line)));
    let title = match metric.shown_unit() {
        unit if unit.is_empty() => metric.name.clone(),
        unit => format!("{} ({unit})", metric.name),
    };
    Some(draw(&title, XAxis::Seconds, drawn.collect()))
}

/// The x axis of a picture.
#[derive(Clone, Copy)]
enum XAxis<'a> {
    Seconds,
    /// Bucket numbers, labelled with the upper bounds in this unit. The last bucket has no bound.
    Buckets(&'a [f64], &'a str),
}

impl XAxis<'_> {
    /// The axis between two ends.
    fn scale(self, ends: (f64, f64)) -> Axis {
        match self {
            Self::Seconds => Axis::divided(ends, 4, |at| format!("{} s", short(at))),
            Self::Buckets(bounds, unit) => {
                let step = bounds.len().div_ceil(8).max(1);
                let label = |(at, end): (u32, &f64)| {
                    let unit = if at == 0 { unit } else { "" };
                    let label = format!("\u{2264} {} {unit}", short(*end));
                    (f64::from(at), label.trim_end().to_owned())
                };
                let bounded = (0_u32..).zip(bounds).step_by(step);
                let mut labels: Vec<(f64, String)> = bounded.map(label).collect();
                // The last bucket's label replaces one that is too near.
                let last = u32::try_from(bounds.len()).map_or(ends.1, f64::from);
                if let Some(end) = bounds.last() {
                    #[expect(clippy::cast_precision_loss, reason = "some tens of buckets")]
                    labels.retain(|(at, _)| last - at >= step as f64);
                    labels.push((last, format!("> {}", short(*end))));
                }
                Axis::linear(ends, labels)
            }
        }
    }
}

fn series(run: &Run, subject: usize, qualifier: &str, points: Vec<Vec<(f64, f64)>>) -> PlotSeries {
    let label = &run.subjects[subject].label;
    let name = match qualifier {
        "" => label.clone(),
        _ => format!("{label}, {qualifier}"),
    };
    PlotSeries::new(name, Look::Line, points)
}

/// Points of a line, each at the end of its window, split where windows have no value.
fn pieces(run: &Run, line: &RunLine) -> Vec<Vec<(f64, f64)>> {
    let drawn = line.drawn(&run.metrics[line.metric], &run.windows);
    let points: Vec<(f64, f64)> = drawn.map(|(at, y)| (run.windows[at].1, y)).collect();
    let pieces = points.split(|(_, y)| !y.is_finite());
    pieces
        .filter(|piece| !piece.is_empty())
        .map(<[_]>::to_vec)
        .collect()
}

/// Points of a distribution: the bucket's index, and its share of all counts in percent.
fn shares(distribution: &Distribution) -> Vec<Vec<(f64, f64)>> {
    #[expect(clippy::cast_precision_loss, reason = "shares for the eye")]
    let float = |count: u64| count as f64;
    let total = float(distribution.counts.iter().sum::<u64>()).max(1.0);
    let points = distribution
        .counts
        .iter()
        .zip(0_u32..)
        .map(|(count, at)| (f64::from(at), 100.0 * float(*count) / total));
    vec![points.collect()]
}

fn draw(title: &str, x_axis: XAxis<'_>, drawn: Vec<PlotSeries>) -> String {
    let points = || drawn.iter().flat_map(|it| it.points.iter().flatten());
    // Both axes include 0, and have a length even without points.
    let zero = [0.0, f64::MIN_POSITIVE];
    let x_ends = extent(points().map(|it| it.0).chain(zero));
    let y_ends = extent(points().map(|it| it.1).chain(zero));
    let plane = Plane {
        title: title.to_owned(),
        x: x_axis.scale(x_ends),
        y: Axis::divided(y_ends, 4, short),
        drawn,
        ..Plane::default()
    };
    plane.svg()
}

#[cfg(test)]
mod tests;
