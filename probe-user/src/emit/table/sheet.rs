//! The grids of a report with every row and column, for the interactive view.

use std::{borrow::Cow, iter, time::Duration};

use super::{
    TablePage, accesses, columns,
    columns::{DrawnColumn, NARROW},
    entities,
    grid::{Grid, GridCell},
    notes,
    number::TableNumber,
    shares, uncore,
};
use crate::{
    derive::{Report, TableCell},
    emit::{Screen, printable::printable},
    join::Entity,
};

/// The unit of numbers of CPUs.
const CPU: &str = "CPU";

/// The unit in which sheets show numbers of CPUs: 150 is one and a half CPU.
const PERCENT_OF_A_CPU: &str = "% of a CPU";

/// A report as sheets.
#[derive(Clone, Debug)]
pub struct Sheets {
    /// Time since the session began, at the window's end.
    pub elapsed: Duration,
    /// Length of the window.
    pub length: Duration,
    /// Unix time at the window's end.
    pub time: Duration,
    /// Sheets with rows; the counts of entities first.
    pub sheets: Vec<Sheet>,
    /// Other lines: reasons for missing values, findings, warnings.
    pub notes: Vec<String>,
    /// Pairs that waited and ran, by the names in the first sheet; None if waits are not counted.
    pub waits: Option<Vec<SheetWait>>,
}

/// Time that one row waited for a CPU while another one ran there.
#[derive(Clone, Debug)]
pub struct SheetWait {
    /// The row that waited.
    pub waiting: String,
    /// The row that ran.
    pub behind: String,
    /// How long it waited, in nanoseconds.
    pub nanos: u64,
}

/// Rows with the same columns.
#[derive(Clone, Debug)]
pub struct Sheet {
    title: &'static str,
    grid: Grid,
}

/// A column as drawn, with the texts of all rows.
#[derive(Clone, Debug)]
pub struct SheetColumn {
    /// Index of the column in the sheet; None for the running ratio of the columns before it.
    pub index: Option<usize>,
    /// Its name, in lines.
    pub name: Vec<String>,
    /// Its unit, and other lines below the name.
    pub under: Vec<String>,
    /// Texts by row.
    pub texts: Vec<String>,
    /// Width of the widest text.
    pub width: usize,
}

impl Sheets {
    /// The sheets of a report. `exact`: all digits instead of three with a prefix.
    #[must_use]
    pub fn from_report(report: &Report, exact: bool) -> Self {
        let screen = Screen {
            width: Some(usize::MAX),
            exact,
            ..Screen::default()
        };
        let page = TablePage::new(report, screen);
        let mut sheets = vec![("counts", entities::entities(&page))];
        let [operations, sources] = accesses::grids(&page);
        sheets.extend([("accesses", operations), ("sources", sources)]);
        let lists = report.tables.iter();
        sheets.extend(lists.map(|list| (list.name, accesses::list(&page, list))));
        sheets.extend(
            uncore::grids(&page)
                .into_iter()
                .map(|grid| ("places", grid)),
        );
        sheets.push(("shares", shares::grid(&page)));
        for column in sheets.iter_mut().flat_map(|(_, grid)| &mut grid.columns) {
            if column.under == [CPU] {
                column.under = vec![PERCENT_OF_A_CPU.to_owned()];
                column.form.factor *= 100.0;
                column.form.percent = true;
            }
        }
        let sheets = sheets.into_iter().filter(|(_, grid)| !grid.rows.is_empty());
        let mut lines = notes::lists(report);
        lines.extend(notes::reasons(&page));
        lines.extend(shares::notes(&page));
        lines.extend(notes::findings(&page, true));
        lines.retain(|line| !line.trim().is_empty());
        Self {
            elapsed: report.elapsed(),
            length: report.length(),
            time: report.time,
            sheets: sheets.map(|(title, grid)| Sheet { title, grid }).collect(),
            notes: lines,
            waits: waits(&page),
        }
    }

    /// The number of cells of all sheets: a measure of the memory that they take.
    #[must_use]
    pub fn cells(&self) -> usize {
        let sheets = self.sheets.iter();
        sheets
            .map(|sheet| sheet.rows() * (2 + sheet.grid.columns.len()))
            .chain(self.waits.as_ref().map(Vec::len))
            .sum()
    }
}

/// The pairs of the report's table of waits.
fn waits(page: &TablePage<'_>) -> Option<Vec<SheetWait>> {
    let waits = page
        .report
        .waits()?
        .map(|(waiting, behind, nanos)| SheetWait {
            waiting: page.name_of(waiting),
            behind: match behind {
                TableCell::Owner(owner) => page.name_of(owner),
                TableCell::Text(text) => printable(text).into_owned(),
                _ => String::new(),
            },
            nanos,
        });
    Some(waits.collect())
}

impl Sheet {
    /// Title of the sheet.
    #[must_use]
    pub fn title(&self) -> &'static str {
        self.title
    }

    /// Headings of the labels.
    #[must_use]
    pub fn heads(&self) -> &[String] {
        &self.grid.heads
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.grid.rows.len()
    }

    /// Labels of a row, one for each heading.
    #[must_use]
    pub fn labels(&self, row: usize) -> &[String] {
        &self.grid.rows[row].labels
    }

    /// The entity of a row of the first sheet; None for a socket and the machine.
    #[must_use]
    pub fn entity(&self, row: usize) -> Option<&Entity> {
        self.grid.rows[row].entity.as_ref()
    }

    /// The row of an entity in the first sheet.
    #[must_use]
    pub fn row_of(&self, entity: &Entity) -> Option<usize> {
        (0..self.rows()).find(|row| self.entity(*row) == Some(entity))
    }

    /// Whether the row is of a kind with many rows. Other rows, such as the total of the machine,
    /// are always in view.
    #[must_use]
    pub fn is_one_of_many(&self, row: usize) -> bool {
        self.grid.rows[row].one_of_many
    }

    /// The name of a column.
    #[must_use]
    pub fn column(&self, column: usize) -> &str {
        &self.grid.columns[column].name
    }

    /// The index of the column with this name.
    #[must_use]
    pub fn column_index(&self, name: &str) -> Option<usize> {
        let mut columns = self.grid.columns.iter();
        columns.position(|column| column.name == name)
    }

    /// Indices of the columns in which any cell is not empty.
    #[must_use]
    pub fn used(&self) -> Vec<usize> {
        let is_used = |column: &usize| {
            let mut rows = self.grid.rows.iter();
            rows.any(|row| row.cells[*column] != GridCell::Empty)
        };
        (0..self.grid.columns.len()).filter(is_used).collect()
    }

    /// The unit of a column; empty for numbers without a unit.
    #[must_use]
    pub fn unit(&self, column: usize) -> String {
        self.grid.columns[column].under.join(" ")
    }

    /// A value in the unit of the metric, if any.
    #[must_use]
    pub fn value(&self, row: usize, column: usize) -> Option<f64> {
        match self.grid.rows[row].cells[column] {
            GridCell::Number(number) => Some(number.value),
            GridCell::Empty | GridCell::Absent | GridCell::NotRun | GridCell::NoSum => None,
        }
    }

    /// Whether the values of a column can be added up: counts, rates, CPUs and bytes.
    #[must_use]
    pub fn is_summable(&self, column: usize) -> bool {
        let column = &self.grid.columns[column];
        let unit = column.under.first().map_or("", String::as_str);
        column.adds_up || unit.ends_with("/s") || [PERCENT_OF_A_CPU, "B"].contains(&unit)
    }

    /// A cell as the column shows it, with its error: `-` for a missing value.
    #[must_use]
    pub fn cell(&self, row: usize, column: usize) -> String {
        let cell = self.grid.rows[row].cells[column];
        let column = &self.grid.columns[column];
        DrawnColumn::new(column, iter::once(cell), None)
            .texts
            .concat()
    }

    /// A value as the column shows it, without its error.
    #[must_use]
    pub fn text(&self, column: usize, value: f64) -> String {
        let form = self.grid.columns[column].form;
        form.text(&TableNumber::plain(value))
    }

    /// These columns as drawn, with their running ratios.
    #[must_use]
    pub fn drawn(&self, columns: &[usize]) -> Vec<SheetColumn> {
        let rows = &self.grid.rows;
        let drawn: Vec<DrawnColumn> = columns
            .iter()
            .map(|at| {
                let cells = rows.iter().map(|row| row.cells[*at]);
                DrawnColumn::new(&self.grid.columns[*at], cells, Some(NARROW))
            })
            .collect();
        let mut columns_left = columns.iter().copied();
        let columns = columns::with_running(&drawn).into_iter().map(|column| {
            let index = match &column {
                Cow::Borrowed(_) => columns_left.next(),
                Cow::Owned(_) => None,
            };
            let column = column.into_owned();
            SheetColumn {
                index,
                name: column.name,
                under: column.under,
                texts: column.texts,
                width: column.width,
            }
        });
        columns.collect()
    }
}
