//! Cgroups for tests.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use probe_common::CgroupId;

use crate::{Load, hierarchy, load_binary, this_machine};

/// A cgroup and the processes in it. Dropping it removes the cgroup.
pub struct TestCgroup {
    /// Its directory in the file system.
    pub directory: PathBuf,
    /// Its path below the mount.
    pub path: String,
    /// Its id in the kernel.
    pub id: CgroupId,
}

/// Prefix of the names of tests' cgroups. The id of the test's process follows it.
const PREFIX: &str = "pmuscope-test-";

impl TestCgroup {
    /// A new cgroup directly below the root of the hierarchy.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "{PREFIX}{}-{}-{name}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        Self::at(&format!("/{unique}"))
    }

    /// A new child cgroup.
    pub fn child(&self, name: &str) -> Self {
        Self::at(&format!("{}/{name}", self.path))
    }

    fn at(path: &str) -> Self {
        let directory = hierarchy().directory(path).unwrap();
        fs::create_dir(&directory).unwrap();
        let id = CgroupId(fs::metadata(&directory).unwrap().ino());
        Self {
            directory,
            path: path.to_owned(),
            id,
        }
    }

    /// Starts a load and moves it here while it waits for [`Load::go`]. The BPF programs would
    /// charge a running task to its old cgroup until its next switch. `arguments` are the load's
    /// command line, separated by spaces.
    pub fn load(&self, arguments: &str) -> Load {
        self.load_with(&load_binary(), arguments)
    }

    /// As `load`, with another binary.
    pub fn load_with(&self, binary: &Path, arguments: &str) -> Load {
        let load = Load::waiting(binary, arguments);
        self.adopt(load.pid());
        load
    }

    /// Moves a process into this cgroup.
    pub fn adopt(&self, pid: u32) {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// CPU time in ns that the kernel charged to this cgroup and its descendants.
    pub fn cpu_time(&self) -> u64 {
        cpu_time(&self.directory).unwrap()
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // A process may leave its cgroup shortly after wait(2) has returned.
        while let Err(error) = fs::remove_dir(&self.directory) {
            if error.kind() != std::io::ErrorKind::ResourceBusy || std::thread::panicking() {
                break;
            }
            std::thread::yield_now();
        }
    }
}

/// Removes the cgroups of killed tests, in cgroup2 and in v1. A cgroup with processes stays.
pub(crate) fn remove_leftovers() {
    let machine = this_machine();
    // Some guests have no hierarchy of cgroups.
    let cgroup2 = machine.hierarchy().ok().and_then(|it| it.directory("/"));
    let v1 = fs::read_dir("/sys/fs/cgroup").into_iter().flatten();
    let roots = v1.flatten().map(|root| root.path()).chain(cgroup2);
    for entry in roots.flat_map(fs::read_dir).flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| {
            let (process, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
            process.parse::<u32>().ok()
        });
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            remove_tree(&entry.path());
        }
    }
}

/// Removes a cgroup and its descendants.
fn remove_tree(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(directory);
}

/// CPU time in ns of any cgroup and its descendants. None if the cgroup no longer exists.
pub fn cpu_time(directory: &Path) -> Option<u64> {
    let stat = fs::read_to_string(directory.join("cpu.stat")).ok()?;
    let mut lines = stat.lines();
    let usage = lines.find_map(|line| line.strip_prefix("usage_usec "));
    Some(usage.unwrap().parse::<u64>().unwrap() * 1000)
}

/// Creates and removes more cgroups than the ring of lifecycle records holds.
pub fn flood_the_ring() {
    for _ in 0..5000 {
        drop(TestCgroup::new("flood"));
    }
}
