//! The Debian packages that the guests are made of, pinned by version.

use std::{collections::BTreeSet, fmt};

use super::{
    boots::{Boot, Flavour},
    buildroot,
};

/// Where the pins are, for messages about versions that left the archive.
pub(super) const PIN_FILE: &str = "PINNED in xtask/src/vm/packages.rs";

/// A pinned kernel. `abi` is in the package names and in `uname -r`; `version` is the package's.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pin {
    pub(super) series: &'static str,
    /// The Debian suite of the packages.
    suite: &'static str,
    pub(super) abi: &'static str,
    version: &'static str,
    kbuild: &'static str,
    packaging: KernelPackaging,
}

/// How Debian packages a kernel.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum KernelPackaging {
    /// One package, with the image in /boot.
    Single,
    /// Image and modules in two packages, with the image in the directory of modules.
    Split,
}

const PINNED: &[Pin] = &[
    Pin {
        series: "7.3",
        suite: "trixie-backports",
        abi: "7.3.4+deb13",
        version: "7.3.4-1~bpo13+1",
        kbuild: "linux-kbuild-7.3.4+deb13",
        packaging: KernelPackaging::Split,
    },
    Pin {
        series: "6.12",
        suite: "bookworm-backports",
        abi: "6.12.95+deb12",
        version: "6.12.95-1~bpo12+1",
        kbuild: "linux-kbuild-6.12.95+deb12",
        packaging: KernelPackaging::Single,
    },
    Pin {
        series: "6.1",
        suite: "bookworm",
        abi: "6.1.0-50",
        version: "6.1.176-1",
        kbuild: "linux-kbuild-6.1",
        packaging: KernelPackaging::Single,
    },
];

const BUSYBOX: &str = "1:1.35.0-4+deb12u1+b1";
const BUSYBOX_SUITE: &str = "bookworm";

/// The Debian suites of all packages.
pub(super) fn suites() -> BTreeSet<&'static str> {
    let pinned = PINNED.iter().map(|pin| pin.suite);
    pinned.chain([BUSYBOX_SUITE, buildroot::SUITE]).collect()
}

/// A processor architecture, with its Debian name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Arch {
    Arm64,
    Amd64,
}

impl Arch {
    /// The architecture that this xtask was built for.
    pub(crate) const HOST: Self = if cfg!(target_arch = "aarch64") {
        Self::Arm64
    } else {
        Self::Amd64
    };

    /// Debian's name.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::Amd64 => "amd64",
        }
    }

    /// The kernel build system's name.
    pub(super) fn kbuild(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::Amd64 => "x86",
        }
    }

    /// The prefix of its GNU tools. Up to the first dash it is also the name in Rust and QEMU.
    pub(super) fn gnu(self) -> &'static str {
        match self {
            Self::Arm64 => "aarch64-linux-gnu-",
            Self::Amd64 => "x86_64-linux-gnu-",
        }
    }

    /// The Rust target of the static binaries for its guests.
    pub(crate) const fn triple(self) -> &'static str {
        match self {
            Self::Arm64 => "aarch64-unknown-linux-musl",
            Self::Amd64 => "x86_64-unknown-linux-musl",
        }
    }
}

/// A package of a pinned version, and the tree it is unpacked into.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) name: String,
    /// Debian's name of the architecture, or `all`.
    pub(super) arch: &'static str,
    pub(super) version: &'static str,
    pub(super) tree: Tree,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tree {
    /// The root with the kernels and the programs that build modules: see [`buildroot`].
    Root,
    /// Busybox of each architecture has its own tree: its path is the same in both packages.
    Busybox(Arch),
}

impl Tree {
    /// Path of the tree below the archive's directory.
    pub(super) fn directory(self) -> String {
        match self {
            Self::Root => "root".into(),
            Self::Busybox(arch) => format!("busybox-{}", arch.debian()),
        }
    }
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            arch,
            version,
            ..
        } = self;
        write!(f, "{name}:{arch}={version}")
    }
}

impl Package {
    /// A pattern of this package's name in every version of its series: kernel package names
    /// contain the version.
    pub(super) fn series_pattern(&self) -> String {
        let mut pattern = format!("^{}$", self.name.replace('.', "[.]").replace('+', "[+]"));
        if let Some(pin) = PINNED.iter().find(|pin| self.version == pin.version) {
            let abi = pin.abi.replace('.', "[.]").replace('+', "[+]");
            let series = pin.series.replace('.', "[.]");
            pattern = pattern.replace(&abi, &format!("{series}[.][0-9][^-]*(-[0-9]+)?"));
        }
        pattern
    }
}

/// The kernel of a boot.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kernel {
    pub(super) arch: Arch,
    pin: &'static Pin,
    flavour: Flavour,
}

impl Kernel {
    pub(super) fn for_boot(boot: &Boot) -> Self {
        let pin = PINNED.iter().find(|pin| pin.series == boot.series);
        Self {
            arch: boot.arch,
            pin: pin.expect("every series of the boot table is pinned: a test checks it"),
            flavour: boot.flavour,
        }
    }

    /// The output of `uname -r` in the guest.
    pub(super) fn release(&self) -> String {
        let (abi, arch) = (self.pin.abi, self.arch.debian());
        match self.flavour {
            Flavour::Normal => format!("{abi}-{arch}"),
            Flavour::Pages16k => format!("{abi}-{arch}-16k"),
            Flavour::Realtime => format!("{abi}-rt-{arch}"),
        }
    }

    /// Path of the image below the tree.
    pub(super) fn image(&self) -> String {
        let release = self.release();
        match self.pin.packaging {
            KernelPackaging::Single => format!("boot/vmlinuz-{release}"),
            KernelPackaging::Split => format!("usr/lib/modules/{release}/vmlinuz"),
        }
    }

    /// The packages to boot a guest and to build a module for it.
    pub(super) fn packages(&self) -> Vec<Package> {
        let Self { arch, pin, .. } = self;
        let package = |name: String, arch| Package {
            name,
            arch,
            version: pin.version,
            tree: Tree::Root,
        };
        let release = self.release();
        let names: &[&str] = match pin.packaging {
            KernelPackaging::Single => &["linux-image", "linux-headers"],
            KernelPackaging::Split => &[
                "linux-binary",
                "linux-modules",
                // Needed to make the index of the modules.
                "linux-base",
                "linux-headers",
            ],
        };
        let mut packages: Vec<_> = (names.iter())
            .map(|name| package(format!("{name}-{release}"), arch.debian()))
            .collect();
        packages.extend([
            package(format!("linux-headers-{}-common", pin.abi), "all"),
            // kbuild's programs run on this machine.
            package(pin.kbuild.into(), Arch::HOST.debian()),
            Package {
                name: "busybox-static".into(),
                arch: arch.debian(),
                version: BUSYBOX,
                tree: Tree::Busybox(*arch),
            },
        ]);
        packages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::boots::BOOTS;

    #[test]
    fn every_boot_has_a_pinned_kernel() {
        for boot in BOOTS {
            let release = Kernel::for_boot(boot).release();
            assert!(release.starts_with(boot.series), "{}: {release}", boot.name);
        }
    }
}
