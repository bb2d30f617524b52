//! Tests of formulas: values, reasons for missing values, parse errors with their column, and
//! property tests.

mod errors;
mod properties;
mod values;

use std::collections::BTreeMap;

use super::{Absent, EventCount, Formula, Implicit, Input, NoValue};

/// Counts and quantities by name. Counts have a running ratio of 1 unless one is given.
#[derive(Default)]
struct Table {
    events: BTreeMap<String, Result<EventCount, Absent>>,
    implicits: BTreeMap<Implicit, f64>,
}

impl Table {
    fn new(events: &[(&str, f64)]) -> Self {
        let mut table = Self::default();
        for &(name, count) in events {
            table = table.with(
                name,
                Ok(EventCount {
                    count,
                    running_ratio: 1.0,
                }),
            );
        }
        table
    }

    fn with(mut self, name: &str, sample: Result<EventCount, Absent>) -> Self {
        self.events.insert(name.to_owned(), sample);
        self
    }

    fn implicit(mut self, implicit: Implicit, value: f64) -> Self {
        self.implicits.insert(implicit, value);
        self
    }
}

impl Input for Table {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        self.events
            .get(name)
            .copied()
            .unwrap_or(Err(Absent::Missing))
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        self.implicits.get(&implicit).copied()
    }
}

fn value(text: &str, table: &Table) -> Result<f64, NoValue> {
    let formula = Formula::parse(text).unwrap_or_else(|error| panic!("{error}"));
    formula.evaluate(table).map(|value| value.value)
}
