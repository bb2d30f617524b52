//! Rows of two runs: which of them the user named, and which correspond to each other.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{LineSubject, Run};
use crate::names::{PodName, name_matches};

/// Most rows that an error lists.
const MAX_LISTED: usize = 5;

/// A row that the user named cannot be compared.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// No row has the name.
    #[error("{file} has no row {name}: give the name of a pod or container, or a part of its id")]
    Missing {
        /// The recording.
        file: String,
        /// What the user wrote.
        name: String,
    },
    /// Several pods or rows have the name.
    #[error("{name} stands for several rows of {file}: {}", rows.join(", "))]
    Ambiguous {
        /// The recording.
        file: String,
        /// What the user wrote.
        name: String,
        /// Names of some of these rows.
        rows: Vec<String>,
    },
}

/// The subjects that `name` stands for: those with exactly this name, such as all containers of a
/// pod; else those of the only pod or row whose names or id contain `name`.
pub(super) fn named(run: &Run, name: &str) -> Result<HashSet<usize>, RowError> {
    let matching = |matches: &dyn Fn(&LineSubject) -> bool| -> HashSet<usize> {
        let shown: HashSet<usize> = run.lines.iter().map(|line| line.subject).collect();
        let all = run.subjects.iter().enumerate();
        let found = all.filter(|(at, subject)| shown.contains(at) && matches(subject));
        found.map(|(at, _)| at).collect()
    };
    let exact = matching(&|subject| {
        let names = ["name", "pod", "container"].map(|label| subject.get(label));
        names.contains(&Some(name)) || subject.label == name
    });
    if !exact.is_empty() {
        return Ok(exact);
    }
    let similar = matching(&|subject| {
        let names = ["namespace", "pod", "container"].map(|label| subject.get(label));
        name_matches(name, subject.name(), names)
    });
    let subjects = || similar.iter().map(|at| &run.subjects[*at]);
    let owners: HashSet<_> = subjects()
        .map(|subject| match subject.get("pod") {
            Some(pod) => (subject.get("namespace"), pod),
            None => (None, subject.name()),
        })
        .collect();
    let (file, name) = (run.file.clone(), name.to_owned());
    match owners.len() {
        0 => Err(RowError::Missing { file, name }),
        1 => Ok(similar),
        _ => {
            let labels: BTreeSet<&str> = subjects().map(|it| it.label.as_str()).collect();
            let rows = labels.into_iter().take(MAX_LISTED).map(str::to_owned);
            Err(RowError::Ambiguous {
                file,
                name,
                rows: rows.collect(),
            })
        }
    }
}

/// Pairs subjects of the first side with subjects of the second: by name; else by the runtime's
/// names; else by these names without the hashes of a deployment's pods. If the user named pods
/// (`chosen`), pairs them by container name. `present` are the subjects that have values.
pub(super) fn pairs(
    subjects: [&[LineSubject]; 2],
    present: &[HashSet<usize>; 2],
    chosen: bool,
) -> HashMap<usize, usize> {
    type Name = fn(&LineSubject) -> Option<(&'static str, String)>;
    let plain: [Name; 3] = [
        |subject| {
            let kind = subject.get("kind").unwrap_or_default();
            Some((subject.part, format!("{kind} {}", subject.name())))
        },
        |subject| Some((subject.part, path(subject, subject.get("pod")?))),
        |subject| {
            let pod = PodName::parse(subject.get("pod")?)?;
            Some((subject.part, path(subject, pod.workload)))
        },
    ];
    let by_container: [Name; 1] = [|subject| {
        Some((
            subject.part,
            subject.get("container").unwrap_or_default().to_owned(),
        ))
    }];
    let names: &[Name] = if chosen { &by_container } else { &plain };
    let mut pairs = HashMap::new();
    let mut taken = HashSet::new();
    for name in names {
        let by_name = |at: usize, is_free: &dyn Fn(usize) -> bool| {
            let mut lists: HashMap<_, Vec<usize>> = HashMap::new();
            for subject in present[at]
                .iter()
                .copied()
                .filter(|subject| is_free(*subject))
            {
                if let Some(name) = name(&subjects[at][subject]) {
                    lists.entry(name).or_default().push(subject);
                }
            }
            lists
        };
        let first = by_name(0, &|subject| !pairs.contains_key(&subject));
        let second = by_name(1, &|subject| !taken.contains(&subject));
        for (name, ours) in first {
            if let ([ours], Some([theirs])) = (&ours[..], second.get(&name).map(Vec::as_slice)) {
                pairs.insert(*ours, *theirs);
                taken.insert(*theirs);
            }
        }
    }
    pairs
}

/// Namespace, pod or workload, and container.
fn path(subject: &LineSubject, pod: &str) -> String {
    let container = subject.get("container").unwrap_or_default();
    let namespace = subject.get("namespace").unwrap_or_default();
    format!("{namespace}/{pod}/{container}")
}
