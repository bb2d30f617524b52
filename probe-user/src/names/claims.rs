//! Which cgroups really are the container or pod whose id their name has.
//!
//! Whoever was given a directory can name cgroups below it at will: a container can make
//! `docker/<id of another>` in its own tree, and a user `docker-<id>.scope` below
//! `user@1000.service`. The counts of these must not go to the other container. So, of several
//! cgroups with one id, the id belongs to those in a place where runtimes make them, made by the
//! authority that depends on the fewest others. Where this does not decide, it belongs to none. The
//! caller looks up the owner and mode of a directory: they decide who may make cgroups in it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
};

use super::{Kind, Named, directories, named};

/// Services of container runtimes, which make the cgroups below their own.
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

/// Prefixes of the scopes that runtimes make.
const RUNTIMES: [&str; 6] = [
    "docker-",
    "cri-containerd-",
    "crio-",
    "libpod-",
    "nerdctl-",
    "isulad-",
];

/// The id of a container and that of its pod.
type WithPod<'p> = (Cow<'p, str>, Option<Cow<'p, str>>);

/// A directory whose name has an id. The smallest claim is the strongest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Claim<'a> {
    /// How often the tree above it was delegated: to services, users, containers.
    given: usize,
    /// Runtimes do not make such directories there.
    unusual: bool,
    /// Who made it: the last delegated directory above it; the directory itself where it is
    /// unusual.
    authority: &'a str,
    directory: &'a str,
    /// Nobody else can make cgroups there.
    of_root: bool,
    /// Others than root can: not a container's root, who may be root of the host too.
    of_others: bool,
}

/// The directories whose name has the id of another container or pod.
#[derive(Debug, Default)]
pub(crate) struct Claims<'a> {
    refused: HashSet<&'a str>,
}

impl<'a> Claims<'a> {
    /// Compares all cgroups of the machine. `delegated` says of the directories above contested
    /// ones ([`contested`]) whether others than root can make cgroups there, where it is known.
    pub(crate) fn of(
        paths: impl IntoIterator<Item = &'a str>,
        delegated: &BTreeMap<String, bool>,
    ) -> Self {
        let mut refused = HashSet::new();
        for ((kind, _), directories) in rivals(paths) {
            let claims = directories.into_iter();
            let claims = claims.map(|it| claim(it, kind, delegated)).collect();
            refused.extend(without_right(&claims));
        }
        Self { refused }
    }

    /// The innermost container of a path, and its pod, as far as their claims hold.
    pub(crate) fn container<'p>(&self, path: &'p str) -> Option<WithPod<'p>> {
        let mut pod = None;
        let mut container = None;
        for found in self.granted(path) {
            match found.kind {
                Kind::Pod => pod = Some(found.id),
                Kind::Container => container = Some((found.id, pod.clone())),
            }
        }
        container
    }

    /// The innermost pod of a path whose claim holds.
    pub(crate) fn pod<'p>(&self, path: &'p str) -> Option<Cow<'p, str>> {
        let pods = self.granted(path).filter(|found| found.kind == Kind::Pod);
        pods.last().map(|found| found.id)
    }

    /// The outermost directory of a path whose claim does not hold.
    pub(crate) fn refused<'p>(&self, path: &'p str) -> Option<&'p str> {
        let directories = directories(path).map(|(depth, _)| &path[..depth]);
        directories
            .into_iter()
            .find(|path| self.refused.contains(path))
    }

    fn granted<'p>(&self, path: &'p str) -> impl Iterator<Item = Named<'p>> {
        named(path).filter(|found| !self.refused.contains(&path[..found.depth]))
    }
}

/// The directories above those whose name has an id that others have too, each once.
pub(crate) fn contested<'a>(paths: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let rivals = rivals(paths).into_values().flatten();
    let above = rivals.flat_map(|directory| {
        let above = directories(directory).map(|(depth, _)| &directory[..depth]);
        above.filter(move |above| above.len() < directory.len())
    });
    above.collect()
}

/// The directories that bear one id, where there is more than one.
fn rivals<'a>(
    paths: impl IntoIterator<Item = &'a str>,
) -> HashMap<(Kind, Cow<'a, str>), BTreeSet<&'a str>> {
    let paths = paths.into_iter();
    let number = paths.size_hint().0;
    let mut pods: HashMap<Cow<'a, str>, &'a str> = HashMap::with_capacity(number);
    let mut containers = HashMap::with_capacity(number);
    // An id that only one directory has needs no comparison.
    let mut rivals: HashMap<(Kind, Cow<'a, str>), BTreeSet<&'a str>> = HashMap::new();
    for path in paths {
        for Named { kind, id, depth } in named(path) {
            let directory = &path[..depth];
            let first = match kind {
                Kind::Pod => &mut pods,
                Kind::Container => &mut containers,
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

/// All claims but the strongest. That one does not hold either where a rival of another authority
/// is as strong: of the same rank, or of a lower rank but in a place where runtimes make theirs and
/// the strongest may be of anybody.
fn without_right<'a>(claims: &BTreeSet<Claim<'a>>) -> impl Iterator<Item = &'a str> {
    let surest = claims.first();
    let same = |a: &Claim<'_>, b: &Claim<'_>| (a.given, a.unusual) == (b.given, b.unusual);
    let rival = surest.is_some_and(|surest| {
        claims.iter().any(|claim| {
            same(claim, surest) && claim.authority != surest.authority
                || surest.unusual && !claim.unusual && !(surest.of_root && claim.of_others)
        })
    });
    let refused = claims
        .iter()
        .filter(move |claim| rival || surest.is_none_or(|surest| !same(claim, surest)));
    refused.map(|claim| claim.directory)
}

/// The claim of a directory to be such a container or pod.
fn claim<'a>(directory: &'a str, kind: Kind, delegated: &BTreeMap<String, bool>) -> Claim<'a> {
    let above = &directory[..directory.rfind('/').unwrap_or_default()];
    let containers = named(above).filter(|found| found.kind == Kind::Container);
    let containers: Vec<usize> = containers.map(|found| found.depth).collect();
    // systemd gives services and scopes what is below them (Delegate=), runtimes their containers,
    // and root a directory to whoever owns it. What is below is that one's too.
    let is_delegated = |depth: usize| delegated.get(&above[..depth]) == Some(&true);
    let first = directories(above).find(|(depth, _)| is_delegated(*depth));
    let given = directories(above).filter(|(depth, name)| {
        let unit = name.ends_with(".service") || name.ends_with(".scope");
        let unit = unit && !RUNTIME_SERVICES.contains(name);
        let first = first.is_some_and(|(first, _)| first == *depth);
        // LXC's, whose root may be root of the host.
        let lxc = name.starts_with("lxc.payload") || above[..*depth] == *"/lxc";
        unit || lxc || containers.contains(depth) || first
    });
    let (given, depth) = given.fold((0, 0), |(given, _), (depth, _)| (given + 1, depth));
    let unusual = !usual(&above[depth..], &directory[above.len()..], kind);
    let is_of_root = |(depth, _)| delegated.get(&above[..depth]) == Some(&false);
    Claim {
        given,
        unusual,
        of_root: given == 0 && directories(above).all(is_of_root),
        of_others: first.is_some(),
        authority: if unusual {
            directory
        } else {
            &directory[..depth]
        },
        directory,
    }
}

/// Whether runtimes or the kubelet make directories of this name there; `above` is the path from
/// the authority on.
fn usual(above: &str, name: &str, kind: Kind) -> bool {
    let name = name.trim_start_matches('/');
    let above: Vec<&str> = above.split('/').filter(|name| !name.is_empty()).collect();
    let slices = above.iter().all(|name| name.ends_with(".slice"));
    let kubepods = matches!(above[..], ["kubepods", ..] | ["kubelet", "kubepods", ..]);
    let mismatched = above
        .last()
        .is_some_and(|name| RUNTIME_SERVICES.contains(name));
    match kind {
        _ if name.contains(':') => mismatched,
        Kind::Pod => kubepods || slices && name.ends_with(".slice"),
        Kind::Container => {
            let runtime = RUNTIMES.iter().any(|prefix| name.starts_with(prefix));
            let below_pod = above.last().is_some_and(|name| name.starts_with("pod"));
            let bare = !name.contains(['-', '.']);
            match above[..] {
                _ if slices && name.ends_with(".scope") => runtime,
                // `podman run --cgroups=split` in a service.
                [] => name.starts_with("libpod-payload-"),
                ["docker"] => bare,
                ["libpod_parent", ..] => name.starts_with("libpod-"),
                _ => kubepods && below_pod && (bare || runtime),
            }
        }
    }
}

/// Whether the directory is in a place where runtimes make such ones.
#[cfg(test)]
pub(super) fn sure(path: &str, found: &Named<'_>) -> bool {
    !claim(&path[..found.depth], found.kind, &BTreeMap::new()).unusual
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OUTER: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
    const THIRD: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    const UID: &str = "7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f";

    /// Containers as runtimes make them, and the user's or container's tree they are in.
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

    /// What somebody can make below a delegated directory.
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

    fn given(path: &str) -> usize {
        let last = named(path).last().unwrap();
        claim(&path[..last.depth], last.kind, &unknown()).given
    }

    /// Nothing is known of any owner.
    fn unknown() -> BTreeMap<String, bool> {
        BTreeMap::new()
    }

    /// Under an unusual root only owners tell the container from what somebody else has made.
    #[test]
    fn what_only_root_can_make_has_its_id_wherever_it_is() {
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
            // Of each directory above them, whether it is given to others.
            let known = contested(paths).into_iter();
            let known = known.map(|path| {
                let given = path.starts_with("/given") || path.starts_with(user);
                (path.to_owned(), given)
            });
            let known: BTreeMap<_, _> = known.collect();
            let claims = Claims::of(paths, &known);
            let id = |path: &str| claims.container(path).map(|(id, _)| id.into_owned());
            assert_eq!(id(&real).as_deref(), Some(ID), "{foreign}");
            assert_eq!(id(&below).as_deref(), Some(ID), "{foreign}");
            assert_ne!(id(&foreign).as_deref(), Some(ID), "{foreign}");
            // A container's root may be root of the host: nothing distinguishes its cgroup.
            let nested = format!("/docker/{OUTER}/docker/{ID}");
            let known_with = |path: &str| known.get(path).copied().unwrap_or(false);
            let paths = [real.as_str(), &nested];
            let all = contested(paths).into_iter();
            let all = all
                .map(|path| (path.to_owned(), known_with(path)))
                .collect();
            assert_eq!(Claims::of(paths, &all).container(&real), None);
            let paths = [real.as_str(), &below, &foreign];
            // A directory that is not known may be anybody's.
            let mut unsure = known.clone();
            unsure.remove("/custom");
            let claims = Claims::of(paths, &unsure);
            assert_ne!(
                claims.container(&foreign).map(|(id, _)| id).as_deref(),
                Some(ID)
            );
        }
    }

    #[test]
    fn a_foreign_cgroup_does_not_become_the_container_whose_id_it_bears() {
        for real in real() {
            for foreign in foreign() {
                let claims = Claims::of([real.as_str(), &foreign], &unknown());
                let id = |path: &str| claims.container(path).map(|(id, _)| id.into_owned());
                assert_ne!(id(&foreign).as_deref(), Some(ID), "{real} {foreign}");
                assert_eq!(claims.refused(&foreign), Some(foreign.as_str()));
                // In a container the real one is less sure than what the host's root makes.
                if given(&real) <= given(&foreign) {
                    assert_eq!(id(&real).as_deref(), Some(ID), "{real} {foreign}");
                } else {
                    assert_eq!(claims.refused(&real), Some(real.as_str()));
                }
            }
        }
    }

    #[test]
    fn what_a_container_makes_is_its_own() {
        let (outer, inner) = (
            format!("/docker/{OUTER}"),
            format!("/docker/{OUTER}/docker/{ID}"),
        );
        let other = format!("/docker/{ID}");
        // Docker in docker.
        let claims = Claims::of([outer.as_str(), &inner], &unknown());
        assert_eq!(claims.container(&inner).unwrap().0, ID);
        // The id is that of a container beside it.
        let claims = Claims::of([outer.as_str(), &inner, &other], &unknown());
        assert_eq!(claims.container(&inner).unwrap().0, OUTER);
        assert_eq!(claims.container(&other).unwrap().0, ID);
    }

    #[test]
    fn of_two_users_nobody_is_believed() {
        let rootless = |uid: u32| {
            format!("/user.slice/user-{uid}.slice/user@{uid}.service/user.slice/libpod-{ID}.scope")
        };
        let (one, two) = (rootless(1000), rootless(1001));
        let claims = Claims::of([one.as_str(), &two], &unknown());
        for path in [&one, &two] {
            assert_eq!(claims.container(path), None);
            assert_eq!(claims.refused(path), Some(path.as_str()));
        }
        let below = format!("{one}/container");
        let claims = Claims::of([one.as_str(), &below], &unknown());
        assert_eq!(claims.container(&below).unwrap().0, ID);
    }

    #[test]
    fn a_pod_has_its_slice_and_what_a_mismatched_driver_made() {
        let pod = format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_"));
        let slice = format!("/kubepods.slice/kubepods-besteffort.slice/{pod}");
        let made = |id| format!("/system.slice/containerd.service/{pod}:cri-containerd:{id}");
        let (one, two) = (made(ID), made(OUTER));
        let foreign = format!("/user.slice/user-7.slice/user@7.service/{pod}/x");
        let claims = Claims::of([slice.as_str(), &one, &two, &foreign], &unknown());
        for path in [&slice, &one, &two] {
            assert_eq!(claims.pod(path).as_deref(), Some(UID), "{path}");
        }
        assert_eq!(claims.pod(&foreign), None);
        assert_eq!(
            claims.refused(&foreign),
            Some(foreign.trim_end_matches("/x"))
        );
    }
}
