//! The grids of a report with every row and column, for a view that is moved over them.

use std::{borrow::Cow, time::Duration};

use super::{
    Page, accesses, columns,
    columns::Drawn,
    entities,
    grid::{Cell, Grid},
    notes, places, shares,
};
use crate::{derive::Report, emit::Screen};

/// A name of a column is broken into lines of so many characters.
const NARROW: usize = 12;

/// What a report shows, as sheets.
#[derive(Clone, Debug)]
pub struct Sheets {
    /// Time since the session began, at the window's end.
    pub elapsed: Duration,
    /// Length of the window.
    pub length: Duration,
    /// Unix time at the window's end.
    pub time: Duration,
    /// Those with rows; the counts of entities first.
    pub sheets: Vec<Sheet>,
    /// What else the window says: reasons for missing values, findings, warnings.
    pub notes: Vec<String>,
}

/// Rows with the same columns.
#[derive(Clone, Debug)]
pub struct Sheet {
    title: &'static str,
    grid: Grid,
}

/// A column with the texts of all rows, to be drawn.
#[derive(Clone, Debug)]
pub struct SheetColumn {
    /// Which column of the sheet; None for the live share of those before it.
    pub of: Option<usize>,
    /// Its name, in lines.
    pub name: Vec<String>,
    /// Its unit, and whatever else stands below the name.
    pub under: Vec<String>,
    /// For each row.
    pub texts: Vec<String>,
    /// Columns of the terminal that the widest of all takes.
    pub width: usize,
}

impl Sheets {
    /// Those of a report. `exact`: all digits in place of three with a prefix.
    #[must_use]
    pub fn of(report: &Report, exact: bool) -> Self {
        let screen = Screen {
            width: Some(usize::MAX),
            exact,
            ..Screen::default()
        };
        let page = Page::new(report, screen);
        let mut sheets = vec![("counts", entities::entities(&page))];
        let [operations, sources] = accesses::grids(&page);
        sheets.extend([("accesses", operations), ("sources", sources)]);
        let lists = report.tables.iter();
        sheets.extend(lists.map(|list| (list.name, accesses::list(&page, list))));
        sheets.extend(
            places::grids(&page)
                .into_iter()
                .map(|grid| ("places", grid)),
        );
        sheets.push(("shares", shares::grid(&page)));
        let sheets = sheets.into_iter().filter(|(_, grid)| !grid.rows.is_empty());
        let mut all = notes::lists(report);
        all.extend(notes::reasons(&page));
        all.extend(shares::notes(&page));
        all.extend(notes::findings(&page, true));
        all.retain(|line| !line.trim().is_empty());
        Self {
            elapsed: report.elapsed(),
            length: report.length(),
            time: report.time,
            sheets: sheets.map(|(title, grid)| Sheet { title, grid }).collect(),
            notes: all,
        }
    }

    /// Cells of all sheets: a measure of the memory that they take.
    #[must_use]
    pub fn cells(&self) -> usize {
        let sheets = self.sheets.iter();
        sheets
            .map(|sheet| sheet.rows() * (1 + sheet.grid.columns.len()))
            .sum()
    }
}

impl Sheet {
    /// What it is of.
    #[must_use]
    pub fn title(&self) -> &'static str {
        self.title
    }

    /// What the labels of rows are.
    #[must_use]
    pub fn heads(&self) -> &[String] {
        &self.grid.heads
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.grid.rows.len()
    }

    /// What a row is called, one label for each head.
    #[must_use]
    pub fn labels(&self, row: usize) -> &[String] {
        &self.grid.rows[row].labels
    }

    /// Whether the row is one of many; others, such as the machine's total, are always in view.
    #[must_use]
    pub fn is_one_of_many(&self, row: usize) -> bool {
        self.grid.rows[row].one_of_many
    }

    /// The name of a column.
    #[must_use]
    pub fn column(&self, column: usize) -> &str {
        &self.grid.columns[column].name
    }

    /// The column of this name.
    #[must_use]
    pub fn column_of(&self, name: &str) -> Option<usize> {
        let mut columns = self.grid.columns.iter();
        columns.position(|column| column.name == name)
    }

    /// The columns in which any row has something to show.
    #[must_use]
    pub fn used(&self) -> Vec<usize> {
        let used = |column: &usize| {
            let mut rows = self.grid.rows.iter();
            rows.any(|row| row.cells[*column] != Cell::Empty)
        };
        (0..self.grid.columns.len()).filter(used).collect()
    }

    /// The unit of a column; empty for numbers without one.
    #[must_use]
    pub fn unit(&self, column: usize) -> String {
        self.grid.columns[column].under.join(" ")
    }

    /// A value in the metric's unit; None where there is none.
    #[must_use]
    pub fn value(&self, row: usize, column: usize) -> Option<f64> {
        match self.grid.rows[row].cells[column] {
            Cell::Number(number) => Some(number.value),
            Cell::Empty | Cell::Absent | Cell::NotRun | Cell::NoSum => None,
        }
    }

    /// A value of this column as a row shows it, without its error.
    #[must_use]
    pub fn text(&self, column: usize, value: f64) -> String {
        let form = self.grid.columns[column].form;
        form.text(&super::Number::plain(value))
    }

    /// The columns in which any row has something to show, with their live shares.
    #[must_use]
    pub fn drawn(&self) -> Vec<SheetColumn> {
        let rows = &self.grid.rows;
        let used = self.used();
        let drawn = used.iter().map(|at| {
            let cells = rows.iter().map(|row| row.cells[*at]);
            Drawn::new(&self.grid.columns[*at], cells, Some(NARROW))
        });
        let drawn: Vec<Drawn> = drawn.collect();
        let mut places = used.into_iter();
        let columns = columns::with_live(&drawn).into_iter().map(|column| {
            let of = match &column {
                Cow::Borrowed(_) => places.next(),
                Cow::Owned(_) => None,
            };
            let column = column.into_owned();
            SheetColumn {
                of,
                name: column.name,
                under: column.under,
                texts: column.texts,
                width: column.width,
            }
        });
        columns.collect()
    }
}
