//! The columns of a grid as they are drawn: side by side, as many as there is room for. Columns
//! that were counted together are followed by their live share.

use std::borrow::Cow;

use super::{
    grid::{Cell, Column},
    number::has_prefix,
    text::{broken, width},
};

/// Between two columns.
pub(super) const GAP: usize = 2;

/// A column as it is drawn.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) name: Vec<String>,
    pub(super) under: Vec<String>,
    pub(super) texts: Vec<String>,
    /// The live share of each number; None where there is no number.
    live: Vec<Option<String>>,
    /// Rows for which it has something to show.
    pub(super) used: Vec<bool>,
    pub(super) width: usize,
}

impl Drawn {
    pub(super) fn new(
        column: &Column,
        cells: impl Iterator<Item = Cell>,
        narrow: Option<usize>,
    ) -> Self {
        let cells: Vec<Cell> = cells.collect();
        let mut texts: Vec<String> = cells
            .iter()
            .map(|cell| match cell {
                Cell::Empty | Cell::NoSum => String::new(),
                Cell::Absent | Cell::NotRun => "-".to_owned(),
                Cell::Number(number) => column.form.text(number),
            })
            .collect();
        // Digits stand below digits.
        if texts.iter().any(|text| has_prefix(text)) {
            for text in texts.iter_mut().filter(|text| !has_prefix(text)) {
                text.push_str("  ");
            }
        }
        let live = cells.iter().map(|cell| match cell {
            Cell::Number(number) => Some(number.percent_live()),
            Cell::Empty | Cell::Absent | Cell::NotRun | Cell::NoSum => None,
        });
        let live = live.collect();
        let used = cells.iter().map(|cell| *cell != Cell::Empty).collect();
        let values = widest(&texts);
        let lines = |text: &String| match narrow {
            Some(narrow) => broken(text, narrow.max(values)),
            None => vec![text.clone()],
        };
        let name = lines(&column.name);
        let under: Vec<String> = column.under.iter().flat_map(lines).collect();
        Self {
            width: values.max(widest(&name)).max(widest(&under)),
            name,
            under,
            texts,
            live,
            used,
        }
    }

    /// Whether any row has such a value.
    pub(super) fn is_used(&self) -> bool {
        self.used.contains(&true)
    }

    /// A column with the live share of the columns before it.
    fn of_live(live: &[Option<String>]) -> Self {
        let texts: Vec<String> = live
            .iter()
            .map(|live| live.clone().unwrap_or_default())
            .collect();
        let (name, under) = (vec!["live".to_owned()], vec!["%".to_owned()]);
        Self {
            width: widest(&texts).max(widest(&name)),
            name,
            under,
            used: vec![false; texts.len()],
            texts,
            live: Vec::new(),
        }
    }
}

/// The columns that the widest text takes.
pub(super) fn widest(texts: &[String]) -> usize {
    texts.iter().map(|text| width(text)).max().unwrap_or(0)
}

/// Columns that were counted together: the same share of the time in every row.
#[derive(Default)]
struct Together {
    live: Vec<Option<String>>,
}

impl Together {
    /// Whether the column has the same live shares, in the rows that have both.
    fn takes(&self, column: &Drawn) -> bool {
        let both = self.live.iter().zip(&column.live);
        let mut both = both.filter(|(a, b)| a.is_some() && b.is_some()).peekable();
        let compared = both.peek().is_some() || self.live.iter().all(Option::is_none);
        compared && both.all(|(a, b)| a == b)
    }

    fn add(&mut self, column: &Drawn) {
        self.live.resize(column.live.len(), None);
        for (known, live) in self.live.iter_mut().zip(&column.live) {
            *known = known.take().or_else(|| live.clone());
        }
    }

    /// The column of their live share, where that is below 100%.
    fn column(&self) -> Option<Drawn> {
        let scaled = self.live.iter().flatten().any(|live| !live.is_empty());
        scaled.then(|| Drawn::of_live(&self.live))
    }
}

/// The columns with those of live shares.
pub(super) fn with_live(columns: &[Drawn]) -> Vec<Cow<'_, Drawn>> {
    let mut all = Vec::new();
    let mut together = Together::default();
    for column in columns {
        if !together.takes(column) {
            all.extend(std::mem::take(&mut together).column().map(Cow::Owned));
        }
        together.add(column);
        all.push(Cow::Borrowed(column));
    }
    all.extend(together.column().map(Cow::Owned));
    all
}

/// The width of the columns, with those of live shares.
pub(super) fn widths(columns: &[Drawn]) -> usize {
    let columns = with_live(columns);
    columns.iter().map(|column| GAP + column.width).sum()
}

/// As many columns side by side as there is room for, one at least.
pub(super) fn packed(columns: &[Drawn], room: Option<usize>) -> Vec<Vec<Cow<'_, Drawn>>> {
    let mut blocks = Vec::new();
    let mut first = 0;
    for end in 1..=columns.len() {
        let next = columns.get(first..=end);
        let full = next.is_none_or(|next| room.is_some_and(|room| widths(next) > room));
        if full {
            blocks.push(with_live(&columns[first..end]));
            first = end;
        }
    }
    blocks
}
