//! A report as tables for people: a function of the report and of the screen that it is drawn on.

mod accesses;
mod columns;
mod entities;
mod grid;
mod names;
mod notes;
mod number;
mod places;
mod shares;
mod sheet;
#[cfg(test)]
mod tests;
mod text;

use std::io::{self, Write};

pub(super) use self::names::names;
pub use self::sheet::{Sheet, SheetColumn, Sheets};
pub(crate) use self::text::wrapped;
use self::{
    grid::Grid,
    number::{Form, Number},
    text::{left, right},
};
pub(crate) use self::{names::fitted, text::width};
use super::{Options, Screen};
use crate::derive::{Group, Part, Report, Series, Subject, Value};

/// The least number of rows that a grid shows of many, however low the screen is.
const LEAST_ROWS: usize = 3;

/// Columns of the names and values of this program's account of itself.
const SELF_NAME: usize = 32;
const SELF_VALUE: usize = 16;

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: Options) -> io::Result<()> {
    let page = Page::new(report, options.screen);
    for line in page.drawn(options) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// A report, and how it is drawn.
struct Page<'a> {
    report: &'a Report,
    groups: Vec<Group<'a>>,
    screen: Screen,
    /// What subjects are called.
    names: Vec<String>,
    /// What the rows of entities are.
    heading: &'static str,
}

/// A page with some of its rows.
struct Drawn {
    lines: Vec<String>,
    /// Lines of the highest block.
    highest: usize,
}

impl<'a> Page<'a> {
    fn new(report: &'a Report, screen: Screen) -> Self {
        Self {
            report,
            groups: report.groups().collect(),
            screen,
            names: names(report, screen.width.is_none()),
            heading: names::heading(report),
        }
    }

    /// What the subject of a group is called.
    fn name(&self, group: &Group<'_>) -> String {
        self.names[group.series[0].subject as usize].clone()
    }

    /// All lines, with as many rows as leave the last line of the screen free. Where not even
    /// [`LEAST_ROWS`] fit, the page will scroll: then each block fits on the screen by itself.
    fn drawn(&self, options: Options) -> Vec<String> {
        let (above, grids, below) = (self.above(), self.grids(), self.below(options));
        let room = self.screen.line();
        let draw = |most: usize| -> Drawn {
            let blocks = grids.iter().flat_map(|grid| grid.blocks(room, most));
            let blocks: Vec<Vec<String>> = blocks.collect();
            let tables = blocks.join(&String::new());
            let lines = above.iter().chain(&tables).chain(&below);
            Drawn {
                lines: lines.flat_map(|line| wrapped(line, room, 3)).collect(),
                highest: blocks.iter().map(Vec::len).max().unwrap_or(0),
            }
        };
        let Some(height) = self.screen.height else {
            return draw(usize::MAX).lines;
        };
        let all = grids.iter().map(Grid::many).max().unwrap_or(0);
        let largest = |fits: &dyn Fn(&Drawn) -> bool| {
            // Tried without a sum first: the label of a sum may be wider than all others.
            let complete = (all < height).then(|| draw(usize::MAX));
            if let Some(complete) = complete.filter(fits) {
                return Some(complete);
            }
            let mut shown = Some(draw(LEAST_ROWS)).filter(fits)?;
            let (mut most, mut too_many) = (LEAST_ROWS, all.min(height));
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
        let shown = match largest(&|page| page.lines.len() < height) {
            None if !self.screen.in_place => largest(&|page| page.highest < height),
            shown => shown,
        };
        shown.unwrap_or_else(|| draw(LEAST_ROWS)).lines
    }

    fn above(&self) -> Vec<String> {
        let report = self.report;
        let (elapsed, length) = (
            report.elapsed().as_secs_f64(),
            report.length().as_secs_f64(),
        );
        let mut line = format!("{elapsed:>11.3} s, window {length:.3} s");
        let period = report.of(&Subject::Pmuscope, "spe_period").next();
        if let Some(period) = period.and_then(Series::estimate) {
            line += &format!(", period {:.0}", period.value);
        }
        vec![line]
    }

    fn grids(&self) -> Vec<Grid> {
        let mut grids = vec![entities::entities(self)];
        grids.extend(accesses::grids(self));
        let lists = self.report.tables.iter();
        grids.extend(lists.map(|list| accesses::list(self, list)));
        grids.extend(places::grids(self));
        grids.push(shares::grid(self));
        grids
    }

    fn below(&self, options: Options) -> Vec<String> {
        let mut lines = notes::lists(self.report);
        lines.extend(notes::reasons(self));
        lines.extend(shares::notes(self));
        lines.extend(notes::findings(self, options.first || self.screen.in_place));
        lines.push(String::new());
        if options.with_self {
            for group in self.groups.iter().filter(|group| group.part == Part::Own) {
                lines.extend(group.series.iter().map(|series| {
                    let name = left(&self.report.metric(series).name, SELF_NAME);
                    let value = right(&self.own(series), SELF_VALUE);
                    format!("  self {name} {value}")
                }));
            }
        }
        // Between this window and the next.
        lines.extend((!self.screen.in_place).then(String::new));
        lines
    }

    /// A value of this program's account of itself.
    fn own(&self, series: &Series) -> String {
        let form = Form {
            factor: 1.0,
            whole: true,
            exact: self.screen.exact,
        };
        match &series.value {
            Ok(Value::Counter(counter)) => form.text(&Number::of(&counter.estimate)),
            Ok(Value::Gauge(gauge)) => form.text(&Number::of(gauge)),
            Ok(Value::State(state, _)) => (*state).to_owned(),
            Ok(Value::Info(texts)) => {
                let texts: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
                texts.join(" ")
            }
            Ok(Value::Histogram(_)) | Err(_) => "-".to_owned(),
        }
    }
}
