//! The programs of this machine that the guests need: QEMU, compilers for the test modules.

use std::{env, path::Path};

use anyhow::Result;

use crate::sh;

/// A Debian package and a file that it brings; a name without a slash is looked for in PATH.
const TOOLS: &[(&str, &str)] = &[
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("qemu-system-arm", "qemu-system-aarch64"),
    ("qemu-efi-aarch64", super::guest::UEFI),
    ("kmod", "/sbin/depmod"),
    ("xz-utils", "xz"),
    ("make", "make"),
    (NATIVE_GCC.0, NATIVE_GCC.1),
    (CROSS_GCC.0, CROSS_GCC.1),
    // The test modules' self-check is a static program.
    (CROSS_LIBC.0, CROSS_LIBC.1),
    // kbuild's programs are linked with it.
    ("libelf1", LIBELF),
    // Headers from 6.12 on ask it for the BTF of a module.
    ("pahole", "pahole"),
];

// Debian's headers call the compiler that built the kernel by its full name.
const NATIVE_GCC: (&str, &str) = ("gcc-12", "gcc-12");
const CROSS_GCC: (&str, &str) = if cfg!(target_arch = "aarch64") {
    ("gcc-12-x86-64-linux-gnu", "x86_64-linux-gnu-gcc-12")
} else {
    ("gcc-12-aarch64-linux-gnu", "aarch64-linux-gnu-gcc-12")
};

const CROSS_LIBC: (&str, &str) = if cfg!(target_arch = "aarch64") {
    ("libc6-dev-amd64-cross", "/usr/x86_64-linux-gnu/lib/libc.a")
} else {
    ("libc6-dev-arm64-cross", "/usr/aarch64-linux-gnu/lib/libc.a")
};

const LIBELF: &str = if cfg!(target_arch = "aarch64") {
    "/usr/lib/aarch64-linux-gnu/libelf.so.1"
} else {
    "/usr/lib/x86_64-linux-gnu/libelf.so.1"
};

/// The packages that are missing.
pub(super) fn missing() -> Vec<&'static str> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = |file: &str| {
        Path::new(file).exists() || env::split_paths(&path).any(|dir| dir.join(file).exists())
    };
    TOOLS
        .iter()
        .filter(|(_, file)| !found(file))
        .map(|(package, _)| *package)
        .collect()
}

/// The command that installs them.
pub(super) fn apt_line(missing: &[&str]) -> String {
    format!(
        "apt-get install -y --no-install-recommends {}",
        missing.join(" ")
    )
}

/// Installs what is missing, or says how where this user may not.
pub(super) fn provide() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        anyhow::bail!(
            "the test guests need programs that are not installed: sudo {}",
            apt_line(&missing)
        );
    }
    println!("xtask: installing {}", missing.join(" "));
    let apt = || {
        let mut apt = sh::command("apt-get");
        // Another apt may be at work; it ends.
        apt.args(["-q", "-o", "DPkg::Lock::Timeout=300"]);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt
    };
    let mut install = apt();
    install.args(["install", "-y", "--no-install-recommends"]);
    install.args(&missing);
    // Lists may be absent or out of date, as in a fresh container.
    if sh::check(&mut install).is_err() {
        sh::check(apt().arg("update"))?;
        sh::check(&mut install)?;
    }
    Ok(())
}
