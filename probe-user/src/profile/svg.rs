//! A metric of a profile as a picture: its time lines, or its distributions.

use std::fmt::Write as _;

use super::{Distribution, Line, Profile, Selection};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
/// Left, right, top, bottom of what is drawn; names are below.
const FRAME: (f64, f64, f64, f64) = (80.0, 925.0, 40.0, 360.0);
/// Of a name below the picture.
const NAME: f64 = 16.0;

const COLOURS: [&str; 10] = [
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
    "#9c6b4e", "#9498a0",
];

/// A metric over time, or how its values are distributed where it is a distribution; None where
/// nothing is selected. `selection` names the metric.
#[must_use]
pub fn svg(profile: &Profile, selection: &Selection) -> Option<String> {
    let mut histograms: Vec<&Distribution> = selection.histograms(profile).collect();
    histograms.sort_by_key(|it| std::cmp::Reverse(it.counts.iter().sum::<u64>()));
    histograms.truncate(selection.top.unwrap_or(usize::MAX));
    if let Some(first) = histograms.first() {
        let metric = &profile.metrics[first.metric];
        // Those of one metric have the same buckets; others would be drawn at wrong places.
        let alike = histograms
            .iter()
            .filter(|it| (it.metric, &it.bounds) == (first.metric, &first.bounds));
        let bars = alike.map(|it| Drawn {
            name: named(profile, it.holder, &it.of),
            points: shares(it),
        });
        let title = format!("{} ({}), % of samples by bucket", metric.name, metric.unit);
        let across = Across::Buckets(&first.bounds, &metric.unit);
        return Some(draw(&title, across, &bars.collect::<Vec<_>>()));
    }
    let lines = selection.lines(profile);
    let (first, _) = lines.first()?;
    let metric = &profile.metrics[first.metric];
    let drawn = lines.iter().map(|(line, _)| Drawn {
        name: named(profile, line.holder, &line.of),
        points: points(profile, line),
    });
    let title = match metric.shown_unit() {
        unit if unit.is_empty() => metric.name.clone(),
        unit => format!("{} ({unit})", metric.name),
    };
    Some(draw(&title, Across::Seconds, &drawn.collect::<Vec<_>>()))
}

/// What the picture is drawn over.
#[derive(Clone, Copy)]
enum Across<'a> {
    Seconds,
    /// Numbers of buckets: by the largest value of each, in this unit. The last has none.
    Buckets(&'a [f64], &'a str),
}

impl Across<'_> {
    /// Where there are names below the picture, and which.
    fn names(self, (x0, x1): (f64, f64)) -> Vec<(f64, String)> {
        match self {
            Self::Seconds => (0..=4)
                .map(|part| x0 + f64::from(part) / 4.0 * (x1 - x0))
                .map(|at| (at, format!("{} s", short(at))))
                .collect(),
            Self::Buckets(bounds, unit) => {
                let step = bounds.len().div_ceil(8).max(1);
                let ends = (0_u32..).zip(bounds).step_by(step);
                let name = |(at, end): (u32, &f64)| {
                    let unit = if at == 0 { unit } else { "" };
                    let name = format!("\u{2264} {} {unit}", short(*end));
                    (f64::from(at), name.trim_end().to_owned())
                };
                let mut names: Vec<(f64, String)> = ends.map(name).collect();
                // The last bucket is beyond them, and takes the place of a name that is too near.
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

struct Drawn {
    name: String,
    /// Pieces without gaps.
    points: Vec<Vec<(f64, f64)>>,
}

fn named(profile: &Profile, holder: usize, of: &str) -> String {
    let label = &profile.holders[holder].label;
    match of {
        "" => label.clone(),
        of => format!("{label}, {of}"),
    }
}

/// By the ends of windows, in pieces where windows have no value.
fn points(profile: &Profile, line: &Line) -> Vec<Vec<(f64, f64)>> {
    let shown = line.shown(&profile.metrics[line.metric], &profile.windows);
    let points = shown.map(|(at, y)| (profile.windows[at].1, y));
    let points: Vec<(f64, f64)> = points.collect();
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
    let points = of.counts.iter().zip(0_u32..);
    let points = points.map(|(count, at)| (f64::from(at), 100.0 * float(*count) / all));
    vec![points.collect()]
}

fn draw(title: &str, across: Across<'_>, all: &[Drawn]) -> String {
    let points = || all.iter().flat_map(|it| it.points.iter().flatten());
    let span = |pick: fn(&(f64, f64)) -> f64| {
        let low = points().map(pick).fold(0.0, f64::min);
        let high = points().map(pick).fold(f64::MIN_POSITIVE, f64::max);
        (low, high)
    };
    let ((x0, x1), (y0, y1)) = (span(|it| it.0), span(|it| it.1));
    let (left, right, top, bottom) = FRAME;
    let x = |value: f64| left + (right - left) * (value - x0) / (x1 - x0);
    let y = |value: f64| bottom - (bottom - top) * (value - y0) / (y1 - y0);
    #[expect(clippy::cast_precision_loss, reason = "a handful of names")]
    let height = HEIGHT + NAME * all.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{left}\" y=\"24\" font-size=\"15\">{}</text>\n",
        escaped(title)
    );
    for part in 0..=4 {
        let at_y = y0 + f64::from(part) / 4.0 * (y1 - y0);
        let py = y(at_y);
        let _ = writeln!(
            text,
            "<path d=\"M{left} {py:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            py + 4.0,
            short(at_y),
        );
    }
    for (at, name) in across.names((x0, x1)) {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(at),
            bottom + 18.0,
            escaped(&name),
        );
    }
    for (at, drawn) in all.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        for piece in &drawn.points {
            let mut path = String::new();
            for (px, py) in piece {
                let _ = write!(path, "{:.1},{:.1} ", x(*px), y(*py));
            }
            let path = path.trim_end();
            match piece.as_slice() {
                [(px, py)] => {
                    let (cx, cy) = (x(*px), y(*py));
                    let _ = writeln!(
                        text,
                        "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"2\" fill=\"{colour}\"/>"
                    );
                }
                _ => {
                    let _ = writeln!(
                        text,
                        "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" \
                         stroke-width=\"1.5\"/>"
                    );
                }
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a handful of names")]
        let place = HEIGHT + NAME * at as f64;
        let _ = writeln!(
            text,
            "<rect x=\"{left}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{place:.1}\">{}</text>",
            place - 9.0,
            left + 16.0,
            escaped(&drawn.name)
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Three digits, with a prefix of powers of a thousand.
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

/// Text between tags. Characters that XML does not have are replaced.
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
