//! Names of rows in a table. Long ids are cut to a unique prefix; names that are too wide lose
//! directories or their middle.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{
    super::printable::printable,
    text::{MeasuredText, last_parts, width},
};
use crate::{
    derive::{Report, Subject},
    join::Entity,
    names::{UID_LENGTH, is_uid},
};

/// Heading of containers, whose names do not include their kind.
const CONTAINER: &str = "container";

/// Digits of a container id in other tools.
const SHORT_ID: usize = 12;

/// Digits of a pod uid: its first part.
const SHORT_UID: usize = 8;

/// The shortest run of digits that is an id.
const MIN_ID: usize = 32;

/// The names of all subjects, in their order: names from runtimes if known, else ids, in full or
/// cut to a unique prefix.
pub(in crate::emit) fn names(report: &Report, in_full: bool) -> Vec<String> {
    let heading = heading(report);
    let subjects = || report.subjects.iter();
    let full: Vec<String> = subjects().map(|subject| name(subject, heading)).collect();
    let ids = if in_full { full } else { with_short_ids(&full) };
    let printable_ids = ids.iter().map(|name| printable(name).into_owned());
    let given = subjects().map(|subject| runtime_name(report, subject, heading));
    unique_names(&printable_ids.zip(given).collect::<Vec<_>>())
}

/// The name that a runtime gave, for people; None without one.
fn runtime_name(report: &Report, subject: &Subject, heading: &str) -> Option<String> {
    let labels = subject.labels(&report.described);
    let is_container = matches!(subject, Subject::Entity(Entity::Container { .. }));
    if is_container && labels.container.is_none() {
        return None;
    }
    let path = labels.runtime_path()?;
    let kind = match is_container {
        true if heading == CONTAINER => "",
        true => "container ",
        false => "pod ",
    };
    Some(printable(&format!("{kind}{path}")).into_owned())
}

/// The name to show for each subject, from its id and the name that a runtime gave: the given name
/// if unique, with the id appended if other subjects have it too, as after a restart. No two
/// subjects get the same name, whatever runtimes report.
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

/// The id in the name of a container or pod, without kind and pod.
fn id_alone(id: &str) -> &str {
    let id = id
        .strip_prefix("container ")
        .unwrap_or(id)
        .strip_prefix("pod ")
        .unwrap_or(id);
    id.split(' ').next().unwrap_or(id)
}

/// The name of a subject by its id, with its kind unless the heading states it.
fn name(subject: &Subject, heading: &str) -> String {
    match subject {
        Subject::Entity(Entity::Container { id, pod }) => {
            let kind = if heading == CONTAINER {
                ""
            } else {
                "container "
            };
            match pod {
                Some(pod) => format!("{kind}{id} (pod {pod})"),
                None => format!("{kind}{id}"),
            }
        }
        _ => subject.short_name(),
    }
}

/// The common kind of all rows that are one of many; empty if kinds differ, since names then state
/// the kind. The kind of a cgroup with a lost name is unknown.
pub(super) fn heading(report: &Report) -> &'static str {
    let is_lost = |subject: &&Subject| matches!(subject, Subject::Entity(Entity::Unnamed(_)));
    let subjects = report.subjects.iter().filter(|subject| !is_lost(subject));
    let mut kinds = subjects.filter_map(kind);
    let first = kinds.next().unwrap_or_default();
    if kinds.all(|kind| kind == first) {
        first
    } else {
        ""
    }
}

/// Whether the subject is of a kind with any number of rows.
pub(super) fn one_of_many(subject: &Subject) -> bool {
    kind(subject).is_some()
}

/// The kind of a row that is one of many, as a heading; empty if the name states it.
fn kind(subject: &Subject) -> Option<&'static str> {
    let Subject::Entity(entity) = subject else {
        return None;
    };
    match entity {
        Entity::Container { .. } => Some(CONTAINER),
        Entity::Process { .. } | Entity::ProcessOf { .. } | Entity::EndedProcesses => {
            Some("process, pid")
        }
        Entity::Cgroup(_) | Entity::Unnamed(_) => Some("cgroup"),
        Entity::Pod(_) => Some(""),
        Entity::Command(_)
        | Entity::Others
        | Entity::System
        | Entity::Overflow
        | Entity::Unattributed
        | Entity::Idle
        | Entity::SystemAndIdle => None,
    }
}

/// The names with each id cut to its shortest unique prefix.
fn with_short_ids(names: &[String]) -> Vec<String> {
    let ids: BTreeSet<&str> = names.iter().flat_map(|name| ids_in(name)).collect();
    let before = [None].into_iter().chain(ids.iter().map(Some));
    let after = ids.iter().skip(1).map(Some).chain([None]);
    let apart =
        |id: &str, other: Option<&&str>| other.map_or(0, |other| common_length(id, other) + 1);
    let lengths: BTreeMap<&str, usize> = ids
        .iter()
        .zip(before.zip(after))
        .map(|(id, (before, after))| {
            let least = if is_uid(id) { SHORT_UID } else { SHORT_ID };
            let length = least.max(apart(id, before)).max(apart(id, after));
            (*id, length.min(id.len()))
        })
        .collect();
    let shortened = names.iter().map(|name| {
        // In a path an id is a part of a word.
        let mark = if name.starts_with('/') { "…" } else { "" };
        let mut short = name.clone();
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
    let (mut found, mut at) = (Vec::new(), 0);
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
            found.push(&name[at..at + length]);
        }
        at += length.max(1);
    }
    found
}

/// Length of the common prefix in bytes.
fn common_length(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// The names in at most `max_width` columns. Wider names lose directories or their middle;
/// different names stay different.
pub(crate) fn fitted(names: &[&str], max_width: usize) -> Vec<String> {
    let (fit, wide): (BTreeSet<&str>, BTreeSet<&str>) = names
        .iter()
        .copied()
        .partition(|name| width(name) <= max_width);
    let mut taken: HashSet<String> = fit.iter().map(|name| (*name).to_owned()).collect();
    let (mut short, mut next) = (BTreeMap::new(), HashMap::new());
    for name in wide {
        let measured = MeasuredText::new(name, max_width);
        let middle = max_width / 2;
        let cuts = [middle, 0, max_width]
            .into_iter()
            .chain(1..max_width)
            .map(|beginning| measured.cut(max_width, beginning));
        let mut choices = last_parts(name, max_width).into_iter().chain(cuts);
        let free = choices
            .find(|choice| !taken.contains(choice))
            .unwrap_or_else(|| numbered(&measured, max_width, &taken, &mut next));
        taken.insert(free.clone());
        short.insert(name, free);
    }
    let of = |name: &&str| {
        short
            .get(name)
            .map_or_else(|| (*name).to_owned(), Clone::clone)
    };
    names.iter().map(of).collect()
}

/// The start of a name with a number, for names that differ only in the cut part. `next` has the
/// next number for each start, so that thousands of such names do not each count from 2.
fn numbered(
    name: &MeasuredText<'_>,
    max_width: usize,
    taken: &HashSet<String>,
    next: &mut HashMap<String, usize>,
) -> String {
    let (mut digits, mut first, mut end) = (1, 2, 10);
    loop {
        let rest = max_width.saturating_sub(1 + digits);
        let beginning = name.cut(rest, rest);
        let number = next.entry(beginning.clone()).or_insert(first);
        while *number < end {
            let choice = format!("{beginning}~{number}");
            *number += 1;
            if !taken.contains(&choice) {
                return choice;
            }
        }
        (digits, first, end) = (digits + 1, end, end * 10);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shortened(names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        with_short_ids(&names)
    }

    #[test]
    fn ids_are_as_long_as_they_must_be() {
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

    #[test]
    fn wide_names_stay_different() {
        let names = [
            "/system.slice/containerd.service",
            "/user.slice/containerd.service",
            "/init.scope",
            "/a/b/c/d/e/f/g/h",
        ];
        assert_eq!(
            fitted(&names, 20),
            [
                "…/containerd.service",
                "/user.slic…d.service",
                "/init.scope",
                "/a/b/c/d/e/f/g/h"
            ]
        );
        assert_eq!(fitted(&["12345678", "1234x678"], 5), ["12…78", "…x678"]);
        let inner = ["12345678", "123x5678", "12x45678"];
        assert_eq!(fitted(&inner, 3), ["1…8", "…78", "12…"]);
    }

    #[test]
    fn names_that_differ_in_what_is_cut_have_numbers() {
        // Their ends are equal too.
        let names = |count: usize| -> Vec<String> {
            let middles =
                (0..count).map(|at| format!("{}{at:05}{}", "a".repeat(20), "z".repeat(20)));
            middles.collect()
        };
        let owned = names(1_200);
        let names: Vec<&str> = owned.iter().map(String::as_str).collect();
        let short = fitted(&names, 12);
        let numbered: Vec<&String> = short.iter().filter(|name| name.contains('~')).collect();
        assert_eq!(numbered[0], "aaaaaaaaa…~2");
        assert_eq!(numbered[7..9], ["aaaaaaaaa…~9", "aaaaaaaa…~10"]);
        let last = numbered.len() + 1;
        assert_eq!(*numbered[numbered.len() - 1], format!("aaaaaa…~{last}"));
        assert_eq!(short.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    proptest! {
        #[test]
        fn no_two_names_become_one(
            names in prop::collection::btree_set("[ab/容]{0,12}", 0..40),
            max_width in 8_usize..14,
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let short = fitted(&names, max_width);
            let different: BTreeSet<&String> = short.iter().collect();
            prop_assert_eq!(different.len(), names.len());
            prop_assert!(short.iter().all(|name| width(name) <= max_width), "{short:?}");
        }

        #[test]
        fn ids_that_differ_stay_different(
            ids in prop::collection::btree_set("[01]{60}[0-9a-f]{4}", 0..20),
        ) {
            let names: Vec<String> = ids.into_iter().collect();
            let short: BTreeSet<String> = with_short_ids(&names).into_iter().collect();
            prop_assert_eq!(short.len(), names.len());
        }
    }
}
