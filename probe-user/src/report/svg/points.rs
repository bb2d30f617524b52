//! Draws pictures of points: samples of accesses, the roofline, and estimates with their counts.
//! The roofline and the estimates are drawn from the view's JSON.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    super::{Scatter, samples::SamplePhase},
    XAxis,
};
use crate::plot::{Axis, Look, Plane, PlotSeries, extent, short};

/// Most shaded phases; the longest are kept, as on the page.
const MAX_PHASES: usize = 200;

/// Ends of a linear axis for these values, 1 apart if all are equal.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    match extent(values) {
        (low, high) if low < high => (low, high),
        (low, _) => (low - 0.5, low + 0.5),
    }
}

/// Addresses over time, by region, with the phases behind them. Without `all`, only tagged memory,
/// or without tags the region with most samples: all addresses are too far apart for one picture.
/// None without points.
pub(in crate::report) fn samples(
    scatter: &Scatter,
    began: u64,
    all: bool,
    top: usize,
) -> Option<String> {
    let region = |at: usize| scatter.sums[at].region.as_deref();
    let is_tag = |name: Option<&str>| name.is_some_and(|name| !name.starts_with('['));
    let tagged = scatter.points.iter().any(|it| is_tag(region(it.sum)));
    let mut largest: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for point in &scatter.points {
        *largest.entry(region(point.sum)).or_default() += 1;
    }
    let most_sampled = *largest.iter().max_by_key(|(_, count)| **count)?.0;
    let wanted = |name: Option<&str>| match (all, tagged) {
        (true, _) => true,
        (false, true) => is_tag(name),
        (false, false) => name == most_sampled,
    };
    largest.retain(|name, _| wanted(*name));
    let mut order: Vec<(Option<&str>, usize)> = largest.into_iter().collect();
    order.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let seconds = |time: u64| Scatter::seconds(began, time);
    #[expect(clippy::cast_precision_loss, reason = "an address, for the eye")]
    let float = |address: u64| address as f64;
    let series = |name: String| PlotSeries::new(name, Look::Points, Vec::new());
    let mut drawn: Vec<PlotSeries> = { order.iter().take(top) }
        .map(|(name, _)| series(name.unwrap_or("unknown").to_owned()))
        .collect();
    let others = order.len().saturating_sub(top);
    if others > 0 {
        drawn.push(series(format!("{others} others")));
    }
    let (mut times, mut addresses) = (Vec::new(), Vec::new());
    for point in &scatter.points {
        let name = region(point.sum);
        let Some(at) = order.iter().position(|(known, _)| *known == name) else {
            continue;
        };
        let (x, y) = (seconds(point.time), float(point.address));
        times.push(x);
        addresses.push(y);
        drawn[at.min(top)].points.push(vec![(x, y)]);
    }
    let count = times.len();
    let (x, y) = (ends(times.into_iter()), ends(addresses.into_iter()));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an address"
    )]
    let hexadecimal = |value: f64| format!("{:#x}", value.max(0.0) as u64);
    let mut phases: Vec<_> = scatter.phases.iter().collect();
    let until = |it: &SamplePhase| it.until.unwrap_or(scatter.times.1);
    phases.sort_by_key(|it| std::cmp::Reverse(until(it).saturating_sub(it.since)));
    phases.truncate(MAX_PHASES);
    phases.sort_by_key(|it| it.since);
    let spans = phases.into_iter().map(|it| {
        let end = seconds(until(it)).clamp(x.0, x.1);
        (seconds(it.since).clamp(x.0, x.1), end, it.name.clone())
    });
    let plane = Plane {
        title: format!(
            "addresses over time, {count} points of {} samples",
            scatter.samples
        ),
        x: XAxis::Seconds.scale(x),
        y: Axis::divided(y, 4, hexadecimal),
        spans: spans.collect(),
        drawn,
    };
    Some(plane.svg())
}

fn number_field(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or(f64::NAN)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().into_iter().flatten()
}

fn label(point: &Value) -> String {
    point["label"].as_str().unwrap_or_default().to_owned()
}

/// The roofline of all sockets, or else that with the most threads; None without one. Points are in
/// the order of `view`.
pub(in crate::report) fn roofline(view: &Value) -> Option<String> {
    let size = |roof: &&Value| (roof["socket"].is_null(), roof["threads"].as_u64());
    let roof = list(&view["roofs"]).max_by_key(size)?;
    let (peak, bandwidth) = (
        number_field(roof, "flops"),
        number_field(roof, "bytes_per_second"),
    );
    let placed = list(&view["points"]);
    let intensities = placed.clone().map(|it| number_field(it, "flops_per_byte"));
    let x = Axis::powers_of_ten(intensities.chain([peak / bandwidth]), 4.0);
    let attainable = |x: f64, bandwidth: f64| (x * bandwidth).min(peak);
    let line = |name: String, bandwidth: f64, look| {
        let ridge = (peak / bandwidth).clamp(x.ends.0, x.ends.1);
        let at = [x.ends.0, ridge, x.ends.1];
        let points = at.map(|it| (it, attainable(it, bandwidth)));
        PlotSeries::new(name, look, vec![points.to_vec()])
    };
    let memory = format!("memory: {}B/s", short(bandwidth));
    let mut drawn = vec![line(memory, bandwidth, Look::Line)];
    let caches = list(&roof["levels"]).filter(|it| it["level"] != "memory");
    drawn.extend(caches.map(|it| {
        let best = number_field(it, "bytes_per_second");
        let name = it["level"].as_str().unwrap_or_default();
        line(format!("{name}: {}B/s", short(best)), best, Look::Dashes)
    }));
    drawn.extend(placed.clone().map(|it| {
        let at = (
            number_field(it, "flops_per_byte"),
            number_field(it, "flops"),
        );
        PlotSeries::new(label(it), Look::Marks, vec![vec![at]])
    }));
    let heights = placed.map(|it| number_field(it, "flops"));
    let lowest = attainable(x.ends.0, bandwidth);
    let y = Axis::powers_of_ten(heights.chain([peak, lowest]), 1.5);
    let plane = Plane {
        title: format!("FLOP/s over FLOP/B, peak {}FLOP/s", short(peak)),
        x,
        y,
        drawn,
        ..Plane::default()
    };
    Some(plane.svg())
}

/// Each row's estimate divided by its count, with its interval; None without rows.
pub(in crate::report) fn estimate(pair: &Value) -> Option<String> {
    let rows = list(&pair["points"]);
    rows.clone().next()?;
    let x = Axis::powers_of_ten(rows.clone().map(|it| number_field(it, "count")), 2.0);
    let ratios = rows.clone().flat_map(|it| {
        let ends = ["low", "high"].map(|key| number_field(it, key) / number_field(it, "count"));
        [number_field(it, "ratio"), ends[0], ends[1], 1.0]
    });
    let (low, high) = ends(ratios.filter(|it| it.is_finite()));
    let equal = vec![(x.ends.0, 1.0), (x.ends.1, 1.0)];
    let equality = PlotSeries::new("equal".to_owned(), Look::Dashes, vec![equal]);
    let drawn = rows.map(|it| {
        let (at, ratio) = (number_field(it, "count"), number_field(it, "ratio"));
        let (low, high) = (number_field(it, "low") / at, number_field(it, "high") / at);
        let bars = (low.is_finite() && high.is_finite()).then_some((at, low, high));
        PlotSeries {
            bars: bars.into_iter().collect(),
            ..PlotSeries::new(label(it), Look::Marks, vec![vec![(at, ratio)]])
        }
    });
    let text = |key: &str| pair[key].as_str().unwrap_or_default();
    let margin = (high - low) * 0.05;
    let range = (low - margin, high + margin);
    let plane = Plane {
        title: format!(
            "{} / {}, over {}",
            text("estimate"),
            text("count"),
            text("count")
        ),
        x,
        y: Axis::divided(range, 4, |at| format!("{at:.3}")),
        drawn: [equality].into_iter().chain(drawn).collect(),
        ..Plane::default()
    };
    Some(plane.svg())
}
