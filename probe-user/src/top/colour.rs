//! Colours of values: who causes most of what a column counts.

use ratatui::style::{Color, Modifier, Style};

use super::selection::OrderedRows;
use crate::emit::Sheet;

/// A value is yellow from the first of these fractions of the sum over all rows on, and red from
/// the second.
const MUCH: f64 = 0.1;
const MOST: f64 = 0.5;

/// A value is yellow from the first of these percentages of a limit on, and red from the second.
const NEAR_LIMIT: f64 = 75.0;
const AT_LIMIT: f64 = 90.0;

/// The metrics that are percentages of a limit.
const OF_LIMIT: [&str; 1] = ["memory_peak_of_limit"];

/// The colours of a view; none if the user wants none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Colours {
    are_on: bool,
}

/// The colours of a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum ColumnColours {
    None,
    /// Values are yellow from the first number on, and red from the second.
    From(f64, f64),
}

impl Colours {
    pub(super) fn new(are_on: bool) -> Self {
        Self { are_on }
    }

    /// The colours of a column, by the sum of its rows.
    pub(super) fn of_column(
        self,
        sheet: &Sheet,
        column: usize,
        rows: &OrderedRows,
    ) -> ColumnColours {
        if !self.are_on {
            return ColumnColours::None;
        }
        if OF_LIMIT.contains(&sheet.column(column)) {
            return ColumnColours::From(NEAR_LIMIT, AT_LIMIT);
        }
        let values = rows.many.iter();
        let sum: f64 = values.filter_map(|row| sheet.value(*row, column)).sum();
        match sheet.is_summable(column) && rows.many.len() > 1 && sum > 0.0 {
            true => ColumnColours::From(MUCH * sum, MOST * sum),
            false => ColumnColours::None,
        }
    }

    /// The style of a part of a bar, in this colour.
    pub(super) fn bar(self, colour: Color) -> Style {
        let style = Style::new().remove_modifier(Modifier::DIM);
        match self.are_on {
            true => style.fg(colour),
            false => style,
        }
    }

    /// The style of a value that is 0 or missing.
    pub(super) fn nothing(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

impl ColumnColours {
    pub(super) fn style(self, value: f64) -> Style {
        match self {
            Self::From(_, most) if value >= most => Style::new().fg(Color::Red),
            Self::From(much, _) if value >= much => Style::new().fg(Color::Yellow),
            _ => Style::new(),
        }
    }
}
