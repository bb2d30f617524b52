//! Draws a metric of a profile: its lines over time, or its distributions.

pub(super) mod plane;
pub(super) mod points;

use self::plane::{Axis, Look, Plane, PlotSeries};
use super::{Distribution, Profile, ProfileLine, Selection};

/// The selected metric as an SVG picture: values over time, or distributions. None if nothing is
/// selected. `selection` must name the metric.
#[must_use]
pub fn svg(profile: &Profile, selection: &Selection) -> Option<String> {
    let mut histograms: Vec<&Distribution> = selection.histograms(profile).collect();
    histograms.sort_by_key(|it| std::cmp::Reverse(it.counts.iter().sum::<u64>()));
    histograms.truncate(selection.top.unwrap_or(usize::MAX));
    if let Some(first) = histograms.first() {
        let metric = &profile.metrics[first.metric];
        // One axis needs equal buckets, which distributions of one metric have.
        let alike = histograms
            .iter()
            .filter(|it| (it.metric, &it.bounds) == (first.metric, &first.bounds));
        let bars = alike.map(|it| line(named(profile, it.subject, &it.of), shares(it)));
        let title = format!("{} ({}), % of samples by bucket", metric.name, metric.unit);
        let across = Across::Buckets(&first.bounds, &metric.unit);
        return Some(draw(&title, across, bars.collect()));
    }
    let lines = selection.lines(profile);
    let (first, _) = lines.first()?;
    let metric = &profile.metrics[first.metric];
    let drawn = lines.iter().map(|(of, _)| {
        let name = named(profile, of.subject, &of.of);
        line(name, pieces(profile, of))
    });
    let title = match metric.shown_unit() {
        unit if unit.is_empty() => metric.name.clone(),
        unit => format!("{} ({unit})", metric.name),
    };
    Some(draw(&title, Across::Seconds, drawn.collect()))
}

/// The x axis of a picture.
#[derive(Clone, Copy)]
enum Across<'a> {
    Seconds,
    /// Bucket numbers, labelled with the upper bounds in this unit. The last bucket has no bound.
    Buckets(&'a [f64], &'a str),
}

impl Across<'_> {
    /// Positions and texts of the axis labels.
    fn names(self, (x0, x1): (f64, f64)) -> Vec<(f64, String)> {
        match self {
            Self::Seconds => quarters((x0, x1), |at| format!("{} s", short(at))),
            Self::Buckets(bounds, unit) => {
                let step = bounds.len().div_ceil(8).max(1);
                let ends = (0_u32..).zip(bounds).step_by(step);
                let name = |(at, end): (u32, &f64)| {
                    let unit = if at == 0 { unit } else { "" };
                    let name = format!("\u{2264} {} {unit}", short(*end));
                    (f64::from(at), name.trim_end().to_owned())
                };
                let mut names: Vec<(f64, String)> = ends.map(name).collect();
                // The last bucket's label replaces one that is too near.
                let last = u32::try_from(bounds.len()).map_or(x1, f64::from);
                if let Some(end) = bounds.last() {
                    #[expect(clippy::cast_precision_loss, reason = "some tens of buckets")]
                    names.retain(|(at, _)| last - at >= step as f64);
                    names.push((last, format!("> {}", short(*end))));
                }
                names
            }
        }
    }
}

const fn line(name: String, points: Vec<Vec<(f64, f64)>>) -> PlotSeries {
    PlotSeries {
        name,
        look: Look::Line,
        points,
        bars: Vec::new(),
    }
}

fn named(profile: &Profile, subject: usize, of: &str) -> String {
    let label = &profile.subjects[subject].label;
    match of {
        "" => label.clone(),
        of => format!("{label}, {of}"),
    }
}

/// Points at the ends of windows, split where windows have no value.
fn pieces(profile: &Profile, line: &ProfileLine) -> Vec<Vec<(f64, f64)>> {
    let shown = line.shown(&profile.metrics[line.metric], &profile.windows);
    let points: Vec<(f64, f64)> = shown.map(|(at, y)| (profile.windows[at].1, y)).collect();
    let pieces = points.split(|(_, y)| !y.is_finite());
    pieces
        .filter(|piece| !piece.is_empty())
        .map(<[_]>::to_vec)
        .collect()
}

fn shares(of: &Distribution) -> Vec<Vec<(f64, f64)>> {
    #[expect(clippy::cast_precision_loss, reason = "shares for the eye")]
    let float = |count: u64| count as f64;
    let all = float(of.counts.iter().sum::<u64>()).max(1.0);
    let points = of
        .counts
        .iter()
        .zip(0_u32..)
        .map(|(count, at)| (f64::from(at), 100.0 * float(*count) / all));
    vec![points.collect()]
}

fn draw(title: &str, across: Across<'_>, drawn: Vec<PlotSeries>) -> String {
    let points = || drawn.iter().flat_map(|it| it.points.iter().flatten());
    let span = |pick: fn(&(f64, f64)) -> f64| {
        let low = points().map(pick).fold(0.0, f64::min);
        let high = points().map(pick).fold(f64::MIN_POSITIVE, f64::max);
        (low, high)
    };
    let (over, of) = (span(|it| it.0), span(|it| it.1));
    let plane = Plane {
        title: title.to_owned(),
        x: Axis {
            ends: over,
            names: across.names(over),
            ..Axis::default()
        },
        y: Axis {
            ends: of,
            names: quarters(of, short),
            ..Axis::default()
        },
        drawn,
        ..Plane::default()
    };
    plane.svg()
}

/// Labels of five equally spaced values.
fn quarters((low, high): (f64, f64), name: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    let at = (0..=4).map(|part| low + f64::from(part) / 4.0 * (high - low));
    at.map(|value| (value, name(value))).collect()
}

/// A number with three digits and an SI prefix.
pub(super) fn short(value: f64) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let (mut value, mut at) = (value, 0);
    while value.abs() >= 1000.0 && at + 1 < prefixes.len() {
        value /= 1000.0;
        at += 1;
    }
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 || size == 0.0 => 2,
        _ => return format!("{value:.1e}{}", prefixes[at]),
    };
    format!("{value:.digits$}{}", prefixes[at])
}

/// Escapes text for XML. Replaces characters that XML does not allow.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
