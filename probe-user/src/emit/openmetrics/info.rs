//! Info metrics of containers and pods: image, runtime and labels, to join with other series by
//! `kind` and `name`.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{self, ExpositionText};
use crate::{
    derive::{LabelReach, Report, Subject},
    join::Entity,
};

/// A family: its name, its help, and whether an entity belongs to it.
type InfoFamily = (&'static str, &'static str, fn(&Entity) -> bool);

const FAMILIES: [InfoFamily; 2] = [
    (
        "pmuscope_container",
        "Image, runtime and chosen labels of a container; its id is the label name",
        |entity| matches!(entity, Entity::Container { .. }),
    ),
    (
        "pmuscope_pod",
        "Chosen labels of a pod; its uid is the label name",
        |entity| matches!(entity, Entity::Pod(_)),
    ),
];

/// The name and the value of a label.
pub(super) type InfoLabel = (String, String);

/// Entities with known names, by family: its name, its help text, the labels of each entity.
pub(super) fn families(
    report: &Report,
) -> impl Iterator<Item = (&'static str, &'static str, BTreeSet<Vec<InfoLabel>>)> {
    FAMILIES.into_iter().map(|(family, help, is_member)| {
        let of_family =
            |subject: &&Subject| matches!(subject, Subject::Entity(it) if is_member(it));
        let subjects = report.subjects.iter().filter(of_family);
        // Collected into a set: an entity may be a subject of rows and another one of shares.
        (
            family,
            help,
            subjects.filter_map(|it| labels(report, it)).collect(),
        )
    })
}

/// Writes the info metrics.
pub(super) fn write(text: &mut ExpositionText<'_>, report: &Report) {
    for (family, help, all) in families(report).filter(|(.., all)| !all.is_empty()) {
        text.head(family, "info", "", help);
        for labels in all {
            text.sample(family, "_info", &[&text::labels(&labels)], 1.0);
        }
    }
}

/// The labels of an entity; None if no runtime named it.
fn labels(report: &Report, entity: &Subject) -> Option<Vec<InfoLabel>> {
    let entity_labels = entity.labels(&report.described);
    if !entity_labels.is_named() {
        return None;
    }
    let texts = entity_labels.texts(LabelReach::Info);
    let mut labels: Vec<InfoLabel> = texts
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let selected = entity_labels.selected();
    let mut uses: BTreeMap<String, u32> = BTreeMap::new();
    let names = selected.keys().map(|key| label_name(key));
    names.for_each(|name| *uses.entry(name).or_default() += 1);
    let mut conflicts: BTreeMap<String, u32> = BTreeMap::new();
    for (key, value) in selected {
        let mut name = label_name(key);
        // Keys that differ only in characters invalid in label names are numbered, as in
        // kube-state-metrics.
        if uses.get(&name).is_some_and(|uses| *uses > 1) {
            let number = conflicts.entry(name.clone()).or_default();
            *number += 1;
            name = format!("{name}_conflict{number}");
        }
        labels.push((name, value.to_owned()));
    }
    Some(labels)
}

/// The label name for the label key of a container.
fn label_name(key: &str) -> String {
    let chars = key.chars().map(|char| match char {
        'a'..='z' | 'A'..='Z' | '0'..='9' => char,
        _ => '_',
    });
    ["label_"]
        .into_iter()
        .flat_map(str::chars)
        .chain(chars)
        .collect()
}
