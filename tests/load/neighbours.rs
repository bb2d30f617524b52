//! Foreign containers, with the cgroup paths of several runtimes and with hostile names, and busy
//! processes.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read as _, Write as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use probe_user::machine::Machine;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::{
    burn,
    tenants::{fork, remove},
};

/// Each container alternately works and sleeps, and so uses 2% of a CPU.
const WORK: Duration = Duration::from_millis(1);
const SLEEP: Duration = Duration::from_millis(49);

/// Names that no runtime uses, but that cgroups can have.
const HOSTILE: [&[u8]; 5] = [
    b"\x1b[2J\x1b]0;title\x07\x9bm\r",
    b"\"},pod=\"web-0\"} 1 # HELP, \\n;%s'`$(exit)",
    b"not \xff\xfe UTF-8 \xc3",
    b" ... .scope.slice.service ",
    "\u{202e}\u{1f600}\u{0301}<script>alert(1)</script>".as_bytes(),
];

/// Runs containers and other processes until standard input closes, which also happens if its
/// writer dies. Prints a line when all of them run.
pub(crate) fn neighbours(
    containers: usize,
    others: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let mount = Machine::this().hierarchy()?.mount.clone();
    let mut running = Running::default();
    for number in 0..containers {
        let cgroup = running.make(&mount, &cgroup_path(number))?;
        running.pids.push(fork(&cgroup, || {
            loop {
                burn(WORK);
                thread::sleep(SLEEP);
            }
        })?);
    }
    for _ in 0..others {
        running.pids.push(fork(&mount, || {
            loop {
                burn(WORK);
            }
        })?);
    }
    println!("running");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Path of a container's cgroup below the mount.
fn cgroup_path(number: usize) -> PathBuf {
    let id = format!("{:08x}{number:056x}", std::process::id());
    let uid = format!("{:08x}-0000-4000-9000-{number:012x}", std::process::id());
    let hostile = HOSTILE[number / 8 % HOSTILE.len()];
    let name = |name: &[u8]| OsString::from_vec([name, &id.as_bytes()[..16]].concat());
    match number % 8 {
        0 => format!("docker/{id}").into(),
        1 => format!("system.slice/docker-{id}.scope").into(),
        2 => format!(
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/\
             cri-containerd-{id}.scope",
            uid.replace('-', "_")
        )
        .into(),
        3 => format!("kubepods/besteffort/pod{uid}/{id}").into(),
        4 => format!("machine.slice/libpod-{id}.scope").into(),
        5 => format!("lxc.payload.{id}").into(),
        6 => Path::new("user.slice").join(name(hostile)),
        // The longest possible name.
        _ => Path::new("docker")
            .join(OsStr::from_bytes(&hostile.repeat(255)[..239]))
            .join(id),
    }
}

/// Processes and their cgroups. Dropping it ends the processes and removes the cgroups.
#[derive(Default)]
struct Running {
    pids: Vec<libc::pid_t>,
    cgroups: Vec<PathBuf>,
    /// Parent cgroups that did not exist before.
    parents: Vec<PathBuf>,
}

impl Running {
    /// Makes the cgroup of a container, with its parents.
    fn make(&mut self, mount: &Path, below: &Path) -> io::Result<PathBuf> {
        let path = mount.join(below);
        let parents = below.ancestors().skip(1).map(|it| mount.join(it));
        for directory in parents.collect::<Vec<_>>().into_iter().rev() {
            if !directory.exists() {
                fs::create_dir(&directory)?;
                self.parents.push(directory);
            }
        }
        fs::create_dir(&path)?;
        self.cgroups.push(path.clone());
        Ok(path)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pids = || self.pids.iter().filter_map(|pid| Pid::from_raw(*pid));
        for pid in pids() {
            let _ = kill_process(pid, Signal::KILL);
        }
        for pid in pids() {
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
        for cgroup in &self.cgroups {
            let _ = remove(cgroup);
        }
        for cgroup in self.parents.iter().rev() {
            // Fails if other programs have made cgroups in it.
            let _ = fs::remove_dir(cgroup);
        }
    }
}
