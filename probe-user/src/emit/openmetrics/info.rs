//! What is known of containers and pods beside their names, as info metrics: image, runtime and
//! labels, to be joined to other series by `kind` and `name`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::label::Called,
    subject,
    text::{self, Text},
};
use crate::{
    derive::{Report, Subject},
    join::Entity,
};

/// The families: name, help, and whether an entity belongs to it.
type Family = (&'static str, &'static str, fn(&Entity) -> bool);

const FAMILIES: [Family; 2] = [
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

/// Name and value.
type Label = (String, String);

/// Those whose names are known, by family: its name, its help text, the labels of each.
pub(super) fn families(
    report: &Report,
) -> impl Iterator<Item = (&'static str, &'static str, BTreeSet<Vec<Label>>)> {
    FAMILIES.into_iter().map(|(family, help, is_of)| {
        let of_family = |subject: &&Subject| matches!(subject, Subject::Entity(it) if is_of(it));
        let subjects = report.subjects.iter().filter(of_family);
        // A subject is there once for its rows and once for its shares.
        (
            family,
            help,
            subjects.filter_map(|it| labels(report, it)).collect(),
        )
    })
}

/// Writes them.
pub(super) fn write(text: &mut Text<'_>, report: &Report) {
    for (family, help, all) in families(report).filter(|(.., all)| !all.is_empty()) {
        text.head(family, "info", "", help);
        for labels in all {
            let labels = labels.iter().map(|(name, value)| text::label(name, value));
            text.sample(
                family,
                "_info",
                &[&labels.collect::<Vec<_>>().join(",")],
                1.0,
            );
        }
    }
}

fn labels(report: &Report, entity: &Subject) -> Option<Vec<Label>> {
    let called = Called::of(report, entity);
    called.names().next()?;
    let own = subject(report, entity).into_iter();
    let mut labels: Vec<Label> = own.map(|(name, value)| (name.to_owned(), value)).collect();
    let mut add = |name: &str, value: &str| labels.push((name.to_owned(), value.to_owned()));
    if let Some(container) = called.container {
        add("runtime", &container.runtime);
        if let Some(image) = &container.image {
            add("image", image);
        }
    }
    let chosen = called.labels();
    let mut uses: BTreeMap<String, u32> = BTreeMap::new();
    let names = chosen.keys().map(|key| name_of(key));
    names.for_each(|name| *uses.entry(name).or_default() += 1);
    let mut conflicts: BTreeMap<String, u32> = BTreeMap::new();
    for (key, value) in chosen {
        let mut name = name_of(key);
        // As kube-state-metrics does where keys differ only in what a label name cannot have.
        if uses.get(&name).is_some_and(|uses| *uses > 1) {
            let number = conflicts.entry(name.clone()).or_default();
            *number += 1;
            name = format!("{name}_conflict{number}");
        }
        add(&name, value);
    }
    Some(labels)
}

/// The name of the label that has a container's label.
fn name_of(key: &str) -> String {
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
