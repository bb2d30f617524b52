//! Checks whether a cgroup belongs to the container or pod whose id is in its name
//! ([`CgroupOwnerCheck`]).
//!
//! The owner of a delegated directory can give the cgroups below it any name. A container can
//! create `docker/<id of another container>` in its own tree, and a user `docker-<id>.scope` below
//! `user@1000.service`. Counts of such a cgroup must not go to the container with that id.
//!
//! So each cgroup with an id claims it. If several cgroups claim one id, the claim with the fewest
//! delegations above it is the strongest; among equal ones, that at a path where runtimes create
//! cgroups. If this does not decide, all claims are refused. The caller looks up owner and mode of
//! directories, which decide who may create cgroups in them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
};

use super::{IdKind, PathId, directories, path_ids};

/// Services of container runtimes, which create cgroups below their own cgroup.
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
const RUNTIME_PREFIXES: [&str; 6] = [
    "docker-",
    "cri-containerd-",
    "crio-",
    "libpod-",
    "nerdctl-",
    "isulad-",
];

/// The ids of a container and its pod.
type WithPod<'p> = (Cow<'p, str>, Option<Cow<'p, str>>);

/// A directory's claim of the id in its name. The smallest claim is the strongest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OwnerClaim<'a> {
    /// Number of delegations above the directory: to services, users, containers.
    delegations: usize,
    /// Whether runtimes create no such directories at this path.
    unusual: bool,
    /// The last delegated directory above, whose owner may have created the directory; the
    /// directory itself if it is unusual.
    authority: &'a str,
    directory: &'a str,
    /// Whether only root can create cgroups at this path.
    root_only: bool,
    /// Whether users other than root can create cgroups at this path. A container's root does not
    /// count as another user, since it may be root of the host.
    open_to_others: bool,
}

/// The directories whose claim of an id is refused.
#[derive(Debug, Default)]
pub(crate) struct CgroupOwnerCheck<'a> {
    refused: HashSet<&'a str>,
}

impl<'a> CgroupOwnerCheck<'a> {
    /// Compares the claims of all cgroups of the machine. `delegated` says whether users other than
    /// root can create cgroups in a directory, for the directories of [`contested`], if known.
    pub(crate) fn new(
        paths: impl IntoIterator<Item = &'a str>,
        delegated: &BTreeMap<String, bool>,
    ) -> Self {
        let mut refused = HashSet::new();
        for ((kind, _), directories) in directories_of_shared_ids(paths) {
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
    let claimants = directories_of_shared_ids(paths).into_values().flatten();
    let ancestors = claimants.flat_map(|directory| {
        let prefixes = directories(directory).map(|(depth, _)| &directory[..depth]);
        prefixes.filter(move |prefix| prefix.len() < directory.len())
    });
    ancestors.collect()
}

/// For each id in the names of several directories: these directories.
fn directories_of_shared_ids<'a>(
    paths: impl IntoIterator<Item = &'a str>,
) -> HashMap<(IdKind, Cow<'a, str>), BTreeSet<&'a str>> {
    let paths = paths.into_iter();
    let count = paths.size_hint().0;
    let mut pods: HashMap<Cow<'a, str>, &'a str> = HashMap::with_capacity(count);
    let mut containers = HashMap::with_capacity(count);
    // An id of a single directory needs no comparison, and is left out.
    let mut shared: HashMap<(IdKind, Cow<'a, str>), BTreeSet<&'a str>> = HashMap::new();
    for path in paths {
        for PathId { kind, id, depth } in path_ids(path) {
            let directory = &path[..depth];
            let first_directories = match kind {
                IdKind::Pod => &mut pods,
                IdKind::Container => &mut containers,
            };
            match first_directories.get(&id) {
                None => drop(first_directories.insert(id, directory)),
                Some(first) if *first == directory => {}
                Some(first) => {
                    let claimants = shared.entry((kind, id)).or_default();
                    claimants.extend([*first, directory]);
                }
            }
        }
    }
    shared
}

/// The directories of the refused claims of one id. Claims of a lower rank than the strongest are
/// refused. All claims are refused in two cases: another authority has a claim of the strongest's
/// rank; or the strongest is unusual and another claim is usual. The second case has an exception:
/// only root can create the strongest, and users other than root can create the usual one.
fn refused_claims<'a>(claims: &BTreeSet<OwnerClaim<'a>>) -> impl Iterator<Item = &'a str> {
    let strongest = claims.first();
    let same_rank = |a: &OwnerClaim<'_>, b: &OwnerClaim<'_>| {
        (a.delegations, a.unusual) == (b.delegations, b.unusual)
    };
    let is_undecided = strongest.is_some_and(|strongest| {
        claims.iter().any(|claim| {
            same_rank(claim, strongest) && claim.authority != strongest.authority
                || strongest.unusual
                    && !claim.unusual
                    && !(strongest.root_only && claim.open_to_others)
        })
    });
    let refused = claims.iter().filter(move |claim| {
        is_undecided || strongest.is_none_or(|strongest| !same_rank(claim, strongest))
    });
    refused.map(|claim| claim.directory)
}

/// The claim of a directory to belong to the container or pod with the id in its name.
fn claim<'a>(
    directory: &'a str,
    kind: IdKind,
    delegated: &BTreeMap<String, bool>,
) -> OwnerClaim<'a> {
    let above = &directory[..directory.rfind('/').unwrap_or_default()];
    let containers = path_ids(above).filter(|found| found.kind == IdKind::Container);
    let containers: Vec<usize> = containers.map(|found| found.depth).collect();
    // Three kinds of delegation count: systemd delegates subtrees to services and scopes
    // (Delegate=), a runtime delegates them to its containers, and root delegates a directory with
    // everything below to its owner.
    let is_delegated = |depth: usize| delegated.get(&above[..depth]) == Some(&true);
    let first_delegated = directories(above).find(|(depth, _)| is_delegated(*depth));
    let delegations = directories(above).filter(|(depth, name)| {
        let is_unit = name.ends_with(".service") || name.ends_with(".scope");
        let is_foreign_unit = is_unit && !RUNTIME_SERVICES.contains(name);
        let is_first = first_delegated.is_some_and(|(first, _)| first == *depth);
        // An LXC container, whose root may be root of the host.
        let is_lxc = name.starts_with("lxc.payload") || above[..*depth] == *"/lxc";
        is_foreign_unit || is_lxc || containers.contains(depth) || is_first
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
    let is_in_slices = above.iter().all(|name| name.ends_with(".slice"));
    let is_in_kubepods = matches!(above[..], ["kubepods", ..] | ["kubelet", "kubepods", ..]);
    let is_in_runtime_service = above
        .last()
        .is_some_and(|name| RUNTIME_SERVICES.contains(name));
    match kind {
        _ if name.contains(':') => is_in_runtime_service,
        IdKind::Pod => is_in_kubepods || is_in_slices && name.ends_with(".slice"),
        IdKind::Container => {
            let has_runtime_prefix = RUNTIME_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix));
            let is_below_pod = above.last().is_some_and(|name| name.starts_with("pod"));
            let is_id_only = !name.contains(['-', '.']);
            match above[..] {
                _ if is_in_slices && name.ends_with(".scope") => has_runtime_prefix,
                // `podman run --cgroups=split` in a service.
                [] => name.starts_with("libpod-payload-"),
                ["docker"] => is_id_only,
                ["libpod_parent", ..] => name.starts_with("libpod-"),
                _ => is_in_kubepods && is_below_pod && (is_id_only || has_runtime_prefix),
            }
        }
    }
}

/// Whether runtimes create a directory of this id's kind and name at this path.
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
    fn runtime_paths() -> Vec<String> {
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

    /// Paths that users or containers can create below a directory delegated to them.
    fn foreign_paths() -> Vec<String> {
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
        claim(&path[..last.depth], last.kind, &no_owners()).delegations
    }

    /// The `delegated` directories if no directory's owner is known.
    fn no_owners() -> BTreeMap<String, bool> {
        BTreeMap::new()
    }

    /// Below an unusual directory such as `/custom`, only the directories' owners distinguish the
    /// container from foreign cgroups.
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
            // Whether each directory above the paths is delegated.
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
            let mut incomplete = known.clone();
            incomplete.remove("/custom");
            let check = CgroupOwnerCheck::new(paths, &incomplete);
            assert_ne!(
                check.container(&foreign).map(|(id, _)| id).as_deref(),
                Some(ID)
            );
        }
    }

    #[test]
    fn a_foreign_cgroup_is_not_the_container_with_its_id() {
        for real in runtime_paths() {
            for foreign in foreign_paths() {
                let check = CgroupOwnerCheck::new([real.as_str(), &foreign], &no_owners());
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
        let check = CgroupOwnerCheck::new([outer.as_str(), &inner], &no_owners());
        assert_eq!(check.container(&inner).unwrap().0, ID);
        // The id belongs to a container of the host.
        let check = CgroupOwnerCheck::new([outer.as_str(), &inner, &other], &no_owners());
        assert_eq!(check.container(&inner).unwrap().0, OUTER);
        assert_eq!(check.container(&other).unwrap().0, ID);
    }

    #[test]
    fn an_id_that_two_users_claim_belongs_to_neither() {
        let rootless = |uid: u32| {
            format!("/user.slice/user-{uid}.slice/user@{uid}.service/user.slice/libpod-{ID}.scope")
        };
        let (one, two) = (rootless(1000), rootless(1001));
        let check = CgroupOwnerCheck::new([one.as_str(), &two], &no_owners());
        for path in [&one, &two] {
            assert_eq!(check.container(path), None);
            assert_eq!(check.refused(path), Some(path.as_str()));
        }
        let below = format!("{one}/container");
        let check = CgroupOwnerCheck::new([one.as_str(), &below], &no_owners());
        assert_eq!(check.container(&below).unwrap().0, ID);
    }

    #[test]
    fn a_pod_owns_its_slice_and_the_cgroups_of_a_mismatched_driver() {
        let pod = format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_"));
        let slice = format!("/kubepods.slice/kubepods-besteffort.slice/{pod}");
        let mismatched = |id| format!("/system.slice/containerd.service/{pod}:cri-containerd:{id}");
        let (one, two) = (mismatched(ID), mismatched(OUTER));
        let foreign = format!("/user.slice/user-7.slice/user@7.service/{pod}/x");
        let check = CgroupOwnerCheck::new([slice.as_str(), &one, &two, &foreign], &no_owners());
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
