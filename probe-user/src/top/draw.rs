//! The whole screen: header, rows of a sheet, chart of the selected value, footer.

use std::time::{Duration, SystemTime};

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Clear, Paragraph},
};

use super::{
    Overlay, Top, WindowSource,
    keys::HELP,
    selection::SortOrder,
    table::{SheetTable, to_u16},
};
use crate::emit::{Sheet, width as width_of, wrapped};

/// Lines of the terminal from which on a chart is drawn, and a higher chart.
const CHART: u16 = 16;
const HIGH_CHART: u16 = 36;

/// The keys in the footer.
const FOOT: &str = " q end  ↑↓←→ move  Enter waits  s sort  / filter  Tab sheet  n notes  ? help";

const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

impl Top {
    /// Draws the view.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let chart = match area.height {
            HIGH_CHART.. => 9,
            CHART.. => 4,
            _ => 0,
        };
        let [head, tabs, table, chart, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(chart),
            Constraint::Length(1),
        ])
        .areas(area);
        frame.render_widget(Paragraph::new(self.head()).style(REVERSED), head);
        frame.render_widget(Paragraph::new(self.tabs()), tabs);
        self.draw_rows(frame, table, chart);
        frame.render_widget(Paragraph::new(self.foot()), foot);
        match self.overlay {
            Overlay::Nothing => {}
            Overlay::Help => {
                let lines = HELP.map(|(keys, what)| Line::raw(format!(" {keys:<24}{what} ")));
                draw_overlay(frame, " Keys ", lines.to_vec());
            }
            Overlay::Notes(first) => self.draw_notes(frame, first),
            Overlay::Waits => self.draw_waits(frame),
        }
    }

    fn head(&self) -> String {
        let Some(window) = self.shown() else {
            return match self.source {
                WindowSource::Live => " pmuscope top: the first window is running".to_owned(),
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
        if let WindowSource::Replay { speed, ended } = self.source {
            text += &match ended {
                true => "  replay, at its end".to_owned(),
                false => format!("  replay x{speed}"),
            };
        }
        if let Some(paused) = self.paused {
            text += "  paused";
            let behind = self.history.last() - paused;
            if behind > 0 {
                let them = if behind == 1 { "window" } else { "windows" };
                text += &format!(", {behind} {them} back");
            }
        }
        text
    }

    /// The titles of sheets, with the sort column and the filter.
    fn tabs(&self) -> Line<'_> {
        let mut spans = vec![Span::raw(" ")];
        let shown = self.sheet().map(Sheet::title);
        for sheet in self.shown().into_iter().flat_map(|window| &window.sheets) {
            let chosen = Some(sheet.title()) == shown;
            let style = if chosen { REVERSED } else { Style::new() };
            spans.push(Span::styled(format!(" {} ", sheet.title()), style));
        }
        if let Some(sheet) = self.sheet()
            && let Some((column, order)) = self.selection().sorted(sheet)
        {
            let mark = match order {
                SortOrder::LargestFirst => "▼",
                SortOrder::SmallestFirst => "▲",
            };
            spans.push(Span::raw(format!("   by {} {mark}", sheet.column(column))));
        }
        if !self.filter.is_empty() && !self.typing {
            spans.push(Span::raw(format!("   only /{}", self.filter)));
        }
        Line::from(spans)
    }

    fn draw_rows(&mut self, frame: &mut Frame<'_>, table: Rect, chart: Rect) {
        let known = self.drawn_columns.take();
        let Some(sheet) = self.sheet() else {
            return;
        };
        let shown = (self.paused.unwrap_or(self.history.last()), sheet.title());
        let texts = match known {
            Some((of, texts)) if of == shown => texts,
            _ => sheet.drawn(),
        };
        let mut selection = self.selection();
        let rows = selection.rows(sheet, &self.filter);
        let (row, column) = (selection.row(sheet, &rows), selection.column(sheet));
        let drawn = SheetTable {
            sheet,
            columns: &texts,
            rows: &rows,
            row,
            column,
        };
        let visible_rows = drawn.draw(table, frame.buffer_mut(), &mut selection);
        if let (Some(row), Some(column)) = (row, column)
            && chart.height > 1
        {
            self.chart(sheet, (row, column), chart, frame.buffer_mut());
        }
        self.visible_rows = visible_rows;
        self.drawn_columns = Some((shown, texts));
        self.choose(|old, _, _| *old = selection);
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

    fn foot(&self) -> String {
        match self.messages.back() {
            _ if self.typing => format!(" only /{}▏ (Enter keeps it, Esc ends it)", self.filter),
            Some(message) if self.unread => format!(" {message} (n)"),
            _ => FOOT.to_owned(),
        }
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
