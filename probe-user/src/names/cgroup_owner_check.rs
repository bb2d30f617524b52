//! Checks which cgroups really are the container or pod with the id in their name
//! ([`CgroupOwnerCheck`]).
//!
//! The owner of a delegated directory can name cgroups below it at will: a container can create
//! `docker/<id of another>` in its own tree, and a user `docker-<id>.scope` below
//! `user@1000.service`. Their counts must not go to the other container. So, if several cgroups
//! have the same id, the id belongs to those at a path where runtimes create cgroups, created by
//! the authority with the fewest delegations above it. If this does not decide, the id belongs to
//! none of them. The caller looks up owner and mode of directories, which decide who may create
//! cgroups in them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
};

use super::{IdKind, PathId, directories, path_ids};

/// Services of container runtimes, which create cgroups below their own.
const RUNTIME_SERVICES: [&str; 10] = [
    "containerd.service",
    "crio.service",
    "docker.service",
    "k3s.service",
    "k3s-agent.service",
    "kubelet.service",
    "podman.service",
    "rke2-agent.service",
    "rke2-server.service",
    "snap.microk8s.daemon-containerd.service",
];

/// Prefixes of the scopes that runtimes create.
const RUNTIMES: [&str; 6] = [
    "docker-",
    "cri-containerd-",
    "crio-",
    "libpod-",
    "nerdctl-",
    "isulad-",
];

/// The ids of a container and its pod.
type WithPod<'p> = (Cow<'p, str>, Option<Cow<'p, str>>);

/// A directory with an id in its name. The smallest claim is the strongest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OwnerClaim<'a> {
    /// Number of delegations above it: to services, users, containers.
    delegations: usize,
    /// Runtimes do not create such directories at this path.
    unusual: bool,
    /// Who created it: the last delegated directory above it, or the directory itself if it is
    /// unusual.
    authority: &'a str,
    directory: &'a str,
    /// Only root can create cgroups at this path.
    root_only: bool,
    /// Users other than root can create cgroups at this path. A container's root does not count,
    /// since it may be root of the host.
    open_to_others: bool,
}

/// The directories with the id of another container or pod in their name.
#[derive(Debug, Default)]
pub(crate) struct CgroupOwnerCheck<'a> {
    refused: HashSet<&'a str>,
}

impl<'a> CgroupOwnerCheck<'a> {
    /// Compares all cgroups of the machine. For the directories above contested ones
    /// ([`contested`]), `delegated` has whether users other than root can create cgroups in them,
    /// if known.
    pub(crate) fn new(
        paths: impl IntoIterator<Item = &'a str>,
        delegated: &BTreeMap<String, bool>,
    ) -> Self {
        let mut refused = HashSet::new();
        for ((kind, _), directories) in rivals(paths) {
            let claims = directories
                .into_iter()
                .map(|it| claim(it, kind, delegated))
                .collect();
            refused.extend(refused_claims(&claims));
        }
        Self { refused }
    }

    /// The innermost container of a path, and its pod, if their claims are granted.
    pub(crate) fn container<'p>(&self, path: &'p str) -> Option<WithPod<'p>> {
        let mut pod = None;
        let mut container = None;
        for found in self.granted(path) {
            match found.kind {
                IdKind::Pod => pod = Some(found.id),
                IdKind::Container => container = Some((found.id, pod.clone())),
            }
        }
        container
    }

    /// The innermost pod of a path with a granted claim.
    pub(crate) fn pod<'p>(&self, path: &'p str) -> Option<Cow<'p, str>> {
        let pods = self.granted(path).filter(|found| found.kind == IdKind::Pod);
        pods.last().map(|found| found.id)
    }

    /// The outermost directory of a path with a refused claim.
    pub(crate) fn refused<'p>(&self, path: &'p str) -> Option<&'p str> {
        directories(path)
            .map(|(depth, _)| &path[..depth])
            .find(|path| self.refused.contains(path))
    }

    fn granted<'p>(&self, path: &'p str) -> impl Iterator<Item = PathId<'p>> {
        path_ids(path).filter(|found| !self.refused.contains(&path[..found.depth]))
    }
}

/// The ancestors of all directories that share an id with another directory.
pub(crate) fn contested<'a>(paths: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let rivals = rivals(paths).into_values().flatten();
    let above = rivals.flat_map(|directory| {
        let above = directories(directory).map(|(depth, _)| &directory[..depth]);
        above.filter(move |above| above.len() < directory.len())
    });
    above.collect()
}

/// The directories of each id that several directories have.
fn rivals<'a>(
    paths: impl IntoIterator<Item = &'a str>,
) -> HashMap<(IdKind, Cow<'a, str>), BTreeSet<&'a str>> {
    let paths = paths.into_iter();
    let count = paths.size_hint().0;
    let mut pods: HashMap<Cow<'a, str>, &'a str> = HashMap::with_capacity(count);
    let mut containers = HashMap::with_capacity(count);
    // The id of a single directory needs no comparison.
    let mut rivals: HashMap<(IdKind, Cow<'a, str>), BTreeSet<&'a str>> = HashMap::new();
    for path in paths {
        for PathId { kind, id, depth } in path_ids(path) {
            let directory = &path[..depth];
            let first = match kind {
                IdKind::Pod => &mut pods,
                IdKind::Container => &mut containers,
            };
            match first.get(&id) {
                None => drop(first.insert(id, directory)),
                Some(first) if *first == directory => {}
                Some(first) => {
                    let rivals = rivals.entry((kind, id)).or_default();
                    rivals.extend([*first, directory]);
                }
            }
        }
    }
    rivals
}

/// The directories of the refused claims: those of a lower rank than the strongest. All claims are
/// refused if another authority has one of the same rank; or if the strongest is unusual and
/// another is not, unless only root can create the strongest and users other than root can create
/// the other.
fn refused_claims<'a>(claims: &BTreeSet<OwnerClaim<'a>>) -> impl Iterator<Item = &'a str> {
    let strongest = claims.first();
    let same_rank = |a: &OwnerClaim<'_>, b: &OwnerClaim<'_>| {
        (a.delegations, a.unusual) == (b.delegations, b.unusual)
    };
    let rival = strongest.is_some_and(|strongest| {
        claims.iter().any(|claim| {
            same_rank(claim, strongest) && claim.authority != strongest.authority
                || strongest.unusual
                    && !claim.unusual
                    && !(strongest.root_only && claim.open_to_others)
        })
    });
    let refused = claims.iter().filter(move |claim| {
        rival || strongest.is_none_or(|strongest| !same_rank(claim, strongest))
    });
    refused.map(|claim| claim.directory)
}

/// The claim of a directory to be a container or pod.
fn claim<'a>(
    directory: &'a str,
    kind: IdKind,
    delegated: &BTreeMap<String, bool>,
) -> OwnerClaim<'a> {
    let above = &directory[..directory.rfind('/').unwrap_or_default()];
    let containers = path_ids(above).filter(|found| found.kind == IdKind::Container);
    let containers: Vec<usize> = containers.map(|found| found.depth).collect();
    // Delegations: systemd delegates subtrees to services and scopes (Delegate=), runtimes to their
    // containers, and root a directory to its owner, with everything below.
    let is_delegated = |depth: usize| delegated.get(&above[..depth]) == Some(&true);
    let first_delegated = directories(above).find(|(depth, _)| is_delegated(*depth));
    let delegations = directories(above).filter(|(depth, name)| {
        let is_unit = name.ends_with(".service") || name.ends_with(".scope");
        let is_foreign_unit = is_unit && !RUNTIME_SERVICES.contains(name);
        let is_first = first_delegated.is_some_and(|(first, _)| first == *depth);
        // An LXC container, whose root may be root of the host.
        let lxc = name.starts_with("lxc.payload") || above[..*depth] == *"/lxc";
        is_foreign_unit || lxc || containers.contains(depth) || is_first
    });
    let (delegations, depth) =
        delegations.fold((0, 0), |(count, _), (depth, _)| (count + 1, depth));
    let unusual = !is_usual(&above[depth..], &directory[above.len()..], kind);
    let is_root_only = |(depth, _)| delegated.get(&above[..depth]) == Some(&false);
    OwnerClaim {
        delegations,
        unusual,
        root_only: delegations == 0 && directories(above).all(is_root_only),
        open_to_others: first_delegated.is_some(),
        authority: if unusual {
            directory
        } else {
            &directory[..depth]
        },
        directory,
    }
}

/// Whether runtimes or the kubelet create directories of this name at this path; `above` is the
/// path from the authority on.
fn is_usual(above: &str, name: &str, kind: IdKind) -> bool {
    let name = name.trim_start_matches('/');
    let above: Vec<&str> = above.split('/').filter(|name| !name.is_empty()).collect();
    let slices = above.iter().all(|name| name.ends_with(".slice"));
    let kubepods = matches!(above[..], ["kubepods", ..] | ["kubelet", "kubepods", ..]);
    let mismatched = above
        .last()
        .is_some_and(|name| RUNTIME_SERVICES.contains(name));
    match kind {
        _ if name.contains(':') => mismatched,
        IdKind::Pod => kubepods || slices && name.ends_with(".slice"),
        IdKind::Container => {
            let runtime = RUNTIMES.iter().any(|prefix| name.starts_with(prefix));
            let below_pod = above.last().is_some_and(|name| name.starts_with("pod"));
            let id_only = !name.contains(['-', '.']);
            match above[..] {
                _ if slices && name.ends_with(".scope") => runtime,
                // `podman run --cgroups=split` in a service.
                [] => name.starts_with("libpod-payload-"),
                ["docker"] => id_only,
                ["libpod_parent", ..] => name.starts_with("libpod-"),
                _ => kubepods && below_pod && (id_only || runtime),
            }
        }
    }
}

/// Whether runtimes create such directories at this path.
#[cfg(test)]
pub(super) fn is_usual_path(path: &str, found: &PathId<'_>) -> bool {
    !claim(&path[..found.depth], found.kind, &BTreeMap::new()).unusual
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OUTER: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
    const THIRD: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    const UID: &str = "7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f";

    /// Paths of containers as runtimes create them.
    fn real() -> Vec<String> {
        let pod = format!("pod{}", UID.replace('-', "_"));
        let kind = format!("/system.slice/docker-{OUTER}.scope");
        vec![
            format!("/kubepods.slice/kubepods-{pod}.slice/cri-containerd-{ID}.scope"),
            format!("/kubepods.slice/kubepods-{pod}.slice/crio-{ID}.scope"),
            format!("/kubepods/burstable/pod{UID}/{ID}"),
            format!("/kubepods/besteffort/pod{UID}/crio-{ID}"),
            format!("/system.slice/containerd.service/kubepods-{pod}.slice:cri-containerd:{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/docker/{ID}"),
            format!("/machine.slice/libpod-{ID}.scope"),
            format!("/libpod_parent/libpod-{ID}"),
            format!(
                "{kind}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-{pod}.slice/cri-containerd-{ID}.scope"
            ),
            format!("{kind}/kubelet/kubepods/pod{UID}/{ID}"),
        ]
    }

    /// Paths that can be created below a delegated directory.
    fn foreign() -> Vec<String> {
        let user = "/user.slice/user-1000.slice/user@1000.service";
        vec![
            format!("/{ID}"),
            format!("/pmuscope-test/{ID}"),
            format!("/pmuscope-test/docker/{ID}"),
            format!("/system.slice/backup-{ID}.scope"),
            format!("/kata_overhead/{ID}"),
            format!("{user}/app.slice/web.service/docker/{ID}"),
            format!("{user}/app.slice/run-1.scope/docker-{ID}.scope"),
            format!("/system.slice/web.service/containerd.scope/docker/{ID}"),
            format!("/docker/{OUTER}/docker/{THIRD}/docker/{ID}"),
            format!("/system.slice/docker-{OUTER}.scope/x/{ID}"),
        ]
    }

    fn delegations(path: &str) -> usize {
        let last = path_ids(path).last().unwrap();
        claim(&path[..last.depth], last.kind, &unknown()).delegations
    }

    /// No owner of a directory is known.
    fn unknown() -> BTreeMap<String, bool> {
        BTreeMap::new()
    }

    /// Under an unusual root only owners distinguish the container from foreign cgroups.
    #[test]
    fn a_cgroup_that_only_root_can_create_owns_its_id_anywhere() {
        let real = format!("/custom/pods/{ID}");
        let below = format!("{real}/init");
        let user = "/user.slice/user-1000.slice/user@1000.service";
        for foreign in [
            format!("/given/{ID}"),
            format!("/given/deeper/docker-{ID}.scope"),
            format!("{user}/user.slice/docker-{ID}.scope"),
            format!("{user}/x/{ID}"),
        ] {
            let paths = [real.as_str(), &below, &foreign];
            // Whether each directory above them is delegated.
            let known: BTreeMap<_, _> = contested(paths)
                .into_iter()
                .map(|path| {
                    let delegated = path.starts_with("/given") || path.starts_with(user);
                    (path.to_owned(), delegated)
                })
                .collect();
            let check = CgroupOwnerCheck::new(paths, &known);
            let id = |path: &str| check.container(path).map(|(id, _)| id.into_owned());
            assert_eq!(id(&real).as_deref(), Some(ID), "{foreign}");
            assert_eq!(id(&below).as_deref(), Some(ID), "{foreign}");
            assert_ne!(id(&foreign).as_deref(), Some(ID), "{foreign}");
            // A container's root may be root of the host: nothing distinguishes its cgroup.
            let nested = format!("/docker/{OUTER}/docker/{ID}");
            let known_with = |path: &str| known.get(path).copied().unwrap_or(false);
            let paths = [real.as_str(), &nested];
            let all = contested(paths)
                .into_iter()
                .map(|path| (path.to_owned(), known_with(path)))
                .collect();
            assert_eq!(CgroupOwnerCheck::new(paths, &all).container(&real), None);
            let paths = [real.as_str(), &below, &foreign];
            // An unknown directory may be of any user.
            let mut unsure = known.clone();
            unsure.remove("/custom");
            let check = CgroupOwnerCheck::new(paths, &unsure);
            assert_ne!(
                check.container(&foreign).map(|(id, _)| id).as_deref(),
                Some(ID)
            );
        }
    }

    #[test]
    fn a_foreign_cgroup_is_not_the_container_with_its_id() {
        for real in real() {
            for foreign in foreign() {
                let check = CgroupOwnerCheck::new([real.as_str(), &foreign], &unknown());
                let id = |path: &str| check.container(path).map(|(id, _)| id.into_owned());
                assert_ne!(id(&foreign).as_deref(), Some(ID), "{real} {foreign}");
                assert_eq!(check.refused(&foreign), Some(foreign.as_str()));
                // A real cgroup within a container ranks below a foreign one of the host's root.
                if delegations(&real) <= delegations(&foreign) {
                    assert_eq!(id(&real).as_deref(), Some(ID), "{real} {foreign}");
                } else {
                    assert_eq!(check.refused(&real), Some(real.as_str()));
                }
            }
        }
    }

    #[test]
    fn a_nested_container_loses_its_id_to_one_of_the_host() {
        let (outer, inner) = (
            format!("/docker/{OUTER}"),
            format!("/docker/{OUTER}/docker/{ID}"),
        );
        let other = format!("/docker/{ID}");
        // Docker in docker.
        let check = CgroupOwnerCheck::new([outer.as_str(), &inner], &unknown());
        assert_eq!(check.container(&inner).unwrap().0, ID);
        // The id belongs to a container of the host.
        let check = CgroupOwnerCheck::new([outer.as_str(), &inner, &other], &unknown());
        assert_eq!(check.container(&inner).unwrap().0, OUTER);
        assert_eq!(check.container(&other).unwrap().0, ID);
    }

    #[test]
    fn two_users_of_one_id_are_both_ignored() {
        let rootless = |uid: u32| {
            format!("/user.slice/user-{uid}.slice/user@{uid}.service/user.slice/libpod-{ID}.scope")
        };
        let (one, two) = (rootless(1000), rootless(1001));
        let check = CgroupOwnerCheck::new([one.as_str(), &two], &unknown());
        for path in [&one, &two] {
            assert_eq!(check.container(path), None);
            assert_eq!(check.refused(path), Some(path.as_str()));
        }
        let below = format!("{one}/container");
        let check = CgroupOwnerCheck::new([one.as_str(), &below], &unknown());
        assert_eq!(check.container(&below).unwrap().0, ID);
    }

    #[test]
    fn a_pod_owns_its_slice_and_the_cgroups_of_a_mismatched_driver() {
        let pod = format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_"));
        let slice = format!("/kubepods.slice/kubepods-besteffort.slice/{pod}");
        let mismatched = |id| format!("/system.slice/containerd.service/{pod}:cri-containerd:{id}");
        let (one, two) = (mismatched(ID), mismatched(OUTER));
        let foreign = format!("/user.slice/user-7.slice/user@7.service/{pod}/x");
        let check = CgroupOwnerCheck::new([slice.as_str(), &one, &two, &foreign], &unknown());
        for path in [&slice, &one, &two] {
            assert_eq!(check.pod(path).as_deref(), Some(UID), "{path}");
        }
        assert_eq!(check.pod(&foreign), None);
        assert_eq!(
            check.refused(&foreign),
            Some(foreign.trim_end_matches("/x"))
        );
    }
}
