//! Controls the rate of false discoveries over all comparisons (Benjamini and Hochberg, JRSS B 57,
//! 1995, 289-300). The bound holds for independent tests and for those that vary together, as
//! metrics of a row do (Benjamini and Yekutieli, Annals of Statistics 29, 2001, 1165-1188).

use super::chance::float;

/// Largest expected share of discoveries that are chance.
pub(crate) const FALSE_RATE: f64 = 0.01;

/// The level of `p` at and below which a difference is a discovery. If there is none, the level
/// that the first one would need.
pub(super) fn level(mut probabilities: Vec<f64>) -> f64 {
    probabilities.sort_by(f64::total_cmp);
    let (mut level, mut step) = (0.0, 0.0);
    let each = FALSE_RATE / float(probabilities.len().max(1));
    for p in probabilities {
        step += each;
        if p <= step {
            level = step;
        }
    }
    if level > 0.0 { level } else { each }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_discoveries_raise_the_level() {
        let others = [0.2, 0.9, 0.5, 0.04];
        let level_with = |found: &[f64]| level([found, &others].concat());
        // Of five tests, a discovery needs 1% / 5. Of six, two discoveries need 2 x 1% / 6: 0.0032
        // alone would be none.
        assert!((level_with(&[0.5]) - 0.002).abs() < 1e-12);
        assert!((level_with(&[0.0019]) - 0.002).abs() < 1e-12);
        assert!((level_with(&[0.0001, 0.0032]) - 0.02 / 6.0).abs() < 1e-12);
        assert_eq!(level(Vec::new()), FALSE_RATE);
    }
}
