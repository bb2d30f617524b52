//! A container of runc, without a network.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use tempfile::TempDir;
use test_harness::hierarchy;

/// The static busybox of Debian's busybox-static, if it is installed.
pub(crate) fn busybox() -> Option<PathBuf> {
    let mut installed = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .map(PathBuf::from)
        .filter(|path| path.exists());
    let busybox = installed.next();
    if busybox.is_none() {
        println!("skipped: busybox-static is not installed");
    }
    busybox
}

/// A bundle, and the id of the container that it describes. The drop removes the cgroup.
pub(crate) struct Container {
    bundle: TempDir,
    pub(crate) id: String,
    shared: Vec<String>,
}

const CGROUPS: &str = "/pmuscope-test-runc";

impl Container {
    /// A bundle with one program and with read-only mounts of the `shared` host directories.
    /// `number` distinguishes the containers of one test process.
    pub(crate) fn new(number: u128, program: &Path, shared: &[&str]) -> Self {
        let bundle = tempfile::tempdir().unwrap();
        let root = bundle.path().join("rootfs");
        let own = ["bin", "proc"].into_iter();
        for directory in own.chain(shared.iter().map(|it| it.trim_start_matches('/'))) {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        let name = program.file_name().unwrap();
        fs::copy(program, root.join("bin").join(name)).unwrap();
        Self {
            bundle,
            id: format!("{:064x}", u128::from(std::process::id()) << 64 | number),
            shared: shared.iter().copied().map(str::to_owned).collect(),
        }
    }

    /// The runc command that runs these words in the container.
    pub(crate) fn run(&self, words: &[&str]) -> Command {
        let mut mounts = vec![json!({"destination": "/proc", "type": "proc", "source": "proc"})];
        mounts.extend(self.shared.iter().map(|directory| {
            json!({
                "destination": directory,
                "type": "bind",
                "source": directory,
                "options": ["rbind", "ro"],
            })
        }));
        let spec = json!({
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs", "readonly": true},
            "process": {
                "cwd": "/",
                "user": {"uid": 0, "gid": 0},
                "args": words,
            },
            "linux": {
                "cgroupsPath": format!("{CGROUPS}/{}", self.id),
                "namespaces": [
                    {"type": "pid"},
                    {"type": "mount"},
                    {"type": "ipc"},
                    {"type": "uts"},
                ],
            },
            "mounts": mounts,
        });
        let bundle = self.bundle.path();
        fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(bundle.join("state"));
        runc.args(["run", "--bundle"]).arg(bundle).arg(&self.id);
        runc
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The removal fails where another test still has a container there.
        if let Some(directory) = hierarchy().directory(CGROUPS) {
            let _ = fs::remove_dir(directory);
        }
    }
}
