//! The files that were searched for marker functions. Each file is searched again only if it
//! changes.

use std::{
    collections::{HashMap, HashSet},
    fs::Metadata,
    os::unix::fs::MetadataExt as _,
};

use crate::sys::records::{Inode, Map};

/// The files that were searched.
#[derive(Debug, Default)]
pub(super) struct ScannedFiles {
    /// By device and inode: the time of the last change (s, ns) when the file was searched. None
    /// for files with probes: probes hold the inode, so that no other file gets its number.
    known: HashMap<(u64, u64), Option<(i64, i64)>>,
    /// The inodes of the files, in the form of the kernel's records.
    inodes: HashSet<Inode>,
    pub(super) build_ids: HashSet<Vec<u8>>,
}

impl ScannedFiles {
    /// Whether a file must be searched: it is new, or has changed. Marks it as searched.
    pub(super) fn needs_scan(&mut self, data: &Metadata) -> bool {
        let change_time = Some((data.ctime(), data.ctime_nsec()));
        self.inodes.insert(Inode {
            major: rustix::fs::major(data.dev()),
            minor: rustix::fs::minor(data.dev()),
            number: data.ino(),
        });
        match self.known.insert((data.dev(), data.ino()), change_time) {
            Some(None) => {
                self.mark_probed(data);
                false
            }
            before => before != Some(change_time),
        }
    }

    /// Marks a file as one with probes.
    pub(super) fn mark_probed(&mut self, data: &Metadata) {
        self.known.insert((data.dev(), data.ino()), None);
    }

    /// Forgets that a file was searched, so that it is searched again.
    pub(super) fn forget(&mut self, data: &Metadata) {
        self.known.remove(&(data.dev(), data.ino()));
    }

    /// Whether a file that a process has mapped was searched.
    pub(super) fn is_known(&self, map: &Map<'_>) -> bool {
        map.build_id.is_some_and(|id| self.build_ids.contains(id)) || { &map.inode }
            .as_ref()
            .is_some_and(|inode| self.inodes.contains(inode))
    }

    /// Marks a file that a process has mapped as searched.
    pub(super) fn mark_scanned(&mut self, map: &Map<'_>) {
        self.build_ids.extend(map.build_id.map(<[u8]>::to_vec));
        self.inodes.extend(map.inode);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The kernel gives the number of an inode to another file when the first one is gone.
    #[test]
    fn a_changed_file_is_searched_again_unless_it_has_probes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "one").unwrap();
        let mut files = ScannedFiles::default();
        assert!(files.needs_scan(&fs::metadata(&path).unwrap()));
        assert!(!files.needs_scan(&fs::metadata(&path).unwrap()));
        // File times have the resolution of the kernel's tick, so a change may not show at once.
        let before = fs::metadata(&path).unwrap();
        let same = |data: &Metadata| {
            (data.ctime(), data.ctime_nsec()) == (before.ctime(), before.ctime_nsec())
        };
        while same(&fs::metadata(&path).unwrap()) {
            fs::write(&path, "another").unwrap();
        }
        let data = fs::metadata(&path).unwrap();
        assert!(files.needs_scan(&data) && !files.needs_scan(&data));
        files.mark_probed(&before);
        assert!(!files.needs_scan(&before) && !files.needs_scan(&data));
    }

    #[test]
    fn mapped_files_are_known_after_needs_scan_or_mark_scanned() {
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
        let mut files = ScannedFiles::default();
        assert!(!files.is_known(&map(data.ino(), None)));
        files.needs_scan(&data);
        assert!(files.is_known(&map(data.ino(), None)));
        for other in [map(data.ino() + 1, None), map(0, Some(b"id"))] {
            assert!(!files.is_known(&other));
            files.mark_scanned(&other);
            assert!(files.is_known(&other));
        }
        assert!(!files.is_known(&map(0, Some(b"other"))));
    }
}
