//! A large number with its 95% interval, as tables show it.

use super::table::thousands;

/// Widest interval that is shown as so many percent up and down: a wider one is not the same both
/// ways.
const EVEN: f64 = 0.2;

/// `1,500,000 ±5.0%`, or the ends of the interval where that says too little.
pub(super) fn large(value: f64, (low, high): (f64, f64)) -> String {
    let half = (high - low) / 2.0 / value;
    if half <= EVEN {
        format!("{} ±{:.1}%", thousands(value), half * 100.0)
    } else {
        let [value, low, high] = [value, low, high].map(thousands);
        format!("{value} [{low}, {high}]")
    }
}

#[cfg(test)]
mod tests {
    use super::large;

    #[test]
    fn a_wide_interval_has_its_ends() {
        assert_eq!(
            large(1_500_000.0, (1_425_000.0, 1_575_000.0)),
            "1,500,000 ±5.0%"
        );
        assert_eq!(large(32_768.0, (830.0, 182_500.0)), "32,768 [830, 182,500]");
        assert_eq!(large(0.0, (0.0, 120_259.0)), "0 [0, 120,259]");
    }
}
