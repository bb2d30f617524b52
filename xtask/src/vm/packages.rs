//! The Debian packages that the guests are made of, pinned by version.

use std::fmt;

use super::boots::{Boot, Flavour};

/// The Debian release that [`PINNED`] and [`BUSYBOX`] are taken from, with its backports.
pub(super) const RELEASE: &str = "bookworm";

/// Where the pins are, for the message about one that is gone.
pub(super) const PIN_FILE: &str = "PINNED in xtask/src/vm/packages.rs";

/// One kernel series: `abi` is in the package names and in `uname -r`, `version` is the package's.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pin {
    pub(super) series: &'static str,
    pub(super) abi: &'static str,
    version: &'static str,
    kbuild: &'static str,
}

const PINNED: &[Pin] = &[
    Pin {
        series: "6.12",
        abi: "6.12.95+deb12",
        version: "6.12.95-1~bpo12+1",
        kbuild: "linux-kbuild-6.12.95+deb12",
    },
    Pin {
        series: "6.1",
        abi: "6.1.0-50",
        version: "6.1.176-1",
        kbuild: "linux-kbuild-6.1",
    },
];

const BUSYBOX: &str = "1:1.35.0-4+deb12u1+b1";

/// A processor architecture under its Debian name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Arch {
    Arm64,
    Amd64,
}

impl Arch {
    /// The one that this xtask was built for.
    pub(super) const HOST: Self = if cfg!(target_arch = "aarch64") {
        Self::Arm64
    } else {
        Self::Amd64
    };

    /// Debian's name.
    pub(super) fn debian(self) -> &'static str {
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

    /// The prefix of its GNU tools, which is also how Rust and QEMU call it up to the first dash.
    pub(super) fn gnu(self) -> &'static str {
        match self {
            Self::Arm64 => "aarch64-linux-gnu-",
            Self::Amd64 => "x86_64-linux-gnu-",
        }
    }

    /// The target of the static binaries for its guests.
    pub(super) fn triple(self) -> &'static str {
        match self {
            Self::Arm64 => "aarch64-unknown-linux-musl",
            Self::Amd64 => "x86_64-unknown-linux-musl",
        }
    }
}

/// One package of one version, and the tree it is unpacked into.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) name: String,
    /// As apt names it: an architecture, or `all`.
    pub(super) arch: &'static str,
    pub(super) version: &'static str,
    /// Kernel packages share a tree, because headers find kbuild beside them; busybox of two
    /// architectures would be the same file there.
    pub(super) tree: Tree,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tree {
    Kernels,
    Busybox(Arch),
}

impl Tree {
    /// Its directory under `<target>/vm`.
    pub(super) fn directory(self) -> String {
        match self {
            Self::Kernels => "kernels".into(),
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
    /// Matches this package's name in every version of its series; versions are in kernel names.
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
    suffix: &'static str,
}

impl Kernel {
    pub(super) fn of(boot: &Boot) -> Self {
        let pin = PINNED.iter().find(|pin| pin.series == boot.series);
        Self {
            arch: boot.arch,
            pin: pin.expect("every series of the boot table is pinned: a test checks it"),
            suffix: match boot.flavour {
                Flavour::Normal => "",
                Flavour::Pages16k => "-16k",
            },
        }
    }

    /// What `uname -r` says in the guest.
    pub(super) fn release(&self) -> String {
        format!("{}-{}{}", self.pin.abi, self.arch.debian(), self.suffix)
    }

    /// The name of the headers that all architectures share.
    pub(super) fn common_headers(&self) -> String {
        format!("linux-headers-{}-common", self.pin.abi)
    }

    /// What a guest boots from.
    pub(super) fn boot_packages(&self) -> [Package; 2] {
        let Self { arch, pin, .. } = self;
        [
            Package {
                name: format!("linux-image-{}", self.release()),
                arch: arch.debian(),
                version: pin.version,
                tree: Tree::Kernels,
            },
            Package {
                name: "busybox-static".into(),
                arch: arch.debian(),
                version: BUSYBOX,
                tree: Tree::Busybox(*arch),
            },
        ]
    }

    /// What building a module for it needs. kbuild is programs of this machine.
    pub(super) fn build_packages(&self) -> [Package; 3] {
        let Self { arch, pin, .. } = self;
        let package = |name: String, arch| Package {
            name,
            arch,
            version: pin.version,
            tree: Tree::Kernels,
        };
        [
            package(format!("linux-headers-{}", self.release()), arch.debian()),
            package(self.common_headers(), "all"),
            package(pin.kbuild.into(), Arch::HOST.debian()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::boots::BOOTS;

    #[test]
    fn every_boot_has_a_pinned_kernel() {
        for boot in BOOTS {
            let release = Kernel::of(boot).release();
            assert!(release.starts_with(boot.series), "{}: {release}", boot.name);
        }
    }
}
