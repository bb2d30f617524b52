//! Names of subjects, for all formats.

use std::{borrow::Cow, collections::BTreeMap};

use crate::{
    derive::{Report, Subject},
    join::Entity,
    names::{
        runtime_names::{Container, Pod},
        unit,
    },
};

/// Digits of a short container id.
const SHORT_ID: usize = 12;

/// Kind and name of a subject for programs.
pub(crate) fn label(subject: &Subject) -> (&'static str, Cow<'_, str>) {
    match subject {
        Subject::Entity(entity) => entity_label(entity),
        Subject::Machine => ("total", "total".into()),
        Subject::Socket(socket) => ("socket", socket.to_string().into()),
        Subject::Place(place, _) if place.device.is_some() => ("device", place.to_string().into()),
        Subject::Place(place, _) => ("socket", place.to_string().into()),
        Subject::Io => ("io", "io".into()),
        Subject::Unattributed => ("unattributed", "unattributed".into()),
        Subject::Unknown => ("unknown", "unknown".into()),
        Subject::Pmuscope => ("self", "pmuscope".into()),
    }
}

fn entity_label(entity: &Entity) -> (&'static str, Cow<'_, str>) {
    match entity {
        Entity::Command(name) => ("command", (&**name).into()),
        Entity::Pod(uid) => ("pod", (&**uid).into()),
        Entity::Container { id, .. } => ("container", (&**id).into()),
        Entity::Cgroup(path) => ("cgroup", (&**path).into()),
        Entity::Process { tgid, name } | Entity::ProcessOf { tgid, name, .. } => {
            let name = name.as_deref().unwrap_or("(name not known)");
            ("process", format!("{name} {tgid}").into())
        }
        Entity::EndedProcesses => ("ended", "other processes that ended".into()),
        Entity::Unnamed(id) => ("cgroup", format!("id {id} (name lost)").into()),
        Entity::Others => ("other", "other".into()),
        Entity::System => ("system", "system".into()),
        Entity::Overflow => ("overflow", "system (overflow)".into()),
        Entity::Unattributed => ("unattributed", "unattributed".into()),
        Entity::Idle => ("idle", "idle".into()),
        Entity::SystemAndIdle => ("system+idle", "system+idle".into()),
    }
}

/// The name that a container runtime gave to an entity, as `namespace/pod/container`; without one
/// the name of its kind.
#[must_use]
pub fn display_name(report: &Report, entity: &Entity) -> String {
    let subject = Subject::Entity(entity.clone());
    let names: Vec<&str> = RuntimeNames::for_subject(report, &subject)
        .names()
        .map(|(_, name)| name)
        .collect();
    match names.is_empty() {
        true => entity_label(entity).1.into_owned(),
        false => names.join("/"),
    }
}

/// The pod uid of a container or a process.
pub(crate) fn pod(subject: &Subject) -> Option<&str> {
    match subject {
        Subject::Entity(Entity::ProcessOf { row, .. }) => match &**row {
            Entity::Pod(uid) => Some(uid),
            row => container_pod(row),
        },
        Subject::Entity(entity) => container_pod(entity),
        _ => None,
    }
}

fn container_pod(entity: &Entity) -> Option<&str> {
    match entity {
        Entity::Container { pod, .. } => pod.as_deref(),
        _ => None,
    }
}

/// Names that a container runtime gave to a subject, if known.
#[derive(Clone, Copy, Default)]
pub(crate) struct RuntimeNames<'a> {
    pub(crate) pod: Option<&'a Pod>,
    pub(crate) container: Option<&'a Container>,
}

impl<'a> RuntimeNames<'a> {
    pub(crate) fn for_subject(report: &'a Report, subject: &Subject) -> Self {
        match subject {
            Subject::Entity(Entity::ProcessOf { row, .. }) => Self::for_row(report, row),
            Subject::Entity(row) => Self::for_row(report, row),
            _ => Self::default(),
        }
    }

    fn for_row(report: &'a Report, row: &Entity) -> Self {
        let described = &report.described;
        match row {
            Entity::Container { id, pod } => {
                let known = described.container(id);
                // The pod of an unknown container may be known by its cgroup path.
                let by_path = || described.pod(pod.as_deref()?);
                Self {
                    pod: known.and_then(|(_, pod)| pod).or_else(by_path),
                    container: known.map(|(container, _)| container),
                }
            }
            Entity::Pod(uid) => Self {
                pod: described.pod(uid),
                container: None,
            },
            _ => Self::default(),
        }
    }

    /// Names of namespace, pod and container, each with its label name.
    pub(crate) fn names(self) -> impl Iterator<Item = (&'static str, &'a str)> {
        let namespace = self.pod.map(|pod| ("namespace", pod.namespace.as_str()));
        let pod = self.pod.map(|pod| ("pod", pod.name.as_str()));
        let container = self.container.map(|it| ("container", it.name.as_str()));
        [namespace, pod, container].into_iter().flatten()
    }

    /// The labels selected by the user: of the container, and of its pod.
    pub(crate) fn labels(self) -> BTreeMap<&'a str, &'a str> {
        let of_pod = self.pod.into_iter().flat_map(|pod| &pod.labels);
        let of_container = self.container.into_iter().flat_map(|it| &it.labels);
        let labels = of_pod.chain(of_container);
        labels
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect()
    }
}

/// The systemd unit of a cgroup.
pub(crate) fn unit_of(subject: &Subject) -> Option<&str> {
    match subject {
        Subject::Entity(Entity::Cgroup(path)) => unit(path),
        _ => None,
    }
}

/// The process id of a process.
pub(crate) fn pid(subject: &Subject) -> Option<u32> {
    match subject {
        Subject::Entity(Entity::Process { tgid, .. } | Entity::ProcessOf { tgid, .. }) => {
            Some(*tgid)
        }
        _ => None,
    }
}

/// The id of the container that a process is in.
pub(crate) fn container_id(subject: &Subject) -> Option<&str> {
    match subject {
        Subject::Entity(Entity::ProcessOf { row, .. }) => match &**row {
            Entity::Container { id, .. } => Some(id),
            _ => None,
        },
        _ => None,
    }
}

/// The name for people: short, with its kind unless obvious, and with the devices of a place.
pub(crate) fn short(subject: &Subject) -> String {
    match subject {
        Subject::Entity(Entity::Container { id, pod }) => {
            let id = id.get(..SHORT_ID).unwrap_or(id);
            match pod {
                Some(pod) => format!("container {id} (pod {pod})"),
                None => format!("container {id}"),
            }
        }
        Subject::Entity(Entity::Pod(uid)) => format!("pod {uid}"),
        Subject::Entity(Entity::Command(name)) => format!("command {name}"),
        Subject::Socket(socket) => format!("socket {socket}"),
        Subject::Place(place, devices) if !devices.is_empty() => {
            format!("{place} ({})", devices.join(", "))
        }
        _ => label(subject).1.into_owned(),
    }
}
