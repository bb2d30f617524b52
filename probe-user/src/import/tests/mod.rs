//! Tests of imported counts.

mod derive;
mod forms;
mod names;
mod numbers;
mod parts;
mod perf;
mod properties;
mod stat_table;

use std::sync::LazyLock;

use super::{Derived, DerivedRow, Reading, derive, read};
use crate::catalogue::{Catalogue, Chip, Hardware};

static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| Catalogue::builtin().unwrap_or_else(|error| panic!("{error}")));

/// A file of `tests/fixtures/derive`.
fn fixture(name: &str) -> String {
    std::fs::read_to_string(test_support::fixture("derive").join(name)).unwrap()
}

fn readings(text: &str) -> Vec<Reading> {
    read(text).unwrap_or_else(|error| panic!("{error}"))
}

fn derived(text: &str, chip: Chip) -> Derived<'static> {
    let derived = derive(&CATALOGUE, &Hardware::of_chip(chip), &readings(text));
    derived.unwrap_or_else(|error| panic!("{error}"))
}

/// The rows of a metric.
fn rows<'a>(derived: &'a Derived<'static>, name: &str) -> Vec<&'a DerivedRow<'static>> {
    let rows = derived.rows.iter().filter(|row| row.metric.name == name);
    rows.collect()
}

/// The one value of a metric.
fn value(derived: &Derived<'static>, name: &str) -> f64 {
    match rows(derived, name)[..] {
        [row] => match &row.value {
            Ok(value) => value.value,
            Err(reason) => panic!("{name}: {reason}"),
        },
        ref rows => panic!("{name} has {} rows", rows.len()),
    }
}
