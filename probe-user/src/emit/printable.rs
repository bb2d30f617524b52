//! Output that is safe on a terminal. Users choose the names of processes and cgroups, which may
//! contain escape sequences that move the cursor, change the title or reverse the reading order.

use std::{borrow::Cow, io};

use serde::Serialize as _;
use serde_json::{Value, ser::Formatter};

/// The text in one line, with each character that a terminal acts on escaped as in Rust: `\u{1b}`,
/// `\n`. It is for people; JSON has escapes of its own.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(acts_on_terminal) {
        Cow::Owned(text.chars().flat_map(escaped).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// [`printable`] for values that identify series: different texts stay different. A backslash that
/// would read as the start of an escape is doubled.
#[must_use]
pub fn distinct(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return printable(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let begins_escape = |next: &char| "\\nrtu".contains(*next) || acts_on_terminal(*next);
        if char == '\\' && chars.peek().is_some_and(begins_escape) {
            out.push(char);
        }
        out.extend(escaped(char));
    }
    Cow::Owned(out)
}

/// [`printable`] for text of several lines.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    if text.contains(|char| char != '\n' && acts_on_terminal(char)) {
        let lines: Vec<_> = text.split('\n').map(printable).collect();
        Cow::Owned(lines.join("\n"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A JSON value in one line, by `PrintableJson`.
#[must_use]
pub fn printable_json(value: &Value) -> String {
    let mut line = Vec::new();
    let mut json = serde_json::Serializer::with_formatter(&mut line, PrintableJson);
    // Infallible: a JSON value is written into memory, and its text is UTF-8.
    let written = value.serialize(&mut json);
    debug_assert!(written.is_ok(), "{written:?}");
    String::from_utf8_lossy(&line).into_owned()
}

/// JSON in one line. `serde_json` leaves DEL and non-ASCII characters unescaped; this formatter
/// escapes those that a terminal acts on, with JSON escapes that any reader decodes.
pub(crate) struct PrintableJson;

impl Formatter for PrintableJson {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let plain = |byte: u8| (b' '..0x7f).contains(&byte);
        if fragment.bytes().all(plain) {
            return out.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(acts_on_terminal) {
            let (before, from) = rest.split_at(at);
            out.write_all(before.as_bytes())?;
            let mut chars = from.chars();
            let mut units = [0; 2];
            for unit in chars
                .next()
                .into_iter()
                .flat_map(|char| char.encode_utf16(&mut units).to_vec())
            {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

fn escaped(char: char) -> impl Iterator<Item = char> {
    let (plain, escaped) = if acts_on_terminal(char) {
        (None, Some(char.escape_default()))
    } else {
        (Some(char), None)
    };
    plain.into_iter().chain(escaped.into_iter().flatten())
}

/// Whether a terminal acts on a character: control characters (C0, DEL, C1), and invisible
/// characters of Unicode that reorder or join lines.
fn acts_on_terminal(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escape_sequences_are_escaped() {
        let cases = [
            ("\x1b[2J\x1b]0;title\x07", r"\u{1b}[2J\u{1b}]0;title\u{7}"),
            ("\u{9b}31mred", r"\u{9b}31mred"),
            ("a\rb\nc\td", r"a\rb\nc\td"),
            ("abc\u{202e}cba", r"abc\u{202e}cba"),
            (
                r"dev-by\x2duuid, ünïcode 容器",
                r"dev-by\x2duuid, ünïcode 容器",
            ),
        ];
        for (raw, shown) in cases {
            assert_eq!(printable(raw), shown);
        }
        assert_eq!(printable_lines("one\x1b\ntwo\n"), "one\\u{1b}\ntwo\n");
    }

    /// Any text, with many special characters.
    fn text() -> impl Strategy<Value = String> {
        let chars = prop_oneof![
            any::<char>(),
            prop::char::range('\0', '\u{9f}'),
            prop::char::range('\u{2000}', '\u{2070}'),
        ];
        prop::collection::vec(chars, 0..40).prop_map(String::from_iter)
    }

    #[test]
    fn distinct_texts_have_distinct_values() {
        let of_systemd = r"dev-by\x2duuid\";
        assert_eq!(distinct(of_systemd), of_systemd);
        let [newline, literal] = ["a\nb", r"a\nb"].map(distinct);
        assert_eq!([&*newline, &*literal], [r"a\nb", r"a\\nb"]);
    }

    /// Inverse of [`distinct`].
    fn decoded(text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('\\') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let control = match rest.chars().next() {
                Some('n') => Some('\n'),
                Some('r') => Some('\r'),
                Some('t') => Some('\t'),
                Some('\\') => Some('\\'),
                Some('u') => {
                    let (code, after) = rest[2..].split_once('}').unwrap();
                    rest = after;
                    let code = u32::from_str_radix(code, 16).unwrap();
                    out.push(char::from_u32(code).unwrap());
                    continue;
                }
                _ => None,
            };
            out.push(control.unwrap_or('\\'));
            rest = &rest[usize::from(control.is_some())..];
        }
        out + rest
    }

    proptest! {
        #[test]
        fn distinct_values_decode_to_the_text(text in r"[\\nurtx{}\x1b\n\t\u{202e}é]{0,12}") {
            let value = distinct(&text).into_owned();
            prop_assert!(!value.contains(acts_on_terminal), "{value:?}");
            prop_assert_eq!(decoded(&value), text);
        }

        #[test]
        fn no_character_that_acts_on_a_terminal_remains(text in text()) {
            let line = printable(&text).into_owned();
            prop_assert!(!line.contains(acts_on_terminal), "{line:?}");
            prop_assert!(!line.contains(char::is_control));
            // Escaping is idempotent.
            prop_assert!(matches!(printable(&line), Cow::Borrowed(_)));
            let lines = printable_lines(&text).into_owned();
            prop_assert!(!lines.contains(|char| char != '\n' && acts_on_terminal(char)));
            prop_assert_eq!(lines.matches('\n').count(), text.matches('\n').count());
        }

        #[test]
        fn json_decodes_to_the_value(text in text()) {
            let value = serde_json::json!({ text.as_str(): text });
            let line = printable_json(&value);
            prop_assert!(!line.contains(acts_on_terminal), "{line:?}");
            prop_assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
        }

        /// Harmless text stays unchanged and in order.
        #[test]
        fn harmless_text_is_unchanged(text in text()) {
            let plain: String = text.chars().filter(|char| !acts_on_terminal(*char)).collect();
            prop_assert!(matches!(printable(&plain), Cow::Borrowed(same) if same == plain));
            let line = printable(&text).into_owned();
            let mut rest = line.chars();
            prop_assert!(plain.chars().all(|char| rest.any(|other| other == char)));
        }
    }
}
