//! Containers' cgroups with a controller of cgroup2 or of v1.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use test_harness::{TestCgroup, hierarchy};

/// A container's cgroup in the hierarchy that has a controller.
pub(crate) enum Controlled {
    /// The container's own cgroup. The drop disables the controller where `new` enabled it, in the
    /// inner cgroup first.
    V2 {
        file: PathBuf,
        enabled: Vec<PathBuf>,
        controller: String,
    },
    /// A cgroup of the same path in the v1 hierarchy. The drop removes it.
    V1 { file: PathBuf },
}

impl Controlled {
    /// `v2` and `v1`: the controller's file in cgroup2 and in v1, which [`Self::set`] writes. None,
    /// with a printed reason, where no cgroup has the controller.
    pub(crate) fn new(
        controller: &str,
        [v2, v1]: [&str; 2],
        pod: &TestCgroup,
        container: &TestCgroup,
    ) -> Option<Self> {
        let mount = hierarchy().mount;
        let lists_controller = |file: &Path| {
            let list = fs::read_to_string(file).unwrap();
            list.split_whitespace().any(|it| it == controller)
        };
        if lists_controller(&mount.join("cgroup.controllers")) {
            let mut controlled = Self::V2 {
                file: container.directory.join(v2),
                enabled: Vec::new(),
                controller: controller.to_owned(),
            };
            for above in [&mount, &pod.directory] {
                let file = above.join("cgroup.subtree_control");
                if lists_controller(&file) {
                    continue;
                }
                if let Err(error) = fs::write(&file, format!("+{controller}")) {
                    println!("skipped: no {controller} controller below {above:?}: {error}");
                    return None;
                }
                if let Self::V2 { enabled, .. } = &mut controlled {
                    enabled.insert(0, file);
                }
            }
            return Some(controlled);
        }
        let v1_root = Path::new("/sys/fs/cgroup").join(controller);
        if !v1_root.join("cgroup.procs").exists() {
            println!("skipped: no cgroup has the {controller} controller");
            return None;
        }
        let directory = v1_root.join(container.path.trim_start_matches('/'));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join(v1);
        let exists = file.exists();
        let controlled = Self::V1 { file };
        if !exists {
            println!("skipped: the {controller} controller has no {v1}");
        }
        exists.then_some(controlled)
    }

    fn file(&self) -> &Path {
        let (Self::V2 { file, .. } | Self::V1 { file }) = self;
        file
    }

    /// The directory with the controller's files.
    pub(crate) fn directory(&self) -> &Path {
        self.file().parent().unwrap()
    }

    /// Writes the controller's file.
    pub(crate) fn set(&self, value: u64) {
        fs::write(self.file(), value.to_string()).unwrap();
    }

    /// Moves a process of the container to the v1 cgroup. With cgroup2 it is there already.
    pub(crate) fn adopt(&self, pid: u32) {
        if let Self::V1 { .. } = self {
            fs::write(self.directory().join("cgroup.procs"), pid.to_string()).unwrap();
        }
    }
}

impl Drop for Controlled {
    fn drop(&mut self) {
        match self {
            Self::V2 {
                enabled,
                controller,
                ..
            } => {
                for file in enabled {
                    // Fails where a cgroup created meanwhile by others needs the controller.
                    let _ = fs::write(file, format!("-{controller}"));
                }
            }
            Self::V1 { .. } => {
                let directory = self.directory();
                let busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
                while fs::remove_dir(directory).is_err_and(|error| busy(&error)) {
                    std::thread::yield_now();
                }
                let _ = fs::remove_dir(directory.parent().unwrap());
            }
        }
    }
}
