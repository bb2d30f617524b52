//! Boxes in which the user chooses something.

use ratatui::{Frame, style::Style, text::Line};

use super::{
    Overlay, Top,
    draw::{REVERSED, draw_overlay},
    selection::SheetSelection,
};

impl Top {
    /// Draws the columns of the sheet, with marks at those that are visible.
    pub(super) fn draw_columns(&mut self, frame: &mut Frame<'_>, at: usize) {
        let Some(sheet) = self.sheet() else {
            return;
        };
        let selection = self.selection();
        let columns = SheetSelection::all_columns(sheet);
        let at = at.min(columns.len().saturating_sub(1));
        // Borders, and the line that is at the end.
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

    /// Shows or hides the column at this place of the box.
    pub(super) fn toggle_column(&mut self, at: usize) {
        let hidden = self.hidden;
        self.choose(|selection, sheet, _| {
            if let Some(column) = SheetSelection::all_columns(sheet).get(at) {
                selection.toggle_column(sheet.column(*column), hidden);
            }
        });
    }
}
