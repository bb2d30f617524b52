//! The cgroups of `system` with the most time, on a machine without containers.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{FindingKind, FindingSubject, Report, ReportFinding, Subject};
use crate::{
    join::{By, Entity, Joined, View},
    names::unit,
    window::Window,
};

/// At most this many cgroups are named.
const NAMED: usize = 3;

impl Report {
    /// If no row is a container or a pod, adds a finding about what `--by cgroup` would show.
    pub(super) fn add_system_cgroups(&mut self, window: &Window, joined: &Joined, view: &View) {
        let is_container =
            |entity: &Entity| matches!(entity, Entity::Container { .. } | Entity::Pod(_));
        let is_by_cgroup = !matches!(view.by, By::Container | By::Pod);
        if is_by_cgroup || joined.naming.rows().any(is_container) {
            return;
        }
        let is_system = |subject: &Subject| *subject == Subject::Entity(Entity::System);
        let Some(about) = self.subjects.iter().position(is_system) else {
            return;
        };
        let mut times: BTreeMap<&str, u64> = BTreeMap::new();
        for (owner, usage) in &window.usage {
            let path = window.names.cgroups.get(&owner.cgroup);
            let Some(path) = path.filter(|path| *path != "/") else {
                continue;
            };
            if joined.naming.entity(*owner) == Some(Entity::System) {
                let time = usage.iter().flatten().map(|counted| counted.enabled).max();
                *times.entry(unit(path).unwrap_or(path)).or_default() += time.unwrap_or(0);
            }
        }
        let mut largest: Vec<(&str, u64)> = times.into_iter().collect();
        largest.sort_by_key(|(name, time)| (Reverse(*time), *name));
        let named: Vec<&str> = largest.iter().take(NAMED).map(|(name, _)| *name).collect();
        let text = match largest.len() {
            0 => return,
            1 => format!("it has the cgroup {}: `--by cgroup` shows it", named[0]),
            number => format!(
                "it has {number} cgroups, most of their time in {}: `--by cgroup` has a row of \
                 each",
                named.join(", ")
            ),
        };
        self.findings.push(ReportFinding {
            kind: FindingKind::SystemCgroups,
            about: FindingSubject::Subject(u32::try_from(about).unwrap_or(u32::MAX)),
            text,
            named: None,
        });
    }
}
