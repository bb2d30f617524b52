//! Names of subjects for people, for all formats.

use crate::{
    derive::{Report, Subject},
    join::Entity,
};

/// Digits of a short container id.
const SHORT_ID: usize = 12;

/// The name that a container runtime gave to an entity, as `namespace/pod/container`; without one
/// the name of its kind.
#[must_use]
pub fn display_name(report: &Report, entity: &Entity) -> String {
    let subject = Subject::Entity(entity.clone());
    let given = subject.labels(&report.described).runtime_path();
    given.unwrap_or_else(|| subject.kind_and_name().1.into_owned())
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
        _ => subject.kind_and_name().1.into_owned(),
    }
}
