//! Expressions, and their text as formulas.

use proptest::prelude::*;

use super::{
    super::{expression::parse, mapfile::matches, node::formula},
    Counts,
};
use crate::formula::Formula;

fn value(text: &str, events: &[(&str, f64)]) -> f64 {
    let node = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let text = formula(&node, 10_000).unwrap();
    let counts = Counts::named(events);
    let value = Formula::parse(&text).unwrap().evaluate(&counts);
    value
        .unwrap_or_else(|reason| panic!("{text}: {reason}"))
        .value
}

#[test]
fn expressions_have_the_values_that_perf_computes() {
    let events = [("A", 6.0), ("B", 3.0), ("C", 0.0)];
    for (text, expected) in [
        ("A / B - 1", 1.0),
        ("d_ratio(A, B) * 2", 4.0),
        ("max(1 - (A + B), 0)", 0.0),
        ("min(A, B, 2)", 2.0),
        ("-A + B", -3.0),
        ("A - -B", 9.0),
        ("1e-1 * A", 0.6),
        ("1 if A > B else 2", 1.0),
        ("1 if A < B else 2 if C else 3", 3.0),
        ("(A > 5) & (B > 5)", 0.0),
        ("(A > 5) | (B > 5)", 1.0),
        ("1 if (A > 5) ^ (B > 2) else 7", 7.0),
        ("A < B | A > 5", 1.0),
        ("(A if C == 0 else B) * 2", 12.0),
        ("[A + B] / 3", 3.0),
    ] {
        let actual = value(text, &events);
        assert!((actual - expected).abs() < 1e-12, "{text} = {actual}");
    }
}

#[test]
fn wrong_expressions_are_refused_with_a_reason() {
    for (text, reason) in [
        (
            "A +",
            "its expression is not in perf's grammar from column 4",
        ),
        (
            "A B",
            "its expression is not in perf's grammar from column 3",
        ),
        ("f(A)", "its expression calls f, which is no function here"),
        (
            "max(A)",
            "its expression calls max, which is no function here",
        ),
        (
            "1e999",
            "its expression is not in perf's grammar from column 6",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err(), reason, "{text}");
    }
    let deep = format!("{}A{}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(parse(&deep).unwrap_err().contains("characters"));
    let deep = format!("{}A{}", "(".repeat(100), ")".repeat(100));
    assert!(parse(&deep).unwrap_err().contains("nested deeper"));
    assert!(parse(&format!("{}A", "-".repeat(1_000))).is_err());
}

#[test]
fn expressions_of_mapfile_match_as_in_perf() {
    for (expression, name, fits) in [
        ("GenuineIntel-6-8F", "GenuineIntel-6-8F", true),
        ("GenuineIntel-6-8F", "GenuineIntel-6-8F-8", false),
        ("GenuineIntel-6-6[AC]", "GenuineIntel-6-6C", true),
        (
            "GenuineIntel-6-55-[56789ABCDEF]",
            "GenuineIntel-6-55-4",
            false,
        ),
        (
            "GenuineIntel-6-55-[56789ABCDEF]",
            "GenuineIntel-6-55-7",
            true,
        ),
        ("GenuineIntel-6-(97|9A|B7)", "GenuineIntel-6-B7", true),
        (
            "AuthenticAMD-23-([12][0-9A-F]|[0-9A-F])",
            "AuthenticAMD-23-1",
            true,
        ),
        (
            "AuthenticAMD-25-([245][[:xdigit:]]|[[:xdigit:]])",
            "AuthenticAMD-25-11",
            false,
        ),
        ("AuthenticAMD-25-[[:xdigit:]]+", "AuthenticAMD-25-11", true),
        ("a*b?.", "aaac", true),
        ("[a", "a", false),
        ("(((((a+)+)+)+)+)+", "aaaaaaaaaaaaaaaaaaaaaaaa", true),
        // Its compiled form is too large.
        ("a{1000}{1000}", "a", false),
    ] {
        assert_eq!(matches(expression, name), fits, "{expression} {name}");
    }
}

proptest! {
    /// Parsing any text, writing it as a formula, and parsing that formula never panics.
    #[test]
    fn no_text_panics(
        words in prop::collection::vec(
            prop::sample::select(&["A", "B.C", "cpu@X\\,cmask\\=1@", "1", "2.5e3", ".5", "(", ")",
                "+", "-", "*", "/", ",", "min(", "max(", "d_ratio(", "#slots", " if ", " else ",
                "<", ">=", "==", "&", "|", "^", "[", "]", "\\", "1e999"][..]),
            0..30,
        )
    ) {
        if let Ok(node) = parse(&words.concat())
            && let Some(text) = formula(&node, 10_000)
        {
            // `resolve` gives events names that a formula can have; this does the same.
            let text = text.replace(['/', ','], "_").replace("cmask=", "");
            drop(Formula::parse(&text));
        }
    }

    #[test]
    fn arithmetic_of_random_constants_agrees(a in 1_u32..1000, b in 1_u32..1000, c in 1_u32..1000) {
        let text = format!("({a} - X) * {b} / {c} if X > {b} else max({a}, X) - {c}");
        let (x, a, b, c) = (500.0, f64::from(a), f64::from(b), f64::from(c));
        let expected = if x > b { (a - x) * b / c } else { a.max(x) - c };
        prop_assert!((value(&text, &[("X", x)]) - expected).abs() < 1e-9);
    }
}
