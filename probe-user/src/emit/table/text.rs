//! Text fitted to columns of a terminal.

use unicode_width::UnicodeWidthStr as _;

/// Marks text that was cut out.
const ELLIPSIS: &str = "…";

/// The number of columns that a text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The prefixes of a text: end and width of each. Widths of characters do not add up, since several
/// may be drawn as one.
fn prefixes(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let ends = text
        .char_indices()
        .map(|(at, _)| at)
        .skip(1)
        .chain([text.len()]);
    ends.map(|end| (end, width(&text[..end])))
}

/// The suffixes of a text, shortest first: start and width of each.
fn suffixes(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let starts = text.char_indices().rev().map(|(at, _)| at);
    starts.map(|start| (start, width(&text[start..])))
}

/// The longest prefix of at most `max_width` columns.
fn longest_prefix(text: &str, max_width: usize) -> &str {
    let fits = prefixes(text).take_while(|(_, width)| *width <= max_width);
    &text[..fits.last().map_or(0, |(end, _)| end)]
}

/// A text with measured prefixes and suffixes, to be cut many times.
pub(in crate::emit) struct MeasuredText<'a> {
    text: &'a str,
    prefixes: Vec<(usize, usize)>,
    suffixes: Vec<(usize, usize)>,
}

impl<'a> MeasuredText<'a> {
    /// Measures a text for cuts of at most `max_width` columns.
    pub(in crate::emit) fn new(text: &'a str, max_width: usize) -> Self {
        let fits = |(_, width): &(usize, usize)| *width <= max_width;
        Self {
            text,
            prefixes: prefixes(text).take_while(fits).collect(),
            suffixes: suffixes(text).take_while(fits).collect(),
        }
    }

    /// The text in at most `max_width` columns: a prefix of at most `beginning` columns, a mark,
    /// and as much of the end as fits.
    pub(in crate::emit) fn cut(&self, max_width: usize, beginning: usize) -> String {
        let longest = |parts: &[(usize, usize)], max_width: usize| {
            let fits = parts.iter().take_while(|(_, width)| *width <= max_width);
            fits.last().copied()
        };
        let width_left = max_width.saturating_sub(width(ELLIPSIS));
        let (end, taken) = longest(&self.prefixes, beginning.min(width_left)).unwrap_or((0, 0));
        let start =
            longest(&self.suffixes, width_left - taken).map_or(self.text.len(), |(start, _)| start);
        let (head, tail) = (&self.text[..end], &self.text[start..]);
        format!("{head}{ELLIPSIS}{tail}")
    }
}

/// A path without its first directories, in at most `max_width` columns; None if even the last part
/// does not fit.
pub(in crate::emit) fn last_parts(path: &str, max_width: usize) -> Option<String> {
    let width_left = max_width.checked_sub(width(ELLIPSIS))?;
    let mut slashes = path.match_indices('/').map(|(at, _)| &path[at..]);
    let parts = slashes.find(|parts| width(parts) <= width_left)?;
    (parts.len() > 1).then(|| format!("{ELLIPSIS}{parts}"))
}

/// Lines of at most `max_width` columns, indented from the second on. They break at spaces, or
/// within a word that is wider than a line.
pub(crate) fn wrapped(text: &str, max_width: Option<usize>, indent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text.trim_end().to_owned();
    while let Some(max_width) = max_width
        && width(&rest) > max_width
    {
        let line = longest_prefix(&rest, max_width);
        // A break before the first word would not shorten the line.
        let first = line.len() - line.trim_start().len();
        let ends_at_word = rest[line.len()..].starts_with(' ');
        let space = line.rfind(' ').filter(|at| *at > first && !ends_at_word);
        let line = &line[..space.unwrap_or(line.len())];
        let remainder = rest[line.len()..].trim_start();
        let next = format!("{}{remainder}", " ".repeat(indent));
        lines.push(line.trim_end().to_owned());
        rest = next;
    }
    lines.push(rest);
    lines
}

/// Characters after which a name may be broken.
pub(super) const BREAKS: [char; 7] = ['_', '-', '/', '.', ',', ':', ' '];

/// The lines of a name, broken after punctuation and spaces, or within a part that is wider than a
/// line.
pub(super) fn broken_into_lines(name: &str, max_width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in name.split_inclusive(BREAKS) {
        let mut part = part;
        while !part.is_empty() {
            let line = lines.last_mut().expect("it begins with one");
            let joined = format!("{line}{part}");
            if width(joined.trim_end()) <= max_width {
                *line = joined;
                break;
            }
            if line.is_empty() {
                // At least one character, so that the loop ends.
                let first = part.chars().next().map_or(0, char::len_utf8);
                let (piece, rest) = part.split_at(longest_prefix(part, max_width).len().max(first));
                line.push_str(piece);
                part = rest;
            }
            lines.push(String::new());
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_break_at_spaces() {
        let text = " - ipc (4 rows): cycles never ran";
        assert_eq!(wrapped(text, None, 3), [text]);
        assert_eq!(
            wrapped(text, Some(20), 3),
            [" - ipc (4 rows):", "   cycles never ran"]
        );
        assert_eq!(wrapped("12345678", Some(5), 1), ["12345", " 678"]);
        assert_eq!(wrapped("  123456", Some(5), 1), ["  123", " 456"]);
        assert_eq!(wrapped("12345 678", Some(5), 0), ["12345", "678"]);
    }

    #[test]
    fn names_break_after_punctuation() {
        assert_eq!(
            broken_into_lines("branch_miss_ratio", 12),
            ["branch_miss_", "ratio"]
        );
        assert_eq!(broken_into_lines("mean latency", 8), ["mean", "latency"]);
        assert_eq!(broken_into_lines("abcdefgh_i", 4), ["abcd", "efgh", "_i"]);
        assert_eq!(broken_into_lines("容器", 1), ["容", "器"]);
    }

    #[test]
    fn omissions_are_marked() {
        let cut = |text, max_width, beginning| {
            MeasuredText::new(text, max_width).cut(max_width, beginning)
        };
        assert_eq!(cut("abcdefgh", 5, 2), "ab…gh");
        assert_eq!(cut("abcdefgh", 5, 0), "…efgh");
        assert_eq!(cut("容器容器", 4, 2), "容…");
        let path = "/system.slice/docker.service/init";
        assert_eq!(last_parts(path, 22).unwrap(), "…/docker.service/init");
        assert_eq!(last_parts(path, 8).unwrap(), "…/init");
        assert_eq!(last_parts(path, 5), None);
    }

    proptest! {
        #[test]
        fn nothing_is_wider_than_its_room(
            text in "(?s)[ a-z_/\u{300}\u{fe0f}容🇩👩1-3]{0,60}",
            max_width in 20_usize..40,
            indent in 0_usize..5,
        ) {
            let lines = wrapped(&text, Some(max_width), indent);
            for line in &lines {
                prop_assert!(width(line) <= max_width, "{line:?}");
            }
            let words = |text: &str| text.chars().filter(|char| *char != ' ').collect::<String>();
            prop_assert_eq!(words(&lines.concat()), words(&text));
            for line in broken_into_lines(&text, max_width) {
                prop_assert!(width(&line) <= max_width, "{line:?}");
            }
            let cut = MeasuredText::new(&text, max_width).cut(max_width, indent);
            prop_assert!(width(&cut) <= max_width);
        }
    }
}
