//! Kinds of rows.

use crate::{
    derive::{Report, Subject},
    join::Entity,
};

/// The common kind of all rows that are one of many; empty if kinds differ. Cgroups with a lost
/// name do not count: their kind is unknown.
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
pub(super) fn is_one_of_many(subject: &Subject) -> bool {
    kind(subject).is_some()
}

/// The kind of a row that is one of many, as a heading.
fn kind(subject: &Subject) -> Option<&'static str> {
    let Subject::Entity(entity) = subject else {
        return None;
    };
    match entity {
        Entity::Container { .. } => Some("container"),
        Entity::Process { .. } | Entity::ProcessOf { .. } | Entity::EndedProcesses => {
            Some("process, pid")
        }
        Entity::Cgroup(_) | Entity::Unnamed(_) => Some("cgroup"),
        Entity::Pod(_) => Some("pod"),
        Entity::Command(_)
        | Entity::Others
        | Entity::System
        | Entity::Overflow
        | Entity::Unattributed
        | Entity::Idle
        | Entity::SystemAndIdle => None,
    }
}
