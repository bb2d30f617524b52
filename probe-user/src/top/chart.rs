//! Draws the selected value over time.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    widgets::{Sparkline, SparklineBar, Widget as _},
};

use super::Top;
use crate::{
    emit::{Sheet, fitted, width as width_of},
    plot::Axis,
};

/// Steps in the height of a bar.
const STEPS: u16 = 10_000;

impl Top {
    /// Draws the value of a row and column over time: one bar for each window, the newest on the
    /// right, none for a window without a value.
    pub(super) fn chart(
        &self,
        sheet: &Sheet,
        (row, column): (usize, usize),
        area: Rect,
        buffer: &mut Buffer,
    ) {
        let [head, bars] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        let (title, name) = (sheet.title(), sheet.column(column));
        let labels = sheet.labels(row);
        let value = |sheet: &Sheet| {
            let row = (0..sheet.rows()).find(|row| sheet.labels(*row) == labels)?;
            sheet.value(row, sheet.column_index(name)?)
        };
        let shown = self.paused.unwrap_or(self.history.last());
        let windows = self.history.up_to(shown, usize::from(bars.width));
        let values: Vec<Option<f64>> = windows
            .map(|window| {
                let mut sheets = window.sheets.iter();
                let same = sheets.find(|sheet| sheet.title() == title)?;
                value(same).filter(|value| value.is_finite())
            })
            .collect();
        let known = || values.iter().flatten().copied();
        let largest = known().fold(0.0, f64::max);
        let smallest = known().fold(f64::INFINITY, f64::min);
        let mut text = format!(": {name}");
        let unit = sheet.unit(column);
        if !unit.is_empty() {
            text += &format!(" [{unit}]");
        }
        if smallest.is_finite() {
            let count = known().count();
            let windows = if count == 1 { "window" } else { "windows" };
            text += &format!(
                ", {} to {} in {count} {windows}",
                sheet.text(column, smallest),
                sheet.text(column, largest)
            );
        }
        // The name of the row is cut, so that the text behind it fits.
        let width_left = usize::from(head.width).saturating_sub(width_of(&text) + 1);
        let label = fitted(&[&labels.join("  ")], width_left.max(8)).concat();
        buffer.set_stringn(
            head.x,
            head.y,
            format!(" {label}{text}"),
            usize::from(head.width),
            ratatui::style::Style::new(),
        );
        // Bars are aligned to the right.
        let empty = usize::from(bars.width).saturating_sub(values.len());
        let axis = Axis::linear((0.0, largest), Vec::new());
        let bar = |value: &Option<f64>| {
            let drawn = value.filter(|_| largest > 0.0);
            SparklineBar::from(drawn.map(|value| u64::from(axis.cell(value, STEPS))))
        };
        let all =
            std::iter::repeat_n(SparklineBar::from(None), empty).chain(values.iter().map(bar));
        Sparkline::default()
            .data(all)
            .max(u64::from(STEPS))
            .absent_value_symbol(" ")
            .render(bars, buffer);
    }
}
