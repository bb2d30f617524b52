//! The screen that a table is drawn on.

/// Columns of a screen of unknown size.
const DEFAULT_WIDTH: usize = 80;

/// The screen that a table is drawn on. Other formats do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Number of columns; None for lines of any length, with full names.
    pub width: Option<usize>,
    /// Number of lines; None shows every row.
    pub height: Option<usize>,
    /// Whether numbers have all digits instead of three with a prefix.
    pub exact: bool,
    /// Whether each window is drawn over the previous one, with all notes.
    pub in_place: bool,
}

impl Default for Screen {
    /// The screen of a file or a pipe.
    fn default() -> Self {
        Self {
            width: Some(DEFAULT_WIDTH),
            height: None,
            exact: false,
            in_place: false,
        }
    }
}

impl Screen {
    /// The least width of a table line, even on a narrower screen.
    pub const MIN_WIDTH: usize = 20;

    /// A terminal with this many columns and lines; 0 is unknown.
    #[must_use]
    pub fn for_terminal(columns: u16, lines: u16) -> Self {
        let known = |number: u16| (number > 0).then(|| usize::from(number));
        Self {
            width: known(columns).or(Some(DEFAULT_WIDTH)),
            height: known(lines),
            ..Self::default()
        }
    }

    /// The width of the longest line; None if lines may have any length.
    pub(super) fn line_width(&self) -> Option<usize> {
        self.width.map(|width| width.max(Self::MIN_WIDTH))
    }
}
