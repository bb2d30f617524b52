//! Numbers in a table: three significant digits with an SI prefix, or all digits, with their error
//! if known.

use libm::hypot;

use crate::{
    derive::{Estimate, Value},
    window::{RunningTime, float},
};

/// An interval is shown as ±% if neither end is further from the value than this part of it.
const WIDE: f64 = 0.2;

/// An interval is shown as ±% if the shorter distance to an end is at least this part of the longer
/// distance.
const UNEVEN: f64 = 0.8;

/// SI prefixes and their factors, the largest first.
const PREFIXES: [(f64, &str); 7] = [
    (1e18, " E"),
    (1e15, " P"),
    (1e12, " T"),
    (1e9, " G"),
    (1e6, " M"),
    (1e3, " k"),
    (1.0, ""),
];

/// A value with its interval and running ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TableNumber {
    pub(super) value: f64,
    /// The ends of the value's 95% interval.
    pub(super) ends: Option<(f64, f64)>,
    /// The running ratio.
    pub(super) running_ratio: f64,
    /// The times from which `running_ratio` was computed, if known.
    pub(super) time: Option<RunningTime>,
    /// Whether the number is a sum with unknown parts.
    pub(super) at_least: bool,
}

impl TableNumber {
    /// An exact number.
    pub(super) fn plain(value: f64) -> Self {
        Self::from_estimate(&Estimate::exact(value))
    }

    /// A value with its interval.
    pub(super) fn from_estimate(estimate: &Estimate) -> Self {
        Self {
            value: estimate.value,
            ends: estimate.estimated_interval(),
            running_ratio: estimate.running_ratio,
            time: None,
            at_least: false,
        }
    }

    /// The number of a value, if it is one.
    pub(super) fn from_value(value: &Value) -> Option<Self> {
        let time = match value {
            Value::Counter(counter) => counter.time,
            _ => None,
        };
        value.estimate().map(|estimate| Self {
            time,
            ..Self::from_estimate(estimate)
        })
    }

    /// Adds another number. Intervals are combined as of independent samples. Running ratios are
    /// weighted by their times; if these are unknown, the smallest ratio applies to the sum.
    pub(super) fn add(&mut self, other: &Self) {
        let distances = |number: &Self| {
            let (low, high) = number.ends.unwrap_or((number.value, number.value));
            (number.value - low, high - number.value)
        };
        let ((low, high), (other_low, other_high)) = (distances(self), distances(other));
        let value = self.value + other.value;
        let ends = (
            value - hypot(low, other_low),
            value + hypot(high, other_high),
        );
        let time = self.time.zip(other.time).map(|(a, b)| RunningTime {
            enabled: a.enabled + b.enabled,
            running: a.running + b.running,
        });
        let running_ratio = match time {
            Some(RunningTime { enabled, running }) if enabled > 0 => {
                float(running) / float(enabled)
            }
            _ => self.running_ratio.min(other.running_ratio),
        };
        *self = Self {
            value,
            ends: self.ends.or(other.ends).map(|_| ends),
            running_ratio,
            time,
            at_least: self.at_least || other.at_least,
        };
    }

    /// The running ratio in percent; empty if it is 100%.
    pub(super) fn running_percent(&self) -> String {
        match self.running_ratio * 100.0 {
            99.5.. => String::new(),
            percent @ 0.5.. => format!("{percent:.0}"),
            _ => "<1".to_owned(),
        }
    }
}

/// The number format of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NumberFormat {
    /// Factor from the unit of the metric to the displayed unit.
    pub(super) factor: f64,
    /// Whether the numbers are counts, so that small ones have no decimals.
    pub(super) whole: bool,
    /// Whether to show all digits.
    pub(super) exact: bool,
    /// Whether the numbers are percentages, which have one decimal and no prefix.
    pub(super) percent: bool,
}

impl NumberFormat {
    /// Numbers in their own unit.
    pub(super) const fn new(whole: bool, exact: bool) -> Self {
        Self {
            factor: 1.0,
            whole,
            exact,
            percent: false,
        }
    }

    /// A number with its error: `1.50 M ±5.0%`, `32.8 [0.830, 182] k`.
    pub(super) fn text(self, number: &TableNumber) -> String {
        let value = number.value * self.factor;
        let text = match number.ends {
            Some((low, high)) => self.with_ends(value, (low * self.factor, high * self.factor)),
            None => self.plain(value),
        };
        if number.at_least {
            format!("≥{text}")
        } else {
            text
        }
    }

    fn with_error(self, value: f64, part: f64) -> String {
        format!("{} ±{:.1}%", self.plain(value), part * 100.0)
    }

    fn with_ends(self, value: f64, (low, high): (f64, f64)) -> String {
        if [value, low, high] == [0.0; 3] {
            // A percentage of 0 is undefined.
            return self.plain(value);
        }
        let (below, above) = (value - low, high - value);
        let (near, far) = (below.min(above), below.max(above));
        if far <= WIDE * value && near >= UNEVEN * far {
            return self.with_error(value, far / value);
        }
        if self.exact {
            let [value, low, high] = [value, low, high].map(|number| self.all_digits(number));
            return format!("{value} [{low}, {high}]");
        }
        let (factor, prefix) = self.prefix(if value == 0.0 { high } else { value });
        let [value, low, high] = [value, low, high].map(|number| self.significant(number, factor));
        format!("{value} [{low}, {high}]{prefix}")
    }

    fn plain(self, value: f64) -> String {
        if self.exact {
            return self.all_digits(value);
        }
        let (factor, prefix) = self.prefix(value);
        format!("{}{prefix}", self.significant(value, factor))
    }

    fn prefix(self, value: f64) -> (f64, &'static str) {
        if self.percent {
            (1.0, "")
        } else {
            prefix(value)
        }
    }

    fn significant(self, value: f64, factor: f64) -> String {
        if self.percent {
            return format!("{value:.1}");
        }
        if self.whole && factor == 1.0 && value.fract() == 0.0 {
            return format!("{value:.0}");
        }
        significant(value / factor)
    }

    fn all_digits(self, value: f64) -> String {
        let text = if self.whole {
            format!("{value:.0}")
        } else {
            value.to_string()
        };
        grouped(&text)
    }
}

/// A number of bytes, as in a column of bytes.
pub(crate) fn bytes_text(bytes: u64) -> String {
    NumberFormat::new(true, false).text(&TableNumber::plain(float(bytes)))
}

/// The texts of a column of exact numbers, aligned; `-` for None.
pub(crate) fn number_texts(values: impl Iterator<Item = Option<f64>>) -> Vec<String> {
    let form = NumberFormat::new(false, false);
    let text = |value: Option<f64>| match value {
        Some(0.0) => "0".to_owned(),
        Some(value) => form.text(&TableNumber::plain(value)),
        None => "-".to_owned(),
    };
    let mut texts: Vec<String> = values.map(text).collect();
    align(&mut texts);
    texts
}

/// Aligns the texts of a column with and without a prefix.
pub(super) fn align(texts: &mut [String]) {
    if texts.iter().any(|text| has_prefix(text)) {
        for text in texts.iter_mut().filter(|text| !has_prefix(text)) {
            text.push_str("  ");
        }
    }
}

/// Whether the text of a number ends in a prefix.
fn has_prefix(text: &str) -> bool {
    let mut prefixes = PREFIXES.iter().filter(|(_, prefix)| !prefix.is_empty());
    prefixes.any(|(_, prefix)| text.ends_with(prefix))
}

/// The prefix with which a number has at most three digits before the point.
fn prefix(value: f64) -> (f64, &'static str) {
    // This accounts for rounding: 999.5 is 1.00 k.
    let reaches = |(factor, _): &(f64, &str)| value.abs() >= 0.9995 * factor;
    let found = PREFIXES.into_iter().find(reaches);
    found.unwrap_or((1.0, ""))
}

/// Formats with three significant digits.
fn significant(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        99.95.. => format!("{value:.0}"),
        9.995.. => format!("{value:.1}"),
        0.9995.. => format!("{value:.2}"),
        0.09995.. => format!("{value:.3}"),
        0.009995.. => format!("{value:.4}"),
        0.0009995.. => format!("{value:.5}"),
        _ => format!("{value:.2e}"),
    }
}

/// Groups digits: 1234567.25 as 1,234,567.25.
fn grouped(text: &str) -> String {
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or(("", text), |rest| ("-", rest));
    let end = digits.find('.').unwrap_or(digits.len());
    let mut grouped = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at < end && (end - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COUNT: NumberFormat = NumberFormat::new(true, false);
    const RATIO: NumberFormat = NumberFormat {
        whole: false,
        ..COUNT
    };

    fn exact(form: NumberFormat) -> NumberFormat {
        NumberFormat {
            exact: true,
            ..form
        }
    }

    fn with_ends(value: f64, low: f64, high: f64) -> TableNumber {
        TableNumber {
            ends: Some((low, high)),
            ..TableNumber::plain(value)
        }
    }

    #[test]
    fn numbers_have_three_digits_and_a_prefix() {
        let cases = [
            (47_038_780.0, "47.0 M"),
            (1_234_567_890.0, "1.23 G"),
            (999.0, "999"),
            (999_499.0, "999 k"),
            (999_500.0, "1.00 M"),
            (7.0, "7"),
            (7.25, "7.25"),
            (0.0, "0"),
            (2e21, "2000 E"),
        ];
        for (value, text) in cases {
            assert_eq!(COUNT.text(&TableNumber::plain(value)), text);
        }
        let cases = [
            (0.5, "0.500"),
            (0.0123, "0.0123"),
            (0.000_12, "1.20e-4"),
            (12.0, "12.0"),
            (999.96, "1.00 k"),
            (-1_500.0, "-1.50 k"),
        ];
        for (value, text) in cases {
            assert_eq!(RATIO.text(&TableNumber::plain(value)), text);
        }
        let seconds = NumberFormat {
            factor: 1e-9,
            ..RATIO
        };
        assert_eq!(seconds.text(&TableNumber::plain(740_673_695.0)), "0.741");
    }

    #[test]
    fn percentages_have_one_decimal_and_no_prefix() {
        let percent = NumberFormat {
            factor: 100.0,
            percent: true,
            ..RATIO
        };
        let text = |value| percent.text(&TableNumber::plain(value));
        assert_eq!(
            [0.0, 0.0004, 1.5, 128.0].map(text),
            ["0.0", "0.0", "150.0", "12800.0"]
        );
    }

    #[test]
    fn exact_numbers_have_all_digits() {
        let text = |form, value| exact(form).text(&TableNumber::plain(value));
        assert_eq!(text(COUNT, 47_038_780.0), "47,038,780");
        assert_eq!(text(COUNT, -123_456.0), "-123,456");
        assert_eq!(text(RATIO, 1_234.567_89), "1,234.56789");
        assert_eq!(text(RATIO, 0.5), "0.5");
        let wide = with_ends(327_680.0, 245_760.0, 409_600.0);
        assert_eq!(exact(COUNT).text(&wide), "327,680 [245,760, 409,600]");
    }

    #[test]
    fn a_wide_or_uneven_interval_has_its_ends() {
        let even = with_ends(1_500_000.0, 1_425_000.0, 1_575_000.0);
        assert_eq!(COUNT.text(&even), "1.50 M ±5.0%");
        let wide = with_ends(32_768.0, 830.0, 182_500.0);
        assert_eq!(COUNT.text(&wide), "32.8 [0.830, 182] k");
        let none = with_ends(0.0, 0.0, 120_259.0);
        assert_eq!(COUNT.text(&none), "0 [0, 120] k");
        assert_eq!(COUNT.text(&with_ends(0.0, 0.0, 0.0)), "0");
        assert_eq!(exact(COUNT).text(&with_ends(0.0, 0.0, 0.0)), "0");
        let uneven = with_ends(100.0, 99.0, 119.0);
        assert_eq!(RATIO.text(&uneven), "100 [99.0, 119]");
    }

    #[test]
    fn sums_have_the_error_of_their_parts() {
        let mut sum = with_ends(100.0, 97.0, 103.0);
        sum.add(&with_ends(50.0, 46.0, 54.0));
        assert_eq!(sum, with_ends(150.0, 145.0, 155.0));
        sum.add(&TableNumber {
            running_ratio: 0.5,
            ..TableNumber::plain(10.0)
        });
        assert_eq!((sum.ends, sum.running_ratio), (Some((155.0, 165.0)), 0.5));
    }

    /// A row that hardly ran has little weight in the sum.
    #[test]
    fn the_running_ratio_of_a_sum_is_weighted_by_time() {
        let counted = |running_ratio, enabled, running| TableNumber {
            running_ratio,
            time: Some(RunningTime { enabled, running }),
            ..TableNumber::plain(1.0)
        };
        let mut sum = counted(1.0, 9_900, 9_900);
        sum.add(&counted(0.01, 100, 1));
        assert_eq!(
            sum,
            TableNumber {
                value: 2.0,
                ..counted(0.9901, 10_000, 9_901)
            }
        );
        // Shares have no known time.
        sum.add(&TableNumber {
            running_ratio: 0.5,
            ..TableNumber::plain(1.0)
        });
        assert_eq!((sum.running_ratio, sum.time), (0.5, None));
    }

    #[test]
    fn a_running_ratio_below_100_percent_is_shown() {
        let text = |running_ratio| {
            let number = TableNumber {
                running_ratio,
                ..TableNumber::plain(1.0)
            };
            number.running_percent()
        };
        assert_eq!([1.0, 0.996, 0.25, 0.001].map(text), ["", "", "25", "<1"]);
    }

    proptest! {
        /// The displayed number equals the value within half of its last digit.
        #[test]
        fn three_digits_are_right(value in 1e-9..1e19_f64) {
            let text = RATIO.text(&TableNumber::plain(value));
            let (digits, name) = text.split_once(' ').unwrap_or((&text, ""));
            let prefix = PREFIXES.iter().find(|(_, prefix)| prefix.trim() == name).unwrap();
            let shown = digits.parse::<f64>().unwrap() * prefix.0;
            prop_assert!((shown / value - 1.0).abs() < 0.00502, "{text}");
            let mantissa = digits.split('e').next().unwrap().trim_start_matches(['0', '.']);
            let significant = mantissa.chars().filter(char::is_ascii_digit).count();
            prop_assert_eq!(significant, 3, "{}", text);
            prop_assert_eq!(has_prefix(&text), !name.is_empty());
        }

        #[test]
        fn exact_numbers_parse_back_to_the_value(
            value in any::<f64>().prop_filter("finite", |it| it.is_finite()),
        ) {
            let text = exact(RATIO).text(&TableNumber::plain(value));
            prop_assert_eq!(text.replace(',', "").parse::<f64>().unwrap(), value);
        }
    }
}
