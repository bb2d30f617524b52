//! What a table is drawn on.

/// Columns of a screen whose size is not known.
const USUAL_WIDTH: usize = 80;

/// What a table is drawn on; other formats do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns of characters; None for lines of any length, with names in full.
    pub width: Option<usize>,
    /// Lines; None for every row.
    pub height: Option<usize>,
    /// All digits, in place of three with a prefix.
    pub exact: bool,
    /// Whether each window is drawn over the one before. Each has all notes then.
    pub in_place: bool,
}

impl Default for Screen {
    /// Of a file or a pipe.
    fn default() -> Self {
        Self {
            width: Some(USUAL_WIDTH),
            height: None,
            exact: false,
            in_place: false,
        }
    }
}

impl Screen {
    /// The least width of a line of a table, however narrow the screen is.
    pub const LEAST_WIDTH: usize = 20;

    /// A terminal of so many columns and lines; 0 where that is not known.
    #[must_use]
    pub fn of_terminal(columns: u16, lines: u16) -> Self {
        let known = |number: u16| (number > 0).then(|| usize::from(number));
        Self {
            width: known(columns).or(Some(USUAL_WIDTH)),
            height: known(lines),
            ..Self::default()
        }
    }

    /// How long a line may be.
    pub(super) fn line(&self) -> Option<usize> {
        self.width.map(|width| width.max(Self::LEAST_WIDTH))
    }
}
