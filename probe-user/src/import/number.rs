//! Numbers as perf and documents print them in any locale.
//!
//! A mark between digits is a decimal mark, or separates groups of digits. perf groups counts, and
//! prints fractions with two decimals (old versions with six), so the number of digits behind the
//! last mark decides. Only a single `.` or `,` before three or four digits is ambiguous.

/// Marks that only separate groups: apostrophes, no-break and thin spaces, Pashto's comma, and the
/// replacement character, which stands for such a space in another encoding than UTF-8.
const GROUPING: [char; 7] = [
    '\'', '\u{2019}', '\u{a0}', '\u{2009}', '\u{202f}', '\u{66c}', '\u{fffd}',
];

/// Marks that may begin a fraction. The last is Pashto's, which never separates groups.
const DECIMAL: [char; 3] = ['.', ',', '\u{66b}'];

/// What is known of a number before it is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notation {
    /// The decimal mark of the text that the number is in; None: unknown.
    pub(super) decimal: Option<char>,
    /// Whether the number is whole.
    pub(super) whole: bool,
}

/// Whether the text consists of digits and marks only, and begins with a digit.
pub(super) fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || is_mark(c))
}

fn is_mark(c: char) -> bool {
    GROUPING.contains(&c) || DECIMAL.contains(&c)
}

/// The mark before the fraction of a number that is not grouped; None without a fraction.
pub(super) fn decimal_mark(ungrouped: &str) -> Option<char> {
    let mut marks = ungrouped.chars().filter(|c| is_mark(*c));
    let mark = marks.next().filter(|mark| DECIMAL.contains(mark));
    mark.filter(|_| marks.next().is_none() && is_number(ungrouped))
}

/// Reads a number.
///
/// # Errors
/// The text is no number, or could be two different ones.
pub(super) fn parse(text: &str, notation: Notation) -> Result<f64, String> {
    let invalid = || format!("{text} is no count");
    if !is_number(text) {
        return Err(invalid());
    }
    let marks: Vec<char> = text.chars().filter(|c| is_mark(*c)).collect();
    let parts: Vec<&str> = text.split(is_mark).collect();
    let [groups @ .., tail] = &parts[..] else {
        return Err(invalid());
    };
    let Some((last, before)) = marks.split_last() else {
        return tail.parse().map_err(|_| invalid());
    };
    let alone = before.is_empty();
    let has_fraction = match notation.decimal {
        _ if !DECIMAL.contains(last) || before.contains(last) => false,
        _ if *last == '\u{66b}' || !alone => true,
        _ if !is_grouped(&parts) => true,
        // Ambiguous: the number is whole but has the text's decimal mark, or it may have a fraction
        // and the decimal mark is unknown.
        Some(decimal) if notation.whole && decimal == *last => return Err(ambiguous(text)),
        None if !notation.whole => return Err(ambiguous(text)),
        decimal => decimal == Some(*last),
    };
    // A fraction with another mark than that of its text is a damaged number.
    let contradicts = has_fraction && notation.decimal.is_some_and(|mark| mark != *last);
    let (whole, separators) = if has_fraction {
        (groups, before)
    } else {
        (&parts[..], &marks[..])
    };
    let uniform = separators.windows(2).all(|pair| pair[0] == pair[1]);
    if contradicts || tail.is_empty() || !uniform || whole.len() > 1 && !is_grouped(whole) {
        return Err(invalid());
    }
    let digits = whole.concat();
    let plain = if has_fraction {
        format!("{digits}.{tail}")
    } else {
        digits
    };
    plain.parse().map_err(|_| invalid())
}

fn ambiguous(text: &str) -> String {
    format!(
        "{text} is one number if its mark separates thousands and another if it is a decimal \
         mark: run perf with LC_ALL=C"
    )
}

/// Whether these are groups of digits: of three, of four (Hokkien), or of two before the last three
/// (India).
fn is_grouped(parts: &[&str]) -> bool {
    let [first, inner @ .., last] = parts else {
        return false;
    };
    let size = inner.first().map_or(last.len(), |group| group.len());
    let regular = inner.iter().all(|group| group.len() == size);
    let sizes = matches!((size, last.len()), (3, 3) | (4, 4) | (2, 3));
    // No grouped number begins with a zero.
    let begins = !first.is_empty() && first.len() <= size && !first.starts_with('0');
    regular && sizes && begins
}
