//! Directories whose content nobody else can change, and the files in them: pins, states, locks.
//!
//! pmuscope runs as root in places that other users can write to, such as a bpffs. A link or a
//! directory that another user made there could redirect its writes and removals. So a directory is
//! opened and checked once, and its files are opened by its descriptor, without following links.

use std::{
    fmt,
    fs::{self, DirBuilder, File, Metadata},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, mkdirat, openat, renameat, unlinkat},
    io::Errno,
    process::geteuid,
};

/// Bits of `st_mode`: others may write; each may remove only what is his.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// A directory in which only root and this process' user can change what is theirs. Others may add
/// to it where it is sticky, as a bpffs is.
#[derive(Debug)]
pub(crate) struct OwnDirectory {
    path: PathBuf,
    directory: File,
}

impl OwnDirectory {
    /// Opens a directory, and makes it where it is missing: only its owner may enter it then.
    ///
    /// # Errors
    ///
    /// As [`Self::open`] has.
    pub(crate) fn make(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            // Whatever the umask: others must not write to it.
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
    /// It is a link or no directory, or others can change what is ours in it, or put another
    /// directory in its place.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if let Some(parent) = parent(path) {
            judge(parent, &fs::metadata(parent)?)?;
        }
        Self::of(path, openat(CWD, path, DIRECTORY, Mode::empty()))
    }

    fn of(path: &Path, opened: rustix::io::Result<impl Into<File>>) -> io::Result<Self> {
        let directory: File = match opened {
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Untrusted::Kind.into()),
            opened => opened?.into(),
        };
        judge(path, &directory.metadata()?)?;
        Ok(Self {
            path: path.to_owned(),
            directory,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its descriptor, to be locked or compared.
    pub(crate) fn descriptor(&self) -> &File {
        &self.directory
    }

    /// What is in it, by name, in their order.
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

    /// Makes a directory in it, where it is missing.
    pub(crate) fn make_directory(&self, name: &str) -> io::Result<()> {
        match mkdirat(&self.directory, name, Mode::RWXU) {
            Err(error) if error != Errno::EXIST => Err(error.into()),
            _ => self.directory(name).map(drop),
        }
    }

    /// A directory in it.
    pub(crate) fn directory(&self, name: &str) -> io::Result<Self> {
        let opened = openat(&self.directory, name, DIRECTORY, Mode::empty());
        Self::of(&self.path.join(name), opened)
    }

    /// Removes a file of it; of a link the link.
    pub(crate) fn remove_file(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    /// Removes an empty directory of it.
    pub(crate) fn remove_directory(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.directory, name, AtFlags::REMOVEDIR)?)
    }

    /// Renames what is in it.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.directory, from, &self.directory, to)?)
    }

    /// Opens a regular file of it to read and write, which is made where it is missing: nobody else
    /// may read it then.
    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        self.regular(name, OFlags::RDWR | OFlags::CREATE)
    }

    /// Opens a regular file of it to read; None where there is no such file.
    pub(crate) fn existing(&self, name: &str) -> io::Result<Option<File>> {
        match self.regular(name, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn regular(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // A pipe in its place must not be waited for.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = match openat(&self.directory, name, flags, mode) {
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Err(Untrusted::File.into()),
            opened => File::from(opened?),
        };
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(Untrusted::File.into());
        }
        judge_owner(&self.path.join(name), &about)?;
        Ok(file)
    }
}

/// Opens a file to write at its end; it is made where it is missing, and nobody else may read it
/// then. Its directory may be others' too. A link is followed only where nobody else could have
/// made it.
///
/// # Errors
///
/// It is such a link, or a regular file of another user. `ENXIO` for a pipe without a reader.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let own =
        |about: &Metadata| about.mode() & OTHERS_WRITE == 0 && judge_owner(path, about).is_ok();
    let own = parent(path).is_none_or(|parent| fs::metadata(parent).is_ok_and(|it| own(&it)));
    let link = if own {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    // Whoever opens a pipe waits for a reader otherwise.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK | link;
    let file = match openat(CWD, path, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::LOOP) if !own => return Err(Untrusted::Link.into()),
        opened => File::from(opened?),
    };
    let about = file.metadata()?;
    if about.is_file() {
        judge_owner(path, &about)?;
    }
    Ok(file)
}

fn parent(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(match parent == Path::new("") {
        true => Path::new("."),
        false => parent,
    })
}

/// How directories are opened.
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::RDONLY);

/// An error where others can remove or replace what is ours in a directory.
fn judge(path: &Path, about: &Metadata) -> Result<(), Untrusted> {
    judge_owner(path, about)?;
    let mode = about.mode() & 0o7777;
    match mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        true => Err(Untrusted::Mode(path.to_owned(), mode)),
        false => Ok(()),
    }
}

fn judge_owner(path: &Path, about: &Metadata) -> Result<(), Untrusted> {
    match about.uid() {
        owner if owner == 0 || owner == geteuid().as_raw() => Ok(()),
        owner => Err(Untrusted::Owner(path.to_owned(), owner)),
    }
}

/// Why a directory or a file is not ours alone.
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
