//! Programs of this machine that run and prepare guests. The programs that build their modules are
//! in [`super::buildroot`].

use crate::debian::PackagedFile;

/// Programs and firmware that guests are prepared and booted with.
pub(crate) const TOOLS: &[PackagedFile] = &[
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("qemu-system-arm", "qemu-system-aarch64"),
    ("qemu-efi-aarch64", super::guest::UEFI),
    ("kmod", "/sbin/depmod"),
    ("xz-utils", "xz"),
    // Mounts the root in which the test modules are built.
    ("mount", "mount"),
];
