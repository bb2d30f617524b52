//! What each key does.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{Over, Source, Top};
use crate::emit::Sheet;

/// The keys and what they do, as the help shows them.
pub(super) const HELP: [(&str, &str); 13] = [
    ("↑ ↓ PgUp PgDn Home End", "choose a row (also k j)"),
    ("← →", "choose a column (also h l)"),
    ("s", "sort by it: largest first, smallest first, or not"),
    ("/", "only rows with a text in their name; Esc: all"),
    ("Tab, Shift-Tab", "the next sheet, the one before"),
    ("n", "notes of the window, and messages"),
    ("p, Space", "stay at this window, go on"),
    (", .", "the window before, the next one"),
    ("< >", "ten windows back, ten on"),
    ("+ -", "replay: twice as fast, half as fast"),
    ("?", "this help"),
    ("q, Ctrl-C", "end"),
    ("Esc", "close what is open"),
];

/// The fastest and the slowest replay.
const SPEEDS: (f64, f64) = (1.0 / 16.0, 256.0);

/// What whoever gives windows and keys is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Draw, and go on.
    Nothing,
    /// Of a replay: so many windows at once.
    Windows(u64),
    /// End.
    End,
}

impl Top {
    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) -> Wanted {
        if key.kind == KeyEventKind::Release {
            return Wanted::Nothing;
        }
        self.unread = false;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Wanted::End,
                _ => Wanted::Nothing,
            };
        }
        if self.typing {
            self.type_filter(key.code);
            return Wanted::Nothing;
        }
        if self.over != Over::Nothing && self.read(key.code) {
            return Wanted::Nothing;
        }
        let page = isize::try_from(self.room.max(2) - 1).unwrap_or(isize::MAX);
        match key.code {
            KeyCode::Char('q') => return Wanted::End,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.move_row(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_row(1),
            KeyCode::PageUp => self.move_row(-page),
            KeyCode::PageDown => self.move_row(page),
            KeyCode::Home => self.move_row(isize::MIN),
            KeyCode::End => self.move_row(isize::MAX),
            KeyCode::Left | KeyCode::Char('h') => self.move_column(-1),
            KeyCode::Right | KeyCode::Char('l') => self.move_column(1),
            KeyCode::Char('s') => self.choose(|choice, sheet, _| choice.sort(sheet)),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Tab => self.next_sheet(1),
            KeyCode::BackTab => self.next_sheet(-1),
            KeyCode::Char('n') => self.over = Over::Notes(0),
            KeyCode::Char('?') => self.over = Over::Help,
            KeyCode::Char('p' | ' ') => self.pause(),
            KeyCode::Char(',') => self.back(1),
            KeyCode::Char('<') => self.back(10),
            KeyCode::Char('.') => return self.forth(1),
            KeyCode::Char('>') => return self.forth(10),
            KeyCode::Char('+') => self.faster(2.0),
            KeyCode::Char('-') => self.faster(0.5),
            _ => {}
        }
        Wanted::Nothing
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

    /// A key for what is drawn over the rows. False where it is none.
    fn read(&mut self, code: KeyCode) -> bool {
        match (&mut self.over, code) {
            (over, KeyCode::Esc | KeyCode::Enter)
            | (over @ Over::Help, KeyCode::Char('?'))
            | (over @ Over::Notes(_), KeyCode::Char('n')) => *over = Over::Nothing,
            (Over::Notes(line), KeyCode::Down | KeyCode::Char('j')) => *line += 1,
            (Over::Notes(line), KeyCode::Up | KeyCode::Char('k')) => {
                *line = line.saturating_sub(1);
            }
            _ => return false,
        }
        true
    }

    fn move_row(&mut self, by: isize) {
        self.choose(|choice, sheet, filter| {
            let rows = choice.rows(sheet, filter);
            choice.move_row(sheet, &rows, by);
        });
    }

    fn move_column(&mut self, by: isize) {
        self.choose(|choice, sheet, _| choice.move_column(sheet, by));
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
            None => Some(self.kept.last()),
        };
    }

    fn back(&mut self, by: u64) {
        let shown = self.paused.unwrap_or(self.kept.last());
        self.paused = Some(shown.saturating_sub(by).max(self.kept.first()));
    }

    /// Beyond the last window a replay is to go on.
    fn forth(&mut self, by: u64) -> Wanted {
        let last = self.kept.last();
        let to = self.paused.unwrap_or(last) + by;
        self.paused = Some(to.min(last));
        match self.source {
            Source::Replay { ended: false, .. } if to > last => Wanted::Windows(to - last),
            _ => Wanted::Nothing,
        }
    }

    /// The windows that [`Wanted::Windows`] asked for have come.
    pub fn show_last(&mut self) {
        if self.paused.is_some() {
            self.paused = Some(self.kept.last());
        }
    }

    fn faster(&mut self, factor: f64) {
        if let Source::Replay { speed, .. } = &mut self.source {
            *speed = (*speed * factor).clamp(SPEEDS.0, SPEEDS.1);
        }
    }
}
