//! A grid: rows of values in columns, drawn as blocks as wide as the screen. Each block starts with
//! the labels of the rows.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use super::{
    columns::{DrawnColumn, GAP, NARROW, packed, total_width, widest},
    number::{NumberFormat, TableNumber},
    text::width,
    text_columns::TextColumns,
};
use crate::{emit::names::fitted, join::Entity};

/// The option that shows all rows.
const ALL_ROWS: &str = "--all-rows";

/// The least width of a row's label.
const LEAST_LABEL: usize = 8;

/// The width at which one of several labels is still legible.
const LEGIBLE_LABEL: usize = 16;

/// Rows with the same columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    /// Headings of the labels.
    pub(super) heads: Vec<String>,
    pub(super) columns: Vec<GridColumn>,
    pub(super) rows: Vec<GridRow>,
    /// How many of the last labels rows must have in common to be in the same sum.
    pub(super) key_labels: usize,
}

/// A column of a grid.
#[derive(Clone, Debug)]
pub(super) struct GridColumn {
    pub(super) name: String,
    /// Unit, and other lines below the name.
    pub(super) under: Vec<String>,
    pub(super) form: NumberFormat,
    /// Whether the sum of its values is meaningful.
    pub(super) adds_up: bool,
}

#[derive(Clone, Debug)]
pub(super) struct GridRow {
    /// Labels, one for each heading.
    pub(super) labels: Vec<String>,
    /// The entity of the row, in the grid of entities.
    pub(super) entity: Option<Entity>,
    /// Cells, one for each column.
    pub(super) cells: Vec<GridCell>,
    /// Whether the row is of a kind with many rows, which a low screen shows as a sum.
    pub(super) one_of_many: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum GridCell {
    /// The row has no such series.
    Empty,
    /// The value is missing for a reason.
    Absent,
    /// The row did not run, so there was nothing to count.
    NotRun,
    /// A sum of values that do not add up.
    NoSum,
    Number(TableNumber),
}

impl GridRow {
    pub(super) fn new(labels: Vec<String>, columns: usize, one_of_many: bool) -> Self {
        Self {
            labels,
            entity: None,
            cells: vec![GridCell::Empty; columns],
            one_of_many,
        }
    }
}

impl Grid {
    /// The number of rows that are one of many, which a low screen may show as a sum.
    pub(super) fn many_rows(&self) -> usize {
        self.rows.iter().filter(|row| row.one_of_many).count()
    }

    /// The lines of each block. A block is at most `max_width` wide if a label and a value fit. Of
    /// the rows that are one of many, `most` are shown, and sums of the others.
    pub(super) fn blocks(&self, max_width: Option<usize>, most: usize) -> Vec<Vec<String>> {
        let rows = self.summed(most);
        if rows.is_empty() {
            return Vec::new();
        }
        let columns = |narrow| -> Vec<DrawnColumn> {
            let columns = self.columns.iter().enumerate().map(|(at, column)| {
                let cells = rows.iter().map(|row| row.cells[at]);
                DrawnColumn::new(column, cells, narrow)
            });
            columns.filter(DrawnColumn::is_used).collect()
        };
        let mut drawn = columns(None);
        let mut labels = GridLabels::new(&self.heads, &rows);
        if let Some(max_width) = max_width {
            let needed =
                |drawn: &[DrawnColumn], labels: &GridLabels| labels.width() + total_width(drawn);
            if needed(&drawn, &labels) > max_width {
                drawn = columns(Some(NARROW));
            }
            if needed(&drawn, &labels) > max_width {
                let width_left = max_width.saturating_sub(total_width(&drawn));
                // Labels of a list get more width: most of them are values, not names.
                let is_list = self.heads.len() > 2;
                let least = max_width * if is_list { 4 } else { 2 } / 5;
                let wanted = if is_list && width_left >= labels.legible_width() {
                    width_left
                } else {
                    width_left.max(least)
                };
                let widest = drawn.iter().map(|column| GAP + column.width).max();
                labels.fit(wanted.min(max_width.saturating_sub(widest.unwrap_or(0))));
            }
        }
        let width_left = max_width.map(|max_width| max_width.saturating_sub(labels.width()));
        let blocks = packed(&drawn, width_left);
        blocks.iter().map(|block| lines(block, &labels)).collect()
    }

    /// The rows, with `most` of the rows that are one of many, and sums of the others if that
    /// reduces the number of rows.
    pub(super) fn summed(&self, most: usize) -> Cow<'_, [GridRow]> {
        let many = self.many_rows();
        let first_key = self.heads.len() - self.key_labels;
        let (mut shown, mut sums) = (Vec::new(), Vec::<(usize, GridRow)>::new());
        let chosen = self.chosen(most);
        let mut sum_at = 0;
        let rows = self.rows.iter().enumerate().filter(|_| many > most);
        for (at, row) in rows {
            if !row.one_of_many || chosen.contains(&at) {
                shown.push(row.clone());
                if row.one_of_many {
                    sum_at = shown.len();
                }
                continue;
            }
            let has_same_key =
                |(_, sum): &(usize, GridRow)| sum.labels[first_key..] == row.labels[first_key..];
            let at = sums.iter().position(has_same_key).unwrap_or_else(|| {
                let sum = GridRow::new(row.labels.clone(), self.columns.len(), false);
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
            sum.labels[..first_key].fill(String::new());
            sum.labels[0] = format!("{rows} more ({ALL_ROWS})");
            sum
        });
        shown.splice(sum_at..sum_at, sums);
        Cow::Owned(shown)
    }

    /// Indices of the `most` rows to show among the rows that are one of many. In a list, the first
    /// rows of all owners come before the second row of any owner.
    fn chosen(&self, most: usize) -> HashSet<usize> {
        let mut rows_of: HashMap<&str, usize> = HashMap::new();
        let many = self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.one_of_many);
        let mut ranked: Vec<(usize, usize)> = many
            .map(|(at, row)| {
                let owner = row.labels.first().map_or("", String::as_str);
                let rank = rows_of.entry(owner).or_default();
                *rank += 1;
                (*rank, at)
            })
            .collect();
        ranked.sort_unstable();
        ranked.into_iter().take(most).map(|(_, at)| at).collect()
    }

    /// Adds the cells of a row to a sum, in columns that add up.
    fn add(&self, sum: &mut GridRow, row: &GridRow) {
        let columns = self
            .columns
            .iter()
            .zip(sum.cells.iter_mut().zip(&row.cells));
        for (column, (sum, cell)) in columns {
            if !column.adds_up {
                if *cell != GridCell::Empty {
                    *sum = GridCell::NoSum;
                }
                continue;
            }
            *sum = match (*sum, *cell) {
                (GridCell::Empty, cell) => cell,
                (sum, GridCell::Empty | GridCell::NotRun) | (GridCell::NotRun, sum) => sum,
                (GridCell::Absent, GridCell::Absent) => GridCell::Absent,
                (GridCell::NoSum, _) | (_, GridCell::NoSum) => GridCell::NoSum,
                (GridCell::Absent, GridCell::Number(mut number))
                | (GridCell::Number(mut number), GridCell::Absent) => {
                    number.at_least = true;
                    GridCell::Number(number)
                }
                (GridCell::Number(mut number), GridCell::Number(other)) => {
                    number.add(&other);
                    GridCell::Number(number)
                }
            };
        }
    }
}

/// The labels of all rows.
struct GridLabels {
    heads: Vec<String>,
    /// Texts by heading and row.
    texts: Vec<Vec<String>>,
    widths: Vec<usize>,
}

impl GridLabels {
    fn new(heads: &[String], rows: &[GridRow]) -> Self {
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

    /// The width of the labels in a line, which starts with a space.
    fn width(&self) -> usize {
        self.total_width(usize::MAX)
    }

    /// The width of the labels if each is cut to its shortest legible width.
    fn legible_width(&self) -> usize {
        self.total_width(LEGIBLE_LABEL)
    }

    fn total_width(&self, most: usize) -> usize {
        let widths = self.widths.iter().map(|width| width.min(&most));
        1 + widths.sum::<usize>() + GAP * (self.widths.len() - 1)
    }

    /// Shortens the widest labels until all of them together fit.
    fn fit(&mut self, max_width: usize) {
        while self.width() > max_width {
            let widest = self.widths.iter_mut().max().expect("one label at least");
            if *widest <= LEAST_LABEL {
                break;
            }
            *widest -= 1;
        }
        let all = self.heads.iter_mut().zip(&mut self.texts);
        for ((head, texts), max_width) in all.zip(&self.widths) {
            let names: Vec<&str> = texts.iter().map(String::as_str).collect();
            let short = fitted(&names, *max_width);
            let short_head = fitted(&[head.as_str()], *max_width).concat();
            (*head, *texts) = (short_head, short);
        }
        self.measure();
    }
}

/// The lines of a block of columns. Rows without a value in these columns are omitted.
fn lines(columns: &[Cow<'_, DrawnColumn>], labels: &GridLabels) -> Vec<String> {
    let most = |size: fn(&DrawnColumn) -> usize| columns.iter().map(|column| size(column)).max();
    let name_lines = most(|column| column.name.len()).unwrap_or(0);
    let under_lines = most(|column| column.under.len()).unwrap_or(0);
    let column_widths = columns.iter().map(|column| column.width);
    let aligned = TextColumns {
        is_right: |at: usize| at >= labels.widths.len(),
        widths: labels.widths.iter().copied().chain(column_widths).collect(),
    };
    let mut all = Vec::new();
    for line in 0..name_lines + under_lines {
        // Column names end in the line of the label headings, and units start in the next.
        let heads = labels
            .heads
            .iter()
            .map(|head| if line + 1 == name_lines { head } else { "" });
        let texts = columns.iter().map(|column| {
            let text = match line.checked_sub(name_lines) {
                Some(unit) => column.under.get(unit),
                None => (line + column.name.len())
                    .checked_sub(name_lines)
                    .and_then(|at| column.name.get(at)),
            };
            text.map_or("", String::as_str)
        });
        all.push(aligned.line(heads.chain(texts)));
    }
    for row in 0..labels.texts[0].len() {
        if columns.iter().any(|column| column.used[row]) {
            let heads = labels.texts.iter().map(|texts| texts[row].as_str());
            let texts = columns.iter().map(|column| column.texts[row].as_str());
            all.push(aligned.line(heads.chain(texts)));
        }
    }
    all
}
