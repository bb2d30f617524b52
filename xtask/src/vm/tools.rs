//! The programs of this machine that the guests need. Those that build their modules are in
//! [`super::buildroot`].

use anyhow::Result;

use crate::debian::{self, Tool};

/// What the guests are booted with and made of.
const TOOLS: &[Tool] = &[
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("qemu-system-arm", "qemu-system-aarch64"),
    ("qemu-efi-aarch64", super::guest::UEFI),
    ("kmod", "/sbin/depmod"),
    ("xz-utils", "xz"),
    // The programs that build the test modules run in a root of their own.
    ("mount", "mount"),
];

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
