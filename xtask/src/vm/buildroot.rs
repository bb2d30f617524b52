//! A root of Debian 13 in which the test modules are built: kernel headers name the compiler that
//! built the kernel, and their programs need that release's libraries. The kernels' packages are
//! unpacked in the same root, so that their Makefiles and links hold as they are.

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

/// Where the programs come from.
pub(super) const SUITE: &str = "trixie";

/// Packages; apt adds what they depend on.
pub(super) const PROGRAMS: &[&str] = &[
    // The layout: /bin, /lib and the like are links.
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
    // Of kbuild's own programs.
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

/// What a complete root was made of.
const MADE_OF: &str = ".programs";

/// Whether `root` has [`PROGRAMS`].
pub(super) fn is_complete(root: &Path) -> bool {
    fs::read_to_string(root.join(MADE_OF)).is_ok_and(|made_of| made_of == PROGRAMS.join(" "))
}

/// Completes `root` after everything is unpacked into it.
pub(super) fn complete(root: &Path) -> Result<()> {
    // A package's script would make it.
    let awk = root.join("usr/bin/awk");
    if !awk.is_symlink() {
        symlink("mawk", awk)?;
    }
    Ok(fs::write(root.join(MADE_OF), PROGRAMS.join(" "))?)
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

/// A program of `root` that sees nothing else of this machine than /dev and /proc.
pub(super) fn command(root: &Path, program: &str) -> Command {
    // The mounts end with the namespace. Where "/" is no mount point, as in a bare chroot, it
    // cannot be made private, and who made that chroot has seen to it.
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
