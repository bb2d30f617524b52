//! Key bindings.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{Overlay, Top, WindowSource, selection::SheetSelection};
use crate::{emit::Sheet, join::By};

/// The keys with their descriptions, as the help shows them.
pub(super) const HELP: [(&str, &str); 17] = [
    ("↑ ↓ PgUp PgDn Home End", "choose a row (also k j)"),
    ("← →", "choose a column (also h l)"),
    ("Enter", "open the row: values, processes, waits, functions"),
    ("s", "sort by the column, largest first; or smallest"),
    ("/", "only rows with a text in their name; Esc: all"),
    ("b", "choose what rows stand for: containers, pods, ..."),
    ("c", "choose which columns are visible"),
    ("Tab, Shift-Tab", "the next sheet, the one before"),
    ("n", "notes of the window, and messages"),
    ("p, Space", "stay at this window, go on"),
    (", .", "the window before, the next one"),
    ("< >", "ten windows back, ten on"),
    ("+ -", "longer or shorter windows; replay: faster, slower"),
    ("?", "this help"),
    ("Ctrl-Z", "suspend: fg continues"),
    ("q, Ctrl-C", "end"),
    ("Esc", "close what is open"),
];

/// The keys in the last line, the most important first. As many are shown as fit.
pub(super) const FOOT: [(&str, &str); 13] = [
    ("q", "end"),
    ("↑↓←→", "move"),
    ("Enter", "open"),
    ("s", "sort"),
    ("/", "filter"),
    ("b", "rows by"),
    ("c", "columns"),
    ("?", "help"),
    ("n", "notes"),
    ("Tab", "sheet"),
    ("+ -", "interval"),
    ("p", "pause"),
    (", .", "back, on"),
];

/// Limits of the replay speed.
const SPEEDS: (f64, f64) = (1.0 / 16.0, 256.0);

/// Lengths of windows in ms, which keys choose.
const INTERVALS: [u64; 10] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000,
];

/// Lines by which `PgUp` and `PgDn` scroll an open row.
const PAGE: usize = 10;

/// What the caller has to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAction {
    /// Draw, and continue.
    Nothing,
    /// Replay this many windows at once.
    Windows(u64),
    /// Windows of this length from now on.
    Interval(Duration),
    /// Rows of another kind. If the old or the new kind is processes, counting has to start again,
    /// unless [`ProcessRows::Counted`](super::ProcessRows::Counted).
    Rows(By),
    /// Give the terminal back until the shell continues this program.
    Suspend,
    /// Exit.
    End,
}

impl Top {
    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> KeyAction {
        if key.kind == KeyEventKind::Release {
            return KeyAction::Nothing;
        }
        self.unread = false;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => KeyAction::End,
                KeyCode::Char('z') => KeyAction::Suspend,
                _ => KeyAction::Nothing,
            };
        }
        if self.typing {
            self.type_filter(key.code);
            return KeyAction::Nothing;
        }
        if let (Overlay::Rows(at), KeyCode::Enter | KeyCode::Char(' ')) = (self.overlay, key.code) {
            return self.choose_rows(at);
        }
        if self.overlay != Overlay::Nothing && self.key_in_overlay(key.code) {
            return KeyAction::Nothing;
        }
        if self.overlay == Overlay::Nothing && self.key_in_opened(key.code) {
            return KeyAction::Nothing;
        }
        let page = isize::try_from(self.in_view.rows.max(2) - 1).unwrap_or(isize::MAX);
        match key.code {
            KeyCode::Char('q') => return KeyAction::End,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.move_row(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_row(1),
            KeyCode::PageUp => self.move_row(-page),
            KeyCode::PageDown => self.move_row(page),
            KeyCode::Home => self.move_row(isize::MIN),
            KeyCode::End => self.move_row(isize::MAX),
            KeyCode::Left | KeyCode::Char('h') => self.move_column(-1),
            KeyCode::Right | KeyCode::Char('l') => self.move_column(1),
            KeyCode::Char('s') => self.change_selection(SheetSelection::sort),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Tab => self.next_sheet(1),
            KeyCode::BackTab => self.next_sheet(-1),
            KeyCode::Enter => self.open_row(),
            KeyCode::Char('b') => self.overlay = Overlay::Rows(self.row_kind()),
            KeyCode::Char('c') => self.overlay = Overlay::Columns(0),
            KeyCode::Char('n') => self.overlay = Overlay::Notes(0),
            KeyCode::Char('?') => self.overlay = Overlay::Help,
            KeyCode::Char('p' | ' ') => self.pause(),
            KeyCode::Char(',') => self.back(1),
            KeyCode::Char('<') => self.back(10),
            KeyCode::Char('.') => return self.forth(1),
            KeyCode::Char('>') => return self.forth(10),
            KeyCode::Char('+') => return self.change_pace(true),
            KeyCode::Char('-') => return self.change_pace(false),
            _ => {}
        }
        KeyAction::Nothing
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            _ => {}
        }
    }

    /// Handles a key of the open box. Returns false if the key is not one of the box.
    fn key_in_overlay(&mut self, code: KeyCode) -> bool {
        match (&mut self.overlay, code) {
            (overlay, KeyCode::Esc)
            | (overlay @ (Overlay::Help | Overlay::Notes(_)), KeyCode::Enter)
            | (overlay @ Overlay::Help, KeyCode::Char('?'))
            | (overlay @ Overlay::Columns(_), KeyCode::Char('c'))
            | (overlay @ Overlay::Notes(_), KeyCode::Char('n')) => *overlay = Overlay::Nothing,
            (Overlay::Rows(at), KeyCode::Char('b'))
            | (
                Overlay::Notes(at) | Overlay::Columns(at) | Overlay::Rows(at),
                KeyCode::Down | KeyCode::Char('j'),
            ) => *at += 1,
            (
                Overlay::Notes(at) | Overlay::Columns(at) | Overlay::Rows(at),
                KeyCode::Up | KeyCode::Char('k'),
            ) => *at = at.saturating_sub(1),
            (Overlay::Columns(at), KeyCode::Enter | KeyCode::Char(' ')) => {
                let at = *at;
                self.toggle_column(at);
            }
            _ => return false,
        }
        true
    }

    /// Handles a key of the open row. Returns false if the open row has no such key.
    fn key_in_opened(&mut self, code: KeyCode) -> bool {
        let Some(opened) = &mut self.opened else {
            return false;
        };
        match code {
            KeyCode::Down | KeyCode::Char('j') => opened.above = opened.above.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => opened.above = opened.above.saturating_sub(1),
            KeyCode::PageDown => opened.above = opened.above.saturating_add(PAGE),
            KeyCode::PageUp => opened.above = opened.above.saturating_sub(PAGE),
            KeyCode::Home => opened.above = 0,
            KeyCode::End => opened.above = usize::MAX - PAGE,
            KeyCode::Esc | KeyCode::Enter => self.opened = None,
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Char('/') => {
                self.opened = None;
                return false;
            }
            _ => return false,
        }
        true
    }

    fn move_row(&mut self, by: isize) {
        let filter = self.filter.clone();
        self.change_selection(|selection, sheet, _| {
            let rows = selection.rows(sheet, &filter);
            selection.move_row(sheet, &rows, by);
        });
    }

    fn move_column(&mut self, by: isize) {
        self.change_selection(|selection, sheet, columns| {
            selection.move_column(sheet, columns, by);
        });
    }

    fn next_sheet(&mut self, by: isize) {
        let Some(window) = self.shown() else {
            return;
        };
        let titles: Vec<&str> = window.sheets.iter().map(Sheet::title).collect();
        let shown = self.sheet().map(Sheet::title);
        let at = window
            .sheets
            .iter()
            .position(|it| Some(it.title()) == shown);
        let many = titles.len().cast_signed();
        if let Some(at) = at {
            let to = (at.cast_signed() + by).rem_euclid(many);
            self.sheet = window.sheets[to.cast_unsigned()].title();
        }
    }

    fn pause(&mut self) {
        self.paused = match self.paused {
            Some(_) => None,
            None => Some(self.history.last()),
        };
    }

    fn back(&mut self, by: u64) {
        let shown = self.paused.unwrap_or(self.history.last());
        self.paused = Some(shown.saturating_sub(by).max(self.history.first()));
    }

    /// Moves forward. Past the newest window a replay has to supply more.
    fn forth(&mut self, by: u64) -> KeyAction {
        let last = self.history.last();
        let to = self.paused.unwrap_or(last) + by;
        self.paused = Some(to.min(last));
        match self.source {
            WindowSource::Replay { ended: false, .. } if to > last => KeyAction::Windows(to - last),
            _ => KeyAction::Nothing,
        }
    }

    /// Shows the newest window of a paused view, after the windows of [`KeyAction::Windows`]
    /// arrived.
    pub fn show_last(&mut self) {
        if self.paused.is_some() {
            self.paused = Some(self.history.last());
        }
    }

    /// If `up`, makes live windows longer or a replay faster; else shorter or slower.
    fn change_pace(&mut self, up: bool) -> KeyAction {
        match &mut self.source {
            WindowSource::Replay { speed, .. } => {
                let factor = if up { 2.0 } else { 0.5 };
                *speed = (*speed * factor).clamp(SPEEDS.0, SPEEDS.1);
                KeyAction::Nothing
            }
            WindowSource::Live { interval } => {
                let mut all = INTERVALS.map(Duration::from_millis).into_iter();
                let next = match up {
                    true => all.find(|next| next > interval),
                    false => all.rfind(|next| next < interval),
                };
                *interval = next.unwrap_or(*interval);
                KeyAction::Interval(*interval)
            }
        }
    }
}
