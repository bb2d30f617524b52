//! The cgroup2 hierarchy: its mount, its cgroups, and their paths.

use std::{
    fs::{self, DirEntry, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use probe_common::CgroupId;

/// Why the hierarchy could not be read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// No cgroup2 file system is mounted.
    #[error(
        "no cgroup2 file system in {mountinfo}: mount it with \
         `mount -t cgroup2 none /sys/fs/cgroup` (or boot with systemd.unified_cgroup_hierarchy=1)"
    )]
    NotMounted {
        /// The file that was read.
        mountinfo: PathBuf,
    },
    /// A file or directory of the hierarchy cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: Arc<io::Error>,
    },
    /// A path that the user gave is no cgroup.
    #[error(
        "no cgroup {path} under {mount}: give a path as in /proc/PID/cgroup, or the directory \
         itself"
    )]
    Missing {
        /// The path as the user wrote it.
        path: String,
        /// The mount that was searched.
        mount: PathBuf,
    },
}

/// A mounted cgroup2 file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Mount point.
    pub mount: PathBuf,
    /// The cgroup at the mount point: `/`, unless it was mounted inside a cgroup namespace.
    pub root: String,
}

impl Hierarchy {
    /// Finds the mount in `<proc>/self/mountinfo`: on hybrid hosts it is not at /sys/fs/cgroup.
    ///
    /// # Errors
    ///
    /// The file cannot be read or lists no cgroup2.
    pub fn find(proc: &Path) -> Result<Self, CgroupError> {
        let (mountinfo, text) = mounts(proc)?;
        let parsed = text.lines().find_map(Self::parse);
        let hierarchy = parsed.ok_or(CgroupError::NotMounted { mountinfo })?;
        Ok(hierarchy.with_actual_root())
    }

    /// Replaces a root such as `/../..` by `/` if the mount is of the hierarchy's root. In a cgroup
    /// namespace mountinfo has paths relative to the namespace's root, as when a node's mount is
    /// given to a pod, but BPF programs report paths from the hierarchy's root.
    fn with_actual_root(self) -> Self {
        let leads_up = self.root.starts_with("/..");
        match fs::metadata(&self.mount) {
            Ok(metadata) if leads_up && id(&metadata) == CgroupId::ROOT => Self {
                root: "/".to_owned(),
                ..self
            },
            _ => self,
        }
    }

    /// The mount of a v1 controller; None if there is none.
    ///
    /// # Errors
    ///
    /// `<proc>/self/mountinfo` cannot be read.
    pub(crate) fn for_controller(proc: &Path, name: &str) -> Result<Option<Self>, CgroupError> {
        let (_, text) = mounts(proc)?;
        let is_controller = |kind: &str, options: &str| {
            kind == "cgroup" && options.split(',').any(|option| option == name)
        };
        Ok(text
            .lines()
            .find_map(|line| Self::parse_matching(line, &is_controller)))
    }

    /// Parses a line of mountinfo (`proc_pid_mountinfo(5)`): `id parent major:minor root mount
    /// options ... - type source ...`.
    fn parse(line: &str) -> Option<Self> {
        Self::parse_matching(line, &|kind, _| kind == "cgroup2")
    }

    /// Parses a line of mountinfo; None unless `accepts` is true for its type and options.
    fn parse_matching(line: &str, accepts: &dyn Fn(&str, &str) -> bool) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut kind = right.split(' ');
        if !accepts(kind.next()?, kind.nth(1).unwrap_or_default()) {
            return None;
        }
        let mut fields = left.split(' ').skip(3);
        let root = unescape(fields.next()?);
        let mount = PathBuf::from(unescape(fields.next()?));
        Some(Self { mount, root })
    }

    /// All cgroups, with their paths from the hierarchy's root as in /proc/PID/cgroup. A cgroup
    /// that is removed during the walk is left out.
    ///
    /// # Errors
    ///
    /// The mount point itself cannot be read.
    pub fn walk(&self) -> Result<Vec<(CgroupId, String)>, CgroupError> {
        let read = |source| CgroupError::Read {
            path: self.mount.clone(),
            source: Arc::new(source),
        };
        let mut cgroups = Vec::new();
        let mut pending = vec![(
            self.mount.clone(),
            self.root.trim_end_matches('/').to_owned(),
        )];
        let metadata = fs::metadata(&self.mount).map_err(read)?;
        cgroups.push((id(&metadata), self.root.clone()));
        while let Some((directory, path)) = pending.pop() {
            let Ok(entries) = fs::read_dir(&directory) else {
                continue;
            };
            // The directory entry has the file's type, so the dozens of files of a cgroup need no
            // system call.
            let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|it| it.is_dir());
            for entry in entries.flatten().filter(is_directory) {
                if let Ok(metadata) = entry.metadata() {
                    let path = format!("{path}/{}", entry.file_name().to_string_lossy());
                    cgroups.push((id(&metadata), path.clone()));
                    pending.push((entry.path(), path));
                }
            }
        }
        Ok(cgroups)
    }

    /// Converts a user's name of a cgroup to the cgroup's path from the hierarchy's root. The name
    /// is that path, with or without leading slash, or the cgroup's directory.
    ///
    /// # Errors
    ///
    /// There is no such cgroup.
    pub fn resolve(&self, name: &str) -> Result<String, CgroupError> {
        let inside = Path::new(name).strip_prefix(&self.mount).map_or_else(
            |_| name.to_owned(),
            |below| format!("{}/{}", self.root.trim_end_matches('/'), below.display()),
        );
        let path = format!("/{}", inside.trim_matches('/'));
        let directory = self.directory(&path);
        let has_dots = path.split('/').any(|part| part == "..");
        if !has_dots
            && directory.is_some_and(|directory| directory.join("cgroup.controllers").exists())
        {
            Ok(path)
        } else {
            Err(CgroupError::Missing {
                path: name.to_owned(),
                mount: self.mount.clone(),
            })
        }
    }

    /// The processes in a cgroup and its descendants, by ids in this process's pid namespace. Empty
    /// if it is gone or cannot be read.
    pub(crate) fn processes(&self, path: &str) -> Vec<u32> {
        let mut processes = Vec::new();
        let mut pending: Vec<PathBuf> = self.directory(path).into_iter().collect();
        while let Some(directory) = pending.pop() {
            let ids = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            processes.extend(ids.lines().filter_map(|id| id.parse::<u32>().ok()));
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
            pending.extend(below.map(|entry| entry.path()));
        }
        processes
    }

    /// Whether a cgroup or a descendant has a process; None if that cannot be read.
    pub(crate) fn is_populated(&self, path: &str) -> Option<bool> {
        let events = self.directory(path)?.join("cgroup.events");
        let events = fs::read_to_string(events).ok()?;
        let populated = events
            .lines()
            .find_map(|line| line.strip_prefix("populated "))?;
        Some(populated != "0")
    }

    /// Whether users other than root can create cgroups in a cgroup; None if it is outside the
    /// mount or gone.
    pub(crate) fn is_delegated(&self, path: &str) -> Option<bool> {
        /// Write access of the group, and of all others.
        const GROUP: u32 = 0o020;
        const ALL: u32 = 0o002;
        let metadata = fs::metadata(self.directory(path)?).ok()?;
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        Some(uid != 0 || mode & ALL != 0 || gid != 0 && mode & GROUP != 0)
    }

    /// The id of a cgroup.
    ///
    /// # Errors
    ///
    /// Its directory cannot be read.
    pub fn id(&self, path: &str) -> Result<CgroupId, CgroupError> {
        let directory = self.directory(path).unwrap_or_default();
        let metadata = fs::metadata(&directory).map_err(|source| CgroupError::Read {
            path: directory,
            source: Arc::new(source),
        })?;
        Ok(id(&metadata))
    }

    /// The directory of a cgroup; None if it is outside the mount.
    #[must_use]
    pub fn directory(&self, path: &str) -> Option<PathBuf> {
        let below = path.strip_prefix(self.root.trim_end_matches('/'))?;
        let is_inside = below.is_empty() || below.starts_with('/');
        is_inside.then(|| self.mount.join(below.trim_start_matches('/')))
    }

    /// The cgroup of this process.
    ///
    /// # Errors
    ///
    /// `<proc>/self/cgroup` cannot be read or names no cgroup2 (`0::`).
    pub fn current_cgroup(proc: &Path) -> Result<String, CgroupError> {
        let process = proc.join("self");
        path_of_process(&process).map_err(|source| CgroupError::Read {
            path: process.join("cgroup"),
            source: Arc::new(source),
        })
    }
}

/// The mounts of this process: path and content of mountinfo.
fn mounts(proc: &Path) -> Result<(PathBuf, String), CgroupError> {
    let path = proc.join("self/mountinfo");
    match fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(source) => Err(CgroupError::Read {
            path,
            source: Arc::new(source),
        }),
    }
}

/// The path of a process's cgroup, given the process's directory in procfs. The path of a removed
/// cgroup ends with [`DELETED_SUFFIX`], as the kernel writes it, so that it differs from the path
/// of a new cgroup.
///
/// # Errors
///
/// Its file `cgroup` cannot be read or names no cgroup2 (`0::`).
pub(crate) fn path_of_process(process: &Path) -> io::Result<String> {
    let text = fs::read_to_string(process.join("cgroup"))?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"));
    path.map(str::to_owned)
        .ok_or_else(|| io::Error::other("it has no line for cgroup2 (0::)"))
}

/// Suffix that the kernel writes behind the path of a removed cgroup.
pub(crate) const DELETED_SUFFIX: &str = " (deleted)";

/// Whether the cgroup at this path has this id.
pub(crate) fn is_at(cgroup2: &Hierarchy, path: &str, cgroup: CgroupId) -> bool {
    let directory = cgroup2.directory(path);
    let metadata = directory.and_then(|directory| fs::metadata(directory).ok());
    metadata.is_some_and(|metadata| id(&metadata) == cgroup)
}

/// The id of a cgroup is the inode number of its directory.
fn id(metadata: &Metadata) -> CgroupId {
    CgroupId(metadata.ino())
}

/// mountinfo writes space, tab, newline and backslash as octal escapes.
fn unescape(field: &str) -> String {
    field
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use test_support::Tree;

    use super::*;

    fn parse(line: &str) -> Option<(String, String)> {
        Hierarchy::parse(line).map(|h| (h.mount.display().to_string(), h.root))
    }

    #[test]
    fn cgroup2_is_found_wherever_it_is_mounted() {
        let unified = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw";
        let hybrid = "40 32 0:36 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        let container = "1 2 0:26 /../.. /cg\\040roup ro - cgroup2 cgroup rw,nsdelegate";
        let v1 = "33 32 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu";
        assert_eq!(parse(unified), Some(("/sys/fs/cgroup".into(), "/".into())));
        assert_eq!(
            parse(hybrid),
            Some(("/sys/fs/cgroup/unified".into(), "/".into()))
        );
        assert_eq!(parse(container), Some(("/cg roup".into(), "/../..".into())));
        assert_eq!(parse(v1), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_controller_of_v1_is_found() {
        let proc = Tree::new();
        let cgroup2 = "41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw,memory_recursiveprot\n";
        let both = "14 31 0:30 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let memory = "15 31 0:32 /kube /cg/memory rw shared:4 - cgroup cgroup rw,memory\n";
        proc.write("self/mountinfo", format!("{cgroup2}{both}{memory}"));
        let find = |name| Hierarchy::for_controller(proc.path(), name).unwrap();
        let controller = find("memory").unwrap();
        assert_eq!(
            controller.directory("/kube/a").unwrap(),
            Path::new("/cg/memory/a")
        );
        assert_eq!(find("cpuacct").unwrap().root, "/");
        assert_eq!(find("blkio"), None);
    }

    #[test]
    fn missing_cgroup2_is_reported() {
        let proc = Tree::new();
        let missing = Hierarchy::find(proc.path()).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read "), "{missing}");
        proc.write("self/mountinfo", "23 1 0:22 / /proc rw - proc proc rw\n");
        let unmounted = Hierarchy::find(proc.path()).unwrap_err().to_string();
        assert!(
            unmounted.contains("mount -t cgroup2 none /sys/fs/cgroup"),
            "{unmounted}"
        );
    }

    #[test]
    fn the_path_of_a_removed_cgroup_is_marked() {
        let proc = Tree::new();
        let path_of = |text: &str| {
            proc.write("20/cgroup", text);
            path_of_process(&proc.join("20")).map_err(|error| error.to_string())
        };
        assert_eq!(path_of("5:cpu:/x\n0::/pod/a\n"), Ok("/pod/a".to_owned()));
        assert_eq!(
            path_of("0::/pod/a (deleted)\n"),
            Ok(format!("/pod/a{DELETED_SUFFIX}"))
        );
        assert_eq!(
            path_of("5:cpu:/x\n"),
            Err("it has no line for cgroup2 (0::)".to_owned())
        );
        path_of_process(&proc.join("21")).unwrap_err();
    }

    #[test]
    fn a_tree_is_walked_and_its_names_are_resolved() {
        let tree = Tree::new();
        let mount = tree.path().to_path_buf();
        tree.write("a.slice/b.scope/cgroup.controllers", "");
        let hierarchy = Hierarchy {
            mount: mount.clone(),
            root: "/".into(),
        };
        let mut paths: Vec<_> = hierarchy
            .walk()
            .unwrap()
            .into_iter()
            .map(|(_, path)| path)
            .collect();
        paths.sort();
        assert_eq!(paths, ["/", "/a.slice", "/a.slice/b.scope"]);
        for name in [
            "/a.slice/b.scope",
            "a.slice/b.scope/",
            mount.join("a.slice/b.scope").to_str().unwrap(),
        ] {
            assert_eq!(hierarchy.resolve(name).unwrap(), "/a.slice/b.scope");
        }
        for name in ["/nowhere", "/a.slice/b.scope/../b.scope", ""] {
            hierarchy.resolve(name).unwrap_err();
        }
    }

    #[test]
    fn a_namespaced_mount_keeps_the_whole_path() {
        let hierarchy = Hierarchy {
            mount: "/sys/fs/cgroup".into(),
            root: "/kubepods/pod1".into(),
        };
        assert_eq!(
            hierarchy.directory("/kubepods/pod1/x").unwrap(),
            Path::new("/sys/fs/cgroup/x")
        );
        assert_eq!(hierarchy.directory("/other"), None);
    }
}
