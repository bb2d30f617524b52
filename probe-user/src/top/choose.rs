//! Boxes in which the user chooses something.

use ratatui::{Frame, style::Style, text::Line};

use super::{
    KeyAction, Overlay, ProcessRows, Top,
    draw::{REVERSED, draw_overlay},
    selection::SheetSelection,
};
use crate::join::By;

/// The kinds of rows, in the order of the box.
const ROW_KINDS: [(By, &str); 4] = [
    (By::Container, "containers"),
    (By::Pod, "pods"),
    (By::Cgroup, "cgroups"),
    (By::Process, "processes"),
];

impl Top {
    /// Draws the columns of the sheet, with marks at those that are visible.
    pub(super) fn draw_columns(&mut self, frame: &mut Frame<'_>, at: usize) {
        let Some(sheet) = self.sheet() else {
            return;
        };
        let selection = self.selection();
        let columns = SheetSelection::all_columns(sheet);
        let at = at.min(columns.len().saturating_sub(1));
        // The screen without the two borders, and without its last line.
        let height = usize::from(frame.area().height).saturating_sub(3).max(1);
        let first = (at + 1).saturating_sub(height);
        let lines = columns.iter().enumerate().skip(first).take(height);
        let lines = lines.map(|(index, column)| {
            let name = sheet.column(*column);
            let mark = match selection.is_visible(name, self.hidden) {
                true => "x",
                false => " ",
            };
            let style = if index == at { REVERSED } else { Style::new() };
            Line::styled(format!(" [{mark}] {name} "), style)
        });
        draw_overlay(frame, " Columns (Space, Esc) ", lines.collect());
        self.overlay = Overlay::Columns(at);
    }

    /// Draws the kinds of rows.
    pub(super) fn draw_row_kinds(&mut self, frame: &mut Frame<'_>, at: usize) {
        let at = at % ROW_KINDS.len();
        let lines = ROW_KINDS.iter().enumerate().map(|(index, (by, name))| {
            let note = match (self.needs_restart(*by), self.process_rows) {
                _ if *by == self.by => "  (now)",
                (_, ProcessRows::Never(_)) if *by == By::Process => "  (not here)",
                (true, _) => "  (starts to count again)",
                _ => "",
            };
            let style = if index == at { REVERSED } else { Style::new() };
            Line::styled(format!(" {name}{note} "), style)
        });
        draw_overlay(frame, " Rows by (Enter, Esc) ", lines.collect());
        self.overlay = Overlay::Rows(at);
    }

    /// Whether counting has to start again for these rows.
    fn needs_restart(&self, by: By) -> bool {
        let is_other = by != self.by && (by == By::Process || self.by == By::Process);
        is_other && matches!(self.process_rows, ProcessRows::Restart)
    }

    /// Index of the current kind of rows in the box.
    pub(super) fn row_kind(&self) -> usize {
        let mut kinds = ROW_KINDS.iter();
        kinds.position(|(by, _)| *by == self.by).unwrap_or(0)
    }

    /// Chooses the kind of rows at this index of the box.
    pub(super) fn choose_rows(&mut self, at: usize) -> KeyAction {
        self.overlay = Overlay::Nothing;
        let (by, _) = ROW_KINDS[at % ROW_KINDS.len()];
        match self.process_rows {
            _ if by == self.by => KeyAction::Nothing,
            ProcessRows::Never(reason) if by == By::Process => {
                self.message(reason);
                KeyAction::Nothing
            }
            _ => {
                if self.needs_restart(by) {
                    self.message("Counting starts again for these rows");
                }
                KeyAction::Rows(by)
            }
        }
    }

    /// Shows or hides the column at this index of the box.
    pub(super) fn toggle_column(&mut self, at: usize) {
        let hidden = self.hidden;
        self.change_selection(|selection, sheet, _| {
            if let Some(column) = SheetSelection::all_columns(sheet).get(at) {
                selection.toggle_column(sheet.column(*column), hidden);
            }
        });
    }
}
