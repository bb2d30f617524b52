//! Which cgroups are recorded where events sample all tasks of a CPU: one and those below it, by
//! the ids that samples carry (`PERF_SAMPLE_CGROUP`).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use probe_common::CgroupId;

/// The cgroups that samples had so far.
#[derive(Debug)]
pub(super) struct Subtree {
    /// As the hierarchy shows it.
    path: String,
    /// Their paths; none where they are not recorded.
    known: HashMap<u64, Option<Arc<str>>>,
    /// Those that were nowhere in the hierarchy.
    gone: HashSet<u64>,
}

impl Subtree {
    pub(super) fn of(path: String) -> Self {
        Self {
            path,
            known: HashMap::new(),
            gone: HashSet::new(),
        }
    }

    /// The path of a cgroup that is recorded, and nothing for one that is not; none where it was
    /// gone before it was looked for. `walk` gives all cgroups that there are now: it is called for
    /// ids that were not met before.
    pub(super) fn path<W>(&mut self, id: u64, walk: impl FnOnce() -> W) -> Option<Option<Arc<str>>>
    where
        W: IntoIterator<Item = (CgroupId, String)>,
    {
        if let Some(known) = self.known.get(&id) {
            return Some(known.clone());
        }
        if self.gone.contains(&id) {
            return None;
        }
        let now: Vec<_> = walk().into_iter().collect();
        for (id, path) in now {
            let recorded = is_below(&path, &self.path).then(|| path.into());
            self.known.insert(id.0, recorded);
        }
        let known = self.known.get(&id).cloned();
        if known.is_none() {
            self.gone.insert(id);
        }
        known
    }
}

/// Whether a cgroup is `above`, or below it.
fn is_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_and_those_below_it_are_recorded_also_new_ones() {
        let mut subtree = Subtree::of("/pods/a".to_owned());
        let all = |paths: &[(u64, &str)]| -> Vec<(CgroupId, String)> {
            let paths = paths.iter();
            paths
                .map(|(id, path)| (CgroupId(*id), (*path).to_owned()))
                .collect()
        };
        let before = [(1, "/"), (2, "/pods"), (3, "/pods/a"), (4, "/pods/ab")];
        assert_eq!(
            subtree.path(3, || all(&before)),
            Some(Some("/pods/a".into()))
        );
        let none = || -> Vec<(CgroupId, String)> { panic!("it is known") };
        let others = [1, 2, 4].map(|id| subtree.path(id, none));
        assert_eq!(others, [const { Some(None) }; 3]);
        let later = [&before[..], &[(5, "/pods/a/x")]].concat();
        let new = Some(Some("/pods/a/x".into()));
        assert_eq!(subtree.path(5, || all(&later)), new);
        assert_eq!(subtree.path(6, || all(&before)), None);
        assert_eq!(subtree.path(6, none), None);
        // One that ended is what it was.
        assert_eq!(subtree.path(5, none), new);
        assert!(is_below("/x", "/") && is_below("/", "/"));
    }
}
