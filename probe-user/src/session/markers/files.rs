//! The files that were looked at for markers: each is looked at once, until it changes.

use std::{
    collections::{HashMap, HashSet},
    fs::Metadata,
    os::unix::fs::MetadataExt as _,
};

use crate::sys::records::{Inode, Map};

/// The files that were looked at.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// By device and inode: when each last changed (s, ns), none where probes are in it. Those hold
    /// the inode, so that its number stays this file's.
    known: HashMap<(u64, u64), Option<(i64, i64)>>,
    /// As the kernel's records name them.
    inodes: HashSet<Inode>,
    pub(super) build_ids: HashSet<Vec<u8>>,
}

impl Files {
    /// Whether a file is to be looked at: it is new, or has changed since.
    pub(super) fn is_new(&mut self, data: &Metadata) -> bool {
        let changed = Some((data.ctime(), data.ctime_nsec()));
        self.inodes.insert(Inode {
            major: rustix::fs::major(data.dev()),
            minor: rustix::fs::minor(data.dev()),
            number: data.ino(),
        });
        match self.known.insert((data.dev(), data.ino()), changed) {
            Some(None) => {
                self.probed(data);
                false
            }
            before => before != Some(changed),
        }
    }

    /// Probes are put into a file.
    pub(super) fn probed(&mut self, data: &Metadata) {
        self.known.insert((data.dev(), data.ino()), None);
    }

    /// Whether what a process has mapped was looked at.
    pub(super) fn has(&self, map: &Map<'_>) -> bool {
        map.build_id.is_some_and(|id| self.build_ids.contains(id)) || { &map.inode }
            .as_ref()
            .is_some_and(|inode| self.inodes.contains(inode))
    }

    /// Takes it that what a process has mapped needs no other look.
    pub(super) fn met(&mut self, map: &Map<'_>) {
        self.build_ids.extend(map.build_id.map(<[u8]>::to_vec));
        self.inodes.extend(map.inode);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The number of an inode is given to another file when the first one is gone.
    #[test]
    fn a_file_is_looked_at_again_when_it_is_another_one_unless_it_has_probes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "one").unwrap();
        let mut files = Files::default();
        assert!(files.is_new(&fs::metadata(&path).unwrap()));
        assert!(!files.is_new(&fs::metadata(&path).unwrap()));
        // Its time is that of the last tick of the kernel's clock.
        let before = fs::metadata(&path).unwrap();
        let same = |data: &Metadata| {
            (data.ctime(), data.ctime_nsec()) == (before.ctime(), before.ctime_nsec())
        };
        while same(&fs::metadata(&path).unwrap()) {
            fs::write(&path, "another").unwrap();
        }
        let data = fs::metadata(&path).unwrap();
        assert!(files.is_new(&data) && !files.is_new(&data));
        files.probed(&before);
        assert!(!files.is_new(&before) && !files.is_new(&data));
    }

    #[test]
    fn what_a_process_had_mapped_is_known_by_its_file_or_by_an_earlier_record() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let data = file.as_file().metadata().unwrap();
        let map = |number: u64, build_id: Option<&'static [u8]>| Map {
            pid: 1,
            start: 0,
            size: 1,
            offset: 0,
            build_id,
            inode: build_id.is_none().then(|| Inode {
                major: rustix::fs::major(data.dev()),
                minor: rustix::fs::minor(data.dev()),
                number,
            }),
            executable: true,
            name: b"/program",
        };
        let mut files = Files::default();
        assert!(!files.has(&map(data.ino(), None)));
        files.is_new(&data);
        assert!(files.has(&map(data.ino(), None)));
        for other in [map(data.ino() + 1, None), map(0, Some(b"id"))] {
            assert!(!files.has(&other));
            files.met(&other);
            assert!(files.has(&other));
        }
        assert!(!files.has(&map(0, Some(b"other"))));
    }
}
