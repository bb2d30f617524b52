//! A Debian 13 root in which the test modules are built. Kernel headers name the compiler that
//! built the kernel, and their programs need that release's libraries. The kernel packages are
//! unpacked in the same root, so that their Makefiles and links work unchanged.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result};

use super::packages::Arch;
use crate::sh;

/// The Debian suite of the programs.
pub(super) const SUITE: &str = "trixie";

/// The packages to install; apt adds their dependencies.
pub(super) const PROGRAMS: &[&str] = &[
    // Makes links of /bin, /lib and similar directories.
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "grep",
    "make",
    "mawk",
    "sed",
    // For kbuild's own programs.
    "libelf1t64",
    "pahole",
    // 6.1 and 6.12 were built with gcc-12.
    "gcc-12",
    "gcc-14",
    "libc6-dev",
    CROSS[0],
    CROSS[1],
    CROSS[2],
];

/// The compilers and the C library of the other architecture.
const CROSS: [&str; 3] = if cfg!(target_arch = "aarch64") {
    [
        "gcc-12-x86-64-linux-gnu",
        "gcc-14-x86-64-linux-gnu",
        "libc6-dev-amd64-cross",
    ]
} else {
    [
        "gcc-12-aarch64-linux-gnu",
        "gcc-14-aarch64-linux-gnu",
        "libc6-dev-arm64-cross",
    ]
};

/// The compiler of ordinary programs for `arch`.
pub(super) fn gcc(arch: Arch) -> String {
    if arch == Arch::HOST {
        "gcc-14".into()
    } else {
        format!("{}gcc-14", arch.gnu())
    }
}

/// The file of a complete root that lists its programs.
const PROGRAM_LIST: &str = ".programs";

/// Whether `root` has [`PROGRAMS`].
pub(super) fn is_complete(root: &Path) -> bool {
    fs::read_to_string(root.join(PROGRAM_LIST)).is_ok_and(|list| list == PROGRAMS.join(" "))
}

/// Completes `root` after all packages are unpacked into it.
pub(super) fn complete(root: &Path) -> Result<()> {
    // Normally mawk's package script makes this link.
    let awk = root.join("usr/bin/awk");
    if !awk.is_symlink() {
        symlink("mawk", awk)?;
    }
    Ok(fs::write(root.join(PROGRAM_LIST), PROGRAMS.join(" "))?)
}

/// Copies a program without its symbols.
pub(super) fn strip(root: &Path, arch: Arch, from: &Path, to: &Path) -> Result<()> {
    let mut strip = command(root, &format!("{}strip", arch.gnu()));
    strip.args(["-o", "/dev/stdout", "/dev/stdin"]);
    let file = |file: io::Result<File>, path: &Path| {
        file.with_context(|| format!("cannot open {}", path.display()))
    };
    strip.stdin(file(File::open(from), from)?);
    strip.stdout(file(File::create(to), to)?);
    sh::check(&mut strip).with_context(|| format!("cannot strip {}", from.display()))
}

/// A program of `root`. It sees only /dev and /proc of this machine.
pub(super) fn command(root: &Path, program: &str) -> Command {
    // The namespace's end removes the mounts. If "/" is no mount point, as in a bare chroot, it
    // cannot be made private; the error is ignored, since such a chroot is expected to be private.
    const ENTER: &str = "mount --make-rprivate / 2>/dev/null
        mount --rbind /dev \"$0/dev\" && mount --rbind /proc \"$0/proc\" && exec chroot \"$0\" \"$@\"";
    let mut command = sh::command("unshare");
    command.args(["--mount", "--propagation", "unchanged"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", ENTER]).arg(root);
    command.args(["env", "-i", "PATH=/usr/bin", program]);
    command
}
