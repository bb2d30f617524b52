//! Writes a recording. The file is FILE.unfinished until it is complete; then it becomes FILE, and
//! an earlier FILE becomes FILE.old.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use rustix::fs::{PROC_SUPER_MAGIC, statfs};
use serde::Serialize;

use super::{FORMAT, RecordingEnd, RecordingHead, RecordingMark, lines::pack};
use crate::{samples::parts::with_path, snapshot::Snapshot};

/// Extension of an incomplete recording.
pub(super) const UNFINISHED: &str = "unfinished";

/// The file of a running recording.
pub struct RecordingFile {
    /// The name that the file gets at its end; None for a device or a pipe, which is written in
    /// place.
    final_path: Option<PathBuf>,
    /// The name that the file has until then.
    path: PathBuf,
    file: File,
    /// Length of the whole lines written so far, in bytes.
    length: u64,
    /// Number of windows so far.
    windows: u32,
}

/// The first line.
#[derive(Serialize)]
struct FirstLine<'a> {
    #[serde(flatten)]
    mark: RecordingMark,
    #[serde(flatten)]
    head: &'a RecordingHead,
}

impl RecordingFile {
    /// Creates the file, with the snapshot at the start of the first window.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, or an unfinished recording of this name exists.
    pub fn begin(path: &Path, head: &RecordingHead, first: &Snapshot) -> io::Result<Self> {
        let mut file = Self::create(path)?;
        let mark = RecordingMark {
            pmuscope_recording: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let lines = [pack(&FirstLine { mark, head })?, pack(first)?].concat();
        file.write(&lines).inspect_err(|_| {
            // A file without a window is of no use.
            let _ = file.remove();
        })?;
        Ok(file)
    }

    fn create(path: &Path) -> io::Result<Self> {
        let target = resolved(path);
        if target.extension().is_some_and(|it| it == UNFINISHED) {
            let message = format!(
                "{}: .{UNFINISHED} is for recordings that are not whole: name another file",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let is_file = fs::metadata(&target).map(|known| known.is_file());
        let is_special = is_open(&target) || is_file.as_ref().is_ok_and(|it| !it);
        let (final_path, path) = match is_special {
            true => (None, target),
            false => (Some(target.clone()), unfinished(&target)),
        };
        if let (Some(target), Ok(_)) = (&final_path, is_file) {
            // A file that may not be replaced is an error now, not at the end of the recording.
            let opened = File::options().write(true).open(target);
            opened.map_err(|error| with_path(target, &error))?;
        }
        let mut options = File::options();
        options.append(true).create_new(final_path.is_some());
        let file = options.open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let message = format!(
                    "{} is a recording that did not come to its end, or that is running: move it \
                     away, or name another file",
                    path.display()
                );
                io::Error::new(error.kind(), message)
            }
            _ => with_path(&path, &error),
        })?;
        Ok(Self {
            final_path,
            path,
            file,
            length: 0,
            windows: 0,
        })
    }

    /// Adds the snapshot at the end of a window.
    ///
    /// # Errors
    ///
    /// If the file cannot be written; earlier windows stay in it.
    pub fn add(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.add_line(snapshot)?;
        self.windows += 1;
        Ok(())
    }

    /// Number of windows so far.
    #[must_use]
    pub fn windows(&self) -> u32 {
        self.windows
    }

    /// Ends the recording, and gives it its name.
    ///
    /// # Errors
    ///
    /// If the file cannot be written or renamed. It then keeps its unfinished name.
    pub fn finish(mut self) -> io::Result<()> {
        let windows = self.windows;
        let ended = self.add_line(&RecordingEnd { windows });
        let Some(final_path) = &self.final_path else {
            return ended;
        };
        let replace = || {
            if let Ok(earlier) = fs::metadata(final_path) {
                self.file.set_permissions(earlier.permissions())?;
            }
            self.file.sync_data()?;
            keep_earlier(final_path)?;
            fs::rename(&self.path, final_path)
        };
        ended.and_then(|()| replace()).map_err(|error| {
            let (final_path, path) = (final_path.display(), self.path.display());
            let message = format!("{final_path}: {error}; the recording is in {path}");
            io::Error::new(error.kind(), message)
        })
    }

    /// Removes the file, since nothing was recorded.
    ///
    /// # Errors
    ///
    /// If the file cannot be removed.
    pub fn discard(self) -> io::Result<()> {
        self.remove()
    }

    fn remove(&self) -> io::Result<()> {
        match self.final_path {
            Some(_) => fs::remove_file(&self.path).map_err(|error| with_path(&self.path, &error)),
            None => Ok(()),
        }
    }

    fn add_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.write(&pack(value)?)
    }

    /// Writes whole lines.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(lines);
        match written {
            Ok(()) => self.length += lines.len() as u64,
            // The next line must not follow a part of this line.
            Err(_) if self.final_path.is_some() => drop(self.file.set_len(self.length)),
            Err(_) => {}
        }
        written.map_err(|error| with_path(&self.path, &error))
    }
}

/// Renames an earlier FILE to FILE.old, replacing any previous FILE.old.
fn keep_earlier(final_path: &Path) -> io::Result<()> {
    if !fs::metadata(final_path).is_ok_and(|it| it.is_file()) {
        return Ok(());
    }
    let mut old = final_path.as_os_str().to_owned();
    old.push(".old");
    fs::rename(final_path, old)
}

/// The target of a link, even if it does not exist yet: a recording replaces the target and keeps
/// the link.
pub(super) fn resolved(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // The kernel's own limit (path_resolution(7)).
    for _ in 0..40 {
        let Ok(target) = fs::read_link(&path) else {
            break;
        };
        if is_open(&path) {
            break;
        }
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// Whether the path is in procfs, whose links are open files such as standard output.
fn is_open(path: &Path) -> bool {
    let directory = path.parent().map(statfs);
    directory.is_some_and(|it| it.is_ok_and(|it| it.f_type == PROC_SUPER_MAGIC))
}

/// The name of a recording's file until the recording is complete.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    path.with_added_extension(UNFINISHED)
}
