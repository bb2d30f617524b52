//! Selects samples of a cgroup and its descendants if events sample all tasks of a CPU: by the
//! cgroup ids in samples (`PERF_SAMPLE_CGROUP`).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use probe_common::CgroupId;

/// The recorded cgroup, and all cgroup ids seen so far.
#[derive(Debug)]
pub(super) struct Subtree {
    /// Path of the recorded cgroup, as the hierarchy shows it.
    path: String,
    /// The path of each cgroup id; None if the cgroup is not recorded.
    known: HashMap<u64, Option<Arc<str>>>,
    /// Ids of cgroups that were removed before they were looked up.
    gone: HashSet<u64>,
}

impl Subtree {
    pub(super) fn new(path: String) -> Self {
        Self {
            path,
            known: HashMap::new(),
            gone: HashSet::new(),
        }
    }

    /// `Some(Some(path))` for a recorded cgroup, `Some(None)` for any other cgroup, and `None` if
    /// the cgroup was removed before it was looked up. `walk` lists all existing cgroups; it is
    /// called for unknown ids only.
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
        let existing: Vec<_> = walk().into_iter().collect();
        for (id, path) in existing {
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

/// Whether the cgroup `path` is `above` or a descendant of it.
fn is_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_and_its_descendants_are_recorded_including_new_ones() {
        let mut subtree = Subtree::new("/pods/a".to_owned());
        let hierarchy = |paths: &[(u64, &str)]| -> Vec<(CgroupId, String)> {
            let paths = paths.iter();
            paths
                .map(|(id, path)| (CgroupId(*id), (*path).to_owned()))
                .collect()
        };
        let before = [(1, "/"), (2, "/pods"), (3, "/pods/a"), (4, "/pods/ab")];
        assert_eq!(
            subtree.path(3, || hierarchy(&before)),
            Some(Some("/pods/a".into()))
        );
        let no_walk = || -> Vec<(CgroupId, String)> { panic!("it is known") };
        let not_recorded = [1, 2, 4].map(|id| subtree.path(id, no_walk));
        assert_eq!(not_recorded, [const { Some(None) }; 3]);
        let later = [&before[..], &[(5, "/pods/a/x")]].concat();
        let new = Some(Some("/pods/a/x".into()));
        assert_eq!(subtree.path(5, || hierarchy(&later)), new);
        assert_eq!(subtree.path(6, || hierarchy(&before)), None);
        assert_eq!(subtree.path(6, no_walk), None);
        // A removed cgroup keeps its path.
        assert_eq!(subtree.path(5, no_walk), new);
        assert!(is_below("/x", "/") && is_below("/", "/"));
    }
}
