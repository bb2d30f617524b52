//! Names of subjects for people, for all formats.

use crate::{
    derive::{Report, Subject},
    join::Entity,
};

/// The name that a container runtime gave to an entity, as `namespace/pod/container`; without one
/// the name of its kind.
#[must_use]
pub fn display_name(report: &Report, entity: &Entity) -> String {
    let subject = Subject::Entity(entity.clone());
    let given = subject.labels(&report.described).runtime_path();
    given.unwrap_or_else(|| subject.kind_and_name().1.into_owned())
}
