//! The whole screen: header, rows of a sheet, chart of the selected value, footer.

use std::time::{Duration, SystemTime};

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Block, Clear, Paragraph},
};

use super::{
    DrawnSheet, Overlay, Top, WindowSource,
    keys::HELP,
    table::{InView, SheetTable, to_u16},
    topdown,
};
use crate::emit::{Sheet, width as width_of, wrapped};

/// From these heights of the terminal on, in lines, a chart is drawn, and a higher chart.
const CHART: u16 = 16;
const HIGH_CHART: u16 = 36;

pub(super) const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

impl Top {
    /// Draws the view.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let chart = match area.height {
            CHART..HIGH_CHART if self.opened.is_some() => 0,
            HIGH_CHART.. => 9,
            CHART.. => 4,
            _ => 0,
        };
        let [head, tabs, table, chart, status, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(chart),
            Constraint::Length(1),
            Constraint::Length(1),
        ])
        .areas(area);
        let width = usize::from(area.width);
        self.in_view = self.draw_rows(frame, table, chart);
        frame.render_widget(Paragraph::new(self.head()).style(REVERSED), head);
        frame.render_widget(Paragraph::new(self.tabs(width)), tabs);
        frame.render_widget(Paragraph::new(self.status(width)), status);
        frame.render_widget(Paragraph::new(Self::keys_line(width)), foot);
        match self.overlay {
            Overlay::Nothing => {}
            Overlay::Help => {
                let lines = HELP.map(|(keys, what)| Line::raw(format!(" {keys:<24}{what} ")));
                draw_overlay(frame, " Keys ", lines.to_vec());
            }
            Overlay::Notes(first) => self.draw_notes(frame, first),
            Overlay::Columns(at) => self.draw_columns(frame, at),
            Overlay::Rows(at) => self.draw_row_kinds(frame, at),
        }
    }

    fn head(&self) -> String {
        let Some(window) = self.shown() else {
            return match self.source {
                WindowSource::Live { .. } => {
                    " pmuscope top: the first window is running".to_owned()
                }
                WindowSource::Replay { .. } => " pmuscope top: no window yet".to_owned(),
            };
        };
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(window.time.as_secs());
        let mut text = format!(
            " {}  after {:.3} s, for {:.3} s",
            humantime::format_rfc3339_seconds(time),
            window.elapsed.as_secs_f64(),
            window.length.as_secs_f64()
        );
        text += &match self.source {
            WindowSource::Replay { ended: true, .. } => "  replay, at its end".to_owned(),
            WindowSource::Replay { speed, .. } => format!("  replay x{speed}"),
            WindowSource::Live { .. } if self.paused.is_some() => String::new(),
            WindowSource::Live { interval } => {
                format!("  every {}", humantime::format_duration(interval))
            }
        };
        if let Some(paused) = self.paused {
            text += "  paused";
            let behind = self.history.last() - paused;
            if behind > 0 {
                let noun = if behind == 1 { "window" } else { "windows" };
                text += &format!(", {behind} {noun} back");
            }
        }
        text
    }

    /// Draws the rows and the chart. Returns what is in view.
    fn draw_rows(&mut self, frame: &mut Frame<'_>, table: Rect, chart: Rect) -> InView {
        let previous = self.drawn.take();
        let Some(sheet) = self.sheet() else {
            return InView::default();
        };
        let drawn_from = (self.paused.unwrap_or(self.history.last()), sheet.title());
        let mut selection = self.selection();
        let indices = selection.columns(sheet, self.hidden);
        let drawn = match previous {
            Some(drawn) if drawn.drawn_from == drawn_from && drawn.indices == indices => drawn,
            _ => DrawnSheet {
                drawn_from,
                columns: topdown::with_bar(sheet, &indices),
                indices,
            },
        };
        let rows = selection.rows(sheet, &self.filter);
        let row = selection.row(sheet, &rows);
        let column = selection.column(sheet, &drawn.indices);
        let sheet_table = SheetTable {
            sheet,
            columns: &drawn.columns,
            rows: &rows,
            row,
            column,
            colours: self.colours,
        };
        let in_view = match self.opened {
            Some(_) => InView::default(),
            None => sheet_table.draw(table, frame.buffer_mut(), &mut selection),
        };
        if self.opened.is_none() && rows.many.is_empty() && !self.filter.is_empty() {
            self.draw_no_match(sheet, table, frame);
        }
        if let (Some(row), Some(column)) = (row, column)
            && chart.height > 1
        {
            self.chart(sheet, (row, column), chart, frame.buffer_mut());
        }
        self.drawn = Some(drawn);
        self.change_selection(|old, _, _| *old = selection);
        self.draw_opened(frame, table);
        in_view
    }

    /// Says that no row matches the filter.
    fn draw_no_match(&self, sheet: &Sheet, table: Rect, frame: &mut Frame<'_>) {
        let all = (0..sheet.rows()).filter(|row| sheet.is_one_of_many(*row));
        let text = format!(
            "None of {} rows has /{} in its name.",
            all.count(),
            self.filter
        );
        let [_, line, _] = Layout::vertical([
            Constraint::Fill(1),
            Constraint::Length(1),
            Constraint::Fill(1),
        ])
        .areas(table);
        frame.render_widget(Paragraph::new(text).centered(), line);
    }

    fn draw_notes(&self, frame: &mut Frame<'_>, first: usize) {
        let width = usize::from(frame.area().width).saturating_sub(6).max(20);
        let notes = self.shown().into_iter().flat_map(|window| &window.notes);
        let messages = self.messages.iter().rev();
        let all: Vec<Line<'_>> = notes
            .chain(messages)
            .flat_map(|text| wrapped(text, Some(width), 2))
            .map(Line::raw)
            .collect();
        let lines = match all.len() {
            0 => vec![Line::raw(" There are none in this window.")],
            many => all[first.min(many - 1)..].to_vec(),
        };
        draw_overlay(frame, " Notes ", lines);
    }
}

/// Draws lines in a box over the middle of the screen.
pub(super) fn draw_overlay(frame: &mut Frame<'_>, title: &str, lines: Vec<Line<'_>>) {
    let area = frame.area();
    let widest = lines.iter().map(|line| width_of(&line.to_string())).max();
    let width = to_u16(widest.unwrap_or(0).max(width_of(title)) + 2).min(area.width);
    let height = to_u16(lines.len() + 2).min(area.height);
    let [area] = Layout::horizontal([Constraint::Length(width)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let [area] = Layout::vertical([Constraint::Length(height)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(title.to_owned());
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
