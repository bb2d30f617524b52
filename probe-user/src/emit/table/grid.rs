//! A grid: rows of values in columns, drawn as blocks that are as wide as the screen. Each block
//! begins with what the rows are called.

use std::borrow::Cow;

use super::{
    columns::{Drawn, GAP, packed, widest, widths},
    names::fitted,
    number::{Form, Number},
    text::{left, right, width},
};

/// A name of a column is broken into lines of so many characters where that saves room.
const NARROW: usize = 12;

/// The option that shows all rows.
const ALL_ROWS: &str = "--all-rows";

/// The least width of a row's label.
const LEAST_LABEL: usize = 8;

/// The width at which one of several labels can still be read.
const LEGIBLE_LABEL: usize = 16;

/// Rows with the same columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    /// What is above the labels.
    pub(super) heads: Vec<String>,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    /// How many labels, counted from the last, must stay apart when rows are added up.
    pub(super) kept: usize,
}

/// What the values of a column are.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// Unit, and whatever else stands below the name.
    pub(super) under: Vec<String>,
    pub(super) form: Form,
    /// Whether the sum of its values is meaningful.
    pub(super) adds_up: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// What it is called, one for each head.
    pub(super) labels: Vec<String>,
    /// One for each column.
    pub(super) cells: Vec<Cell>,
    /// One of many of its kind, which a low screen shows as a sum.
    pub(super) one_of_many: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell {
    /// The row has no such value.
    Empty,
    /// There is none, for a reason.
    Absent,
    /// The row did not run: there was nothing to count.
    NotRun,
    /// Of rows whose values do not add up.
    NoSum,
    Number(Number),
}

impl Row {
    pub(super) fn new(labels: Vec<String>, columns: usize, one_of_many: bool) -> Self {
        Self {
            labels,
            cells: vec![Cell::Empty; columns],
            one_of_many,
        }
    }
}

impl Grid {
    /// The number of rows that a low screen may show as a sum.
    pub(super) fn many(&self) -> usize {
        self.rows.iter().filter(|row| row.one_of_many).count()
    }

    /// The lines of its blocks, each block at most `room` wide where a value has room beside a
    /// label. Of rows that are one of many the first `most` are shown.
    pub(super) fn blocks(&self, room: Option<usize>, most: usize) -> Vec<Vec<String>> {
        let rows = self.summed(most);
        if rows.is_empty() {
            return Vec::new();
        }
        let columns = |narrow| -> Vec<Drawn> {
            let columns = self.columns.iter().enumerate().map(|(at, column)| {
                let cells = rows.iter().map(|row| row.cells[at]);
                Drawn::new(column, cells, narrow)
            });
            columns.filter(Drawn::is_used).collect()
        };
        let mut drawn = columns(None);
        let mut labels = Labels::new(&self.heads, &rows);
        if let Some(room) = room {
            let needed = |drawn: &[Drawn], labels: &Labels| labels.width() + widths(drawn);
            if needed(&drawn, &labels) > room {
                drawn = columns(Some(NARROW));
            }
            if needed(&drawn, &labels) > room {
                let beside = room.saturating_sub(widths(&drawn));
                // Of many labels most are no names, but what is shown.
                let is_list = self.heads.len() > 2;
                let least = room * if is_list { 4 } else { 2 } / 5;
                let wanted = if is_list && beside >= labels.legible() {
                    beside
                } else {
                    beside.max(least)
                };
                let widest = drawn.iter().map(|column| GAP + column.width).max();
                labels.fit(wanted.min(room.saturating_sub(widest.unwrap_or(0))));
            }
        }
        let beside = room.map(|room| room.saturating_sub(labels.width()));
        let blocks = packed(&drawn, beside);
        blocks.iter().map(|block| lines(block, &labels)).collect()
    }

    /// The rows; those of many beyond the first `most` added up, where that makes them fewer.
    pub(super) fn summed(&self, most: usize) -> Cow<'_, [Row]> {
        let many = self.many();
        let kept = self.heads.len() - self.kept;
        let (mut shown, mut sums) = (Vec::new(), Vec::<(usize, Row)>::new());
        let (mut seen, mut place) = (0, 0);
        for row in self.rows.iter().filter(|_| many > most) {
            seen += usize::from(row.one_of_many);
            if !row.one_of_many || seen <= most {
                shown.push(row.clone());
                continue;
            }
            if sums.is_empty() {
                place = shown.len();
            }
            let same = |(_, sum): &(usize, Row)| sum.labels[kept..] == row.labels[kept..];
            let at = sums.iter().position(same).unwrap_or_else(|| {
                let sum = Row::new(row.labels.clone(), self.columns.len(), false);
                sums.push((0, sum));
                sums.len() - 1
            });
            let (rows, sum) = &mut sums[at];
            *rows += 1;
            self.add(sum, row);
        }
        if many.saturating_sub(most) <= sums.len() {
            return Cow::Borrowed(&self.rows);
        }
        let sums = sums.into_iter().map(|(rows, mut sum)| {
            sum.labels[..kept].fill(String::new());
            sum.labels[0] = format!("{rows} more ({ALL_ROWS})");
            sum
        });
        shown.splice(place..place, sums);
        Cow::Owned(shown)
    }

    /// Adds what adds up.
    fn add(&self, sum: &mut Row, row: &Row) {
        let columns = self
            .columns
            .iter()
            .zip(sum.cells.iter_mut().zip(&row.cells));
        for (column, (sum, cell)) in columns {
            if !column.adds_up {
                if *cell != Cell::Empty {
                    *sum = Cell::NoSum;
                }
                continue;
            }
            *sum = match (*sum, *cell) {
                (Cell::Empty, cell) => cell,
                (sum, Cell::Empty | Cell::NotRun) | (Cell::NotRun, sum) => sum,
                (Cell::Absent, Cell::Absent) => Cell::Absent,
                (Cell::NoSum, _) | (_, Cell::NoSum) => Cell::NoSum,
                (Cell::Absent, Cell::Number(mut number))
                | (Cell::Number(mut number), Cell::Absent) => {
                    number.at_least = true;
                    Cell::Number(number)
                }
                (Cell::Number(mut number), Cell::Number(other)) => {
                    number.add(&other);
                    Cell::Number(number)
                }
            };
        }
    }
}

/// What rows are called.
struct Labels {
    heads: Vec<String>,
    /// By head, and then by row.
    texts: Vec<Vec<String>>,
    widths: Vec<usize>,
}

impl Labels {
    fn new(heads: &[String], rows: &[Row]) -> Self {
        let of_head = |at: usize| rows.iter().map(|row| row.labels[at].clone()).collect();
        let mut labels = Self {
            heads: heads.to_vec(),
            texts: (0..heads.len()).map(of_head).collect(),
            widths: Vec::new(),
        };
        labels.measure();
        labels
    }

    fn measure(&mut self) {
        let both = self.heads.iter().zip(&self.texts);
        self.widths = both
            .map(|(head, texts)| widest(texts).max(width(head)))
            .collect();
    }

    /// Their width in a line, which begins with a space.
    fn width(&self) -> usize {
        self.of_widths(usize::MAX)
    }

    /// The same where each is as short as can still be read.
    fn legible(&self) -> usize {
        self.of_widths(LEGIBLE_LABEL)
    }

    fn of_widths(&self, most: usize) -> usize {
        let widths = self.widths.iter().map(|width| width.min(&most));
        1 + widths.sum::<usize>() + GAP * (self.widths.len() - 1)
    }

    /// Shortens the widest until all have room.
    fn fit(&mut self, room: usize) {
        while self.width() > room {
            let widest = self.widths.iter_mut().max().expect("one label at least");
            if *widest <= LEAST_LABEL {
                break;
            }
            *widest -= 1;
        }
        let all = self.heads.iter_mut().zip(&mut self.texts);
        for ((head, texts), room) in all.zip(&self.widths) {
            let names: Vec<&str> = texts.iter().map(String::as_str).collect();
            let short = fitted(&names, *room);
            let short_head = fitted(&[head.as_str()], *room).concat();
            (*head, *texts) = (short_head, short);
        }
        self.measure();
    }
}

/// The lines of a block, without the rows that have nothing in it.
fn lines(columns: &[Cow<'_, Drawn>], labels: &Labels) -> Vec<String> {
    let most = |of: fn(&Drawn) -> usize| columns.iter().map(|column| of(column)).max();
    let names = most(|column| column.name.len()).unwrap_or(0);
    let under = most(|column| column.under.len()).unwrap_or(0);
    let mut all = Vec::new();
    for line in 0..names + under {
        // Names of columns end in the line of the labels' heads, and units begin in the next one.
        let heads = labels
            .heads
            .iter()
            .map(|head| if line + 1 == names { head } else { "" });
        let texts = columns.iter().map(|column| {
            let text = match line.checked_sub(names) {
                Some(unit) => column.under.get(unit),
                None => (line + column.name.len())
                    .checked_sub(names)
                    .and_then(|at| column.name.get(at)),
            };
            text.map_or("", String::as_str)
        });
        all.push(drawn(heads, texts, columns, labels));
    }
    for row in 0..labels.texts[0].len() {
        if columns.iter().any(|column| column.used[row]) {
            let heads = labels.texts.iter().map(|texts| texts[row].as_str());
            let texts = columns.iter().map(|column| column.texts[row].as_str());
            all.push(drawn(heads, texts, columns, labels));
        }
    }
    all
}

fn drawn<'a>(
    heads: impl Iterator<Item = &'a str>,
    texts: impl Iterator<Item = &'a str>,
    columns: &[Cow<'_, Drawn>],
    labels: &Labels,
) -> String {
    let heads = heads.zip(&labels.widths).map(|(text, to)| left(text, *to));
    let texts = texts
        .zip(columns)
        .map(|(text, column)| right(text, column.width));
    let cells: Vec<String> = heads.chain(texts).collect();
    format!(" {}", cells.join(&" ".repeat(GAP)))
        .trim_end()
        .to_owned()
}
