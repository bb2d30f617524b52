//! A report as tables for people, fitted to the screen.

mod accesses;
mod columns;
mod entities;
mod grid;
mod kinds;
mod notes;
mod number;
mod shares;
mod sheet;
#[cfg(test)]
mod tests;
mod text;
mod text_columns;
mod uncore;

use std::{
    collections::HashMap,
    io::{self, Write},
};

pub(crate) use self::number::{bytes_text, number_texts};
pub use self::sheet::{Sheet, SheetColumn, SheetWait, Sheets};
pub(crate) use self::text::wrapped;
pub(super) use self::text::{MeasuredText, last_parts};
pub use self::text_columns::table_lines;
use self::{
    grid::Grid,
    number::{NumberFormat, TableNumber},
};
pub(crate) use self::{text::width, text_columns::TextColumns};
use super::{
    EmitOptions, Screen,
    names::{SubjectName, shown_names},
    printable::distinct,
};
use crate::derive::{Report, ReportSection, Series, Subject, SubjectSeries, Value};

/// The fewest rows that a grid shows on a low screen.
const LEAST_ROWS: usize = 3;

/// On a screen drawn in place, all grids are shown if they fit with this many rows each.
const ENOUGH_ROWS: usize = 8;

/// Below this many lines, a screen shows one finding in place of three.
const LOW_SCREEN: usize = 30;

/// Width of the names of self-counters.
const SELF_NAME: usize = 32;

/// Width of the values of self-counters.
const SELF_VALUE: usize = 16;

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: EmitOptions) -> io::Result<()> {
    let page = TablePage::new(report, options.screen);
    for line in page.drawn(options) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// A report with its screen and names.
struct TablePage<'a> {
    report: &'a Report,
    groups: Vec<SubjectSeries<'a>>,
    screen: Screen,
    /// Names of the subjects of the report, then of subjects that only lists or findings name.
    names: Vec<String>,
    /// Indices into `names`.
    indices: HashMap<&'a Subject, usize>,
    /// Heading of the labels of entities.
    heading: &'static str,
}

/// The lines of a page, possibly with some rows summed.
struct PageLines {
    lines: Vec<String>,
    /// Number of lines of the tallest block.
    tallest_block: usize,
}

impl<'a> TablePage<'a> {
    fn new(report: &'a Report, screen: Screen) -> Self {
        let mut subjects: Vec<&Subject> = report.subjects.iter().collect();
        let mut indices: HashMap<&Subject, usize> = subjects.iter().copied().zip(0..).collect();
        for subject in report.subjects_named() {
            indices.entry(subject).or_insert_with(|| {
                subjects.push(subject);
                subjects.len() - 1
            });
        }
        let named = subjects.iter();
        let named: Vec<SubjectName> = named
            .map(|subject| SubjectName::new(subject, &report.described))
            .collect();
        let shown = shown_names(&named, screen.width.is_none()).into_iter();
        Self {
            report,
            groups: report.groups().collect(),
            screen,
            names: shown.map(|name| distinct(&name).into_owned()).collect(),
            indices,
            heading: kinds::heading(report),
        }
    }

    /// The name of the subject of a group.
    fn name(&self, group: &SubjectSeries<'_>) -> String {
        self.names[group.series[0].subject as usize].clone()
    }

    /// The name of a subject, which need not have a row.
    fn name_of(&self, subject: &Subject) -> String {
        self.names[self.indices[subject]].clone()
    }

    /// All lines, with as many rows as leave the last line of the screen free. If not even
    /// [`LEAST_ROWS`] fit, the page scrolls and each block fits on the screen by itself.
    fn drawn(&self, options: EmitOptions) -> Vec<String> {
        let (above, grids, below) = (
            self.heading_lines(options),
            self.grids(),
            self.footer_lines(options),
        );
        let line_width = self.screen.line_width();
        let draw = |most: usize| -> PageLines {
            let blocks: Vec<Vec<String>> = grids
                .iter()
                .flat_map(|grid| grid.blocks(line_width, most))
                .collect();
            let tables = blocks.join(&String::new());
            let lines = above.iter().chain(&tables).chain(&below);
            PageLines {
                lines: lines
                    .flat_map(|line| wrapped(line, line_width, 3))
                    .collect(),
                tallest_block: blocks.iter().map(Vec::len).max().unwrap_or(0),
            }
        };
        let Some(height) = self.screen.height else {
            return draw(usize::MAX).lines;
        };
        let most_rows = grids.iter().map(Grid::many_rows).max().unwrap_or(0);
        let largest_page = |fits: &dyn Fn(&PageLines) -> bool| {
            // Tries all rows first: they may fit even if fewer rows with a sum do not, since the
            // label of a sum may be wider than all other labels.
            let complete = (most_rows < height).then(|| draw(usize::MAX));
            if let Some(complete) = complete.filter(fits) {
                return Some(complete);
            }
            let mut shown = Some(draw(LEAST_ROWS)).filter(fits)?;
            let (mut most, mut too_many) = (LEAST_ROWS, most_rows.min(height));
            while most + 1 < too_many {
                let middle = most.midpoint(too_many);
                let tried = draw(middle);
                if fits(&tried) {
                    (shown, most) = (tried, middle);
                } else {
                    too_many = middle;
                }
            }
            Some(shown)
        };
        let is_whole = |page: &PageLines| page.lines.len() < height;
        if self.screen.in_place {
            // Many rows with the first columns are worth more than few rows with all columns and
            // lists.
            let enough = draw(most_rows.min(ENOUGH_ROWS));
            if !is_whole(&enough)
                && let Some(headline) = self.headline(height, &above, &grids[0])
            {
                return headline;
            }
        }
        let shown = match largest_page(&is_whole) {
            None if !self.screen.in_place => largest_page(&|page| page.tallest_block < height),
            shown => shown,
        };
        shown.unwrap_or_else(|| draw(LEAST_ROWS)).lines
    }

    /// The first columns of the rows, and the first findings, for a screen too low for everything.
    /// None if even these do not fit.
    fn headline(&self, height: usize, above: &[String], rows: &Grid) -> Option<Vec<String>> {
        let most = if height < LOW_SCREEN { 1 } else { 3 };
        let findings = notes::findings(self, false).into_iter().take(most);
        let line_width = self.screen.line_width();
        let mut above = above.join("\n");
        above += " (more columns and lists: in `top`, or with -o FILE)";
        let above = wrapped(&above, line_width, 1);
        let below = findings.flat_map(|line| wrapped(&line, line_width, 3));
        let below: Vec<String> = below.collect();
        let draw = |most: usize| {
            let block = rows.blocks(line_width, most).into_iter().next()?;
            let lines = above.iter().cloned().chain(block).chain(below.clone());
            let lines: Vec<String> = lines.collect();
            (lines.len() < height).then_some(lines)
        };
        let many = rows.many_rows();
        (LEAST_ROWS.min(many)..=many.min(height))
            .rev()
            .find_map(draw)
    }

    fn heading_lines(&self, options: EmitOptions) -> Vec<String> {
        let report = self.report;
        let (elapsed, length) = (
            report.elapsed().as_secs_f64(),
            report.length().as_secs_f64(),
        );
        let mut line = format!("after {elapsed:.3} s, for {length:.3} s");
        let period = report.find_series(&Subject::Pmuscope, "spe_period").next();
        if let Some(period) = period.and_then(Series::estimate) {
            line += &format!(", period {:.0}", period.value);
        }
        // Separates this window from the one before.
        let is_next = !options.is_first_window && !self.screen.in_place;
        is_next
            .then(String::new)
            .into_iter()
            .chain([line])
            .collect()
    }

    fn grids(&self) -> Vec<Grid> {
        let mut grids = vec![entities::entities(self)];
        grids.extend(accesses::grids(self));
        let lists = self.report.tables.iter();
        grids.extend(lists.map(|list| accesses::list(self, list)));
        grids.extend(uncore::grids(self));
        grids.push(shares::grid(self));
        grids
    }

    fn footer_lines(&self, options: EmitOptions) -> Vec<String> {
        let mut lines = notes::lists(self.report);
        lines.extend(notes::reasons(self));
        lines.extend(shares::notes(self));
        lines.extend(notes::findings(
            self,
            options.is_first_window || self.screen.in_place,
        ));
        let groups = { self.groups.iter() }
            .filter(|group| options.with_self && group.section == ReportSection::SelfCounters);
        let own = groups.flat_map(|group| group.series).map(|series| {
            let name = &self.report.metric(series).name;
            let value = self.self_value(series);
            format!("  self {name:<SELF_NAME$} {value:>SELF_VALUE$}")
        });
        let mut own = own.peekable();
        lines.extend(own.peek().map(|_| String::new()));
        lines.extend(own);
        lines
    }

    /// The text of a self-counter.
    fn self_value(&self, series: &Series) -> String {
        let form = NumberFormat::new(true, self.screen.exact);
        match &series.value {
            Ok(Value::Counter(counter)) => {
                form.text(&TableNumber::from_estimate(&counter.estimate))
            }
            Ok(Value::Gauge(gauge)) => form.text(&TableNumber::from_estimate(gauge)),
            Ok(Value::State(state, _)) => (*state).to_owned(),
            Ok(Value::Info(texts)) => {
                let texts: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
                texts.join(" ")
            }
            Ok(Value::Histogram(_)) | Err(_) => "-".to_owned(),
        }
    }
}
