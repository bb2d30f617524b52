//! Plots: axes, on pages and on terminals, and pictures in SVG.

mod axis;
mod plane;

pub use self::axis::Axis;
pub(crate) use self::{
    axis::extent,
    plane::{Look, Plane, PlotSeries},
};

/// A number with three digits and an SI prefix.
pub(crate) fn short(value: f64) -> String {
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
pub(crate) fn escaped(text: &str) -> String {
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
