//! Draws windows over each other, by the control sequences that every terminal knows (ECMA-48).

use probe_user::emit::Screen;
use rustix::termios::Winsize;

/// Erases from the cursor to the end of its line.
const ERASE_LINE: &[u8] = b"\x1b[K";
/// Erases from the cursor to the end of the screen.
const ERASE_BELOW: &[u8] = b"\x1b[J";
/// Moves the cursor to the first column and line.
const HOME: &[u8] = b"\x1b[H";

/// Columns and lines of a terminal; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TerminalSize {
    pub(super) columns: u16,
    pub(super) lines: u16,
}

impl TerminalSize {
    /// Whether a window can be drawn over another: its number of lines on the terminal is known.
    pub(super) fn is_drawable(self) -> bool {
        usize::from(self.columns) >= Screen::MIN_WIDTH && self.lines > 0
    }
}

impl From<Winsize> for TerminalSize {
    fn from(size: Winsize) -> Self {
        Self {
            columns: size.ws_col,
            lines: size.ws_row,
        }
    }
}

/// The window on the screen.
#[derive(Debug, Default)]
pub(super) struct Drawing {
    last: Option<DrawnWindow>,
}

#[derive(Debug)]
struct DrawnWindow {
    window: Vec<u8>,
    /// The number of its lines above the cursor.
    lines: usize,
    /// Only a part of its lines is on the screen.
    is_cut: bool,
    /// The size of the terminal when it was drawn.
    size: TerminalSize,
}

impl Drawing {
    /// The bytes that draw as much of a window as fits, over the previous one. After a message the
    /// window is drawn below the message. If the terminal's size has changed, lines may have moved:
    /// everything is scrolled away, and the window is drawn on an empty screen. On a terminal that
    /// is too narrow the window is written as it is, below the previous one.
    pub(super) fn draw(&mut self, window: &[u8], size: TerminalSize, has_message: bool) -> Vec<u8> {
        if !size.is_drawable() {
            self.last = None;
            return window.to_vec();
        }
        let mut out = match &self.last {
            Some(last) if last.size != size => new_page(size),
            Some(last) if !has_message => last.to_first_line(),
            Some(_) | None => Vec::new(),
        };
        let lines = || window.split_inclusive(|byte| *byte == b'\n');
        let all = lines().count();
        let available = usize::from(size.lines).saturating_sub(1);
        let shown = if all <= available {
            all
        } else {
            available.saturating_sub(1)
        };
        for line in lines().take(shown) {
            // Erases before the text: after a full line some terminals would erase the last column.
            out.extend(ERASE_LINE);
            out.extend(line);
        }
        let lines = if shown < all {
            let notice = format!(" ... {} more lines: Ctrl-C shows them", all - shown);
            out.extend(ERASE_LINE);
            out.extend(notice.bytes().take(size.columns.into()));
            out.push(b'\n');
            shown + 1
        } else {
            shown
        };
        out.extend(ERASE_BELOW);
        self.last = Some(DrawnWindow {
            window: window.to_vec(),
            lines,
            is_cut: shown < all,
            size,
        });
        out
    }

    /// The bytes that leave the last window on the screen in full, and erase text typed below it.
    /// After a message, or at a new size, the window stays where it is; if it was cut, it is
    /// written again below.
    pub(super) fn end(&self, size: TerminalSize, has_message: bool) -> Vec<u8> {
        let Some(last) = &self.last else {
            return Vec::new();
        };
        let is_in_place = !has_message && last.size == size;
        let mut out = if is_in_place {
            last.to_first_line()
        } else {
            b"\r".to_vec()
        };
        out.extend(ERASE_BELOW);
        if is_in_place || last.is_cut {
            out.extend(&last.window);
        }
        out
    }
}

impl DrawnWindow {
    /// The bytes that move the cursor to the window's first line.
    fn to_first_line(&self) -> Vec<u8> {
        match self.lines {
            0 => b"\r".to_vec(),
            lines => format!("\r\x1b[{lines}A").into_bytes(),
        }
    }
}

/// The bytes that scroll everything away.
fn new_page(size: TerminalSize) -> Vec<u8> {
    let mut out = format!("\x1b[{};1H", size.lines).into_bytes();
    out.extend(vec![b'\n'; usize::from(size.lines)]);
    out.extend(HOME);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A model of a terminal: a screen, and the lines that were scrolled off its top.
    struct Terminal {
        size: TerminalSize,
        scrolled_off: Vec<String>,
        screen: Vec<String>,
        line: usize,
        column: usize,
    }

    impl Terminal {
        fn new(columns: u16, lines: u16) -> Self {
            Self {
                size: TerminalSize { columns, lines },
                scrolled_off: Vec::new(),
                screen: vec![String::new(); lines.into()],
                line: 0,
                column: 0,
            }
        }

        fn feed(&mut self, bytes: &[u8]) {
            let mut rest = std::str::from_utf8(bytes).unwrap();
            while let Some(char) = rest.chars().next() {
                rest = &rest[char.len_utf8()..];
                match char {
                    '\n' => {
                        // The kernel adds a carriage return.
                        self.column = 0;
                        if self.line + 1 < self.screen.len() {
                            self.line += 1;
                        } else {
                            self.scrolled_off.push(self.screen.remove(0));
                            self.screen.push(String::new());
                        }
                    }
                    '\r' => self.column = 0,
                    '\x1b' => {
                        let end = rest.find(|char: char| char.is_ascii_alphabetic()).unwrap();
                        self.control(&rest[1..end], &rest[end..=end]);
                        rest = &rest[end + 1..];
                    }
                    char => {
                        self.screen[self.line].truncate(self.column);
                        self.screen[self.line].push(char);
                        self.column += 1;
                        assert!(self.column <= self.size.columns.into());
                    }
                }
            }
        }

        fn control(&mut self, number: &str, name: &str) {
            match name {
                "A" => self.line = self.line.saturating_sub(number.parse().unwrap()),
                "K" => self.screen[self.line].truncate(self.column),
                "J" => {
                    self.screen[self.line].truncate(self.column);
                    self.screen[self.line + 1..].fill(String::new());
                }
                "H" => {
                    let line = number.split(';').next().unwrap();
                    self.line = line.parse().unwrap_or(1) - 1;
                    self.column = 0;
                }
                name => panic!("{name}"),
            }
        }

        /// The lines above the cursor, on the screen and scrolled off its top.
        fn lines_above_cursor(&self) -> Vec<&str> {
            let lines = self.scrolled_off.iter().chain(&self.screen[..self.line]);
            lines.map(String::as_str).collect()
        }

        fn visible_lines_above_cursor(&self) -> Vec<&str> {
            let lines = self.screen[..self.line].iter();
            lines.map(String::as_str).collect()
        }
    }

    const SIZE: TerminalSize = TerminalSize {
        columns: 20,
        lines: 6,
    };

    fn drawn(windows: &[&str]) -> Terminal {
        let mut terminal = Terminal::new(SIZE.columns, SIZE.lines);
        let mut drawing = Drawing::default();
        terminal.feed(b"$ pmuscope\n");
        for window in windows {
            terminal.feed(&drawing.draw(window.as_bytes(), SIZE, false));
        }
        terminal
    }

    #[test]
    fn a_window_replaces_the_one_before() {
        let terminal = drawn(&["1 s\na long line of this\nb\n", "2 s\na\n"]);
        assert_eq!(terminal.lines_above_cursor(), ["$ pmuscope", "2 s", "a"]);
        // At the bottom of the screen too.
        let five = "1\n2\n3\n4\n5\n";
        let terminal = drawn(&[five, "one\n", five, "six\nseven\n"]);
        assert_eq!(
            terminal.lines_above_cursor(),
            ["$ pmuscope", "six", "seven"]
        );
    }

    #[test]
    fn rows_that_do_not_fit_are_shown_at_the_end() {
        let mut terminal = drawn(&[]);
        let mut drawing = Drawing::default();
        terminal.feed(&drawing.draw(b"one\n", SIZE, false));
        let window = "1\n2\n3\n4\n5\n6\n7\n";
        for _ in 0..2 {
            terminal.feed(&drawing.draw(window.as_bytes(), SIZE, false));
            let all = ["$ pmuscope", "1", "2", "3", "4", " ... 3 more lines: C"];
            assert_eq!(terminal.lines_above_cursor(), all);
        }
        terminal.feed(b"^C");
        terminal.feed(&drawing.end(SIZE, false));
        let all = ["$ pmuscope", "1", "2", "3", "4", "5", "6", "7"];
        assert_eq!(terminal.lines_above_cursor(), all);
    }

    #[test]
    fn a_window_is_not_drawn_over_another_on_a_narrow_terminal() {
        let mut terminal = drawn(&["one\n"]);
        let mut drawing = Drawing::default();
        terminal.feed(&drawing.draw(b"two\n", SIZE, false));
        let narrow = TerminalSize { columns: 1, ..SIZE };
        assert_eq!(drawing.draw(b"three\n", narrow, false), b"three\n");
        terminal.feed(b"three\n");
        assert_eq!(drawing.end(narrow, false), b"");
        terminal.feed(&drawing.draw(b"four\n", SIZE, false));
        assert_eq!(
            terminal.lines_above_cursor(),
            ["$ pmuscope", "one", "two", "three", "four"]
        );
    }

    #[test]
    fn the_last_window_is_drawn_over_what_was_typed() {
        for (message, all) in [
            (false, &["$ pmuscope", "two"][..]),
            (true, &["$ pmuscope", "one", "two"]),
        ] {
            let mut terminal = drawn(&[]);
            let mut drawing = Drawing::default();
            terminal.feed(&drawing.draw(b"one\n", SIZE, false));
            terminal.feed(b"^C");
            terminal.feed(&drawing.draw(b"two\n", SIZE, message));
            terminal.feed(&drawing.end(SIZE, false));
            assert_eq!(terminal.lines_above_cursor(), all);
        }
    }

    #[test]
    fn a_message_is_not_overwritten() {
        let mut terminal = drawn(&[]);
        let mut drawing = Drawing::default();
        terminal.feed(&drawing.draw(b"one\n", SIZE, true));
        terminal.feed(b" WARN of something\n");
        terminal.feed(&drawing.draw(b"two\n", SIZE, true));
        terminal.feed(&drawing.draw(b"three\n", SIZE, false));
        let all = ["$ pmuscope", "one", " WARN of something", "three"];
        assert_eq!(terminal.lines_above_cursor(), all);
    }

    #[test]
    fn the_end_erases_no_message() {
        let mut terminal = drawn(&[]);
        let mut drawing = Drawing::default();
        let window = "1\n2\n3\n4\n5\n6\n";
        terminal.feed(&drawing.draw(b"one\n", SIZE, false));
        terminal.feed(b" WARN of something\n^C");
        terminal.feed(&drawing.end(SIZE, true));
        assert_eq!(
            terminal.lines_above_cursor(),
            ["$ pmuscope", "one", " WARN of something"]
        );
        assert_eq!(terminal.screen[terminal.line], "");
        // Lines that did not fit follow below.
        drawing.draw(window.as_bytes(), SIZE, false);
        assert!(drawing.end(SIZE, true).ends_with(window.as_bytes()));
    }

    #[test]
    fn a_new_size_starts_a_new_page() {
        let wide = TerminalSize {
            columns: 30,
            ..SIZE
        };
        let mut terminal = Terminal::new(wide.columns, wide.lines);
        let mut drawing = Drawing::default();
        terminal.feed(b"$ pmuscope\n");
        terminal.feed(&drawing.draw(b"1234567890123456789012345\n", wide, false));
        // Some terminals wrap the old lines to the new width, as this sets.
        terminal.size = SIZE;
        let lines = ["$ pmuscope", "12345678901234567890", "12345", "", "", ""];
        (terminal.screen, terminal.line) = (lines.map(str::to_owned).to_vec(), 3);
        terminal.feed(&drawing.draw(b"two\n", SIZE, false));
        assert_eq!(terminal.visible_lines_above_cursor(), ["two"]);
        assert_eq!(terminal.scrolled_off[..3], lines[..3]);
        terminal.feed(&drawing.draw(b"three\n", SIZE, false));
        assert_eq!(terminal.visible_lines_above_cursor(), ["three"]);
    }

    #[test]
    fn typed_text_is_removed() {
        let mut terminal = drawn(&[]);
        let mut drawing = Drawing::default();
        terminal.feed(&drawing.draw(b"one\ntwo\n", SIZE, false));
        terminal.feed(b"^C");
        terminal.feed(&drawing.end(SIZE, false));
        assert_eq!(terminal.screen[3], "");
        assert_eq!(terminal.lines_above_cursor(), ["$ pmuscope", "one", "two"]);
    }

    proptest! {
        /// The screen has the last window and nothing of earlier windows, below the output of
        /// before.
        #[test]
        fn only_the_last_window_is_shown(
            windows in prop::collection::vec(prop::collection::vec("[a-z]{0,20}", 1..6), 1..8),
        ) {
            let windows: Vec<String> = windows
                .iter()
                .map(|lines| lines.iter().map(|line| format!("{line}\n")).collect())
                .collect();
            let terminal = drawn(&windows.iter().map(String::as_str).collect::<Vec<_>>());
            let last = windows.last().unwrap().lines();
            let expected: Vec<&str> = ["$ pmuscope"].into_iter().chain(last).collect();
            prop_assert_eq!(terminal.lines_above_cursor(), expected);
        }
    }
}
