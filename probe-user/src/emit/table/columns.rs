//! The columns of a grid as drawn: side by side, as many as fit. Adjacent columns with the same
//! running ratios are followed by a column of these.

use std::borrow::Cow;

use super::{
    grid::{GridCell, GridColumn},
    number::align,
    text::{BREAKS, broken_into_lines, width},
};

/// Width at which a column name is broken into lines, if that saves width.
pub(super) const NARROW: usize = 10;

/// Spaces between two columns.
pub(super) const GAP: usize = 2;

/// A column as drawn.
#[derive(Clone, Debug)]
pub(super) struct DrawnColumn {
    pub(super) name: Vec<String>,
    /// Lines below the name, such as the unit.
    pub(super) under: Vec<String>,
    pub(super) texts: Vec<String>,
    /// The running ratio of each number; None without a number.
    running: Vec<Option<String>>,
    /// By row: whether it has something to show.
    pub(super) used: Vec<bool>,
    pub(super) width: usize,
}

impl DrawnColumn {
    pub(super) fn new(
        column: &GridColumn,
        cells: impl Iterator<Item = GridCell>,
        narrow: Option<usize>,
    ) -> Self {
        let cells: Vec<GridCell> = cells.collect();
        let mut texts: Vec<String> = cells
            .iter()
            .map(|cell| match cell {
                GridCell::Empty | GridCell::NoSum => String::new(),
                GridCell::Absent | GridCell::NotRun => "-".to_owned(),
                GridCell::Number(number) => column.form.text(number),
            })
            .collect();
        align(&mut texts);
        let running = cells
            .iter()
            .map(|cell| match cell {
                GridCell::Number(number) => Some(number.running_percent()),
                GridCell::Empty | GridCell::Absent | GridCell::NotRun | GridCell::NoSum => None,
            })
            .collect();
        let used = cells.iter().map(|cell| *cell != GridCell::Empty).collect();
        let values = widest(&texts);
        let lines = |text: &String| match narrow {
            Some(narrow) => broken_into_lines(text, narrow.max(values).max(longest_word(text))),
            None => vec![text.clone()],
        };
        let name = lines(&column.name);
        let under: Vec<String> = column.under.iter().flat_map(lines).collect();
        Self {
            width: values.max(widest(&name)).max(widest(&under)),
            name,
            under,
            texts,
            running,
            used,
        }
    }

    /// Whether any row has something to show.
    pub(super) fn is_used(&self) -> bool {
        self.used.contains(&true)
    }

    /// A column of these running ratios, which apply to the columns before it.
    fn running_ratio(running: &[Option<String>]) -> Self {
        let texts: Vec<String> = running
            .iter()
            .map(|running| running.clone().unwrap_or_default())
            .collect();
        let (name, under) = (vec!["live".to_owned()], vec!["%".to_owned()]);
        Self {
            width: widest(&texts).max(widest(&name)),
            name,
            under,
            used: vec![false; texts.len()],
            texts,
            running: Vec::new(),
        }
    }
}

/// The width of the longest word of a name. Words so long that they are broken do not count.
fn longest_word(name: &str) -> usize {
    /// Words wider than this are broken, such as those of paths.
    const LONGEST: usize = 12;
    let words = name
        .split_inclusive(BREAKS)
        .map(|word| width(word.trim_end()));
    words.filter(|width| *width <= LONGEST).max().unwrap_or(0)
}

/// The width of the widest text.
pub(super) fn widest(texts: &[String]) -> usize {
    texts.iter().map(|text| width(text)).max().unwrap_or(0)
}

/// The running ratios of adjacent columns, which are the same in every row.
#[derive(Default)]
struct RunningGroup {
    running: Vec<Option<String>>,
}

impl RunningGroup {
    /// Whether a column has the same running ratios, in the rows in which both are known.
    fn has_same_ratios(&self, column: &DrawnColumn) -> bool {
        let mut pairs = self
            .running
            .iter()
            .zip(&column.running)
            .filter(|(a, b)| a.is_some() && b.is_some())
            .peekable();
        let compared = pairs.peek().is_some() || self.running.iter().all(Option::is_none);
        compared && pairs.all(|(a, b)| a == b)
    }

    fn add(&mut self, column: &DrawnColumn) {
        self.running.resize(column.running.len(), None);
        for (known, running) in self.running.iter_mut().zip(&column.running) {
            *known = known.take().or_else(|| running.clone());
        }
    }

    /// The column of the running ratios; None if all are 100%.
    fn column(&self) -> Option<DrawnColumn> {
        let scaled = self
            .running
            .iter()
            .flatten()
            .any(|running| !running.is_empty());
        scaled.then(|| DrawnColumn::running_ratio(&self.running))
    }
}

/// The columns, with the columns of their running ratios.
pub(super) fn with_running(columns: &[DrawnColumn]) -> Vec<Cow<'_, DrawnColumn>> {
    let mut all = Vec::new();
    let mut group = RunningGroup::default();
    for column in columns {
        if !group.has_same_ratios(column) {
            all.extend(std::mem::take(&mut group).column().map(Cow::Owned));
        }
        group.add(column);
        all.push(Cow::Borrowed(column));
    }
    all.extend(group.column().map(Cow::Owned));
    all
}

/// The total width of the columns, with the columns of their running ratios.
pub(super) fn total_width(columns: &[DrawnColumn]) -> usize {
    let columns = with_running(columns);
    columns.iter().map(|column| GAP + column.width).sum()
}

/// Blocks of columns: as many side by side as fit, at least one.
pub(super) fn packed(
    columns: &[DrawnColumn],
    max_width: Option<usize>,
) -> Vec<Vec<Cow<'_, DrawnColumn>>> {
    let mut blocks = Vec::new();
    let mut first = 0;
    for end in 1..=columns.len() {
        let next = columns.get(first..=end);
        let full = next
            .is_none_or(|next| max_width.is_some_and(|max_width| total_width(next) > max_width));
        if full {
            blocks.push(with_running(&columns[first..end]));
            first = end;
        }
    }
    blocks
}
