//! Searches files for marker functions, within the limits.

use std::fs::{File, Metadata};

use super::{ScanResult, scanned_files::ScannedFiles};
use crate::symbols::named;

/// The limits of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of probes.
    pub(super) probes: usize,
    /// Maximum bytes of symbols that are searched in one round.
    pub(super) round_bytes: u64,
}

/// The searches of an observation.
#[derive(Debug)]
pub(super) struct MarkerSearch {
    limits: Limits,
    pub(super) files: ScannedFiles,
    /// Number of probes.
    probes: usize,
    /// Bytes of symbols that were searched in this round.
    searched_bytes: u64,
}

/// The functions of a file: for each, the index of its name, and its offset in the file.
type Places = Vec<(usize, u64)>;

impl MarkerSearch {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            files: ScannedFiles::default(),
            probes: 0,
            searched_bytes: 0,
        }
    }

    /// Searches a file for functions of these names. `None` if the file has probes, or if it was
    /// searched before and has not changed since. Call [`Self::mark_probed`] if the functions that
    /// it returns got probes.
    pub(super) fn search(
        &mut self,
        file: &File,
        data: &Metadata,
        names: &[&str],
    ) -> Option<(ScanResult, Places)> {
        if !self.files.needs_scan(data) {
            return None;
        }
        let bytes_left = self.limits.round_bytes - self.searched_bytes;
        let Some(found) = named::functions(file, names, bytes_left) else {
            return Some((ScanResult::NoProgram, Places::new()));
        };
        if found.bytes > bytes_left && found.bytes <= self.limits.round_bytes {
            // Another round has bytes left for it.
            self.files.forget(data);
            return Some((ScanResult::TooMuch, Places::new()));
        }
        self.files.build_ids.extend(found.build_id);
        if found.is_too_much || self.probes + found.places.len() > self.limits.probes {
            return Some((ScanResult::TooMuch, Places::new()));
        }
        self.searched_bytes += found.bytes;
        let result = match (found.places.is_empty(), found.stripped) {
            _ if !found.wide => ScanResult::Narrow,
            (false, _) => ScanResult::Markers,
            (true, false) => ScanResult::None,
            (true, true) => ScanResult::Stripped,
        };
        Some((result, found.places))
    }

    /// Marks a file as one with this number of probes.
    pub(super) fn mark_probed(&mut self, data: &Metadata, probes: usize) {
        self.files.mark_probed(data);
        self.probes += probes;
    }

    /// Ends a round: the next round may search the full number of bytes again.
    pub(super) fn end_round(&mut self) {
        self.searched_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::MetadataExt as _,
        path::{Path, PathBuf},
    };

    use super::*;

    /// A copy of this program, and the bytes of its symbols.
    fn program(directory: &tempfile::TempDir) -> (PathBuf, u64) {
        let path = directory.path().join("program");
        fs::copy("/proc/self/exe", &path).unwrap();
        let found = named::functions(&File::open(&path).unwrap(), &[], u64::MAX);
        (path, found.unwrap().bytes)
    }

    #[test]
    fn a_file_beyond_a_rounds_symbols_is_searched_in_another_round() {
        let directory = tempfile::tempdir().unwrap();
        let (first, bytes) = program(&directory);
        let second = Path::new("/proc/self/exe");
        let search = |round_bytes| {
            let limits = Limits {
                probes: 1,
                round_bytes,
            };
            MarkerSearch::new(limits)
        };
        let result = |search: &mut MarkerSearch, path: &Path| {
            let file = File::open(path).unwrap();
            let found = search.search(&file, &file.metadata().unwrap(), &["no such"]);
            found.map(|(result, _)| result)
        };
        let mut some = search(bytes + bytes / 2);
        assert_eq!(result(&mut some, &first), Some(ScanResult::None));
        for _ in 0..2 {
            assert_eq!(result(&mut some, second), Some(ScanResult::TooMuch));
        }
        some.end_round();
        assert_eq!(result(&mut some, second), Some(ScanResult::None));
        assert_eq!(result(&mut some, second), None);
        // No round has bytes for this file, so it is searched once.
        let mut none = search(bytes - 1);
        assert_eq!(result(&mut none, &first), Some(ScanResult::TooMuch));
        none.end_round();
        assert_eq!(result(&mut none, &first), None);
    }

    /// The kernel refuses the probes of the first file. Nothing holds its inode then, so that the
    /// inode's number may become that of another file.
    #[test]
    fn a_file_without_probes_is_searched_again_when_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let (path, round_bytes) = program(&directory);
        let mut search = MarkerSearch::new(Limits {
            probes: 1,
            round_bytes,
        });
        let mut find = |probes| {
            let file = File::open(&path).unwrap();
            let data = file.metadata().unwrap();
            search.end_round();
            let (result, places) = search.search(&file, &data, &["main"])?;
            assert_eq!((result, places.len()), (ScanResult::Markers, 1));
            if probes > 0 {
                search.mark_probed(&data, probes);
            }
            Some(result)
        };
        let change = || {
            let change_time = || {
                let data = fs::metadata(&path).unwrap();
                (data.ctime(), data.ctime_nsec())
            };
            let before = change_time();
            // File times have the resolution of the kernel's tick.
            while change_time() == before {
                let permissions = fs::metadata(&path).unwrap().permissions();
                fs::set_permissions(&path, permissions).unwrap();
            }
        };
        assert_eq!(find(0), Some(ScanResult::Markers));
        assert_eq!(find(0), None);
        change();
        assert_eq!(find(1), Some(ScanResult::Markers));
        change();
        assert_eq!(find(1), None);
    }
}
