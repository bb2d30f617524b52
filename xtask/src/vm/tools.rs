//! The programs of this machine that the guests need. Those that build their modules are in
//! [`super::buildroot`].

use crate::debian::Tool;

/// What the guests are booted with and made of.
pub(crate) const TOOLS: &[Tool] = &[
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("qemu-system-arm", "qemu-system-aarch64"),
    ("qemu-efi-aarch64", super::guest::UEFI),
    ("kmod", "/sbin/depmod"),
    ("xz-utils", "xz"),
    // The programs that build the test modules run in a root of their own.
    ("mount", "mount"),
];
