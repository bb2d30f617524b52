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

/// Writes them for those whose names are known.
pub(super) fn write(text: &mut Text<'_>, report: &Report) {
    for (family, help, is_of) in FAMILIES {
        let of_family = |subject: &&Subject| matches!(subject, Subject::Entity(it) if is_of(it));
        let subjects = report.subjects.iter().filter(of_family);
        // A subject is there once for its rows and once for its shares.
        let labels: BTreeSet<String> = subjects.filter_map(|it| labels(report, it)).collect();
        if labels.is_empty() {
            continue;
        }
        text.head(family, "info", "", help);
        for labels in labels {
            text.sample(family, "_info", &[&labels], 1.0);
        }
    }
}

fn labels(report: &Report, entity: &Subject) -> Option<String> {
    let called = Called::of(report, entity);
    called.names().next()?;
    let mut labels = vec![subject(report, entity)];
    if let Some(container) = called.container {
        labels.push(text::label("runtime", &container.runtime));
        labels.extend(container.image.as_ref().map(|it| text::label("image", it)));
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
        labels.push(text::label(&name, value));
    }
    Some(labels.join(","))
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
