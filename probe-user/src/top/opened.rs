//! The open row, which is drawn in place of all rows: its values, processes and waits, and its
//! functions if they were sampled.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::Paragraph,
};

use super::{
    ProcessRows, Top, WindowSource, selection::SheetSelection, table::to_u16, waits::wait_lines,
};
use crate::{
    emit::{Sheet, Sheets, bytes_text, printable::printable, width as width_of},
    join::{By, Entity},
    machine::process_usage::ProcessUse,
};

/// The title of the sheet of sampled functions.
const FUNCTIONS: &str = "hot";

/// Width from which on waits and functions are on the right of values and processes.
const WIDE: u16 = 120;

/// Spaces between two values in a line.
const GAP: usize = 3;

/// The open row.
#[derive(Clone, Debug)]
pub(super) struct OpenedRow {
    pub(super) entity: Entity,
    /// Number of lines scrolled out above.
    pub(super) above: usize,
}

/// The processes of the open row.
#[derive(Clone, Debug)]
pub(super) struct RowProcesses {
    /// Where the processes are from, in words.
    pub(super) source: &'static str,
    pub(super) processes: Vec<ProcessUse>,
}

impl Top {
    /// Opens the selected row.
    pub(super) fn open_row(&mut self) {
        let (Some(window), Some(sheet)) = (self.shown(), self.sheet()) else {
            return;
        };
        let selection = self.selection();
        let rows = selection.rows(sheet, &self.filter);
        let Some(row) = selection.row(sheet, &rows) else {
            return;
        };
        // Rows of other sheets begin with the name of a row of the first sheet.
        let name = &sheet.labels(row)[0];
        let first = &window.sheets[0];
        let row = (0..first.rows()).find(|row| first.labels(*row)[0] == *name);
        match row.and_then(|row| first.entity(row)).cloned() {
            Some(entity) => {
                self.opened = Some(OpenedRow { entity, above: 0 });
                self.processes = None;
            }
            None => self.message(&format!("{name} has nothing to open")),
        }
    }

    /// Draws the open row.
    pub(super) fn draw_opened(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let (Some(opened), Some(window)) = (self.opened.clone(), self.shown()) else {
            return;
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let found = window.sheets.first();
        let found = found.and_then(|sheet| Some((sheet, sheet.row_of(&opened.entity)?)));
        let Some((sheet, row)) = found else {
            let text = " The row is not in this window (Esc: all rows)";
            frame.render_widget(Paragraph::new(text), area);
            return;
        };
        let name = &sheet.labels(row)[0];
        let [head, body] =
            Layout::vertical([Constraint::Length(2), Constraint::Fill(1)]).areas(area);
        let panels = match area.width {
            WIDE.. => 2,
            _ => 1,
        };
        let panels = Layout::horizontal(vec![Constraint::Fill(1); panels])
            .spacing(2)
            .split(body);
        let width = usize::from(panels[0].width);
        let left = [values(sheet, row, width), self.processes(width)];
        let right = [wait_lines(window, name), functions(window, name)];
        let mut texts = vec![left.concat(), right.concat()];
        if panels.len() == 1 {
            texts = vec![texts.concat()];
        }
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
        let keys = match longest > usize::from(body.height) {
            true => "↑↓: more lines, Esc: all rows",
            false => "Esc: all rows",
        };
        let title = Line::styled(format!(" {name}   ({keys})"), bold);
        frame.render_widget(Paragraph::new(title), head);
        let above = opened
            .above
            .min(longest.saturating_sub(usize::from(body.height)));
        for (panel, lines) in panels.iter().zip(texts) {
            let lines: Vec<Line<'_>> = lines.into_iter().map(section_line).collect();
            let text = Paragraph::new(lines).scroll((to_u16(above), 0));
            frame.render_widget(text, *panel);
        }
        if let Some(opened) = &mut self.opened {
            opened.above = above;
        }
    }

    fn is_replay(&self) -> bool {
        matches!(self.source, WindowSource::Replay { .. })
    }

    /// The lines of processes.
    fn processes(&self, width: usize) -> Vec<String> {
        let is_newest = self.paused.is_none_or(|shown| shown == self.history.last());
        if self.by == By::Process {
            return Vec::new();
        }
        let Some(found) = self.processes.as_ref().filter(|_| is_newest) else {
            let reason = match self.process_rows {
                _ if !is_newest => "those of the newest window are known",
                // A live view reads processes, whether they can be rows or not.
                ProcessRows::Never(reason) if self.is_replay() => reason,
                _ => "none are known",
            };
            return vec![format!("Processes: {reason}"), String::new()];
        };
        let mut lines = vec![
            format!("Processes: {}, {}", found.processes.len(), found.source),
            format!(" {:>9} {:>8} {:>9}  command", "pid", "% of CPU", "resident"),
        ];
        for process in &found.processes {
            let cpus = process
                .cpus
                .map_or("-".to_owned(), |cpus| format!("{:.1}", 100.0 * cpus));
            let resident = process.resident.map_or("-".to_owned(), bytes_text);
            let left = format!(" {:>9} {cpus:>8} {resident:>9}  ", process.pid);
            let width_left = width.saturating_sub(width_of(&left)).max(8);
            let command = printable(&process.command);
            let command: String = match width_of(&command) > width_left {
                true => command.chars().take(width_left - 1).chain(['…']).collect(),
                false => command.into_owned(),
            };
            lines.push(left + &command);
        }
        lines.push(String::new());
        lines
    }
}

/// A line as drawn. The first line of a section is bold; its other lines begin with a space.
fn section_line(text: String) -> Line<'static> {
    match text.starts_with(' ') || text.is_empty() {
        true => Line::raw(text),
        false => Line::styled(
            format!(" {text}"),
            Style::new().add_modifier(Modifier::BOLD),
        ),
    }
}

/// All values of the row, in as many columns as fit.
fn values(sheet: &Sheet, row: usize, width: usize) -> Vec<String> {
    let columns = SheetSelection::all_columns(sheet)
        .into_iter()
        .filter_map(|column| {
            let text = sheet.cell(row, column);
            let unit = sheet.unit(column);
            (!text.is_empty()).then(|| {
                let text = text.trim_end();
                (
                    sheet.column(column).to_owned(),
                    format!("{text} {unit}").trim_end().to_owned(),
                )
            })
        });
    let columns: Vec<(String, String)> = columns.collect();
    let widest = |text: fn(&(String, String)) -> &String| {
        let texts = columns.iter().map(|column| width_of(text(column)));
        texts.max().unwrap_or(0)
    };
    let (name, value) = (widest(|it| &it.0), widest(|it| &it.1));
    let per_line = (width.saturating_sub(2) / (name + 2 + value + GAP)).max(1);
    // Values follow each other downwards, as in a list.
    let lines = columns.len().div_ceil(per_line);
    let line = |at: usize| {
        let cells = columns.iter().skip(at).step_by(lines.max(1));
        let cells = cells.map(|(label, text)| {
            let gap = name + 2 + value - width_of(label) - width_of(text);
            format!("{label}{}{text}", " ".repeat(gap))
        });
        format!("   {}", cells.collect::<Vec<_>>().join(&" ".repeat(GAP)))
    };
    let head = "Values".to_owned();
    [head]
        .into_iter()
        .chain((0..lines).map(line))
        .chain([String::new()])
        .collect()
}

/// The row's functions with the most samples; nothing if none were sampled.
fn functions(window: &Sheets, name: &str) -> Vec<String> {
    let mut sheets = window.sheets.iter();
    let Some(sheet) = sheets.find(|sheet| sheet.title() == FUNCTIONS) else {
        return Vec::new();
    };
    let rows = (0..sheet.rows()).filter(|row| sheet.labels(*row)[0] == name);
    let columns = sheet.used();
    let lines = rows.map(|row| {
        let numbers = columns
            .iter()
            .map(|column| format!("{:>16}", sheet.cell(row, *column)));
        let labels = sheet.labels(row)[1..].join("  ");
        format!("{}  {labels}", numbers.collect::<String>())
    });
    let lines: Vec<String> = lines.collect();
    let heads = columns.iter().map(|column| {
        let head = format!("{} {}", sheet.column(*column), sheet.unit(*column));
        format!("{:>16}", head.trim())
    });
    let heads = format!(
        "{}  {}",
        heads.collect::<String>(),
        sheet.heads()[1..].join("  ")
    );
    match lines.is_empty() {
        true => Vec::new(),
        false => [String::new(), "Sampled functions".to_owned(), heads]
            .into_iter()
            .chain(lines)
            .collect(),
    }
}
