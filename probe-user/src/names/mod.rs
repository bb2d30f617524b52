//! Names of cgroups: the container and pod ids in a cgroup path ([`path_ids`]), and the runtime's
//! names for them ([`resolver`]).
//!
//! Paths are recognised if the systemd or cgroupfs driver of containerd, CRI-O, docker or podman
//! creates them, also nested ones such as kind's. The last container id in a path names its
//! container.

mod cgroup_owner_check;
mod label_of_path;
mod pod_name;
pub mod resolver;
pub mod runtime_names;
mod unit;

use std::borrow::Cow;

pub(crate) use self::cgroup_owner_check::{CgroupOwnerCheck, contested};
pub(crate) use self::label_of_path::label_of_path;
pub(crate) use self::pod_name::{PodName, name_matches};
pub use self::{runtime_names::RuntimeNames, unit::unit};

/// The kind of an id in a cgroup path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdKind {
    /// A pod's uid.
    Pod,
    /// A container's id.
    Container,
}

/// An id of a pod or container in the name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathId<'a> {
    /// Pod or container.
    pub kind: IdKind,
    /// The pod's uid, or the runtime's id: 64 hex digits.
    pub id: Cow<'a, str>,
    /// Length of the path in bytes, up to and including the directory's name.
    pub depth: usize,
}

/// The ids of pods and containers in a cgroup path, the outermost first.
pub fn path_ids(path: &str) -> impl Iterator<Item = PathId<'_>> {
    directories(path).flat_map(|(depth, name)| {
        // If the kubelet uses the systemd driver and containerd cgroupfs, containerd writes three
        // fields into one name: slice:prefix:name.
        name.split(':').flat_map(move |field| {
            let pod = pod_uid(field).map(|id| (IdKind::Pod, id));
            let container = container_id(field).map(|id| (IdKind::Container, Cow::Borrowed(id)));
            let ids = [pod, container].into_iter().flatten();
            ids.map(move |(kind, id)| PathId { kind, id, depth })
        })
    })
}

/// Each directory's name in a path, after the length of the path up to and including that name.
pub(super) fn directories(path: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = 0;
    path.split('/').map(move |name| {
        end += name.len() + 1;
        (end - 1, name)
    })
}

/// The id in `<id>`, `<runtime>-<id>` or `<runtime>-<id>.scope`. None for the cgroup of conmon, a
/// process of the runtime outside of the container.
fn container_id(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = match name.rsplit_once('-') {
        Some((runtime, _)) if runtime.ends_with("conmon") => return None,
        Some((_, id)) => id,
        None => name,
    };
    (id.len() == 64 && is_hex(id)).then_some(id)
}

/// The uid in `pod<uid>` (cgroupfs) or `...-pod<uid>.slice` (systemd, which writes the uid's dashes
/// as `_`). The uid of a static pod is 32 hex digits.
fn pod_uid(name: &str) -> Option<Cow<'_, str>> {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let uid_of_length = |length: usize, is_valid: fn(&str) -> bool| {
        let (before, uid) = name.split_at_checked(name.len().checked_sub(length)?)?;
        // systemd's form has a prefix that ends in a dash, and a uid without dashes.
        let is_separate = before == "pod" || before.ends_with("-pod") && !uid.contains('-');
        (is_separate && is_valid(uid)).then_some(uid)
    };
    let uid =
        uid_of_length(UID_LENGTH, is_uid).or_else(|| uid_of_length(STATIC_UID_LENGTH, is_hex))?;
    Some(match uid.contains('_') {
        true => Cow::Owned(uid.replace('_', "-")),
        false => Cow::Borrowed(uid),
    })
}

/// Length of a pod's uid in bytes, with its separators.
pub(crate) const UID_LENGTH: usize = 36;

/// Length of a static pod's uid in bytes.
const STATIC_UID_LENGTH: usize = 32;

/// Whether a text is a pod's uid: groups of hexadecimal digits, separated by `-`, or by `_` in
/// names of systemd.
pub(crate) fn is_uid(text: &str) -> bool {
    let is_separator = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let mut bytes = text.bytes().enumerate();
    text.len() == UID_LENGTH
        && bytes.all(|(at, byte)| match is_separator(at) {
            true => matches!(byte, b'-' | b'_'),
            false => byte.is_ascii_hexdigit(),
        })
}

fn is_hex(text: &str) -> bool {
    // A fold is faster than `all`, which would branch at each digit.
    text.bytes()
        .fold(true, |is_hex, byte| is_hex & byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::cgroup_owner_check::{CgroupOwnerCheck, is_usual_path};
    use super::*;

    fn last_id(path: &str, kind: IdKind) -> Option<PathId<'_>> {
        path_ids(path).filter(|found| found.kind == kind).last()
    }

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OUTER: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
    const UID: &str = "7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f";
    const STATIC: &str = "d76e26fba3bf2bfd215eb29011d55250";

    /// One row per form of path: the path and the uid of its pod.
    #[test]
    fn every_form_of_path_names_its_container() {
        let slice_uid = UID.replace('-', "_");
        let cases = [
            (
                "systemd, containerd",
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice_uid}.slice/cri-containerd-{ID}.scope"
                ),
                Some(UID),
            ),
            (
                "systemd, CRI-O",
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice_uid}.slice/crio-{ID}.scope"
                ),
                Some(UID),
            ),
            (
                "systemd, CRI-O, child",
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice_uid}.slice/crio-{ID}.scope/container"
                ),
                Some(UID),
            ),
            (
                "systemd, docker",
                format!(
                    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{slice_uid}.slice/docker-{ID}.scope"
                ),
                Some(UID),
            ),
            (
                "guaranteed",
                format!("/kubepods.slice/kubepods-pod{slice_uid}.slice/cri-containerd-{ID}.scope"),
                Some(UID),
            ),
            (
                "cgroupfs, burstable",
                format!("/kubepods/burstable/pod{UID}/{ID}"),
                Some(UID),
            ),
            (
                "cgroupfs, guaranteed",
                format!("/kubepods/pod{UID}/{ID}"),
                Some(UID),
            ),
            (
                "cgroupfs, besteffort",
                format!("/kubepods/besteffort/pod{UID}/{ID}"),
                Some(UID),
            ),
            (
                "cgroupfs, CRI-O",
                format!("/kubepods/besteffort/pod{UID}/crio-{ID}"),
                Some(UID),
            ),
            (
                "driver mismatch",
                format!(
                    "/system.slice/containerd.service/kubepods-besteffort-pod{slice_uid}.slice:cri-containerd:{ID}"
                ),
                Some(UID),
            ),
            (
                "kind",
                format!(
                    "/system.slice/docker-{OUTER}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{slice_uid}.slice/cri-containerd-{ID}.scope"
                ),
                Some(UID),
            ),
            (
                "docker, systemd",
                format!("/system.slice/docker-{ID}.scope"),
                None,
            ),
            (
                "docker, systemd, child",
                format!("/system.slice/docker-{ID}.scope/init"),
                None,
            ),
            ("docker, cgroupfs", format!("/docker/{ID}"), None),
            ("podman", format!("/machine.slice/libpod-{ID}.scope"), None),
            (
                "podman, child",
                format!("/machine.slice/libpod-{ID}.scope/container"),
                None,
            ),
            (
                "podman, rootless",
                format!(
                    "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container"
                ),
                None,
            ),
            (
                "podman, service",
                format!("/system.slice/web.service/libpod-payload-{ID}"),
                None,
            ),
            (
                "static pod",
                format!("/kubepods/burstable/pod{STATIC}/{ID}"),
                Some(STATIC),
            ),
        ];
        for (form, path, pod_uid) in cases {
            let found = last_id(&path, IdKind::Container)
                .unwrap_or_else(|| panic!("{form}: no container in {path}"));
            assert_eq!(found.id, ID, "{form}");
            let pod = last_id(&path, IdKind::Pod).map(|found| found.id.into_owned());
            assert_eq!(pod.as_deref(), pod_uid, "{form}");
            assert!(
                path[..found.depth].ends_with(ID) || path[..found.depth].ends_with(".scope"),
                "{form}"
            );
            // The check grants the id, since no other cgroup has it.
            let check = CgroupOwnerCheck::new([path.as_str()], &BTreeMap::new());
            let container = check.container(&path);
            assert_eq!(container, Some((ID.into(), pod.map(Cow::from))), "{form}");
            assert!(is_usual_path(&path, &found), "{form}");
        }
    }

    #[test]
    fn other_paths_have_no_container() {
        for path in [
            "/".to_owned(),
            String::new(),
            "/system.slice/sshd.service".to_owned(),
            "/kubepods.slice/kubepods-burstable.slice".to_owned(),
            format!("/kubepods/burstable/pod{UID}"),
            format!(
                "/kubepods.slice/kubepods-pod{}.slice/crio-conmon-{ID}.scope",
                UID.replace('-', "_")
            ),
            format!("/docker/{}", &ID[1..]),
            format!("/docker/{}g", &ID[1..]),
        ] {
            assert_eq!(last_id(&path, IdKind::Container), None, "{path}");
        }
    }

    #[test]
    fn a_pods_own_path_names_the_pod() {
        let path = format!("/kubepods/burstable/pod{UID}");
        let pod = last_id(&path, IdKind::Pod);
        assert_eq!(pod.unwrap().id, UID);
        assert_eq!(last_id("/kubepods/podium", IdKind::Pod), None);
    }
}
