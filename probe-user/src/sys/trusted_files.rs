//! Directories that no other user can change, and the files in them: pins, states, locks.
//!
//! pmuscope runs as root in directories that other users can write to, such as a bpffs. A link or
//! directory made by another user could redirect its writes and removals. A directory is therefore
//! opened and checked once, and its files are opened by its descriptor, without following links.

use std::{
    fmt,
    fs::{self, DirBuilder, File, Metadata},
    io, iter,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, mkdirat, openat, renameat, unlinkat},
    io::Errno,
    process::geteuid,
};

/// Bits of `st_mode`: the group or others may write.
const OTHERS_WRITE: u32 = 0o022;
/// Bit of `st_mode`: in this directory only the owner of an entry may remove it.
const STICKY: u32 = 0o1000;

/// A directory in which only root and the user of this process can change their entries. Others may
/// add entries if it is sticky, as a bpffs is.
#[derive(Debug)]
pub(crate) struct TrustedDirectory {
    path: PathBuf,
    directory: File,
}

impl TrustedDirectory {
    /// Opens a directory; a missing one is created with access for its owner alone.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`].
    pub(crate) fn make(path: &Path) -> io::Result<Self> {
        check_ancestors(path)?;
        if let Some(parent) = path.parent() {
            // Others must not be able to write to the parent, whatever the umask.
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Self::open(path),
        }
    }

    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// If it is a link or no directory, or others can replace it or change our entries in it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        check_ancestors(path)?;
        Self::check(path, openat(CWD, path, DIRECTORY, Mode::empty()))
    }

    fn check(path: &Path, opened: rustix::io::Result<impl Into<File>>) -> io::Result<Self> {
        let directory: File = match opened {
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Untrusted::Kind.into()),
            opened => opened?.into(),
        };
        check_access(path, &directory.metadata()?)?;
        Ok(Self {
            path: path.to_owned(),
            directory,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory's descriptor, for locks and comparisons.
    pub(crate) fn descriptor(&self) -> &File {
        &self.directory
    }

    /// Names of the directory's entries, sorted.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Creates a directory in this one, if missing.
    pub(crate) fn make_directory(&self, name: &str) -> io::Result<()> {
        match mkdirat(&self.directory, name, Mode::RWXU) {
            Err(error) if error != Errno::EXIST => Err(error.into()),
            _ => self.directory(name).map(drop),
        }
    }

    /// Opens a directory in this one.
    pub(crate) fn directory(&self, name: &str) -> io::Result<Self> {
        let opened = openat(&self.directory, name, DIRECTORY, Mode::empty());
        Self::check(&self.path.join(name), opened)
    }

    /// Removes a file. If it is a link, its target stays.
    pub(crate) fn remove_file(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.directory, name, AtFlags::REMOVEDIR)?)
    }

    /// Renames an entry.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.directory, from, &self.directory, to)?)
    }

    /// Opens a regular file for reading and writing; a missing one is created with access for its
    /// owner alone.
    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        self.open_regular(name, OFlags::RDWR | OFlags::CREATE)
    }

    /// Opens a regular file for reading; None if there is no such file.
    pub(crate) fn existing(&self, name: &str) -> io::Result<Option<File>> {
        match self.open_regular(name, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn open_regular(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // NONBLOCK: if the file is a pipe, opening it must not block.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = match openat(&self.directory, name, flags, mode) {
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Err(Untrusted::File.into()),
            opened => File::from(opened?),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Untrusted::File.into());
        }
        check_owner(&self.path.join(name), &metadata)?;
        Ok(file)
    }
}

/// Opens a file for appending; a missing one is created with access for its owner alone. Other
/// users may write to its directory. A link is followed only if no other user could have made it.
///
/// # Errors
///
/// If it is a link that others may have made, or a regular file of another user. `ENXIO` for a pipe
/// without a reader.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let is_trusted = |metadata: &Metadata| {
        metadata.mode() & OTHERS_WRITE == 0 && check_owner(path, metadata).is_ok()
    };
    let parent_is_trusted =
        parent(path).is_none_or(|parent| fs::metadata(parent).is_ok_and(|it| is_trusted(&it)));
    let follow = if parent_is_trusted {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    // NONBLOCK: otherwise opening a pipe waits for a reader.
    let append = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let flags = append | OFlags::NONBLOCK | follow;
    let file = match openat(CWD, path, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::LOOP) if !parent_is_trusted => return Err(Untrusted::Link.into()),
        opened => File::from(opened?),
    };
    let metadata = file.metadata()?;
    if metadata.is_file() {
        check_owner(path, &metadata)?;
    }
    Ok(file)
}

/// The directory that has the last component of a path; None for `/` and `.`.
fn parent(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(match parent == Path::new("") {
        true if path == Path::new(".") => return None,
        true => Path::new("."),
        false => parent,
    })
}

/// An error if an ancestor of the path is a link that others made, or if others can replace it.
/// Missing ancestors are no error.
fn check_ancestors(path: &Path) -> io::Result<()> {
    for ancestor in iter::successors(parent(path), |path| parent(path)) {
        match fs::symlink_metadata(ancestor) {
            Ok(link) if link.is_symlink() => {
                check_owner(ancestor, &link)?;
                check_access(ancestor, &fs::metadata(ancestor)?)?;
            }
            Ok(metadata) => check_access(ancestor, &metadata)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Flags for opening directories.
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::RDONLY);

/// An error if others can remove or replace our entries in a directory.
fn check_access(path: &Path, metadata: &Metadata) -> Result<(), Untrusted> {
    check_owner(path, metadata)?;
    let mode = metadata.mode() & 0o7777;
    match mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        true => Err(Untrusted::Mode(path.to_owned(), mode)),
        false => Ok(()),
    }
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), Untrusted> {
    match metadata.uid() {
        owner if owner == 0 || owner == geteuid().as_raw() => Ok(()),
        owner => Err(Untrusted::Owner(path.to_owned(), owner)),
    }
}

/// Why a directory or file is not trusted.
#[derive(Debug, PartialEq, Eq)]
enum Untrusted {
    Kind,
    File,
    Link,
    Owner(PathBuf, u32),
    Mode(PathBuf, u32),
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => f.write_str("it is a symbolic link or no directory"),
            Self::File => f.write_str("it is a symbolic link or no regular file"),
            Self::Link => f.write_str(
                "it is a symbolic link that others may have made: name the file it leads to",
            ),
            Self::Owner(path, owner) => {
                let path = path.display();
                write!(
                    f,
                    "{path} belongs to user {owner}, not to root or the user of this process"
                )
            }
            Self::Mode(path, mode) => {
                let path = path.display();
                write!(
                    f,
                    "other users can write to {path} (its mode is {mode:04o})"
                )
            }
        }
    }
}

impl std::error::Error for Untrusted {}

impl From<Untrusted> for io::Error {
    fn from(untrusted: Untrusted) -> Self {
        Self::other(untrusted)
    }
}

#[cfg(test)]
mod tests;
