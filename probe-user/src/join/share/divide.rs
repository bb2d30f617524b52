//! Exact division: parts of a whole number that add up to it.

use std::collections::BTreeMap;

/// `part / whole` of a count, rounded; 0 if `whole` is 0.
pub(super) fn fraction(count: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(count) * u128::from(part.min(whole));
    let whole = u128::from(whole);
    // The result is at most `count`, so it always fits.
    u64::try_from((product + whole / 2).checked_div(whole).unwrap_or(0)).unwrap_or(count)
}

/// The counts, scaled down to the sum `most` if their sum exceeds it.
pub(super) fn limited(most: u64, counts: &BTreeMap<u32, u64>) -> BTreeMap<u32, u64> {
    let total: u128 = counts.values().map(|count| u128::from(*count)).sum();
    if total <= u128::from(most) {
        return counts.clone();
    }
    divide(most, counts).unwrap_or_default()
}

/// Divides `total` exactly, in proportion to the weights, by Hamilton's method. Each key gets the
/// integer part of its quota; the keys with the largest fractions get one more, until nothing
/// remains. `None` if all weights are zero.
pub(super) fn divide<K: Copy + Ord>(
    total: u64,
    weights: &BTreeMap<K, u64>,
) -> Option<BTreeMap<K, u64>> {
    let sum: u128 = weights.values().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return None;
    }
    let due = |weight: u64| u128::from(total) * u128::from(weight);
    let whole = |weight| u64::try_from(due(weight) / sum).expect("a part of a 64-bit total");
    let mut parts: BTreeMap<K, u64> = weights
        .iter()
        .map(|(key, weight)| (*key, whole(*weight)))
        .collect();
    let left = total - parts.values().sum::<u64>();
    let mut fractions: Vec<(u128, K)> = weights
        .iter()
        .map(|(key, weight)| (due(*weight) % sum, *key))
        .collect();
    fractions.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, key) in fractions.into_iter().take(usize::try_from(left).ok()?) {
        *parts.get_mut(&key)? += 1;
    }
    Some(parts)
}
