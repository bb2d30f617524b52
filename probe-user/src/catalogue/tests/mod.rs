//! Tests of the catalogue.

mod added;
mod coverage;
mod documents;
mod evaluate;
mod files;
mod groups;
mod help;
mod machines;
mod page;
mod refer;
mod refusals;
mod select;
mod topdown;
mod unchanged;

use std::sync::LazyLock;

use test_support::sysfs;

use super::{Catalogue, Metric};
use crate::machine::Pmus;

static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| Catalogue::builtin().unwrap_or_else(|error| panic!("{error}")));

/// The PMUs of one of the machines in `tests/fixtures/sysfs`.
fn pmus(machine: &str) -> Pmus {
    Pmus::read(&sysfs(machine)).unwrap()
}

/// A catalogue with the metrics of a user's file.
fn merged(text: &str) -> Result<Catalogue, String> {
    let mut catalogue = CATALOGUE.clone();
    let merged = catalogue.merge("mine.toml", text);
    merged
        .map(|()| catalogue)
        .map_err(|error| error.to_string())
}

/// The text of a metric in a user's file, with further `lines`.
fn metric_text(name: &str, [unit, kind]: [&str; 2], formula: &str, lines: &str) -> String {
    format!(
        "[[metric]]\nname = \"{name}\"\ntitle = \"Mine\"\nunit = \"{unit}\"\nkind = \"{kind}\"\n\
         group = \"mine\"\nformula = \"{formula}\"\nsection = \"1\"\n{lines}"
    )
}

fn metric(family: &str, name: &str) -> &'static Metric {
    let mut metrics = CATALOGUE.metrics();
    metrics
        .find(|metric| metric.family.name == family && metric.name == name)
        .unwrap_or_else(|| panic!("no metric {name} in {family}"))
}
