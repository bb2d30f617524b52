//! Top: an interactive view of windows on a terminal. Keys move it over rows, columns and time.
//!
//! [`Top`] takes windows ([`Top::window`]) and keys ([`Top::key`]), and draws itself
//! ([`Top::draw`]). It depends on neither sessions nor recordings: live runs and replays share it.

mod chart;
mod choose;
mod colour;
mod draw;
mod history;
mod keys;
mod opened;
mod selection;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod topdown;
mod waits;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

pub use self::keys::KeyAction;
use self::{
    colour::Colours,
    history::WindowHistory,
    opened::{OpenedRow, RowProcesses},
    selection::SheetSelection,
    table::InView,
};
use crate::{
    emit::{Sheet, SheetColumn, Sheets},
    join::{By, Entity},
    machine::process_usage::ProcessUse,
};

/// The most messages that are kept.
const MESSAGES: usize = 100;

/// Where windows come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowSource {
    /// A running session: each window arrives when it ends.
    Live {
        /// Length of windows.
        interval: Duration,
    },
    /// A recording: the program pulls the next window when it is due.
    Replay {
        /// Replay speed, relative to the recording.
        speed: f64,
        /// Whether the recording has no more windows.
        ended: bool,
    },
}

/// A box drawn over the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Overlay {
    #[default]
    Nothing,
    Help,
    /// Notes of the window and messages, from this line on.
    Notes(usize),
    /// The columns of the sheet, and the index of the one that keys act on.
    Columns(usize),
    /// The kinds of rows, and the index of the one that keys act on.
    Rows(usize),
}

/// The view and its history of windows.
pub struct Top {
    source: WindowSource,
    /// What rows of new windows stand for.
    by: By,
    process_rows: ProcessRows,
    history: WindowHistory,
    /// Number of the window shown while paused; None: the view follows the newest window.
    paused: Option<u64>,
    /// Title of the selected sheet.
    sheet: &'static str,
    /// Selection by title of the sheet.
    selections: BTreeMap<&'static str, SheetSelection>,
    /// Columns that are hidden until the user chooses them.
    hidden: &'static [&'static str],
    colours: Colours,
    /// Shows only rows with this text in a label, and pinned rows.
    filter: String,
    /// Whether keys edit the filter.
    typing: bool,
    overlay: Overlay,
    /// The open row, which is shown in place of the rows.
    opened: Option<OpenedRow>,
    /// The processes of the open row at the end of the newest window.
    processes: Option<RowProcesses>,
    /// The newest messages.
    messages: VecDeque<String>,
    /// Whether no key was pressed since the last message.
    unread: bool,
    /// The columns as drawn last. Keys come more often than windows, so the columns are used again.
    drawn: Option<DrawnSheet>,
    /// Rows and columns in view when the sheet was last drawn.
    in_view: InView,
}

/// The columns of a sheet as drawn.
struct DrawnSheet {
    /// The number of the window, and the title of the sheet.
    drawn_from: (u64, &'static str),
    /// Indices of the visible columns.
    indices: Vec<usize>,
    columns: Vec<SheetColumn>,
}

/// Whether processes can be rows.
#[derive(Clone, Copy, Debug)]
pub enum ProcessRows {
    /// What was counted has processes.
    Counted,
    /// Processes can be rows once counting starts again.
    Restart,
    /// No, for this reason.
    Never(&'static str),
}

/// Settings of a view.
#[derive(Clone, Copy, Debug)]
pub struct TopOptions {
    /// Where windows come from.
    pub source: WindowSource,
    /// What rows stand for at first.
    pub by: By,
    /// Whether processes can be rows.
    pub process_rows: ProcessRows,
    /// Columns that are hidden until the user chooses them.
    pub hidden: &'static [&'static str],
    /// Whether values have colours.
    pub colours: bool,
}

impl Top {
    /// A view without a window.
    #[must_use]
    pub fn new(options: TopOptions) -> Self {
        Self {
            source: options.source,
            by: options.by,
            process_rows: options.process_rows,
            hidden: options.hidden,
            colours: Colours::new(options.colours),
            history: WindowHistory::default(),
            paused: None,
            sheet: "",
            selections: BTreeMap::new(),
            filter: String::new(),
            typing: false,
            overlay: Overlay::Nothing,
            opened: None,
            processes: None,
            messages: VecDeque::new(),
            unread: false,
            drawn: None,
            in_view: InView::default(),
        }
    }

    /// Adds the next window.
    pub fn window(&mut self, sheets: Sheets) {
        if self.sheet.is_empty() {
            self.sheet = sheets.sheets.first().map_or("", Sheet::title);
        }
        self.history.push(sheets);
        self.processes = None;
        // A paused view moves on from a window that left the history.
        if let Some(shown) = &mut self.paused {
            *shown = (*shown).max(self.history.first());
        }
    }

    /// Replaces the newest window by one with rows of another kind.
    pub fn rows_changed(&mut self, by: By, sheets: Option<Sheets>) {
        self.by = by;
        (self.opened, self.processes, self.drawn) = (None, None, None);
        if let Some(sheets) = sheets {
            self.history.replace_last(sheets);
        }
        self.show_last();
    }

    /// What rows of new windows stand for.
    #[must_use]
    pub fn by(&self) -> By {
        self.by
    }

    /// What the open row stands for.
    #[must_use]
    pub fn opened(&self) -> Option<&Entity> {
        self.opened.as_ref().map(|opened| &opened.entity)
    }

    /// Whether the processes of the open row are set for the newest window.
    #[must_use]
    pub fn has_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// Sets the processes of the open row at the end of the newest window. `source` says where they
    /// are from.
    pub fn set_processes(&mut self, source: &'static str, processes: Vec<ProcessUse>) {
        self.processes = Some(RowProcesses { source, processes });
    }

    /// Marks the recording as ended.
    pub fn ended(&mut self) {
        if let WindowSource::Replay { ended, .. } = &mut self.source {
            *ended = true;
        }
    }

    /// Shows a message of the program.
    pub fn message(&mut self, text: &str) {
        self.messages.push_back(text.to_owned());
        if self.messages.len() > MESSAGES {
            self.messages.pop_front();
        }
        self.unread = true;
    }

    /// The source of windows, with the replay speed that keys set.
    #[must_use]
    pub fn source(&self) -> WindowSource {
        self.source
    }

    /// Whether the view is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// The window on the screen.
    fn shown(&self) -> Option<&Sheets> {
        self.history.get(self.paused.unwrap_or(self.history.last()))
    }

    /// The selected sheet; the first sheet if the window lacks it.
    fn sheet(&self) -> Option<&Sheet> {
        let sheets = &self.shown()?.sheets;
        let same = sheets.iter().find(|sheet| sheet.title() == self.sheet);
        same.or(sheets.first())
    }

    fn selection(&self) -> SheetSelection {
        let sheet = self.sheet().map_or("", Sheet::title);
        self.selections.get(sheet).cloned().unwrap_or_default()
    }

    /// Changes the selection in the sheet. `change` gets the selection, the sheet and its visible
    /// columns.
    fn change_selection(&mut self, change: impl FnOnce(&mut SheetSelection, &Sheet, &[usize])) {
        let Some(sheet) = self.sheet() else {
            return;
        };
        let (title, mut selection) = (sheet.title(), self.selection());
        let columns = selection.columns(sheet, self.hidden);
        change(&mut selection, sheet, &columns);
        self.selections.insert(title, selection);
    }
}
