//! Suggestions for a mistyped name.

use std::{cmp::Ordering, fmt};

/// Number of suggestions: usually enough to include the right one, and few enough to read.
const SUGGESTIONS: usize = 3;

/// Up to three known names, the nearest first. Prints as a list for the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest(Vec<String>);

impl Nearest {
    /// The names of `known` most similar to `name`, ignoring case.
    pub(crate) fn to<S: AsRef<str>>(name: &str, known: impl IntoIterator<Item = S>) -> Self {
        let wanted = name.to_ascii_lowercase();
        let mut scored: Vec<(f64, String)> = known
            .into_iter()
            .map(|known| {
                let known = known.as_ref();
                let score = strsim::jaro_winkler(&wanted, &known.to_ascii_lowercase());
                (score, known.to_owned())
            })
            .collect();
        scored.sort_by(|(a, left), (b, right)| {
            b.partial_cmp(a)
                .unwrap_or(Ordering::Equal)
                .then_with(|| left.cmp(right))
        });
        scored.dedup_by(|a, b| a.1 == b.1);
        let names = scored.into_iter().map(|(_, name)| name);
        Self(names.take(SUGGESTIONS).collect())
    }
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&self.0.join(", "))
    }
}
