//! Axes: scales with labels.

use super::short;

/// The least and the largest of some values; infinities without values.
pub(crate) fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
        (low.min(it), high.max(it))
    })
}

/// An axis of a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// The values at its two ends.
    pub(crate) ends: (f64, f64),
    /// Whether the scale is logarithmic.
    logarithmic: bool,
    /// The labels: their values on the axis, and their texts.
    pub(crate) labels: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis with these labels.
    #[must_use]
    pub const fn linear(ends: (f64, f64), labels: Vec<(f64, String)>) -> Self {
        Self {
            ends,
            logarithmic: false,
            labels,
        }
    }

    /// A linear axis with labels at both ends of each of `parts` equal parts.
    pub(crate) fn divided(ends: (f64, f64), parts: u32, label: impl Fn(f64) -> String) -> Self {
        let (low, high) = ends;
        let position = |part: u32| low + f64::from(part) / f64::from(parts) * (high - low);
        let labels = (0..=parts).map(|part| (position(part), label(position(part))));
        Self::linear(ends, labels.collect())
    }

    /// A logarithmic axis with labels at powers of ten. Each end is a factor of `beyond` outside
    /// the values.
    pub(crate) fn powers_of_ten(values: impl Iterator<Item = f64>, beyond: f64) -> Self {
        let (low, high) = extent(values.filter(|it| *it > 0.0 && it.is_finite()));
        let ends = match low.is_finite() {
            true => (low / beyond, high * beyond),
            false => (1.0, 10.0),
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a power of ten of a double"
        )]
        let powers = (ends.0.log10().ceil() as i32)..=(ends.1.log10().floor() as i32);
        let label = |at: f64| (at, short(at));
        let mut labels: Vec<(f64, String)> =
            powers.map(|power| label(10_f64.powi(power))).collect();
        if labels.len() < 2 {
            labels = [ends.0, ends.1].map(label).to_vec();
        }
        Self {
            ends,
            logarithmic: true,
            labels,
        }
    }

    /// Relative position of a value: 0 at the low end, 1 at the high end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let scaled = |value: f64| match self.logarithmic {
            true => value.log10(),
            false => value,
        };
        let (low, high) = self.ends;
        (scaled(value) - scaled(low)) / (scaled(high) - scaled(low))
    }

    /// The cell of a value on a terminal, from 0 at the low end to `last` at the high end. Values
    /// beyond an end are in the cell of that end.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and last"
    )]
    #[must_use]
    pub fn cell(&self, value: f64, last: u16) -> u16 {
        let end = f64::from(last);
        (self.place(value) * end).round().clamp(0.0, end) as u16
    }
}
