//! Top: windows on a terminal, with a view that keys move over rows, columns and time.
//!
//! It knows neither sessions nor recordings: it is given [`Sheets`] and keys, and draws. The same
//! view shows live runs and replays.

mod chart;
mod choice;
mod draw;
mod kept;
mod keys;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

pub use self::keys::Wanted;
use self::{choice::Choice, kept::Kept};
use crate::emit::{Sheet, SheetColumn, Sheets};

/// Messages that are kept to be read.
const MESSAGES: usize = 100;

/// Where windows come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// A running session: a window comes whenever it ends.
    Live,
    /// A recording: the next window comes when it is wanted.
    Replay {
        /// How many times faster than it was recorded.
        speed: f64,
        /// Whether the last window was given.
        ended: bool,
    },
}

/// What is drawn over the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Over {
    #[default]
    Nothing,
    Help,
    /// Notes of the window and messages, from this line on.
    Notes(usize),
}

/// The view, with the windows that it keeps.
pub struct Top {
    source: Source,
    kept: Kept,
    /// Number of the window that is shown while others may come; None: the last one.
    paused: Option<u64>,
    /// The title of the sheet that is shown.
    sheet: &'static str,
    /// What is chosen in each sheet.
    choices: BTreeMap<&'static str, Choice>,
    /// Only rows with this in a label, or pinned ones.
    filter: String,
    /// Whether keys go into the filter.
    typing: bool,
    over: Over,
    /// The last ones.
    messages: VecDeque<String>,
    /// The last message was not followed by a key yet.
    unread: bool,
    /// The columns that were drawn last, of this window and sheet: keys come more often than
    /// windows.
    texts: Option<((u64, &'static str), Vec<SheetColumn>)>,
    /// Rows of the sheet that had room when it was last drawn.
    room: usize,
}

impl Top {
    /// A view that has no window yet.
    #[must_use]
    pub fn new(source: Source) -> Self {
        Self {
            source,
            kept: Kept::default(),
            paused: None,
            sheet: "",
            choices: BTreeMap::new(),
            filter: String::new(),
            typing: false,
            over: Over::Nothing,
            messages: VecDeque::new(),
            unread: false,
            texts: None,
            room: 1,
        }
    }

    /// The next window.
    pub fn window(&mut self, sheets: Sheets) {
        if self.sheet.is_empty() {
            self.sheet = sheets.sheets.first().map_or("", Sheet::title);
        }
        self.kept.push(sheets);
        // A window that is not kept any more cannot be shown.
        if let Some(shown) = &mut self.paused {
            *shown = (*shown).max(self.kept.first());
        }
    }

    /// A recording has no more windows.
    pub fn ended(&mut self) {
        if let Source::Replay { ended, .. } = &mut self.source {
            *ended = true;
        }
    }

    /// A message of the program.
    pub fn message(&mut self, text: &str) {
        self.messages.push_back(text.to_owned());
        if self.messages.len() > MESSAGES {
            self.messages.pop_front();
        }
        self.unread = true;
    }

    /// Where windows come from, as keys have set it.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Whether the view stays where it is.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// The window that is shown.
    fn shown(&self) -> Option<&Sheets> {
        self.kept.get(self.paused.unwrap_or(self.kept.last()))
    }

    /// The sheet that is shown: in a window without it the first one.
    fn sheet(&self) -> Option<&Sheet> {
        let sheets = &self.shown()?.sheets;
        let same = sheets.iter().find(|sheet| sheet.title() == self.sheet);
        same.or(sheets.first())
    }

    fn choice(&self) -> Choice {
        let sheet = self.sheet().map_or("", Sheet::title);
        self.choices.get(sheet).cloned().unwrap_or_default()
    }

    fn choose(&mut self, change: impl FnOnce(&mut Choice, &Sheet, &str)) {
        let Some(sheet) = self.sheet() else {
            return;
        };
        let (title, mut choice) = (sheet.title(), self.choice());
        change(&mut choice, sheet, &self.filter);
        self.choices.insert(title, choice);
    }
}
