//! Labels identify a subject in machine-readable formats, and include the names that container
//! runtimes gave to it. [`LABELS`] is the only list of labels; every format takes its labels from
//! [`Subject::labels`].

use std::{borrow::Cow, collections::BTreeMap};

use serde::Serialize;

use self::LabelReach::{Info, Reports, Series};
use super::Subject;
use crate::{
    join::Entity,
    names::{
        RuntimeNames, label_of_path, name_matches,
        runtime_names::{Container, Pod},
        unit,
    },
};

/// The outputs that have a label. Each reach includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LabelReach {
    /// JSON, and the info metrics of containers and pods.
    Info,
    /// All series of `OpenMetrics` and OTLP.
    Series,
    /// Reports of recordings.
    Reports,
}

type TextLabel = for<'a> fn(&'a SubjectLabels<'a>) -> Option<&'a str>;

/// How a label gets its value; None if a subject does not have the label.
enum LabelFill {
    Text(TextLabel),
    Number(fn(&SubjectLabels<'_>) -> Option<u32>),
}

/// A label.
pub(crate) struct SubjectLabel {
    pub(crate) name: &'static str,
    reach: LabelReach,
    fill: LabelFill,
}

/// All labels, in the order of JSON and `OpenMetrics`.
pub(crate) const LABELS: &[SubjectLabel] = &[
    text("kind", Reports, |it| Some(it.kind)),
    text("name", Reports, |it| Some(&it.name)),
    text("pod_uid", Series, |it| it.pod_uid),
    text("container_id", Series, |it| it.container_id),
    SubjectLabel {
        name: "pid",
        reach: Series,
        fill: LabelFill::Number(|it| it.pid),
    },
    text("unit", Series, |it| it.unit),
    text("namespace", Reports, |it| Some(&it.pod?.namespace)),
    text("pod", Reports, |it| Some(&it.pod?.name)),
    text("container", Reports, |it| Some(&it.container?.name)),
    text("runtime", Info, |it| Some(&it.container?.runtime)),
    text("image", Info, |it| it.container?.image.as_deref()),
];

const fn text(name: &'static str, reach: LabelReach, get: TextLabel) -> SubjectLabel {
    let fill = LabelFill::Text(get);
    SubjectLabel { name, reach, fill }
}

/// The value of a label.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum LabelValue<'a> {
    Text(&'a str),
    Number(u32),
}

/// The labels of a subject.
#[derive(Default)]
pub(crate) struct SubjectLabels<'a> {
    kind: &'static str,
    name: Cow<'a, str>,
    /// None for the row of a pod: there the name is the uid.
    pod_uid: Option<&'a str>,
    /// None for the row of a container: there the name is the id.
    container_id: Option<&'a str>,
    pid: Option<u32>,
    /// The systemd unit of a cgroup.
    unit: Option<&'a str>,
    /// Its pod, if the runtime named it.
    pod: Option<&'a Pod>,
    /// Its container, if the runtime named it.
    pub(crate) container: Option<&'a Container>,
}

impl Subject {
    /// Its labels, with the names that container runtimes gave.
    pub(crate) fn labels<'a>(&'a self, described: &'a RuntimeNames) -> SubjectLabels<'a> {
        let (kind, name) = self.kind_and_name();
        // A row, or a process and the row that it is in.
        let (pid, row) = match self {
            Self::Entity(Entity::ProcessOf { tgid, row, .. }) => (Some(*tgid), Some(&**row)),
            Self::Entity(Entity::Process { tgid, .. }) => (Some(*tgid), None),
            Self::Entity(row) => (None, Some(row)),
            _ => (None, None),
        };
        let mut labels = SubjectLabels {
            kind,
            name,
            pid,
            ..SubjectLabels::default()
        };
        match row {
            Some(Entity::Container { id, pod }) => {
                let named = described.container(id);
                // The pod of an unknown container may be known by its cgroup path.
                let by_path = || described.pod(pod.as_deref()?);
                labels.container_id = pid.map(|_| &**id);
                labels.pod_uid = pod.as_deref();
                labels.pod = named.and_then(|(_, pod)| pod).or_else(by_path);
                labels.container = named.map(|(container, _)| container);
            }
            Some(Entity::Pod(uid)) => {
                labels.pod_uid = pid.map(|_| &**uid);
                labels.pod = described.pod(uid);
            }
            Some(Entity::Cgroup(path)) if pid.is_none() => labels.unit = unit(path),
            _ => {}
        }
        labels
    }

    /// Kind and name in machine-readable formats.
    pub(crate) fn kind_and_name(&self) -> (&'static str, Cow<'_, str>) {
        match self {
            Self::Entity(entity) => entity_kind_and_name(entity),
            Self::Machine => ("total", "total".into()),
            Self::Socket(socket) => ("socket", socket.to_string().into()),
            Self::Place(place, _) if place.device.is_some() => ("device", place.to_string().into()),
            Self::Place(place, _) => ("socket", place.to_string().into()),
            Self::Io => ("io", "io".into()),
            Self::Unattributed => ("unattributed", "unattributed".into()),
            Self::Unknown => ("unknown", "unknown".into()),
            Self::Pmuscope => ("self", "pmuscope".into()),
        }
    }

    /// The name without a container runtime: with its kind unless that is obvious, and with the
    /// devices of a place.
    pub(crate) fn plain_name(&self) -> String {
        match self {
            Self::Entity(Entity::Pod(uid)) => format!("pod {uid}"),
            Self::Entity(Entity::Command(name)) => format!("command {name}"),
            Self::Socket(socket) => format!("socket {socket}"),
            Self::Place(place, devices) if !devices.is_empty() => {
                format!("{place} ({})", devices.join(", "))
            }
            _ => self.kind_and_name().1.into_owned(),
        }
    }
}

impl<'a> SubjectLabels<'a> {
    /// The labels of at least this reach: names and values.
    pub(crate) fn values(
        &self,
        reach: LabelReach,
    ) -> impl Iterator<Item = (&'static str, LabelValue<'_>)> {
        let labels = LABELS.iter().filter(move |label| label.reach >= reach);
        labels.filter_map(move |label| {
            let value = match label.fill {
                LabelFill::Text(get) => LabelValue::Text(get(self)?),
                LabelFill::Number(get) => LabelValue::Number(get(self)?),
            };
            Some((label.name, value))
        })
    }

    /// [`Self::values`] as texts.
    pub(crate) fn texts(&self, reach: LabelReach) -> impl Iterator<Item = (&'static str, String)> {
        self.values(reach).map(|(name, value)| match value {
            LabelValue::Text(text) => (name, text.to_owned()),
            LabelValue::Number(number) => (name, number.to_string()),
        })
    }

    /// Whether a container runtime gave a name to this subject.
    pub(crate) fn is_named(&self) -> bool {
        self.pod.is_some() || self.container.is_some()
    }

    /// Whether `wanted`, as a user types it, names this subject.
    pub(crate) fn matches(&self, wanted: &str) -> bool {
        name_matches(wanted, &self.name, self.runtime_names())
    }

    /// The names that a container runtime gave: of the namespace, the pod and the container.
    pub(crate) fn runtime_names(&self) -> [Option<&str>; 3] {
        let pod = self.pod.map(|pod| [pod.namespace.as_str(), &pod.name]);
        let [namespace, pod] = pod.map_or([None; 2], |names| names.map(Some));
        let container = self.container.map(|container| container.name.as_str());
        [namespace, pod, container]
    }

    /// The labels that the user selected, of the container and of its pod.
    pub(crate) fn selected(&self) -> BTreeMap<&'a str, &'a str> {
        let of_pod = self.pod.into_iter().flat_map(|pod| &pod.labels);
        let of_container = self.container.into_iter().flat_map(|it| &it.labels);
        let labels = of_pod.chain(of_container);
        labels
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect()
    }
}

fn entity_kind_and_name(entity: &Entity) -> (&'static str, Cow<'_, str>) {
    match entity {
        Entity::Command(name) => ("command", (&**name).into()),
        Entity::Pod(uid) => ("pod", (&**uid).into()),
        Entity::Container { id, .. } => ("container", (&**id).into()),
        Entity::Cgroup(path) => ("cgroup", label_of_path(path)),
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
