//! Numbers of all locales.

use proptest::prelude::*;

use super::super::number::{Notation, parse};

const WHOLE: Notation = Notation {
    decimal: None,
    whole: true,
};

/// Decimal mark and thousands separator of glibc's locales, and their sizes of groups: of the last
/// group, and of the others.
const LOCALES: &[(char, &str, [usize; 2])] = &[
    ('.', ",", [3, 3]),
    (',', ".", [3, 3]),
    (',', "\u{a0}", [3, 3]),
    (',', "\u{202f}", [3, 3]),
    ('.', "\u{202f}", [3, 3]),
    (',', "\u{fffd}", [3, 3]),
    ('.', "'", [3, 3]),
    ('.', "\u{2019}", [3, 3]),
    ('\u{66b}', "\u{66c}", [3, 3]),
    ('.', ",", [3, 2]),
    ('.', ",", [4, 4]),
    ('.', "", [3, 3]),
    (',', "", [3, 3]),
];

fn grouped(number: u64, separator: &str, [last, others]: [usize; 2]) -> String {
    let mut rest = number.to_string();
    let mut groups = Vec::new();
    let mut size = last;
    while !separator.is_empty() && rest.len() > size {
        groups.push(rest.split_off(rest.len() - size));
        size = others;
    }
    groups.push(rest);
    groups.reverse();
    groups.join(separator)
}

#[expect(clippy::cast_precision_loss, reason = "as far as a count is read")]
fn float(number: u64) -> f64 {
    number as f64
}

proptest! {
    /// perf prints counts whole or with two decimals.
    #[test]
    fn a_count_of_any_locale_reads_back(
        (decimal, separator, sizes) in prop::sample::select(LOCALES),
        number in prop_oneof![0..100_000_u64, any::<u64>()],
        cents in 0..100_u32,
        is_known: bool,
    ) {
        let whole = grouped(number, separator, sizes);
        let known = is_known.then_some(decimal);
        let notation = Notation { decimal: known, whole: true };
        prop_assert_eq!(parse(&whole, notation), Ok(float(number)));
        let notation = Notation { decimal: known, whole: false };
        let text = format!("{whole}{decimal}{cents:02}");
        let expected: f64 = format!("{number}.{cents:02}").parse().unwrap();
        prop_assert_eq!(parse(&text, notation), Ok(expected));
    }

    /// The number that is read has the digits of the text.
    #[test]
    fn no_digit_is_lost(text in "[0-9.,'\u{202f}]{1,12}", whole: bool) {
        let notation = Notation { whole, decimal: None };
        if let Ok(number) = parse(&text, notation) {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            let digits: f64 = digits.parse().unwrap();
            let fits = (0..12).any(|decimals| {
                let scaled = number * 10_f64.powi(decimals);
                (scaled - digits).abs() <= 1e-9 * digits
            });
            prop_assert!(fits, "{text} is read as {number}");
        }
    }
}

#[test]
fn ambiguous_numbers_are_refused() {
    let notation = |decimal, whole| Notation { decimal, whole };
    for (text, notation, expected) in [
        ("1,234", notation(None, false), None),
        ("1,234", notation(Some('.'), false), Some(1234.0)),
        ("1,234", notation(Some(','), false), Some(1.234)),
        ("1.234", notation(Some('.'), true), None),
        ("1.234", notation(Some(','), true), Some(1234.0)),
        ("0.123", notation(None, false), Some(0.123)),
        ("0.823047", notation(None, false), Some(0.823_047)),
    ] {
        match (parse(text, notation), expected) {
            (Ok(number), Some(expected)) => assert_eq!(number, expected, "{text}"),
            (Err(why), None) => assert!(why.ends_with("run perf with LC_ALL=C"), "{why}"),
            (read, _) => panic!("{text}: {read:?}"),
        }
    }
    for text in [
        "",
        "x",
        "-5",
        "1,,2",
        "1,23,4",
        "12,34,567,8",
        "1.5.",
        "1,234.5,6",
        "1e9",
    ] {
        assert_eq!(parse(text, WHOLE), Err(format!("{text} is no count")));
    }
}
