//! Names of subjects for people: one subject has the same name in tables, lists, `top`, reports
//! and comparisons.

mod fit;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub(crate) use self::fit::fitted;
use crate::{
    derive::Subject,
    join::Entity,
    names::{RuntimeNames, UID_LENGTH, is_uid},
};

/// Digits of a short container id, as other tools show it.
const SHORT_ID: usize = 12;

/// Digits of a short pod uid: the first part of the uid.
const SHORT_UID: usize = 8;

/// The least number of adjacent hexadecimal digits that are taken for an id.
const MIN_ID: usize = 32;

/// The names of a subject.
#[derive(Clone, Debug)]
pub(crate) struct SubjectName {
    /// The name that is known without a container runtime, with whole ids.
    id: String,
    /// The name from the runtime, without the namespace; None if no runtime named the subject.
    given: Option<String>,
    /// The namespace of the pod, if the runtime named the subject.
    namespace: Option<String>,
}

impl SubjectName {
    pub(crate) fn new(subject: &Subject, described: &RuntimeNames) -> Self {
        let labels = subject.labels(described);
        let [namespace, pod, container] = labels.runtime_names();
        // A container is not named by the name of its pod alone.
        let is_container = matches!(subject, Subject::Entity(Entity::Container { .. }));
        let is_named = container.is_some() || pod.is_some() && !is_container;
        let path = || {
            let parts: Vec<&str> = pod.into_iter().chain(container).collect();
            parts.join("/")
        };
        Self {
            id: subject.plain_name(),
            given: is_named.then(path),
            namespace: namespace.filter(|_| is_named).map(str::to_owned),
        }
    }

    /// Whether a container runtime named the subject.
    pub(crate) fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// The name from the runtime, with its namespace; None if no runtime named the subject.
    fn with_namespace(&self) -> Option<String> {
        let given = self.given.as_deref()?;
        Some(match &self.namespace {
            Some(namespace) => format!("{namespace}/{given}"),
            None => given.to_owned(),
        })
    }
}

/// The name of one subject, independent of other subjects: the name from the container runtime,
/// else a short id.
pub(crate) fn label(subject: &Subject, described: &RuntimeNames) -> String {
    let name = SubjectName::new(subject, described);
    name.with_namespace()
        .unwrap_or_else(|| with_short_ids(&[&name.id]).concat())
}

/// The names to show, in the order of the subjects: names from runtimes if known, else ids. Names
/// are unique, whatever runtimes report, but not yet printable. Unless `in_full`, ids are cut to a
/// unique prefix, and a namespace is omitted if all subjects share it.
pub(crate) fn shown_names(subjects: &[SubjectName], in_full: bool) -> Vec<String> {
    let ids: Vec<&str> = subjects.iter().map(|it| it.id.as_str()).collect();
    let ids = match in_full {
        true => ids.into_iter().map(str::to_owned).collect(),
        false => with_short_ids(&ids),
    };
    let named = subjects.iter().filter(|it| it.given.is_some());
    let namespaces: HashSet<&Option<String>> = named.map(|it| &it.namespace).collect();
    let omits_namespace = !in_full && namespaces.len() == 1;
    let given = subjects.iter().map(|it| match omits_namespace {
        true => it.given.clone(),
        false => it.with_namespace(),
    });
    unique_names(&ids.into_iter().zip(given).collect::<Vec<_>>())
}

/// The name to show for each subject, from its id and the name that a runtime gave. That is the
/// given name; if other subjects have the same one, as after a restart, the id is appended.
fn unique_names(subjects: &[(String, Option<String>)]) -> Vec<String> {
    let with_id = |id: &str, given: &str| format!("{given} {}", id_alone(id));
    let mut owners: HashMap<String, HashSet<&str>> = HashMap::new();
    for (id, given) in subjects {
        let given = given.iter();
        let names = given.flat_map(|given| [given.clone(), with_id(id, given)]);
        for name in names.chain([id.clone()]) {
            owners.entry(name).or_default().insert(id);
        }
    }
    let is_free = |name: &String| owners.get(name).is_some_and(|owners| owners.len() == 1);
    let name = |(id, given): &(String, Option<String>)| {
        let given = given.iter();
        let mut names = given.flat_map(|given| [given.clone(), with_id(id, given)]);
        names.find(is_free).unwrap_or_else(|| id.clone())
    };
    subjects.iter().map(name).collect()
}

/// The id in the name of a container or pod.
fn id_alone(id: &str) -> &str {
    id.strip_prefix("pod ").unwrap_or(id)
}

/// The names with each id cut to its shortest unique prefix.
fn with_short_ids(names: &[&str]) -> Vec<String> {
    let ids: BTreeSet<&str> = names.iter().flat_map(|name| ids_in(name)).collect();
    let before = [None].into_iter().chain(ids.iter().map(Some));
    let after = ids.iter().skip(1).map(Some).chain([None]);
    let unique_length =
        |id: &str, other: Option<&&str>| other.map_or(0, |other| common_length(id, other) + 1);
    let lengths: BTreeMap<&str, usize> = ids
        .iter()
        .zip(before.zip(after))
        .map(|(id, (before, after))| {
            let least = if is_uid(id) { SHORT_UID } else { SHORT_ID };
            let length = least
                .max(unique_length(id, before))
                .max(unique_length(id, after));
            (*id, length.min(id.len()))
        })
        .collect();
    let shortened = names.iter().map(|name| {
        // In a path, an id is a part of a longer word, so a cut is marked.
        let mark = if name.starts_with('/') { "…" } else { "" };
        let mut short = (*name).to_owned();
        for id in ids_in(name) {
            if let Some(length) = lengths.get(id).filter(|length| **length < id.len()) {
                short = short.replacen(id, &format!("{}{mark}", &id[..*length]), 1);
            }
        }
        short
    });
    shortened.collect()
}

/// The ids in a name: long runs of hexadecimal digits, and uids.
fn ids_in(name: &str) -> Vec<&str> {
    let bytes = name.as_bytes();
    let (mut ids, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let digits = bytes[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        let length = match name.get(at..at + UID_LENGTH) {
            Some(uid) if is_uid(uid) => UID_LENGTH,
            _ if digits >= MIN_ID => digits,
            _ => 0,
        };
        if length > 0 {
            ids.push(&name[at..at + length]);
        }
        at += length.max(1);
    }
    ids
}

/// Length of the common prefix in bytes.
fn common_length(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shortened(names: &[&str]) -> Vec<String> {
        with_short_ids(names)
    }

    #[test]
    fn ids_are_cut_to_their_shortest_unique_prefix() {
        let id = |start: &str| format!("{start}{}", "0".repeat(64 - start.len()));
        let (a, b) = (id("0123456789abcd"), id("0123456789abce"));
        let uid = "7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f";
        assert_eq!(
            shortened(&[&a, &id("3f"), &format!("{b} (pod {uid})"), "abc", &a]),
            [
                "0123456789abcd",
                "3f0000000000",
                "0123456789abce (pod 7bbae5a3)",
                "abc",
                "0123456789abcd"
            ]
        );
        let pod = uid.replace('-', "_");
        let path = format!("/kubepods-pod{pod}.slice/cri-containerd-{}.scope", id("3f"));
        let other = format!("/kubepods-pod{}.slice", pod.replace("4a7d", "4a7e"));
        assert_eq!(
            shortened(&[&path, &other]),
            [
                "/kubepods-pod7bbae5a3_01a3_4a7d….slice/cri-containerd-3f0000000000….scope",
                "/kubepods-pod7bbae5a3_01a3_4a7e….slice"
            ]
        );
    }

    proptest! {
        #[test]
        fn ids_that_differ_stay_different(
            ids in prop::collection::btree_set("[01]{60}[0-9a-f]{4}", 0..20),
        ) {
            let names: Vec<&str> = ids.iter().map(String::as_str).collect();
            let short: BTreeSet<String> = with_short_ids(&names).into_iter().collect();
            prop_assert_eq!(short.len(), names.len());
        }
    }
}
