//! The programs of this machine that the guests need: QEMU, compilers for the test modules.

use anyhow::Result;

use crate::debian::{self, Tool};

/// What the guests are booted with and made of.
const TOOLS: &[Tool] = &[
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
const NATIVE_GCC: Tool = ("gcc-12", "gcc-12");
const CROSS_GCC: Tool = if cfg!(target_arch = "aarch64") {
    ("gcc-12-x86-64-linux-gnu", "x86_64-linux-gnu-gcc-12")
} else {
    ("gcc-12-aarch64-linux-gnu", "aarch64-linux-gnu-gcc-12")
};

const CROSS_LIBC: Tool = if cfg!(target_arch = "aarch64") {
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
    debian::missing(TOOLS)
}

/// Installs what is missing, or says how where this user may not.
pub(super) fn provide() -> Result<()> {
    debian::install(
        &missing(),
        "the test guests need programs that are not installed",
    )
}
