//! Platforms, and the configurations of one platform that the documents tell apart.

use std::fmt;

use serde::Deserialize;

/// What families of the catalogue hold on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Platform {
    /// NVIDIA Grace (Tegra241): Neoverse V2 cores and the `nvidia_*_pmu` PMUs.
    Grace,
    /// Another machine with Neoverse V2 cores.
    NeoverseV2,
    /// NVIDIA Vera (Tegra410).
    Vera,
    /// Intel Sapphire Rapids.
    Spr,
    /// Intel Emerald Rapids.
    Emr,
    /// Intel Sandy Bridge.
    Snb,
    /// Anything else.
    Generic,
}

/// A chip, or a configuration of chips, as coverage tables tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Chip {
    /// Two Grace, no GPU on NVLink-C2C.
    GraceCpuSuperchip,
    /// One Grace with a Hopper.
    GraceHopper,
    /// Several Grace with a Hopper each: the only one with CNVLINK traffic.
    GraceHopperMulti,
    /// Neoverse V2 outside of Grace.
    NeoverseV2,
    /// Tegra410 (Vera).
    Tegra410,
    /// Sapphire Rapids.
    SapphireRapids,
    /// Emerald Rapids.
    EmeraldRapids,
    /// Sandy Bridge.
    SandyBridge,
    /// Any other.
    Other,
}

impl Chip {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::GraceCpuSuperchip,
        Self::GraceHopper,
        Self::GraceHopperMulti,
        Self::NeoverseV2,
        Self::Tegra410,
        Self::SapphireRapids,
        Self::EmeraldRapids,
        Self::SandyBridge,
        Self::Other,
    ];

    /// The three that the Grace guide and the kernel's document tell apart.
    pub const GRACE: [Self; 3] = [
        Self::GraceCpuSuperchip,
        Self::GraceHopper,
        Self::GraceHopperMulti,
    ];

    /// The platform that it belongs to.
    #[must_use]
    pub fn platform(self) -> Platform {
        match self {
            Self::GraceCpuSuperchip | Self::GraceHopper | Self::GraceHopperMulti => Platform::Grace,
            Self::NeoverseV2 => Platform::NeoverseV2,
            Self::Tegra410 => Platform::Vera,
            Self::SapphireRapids => Platform::Spr,
            Self::EmeraldRapids => Platform::Emr,
            Self::SandyBridge => Platform::Snb,
            Self::Other => Platform::Generic,
        }
    }

    /// For headings.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::GraceCpuSuperchip => "Grace CPU Superchip",
            Self::GraceHopper => "Grace Hopper, one socket",
            Self::GraceHopperMulti => "Grace Hopper, several sockets",
            Self::NeoverseV2 => "Neoverse V2 outside of Grace",
            Self::Tegra410 => "Tegra410 (Vera)",
            Self::SapphireRapids => "Sapphire Rapids",
            Self::EmeraldRapids => "Emerald Rapids",
            Self::SandyBridge => "Sandy Bridge",
            Self::Other => "any other",
        }
    }
}

impl Platform {
    /// Its only chip; `None` where the platform alone does not tell.
    #[must_use]
    pub fn only_chip(self) -> Option<Chip> {
        let mut chips = Chip::ALL.into_iter().filter(|chip| chip.platform() == self);
        chips.next().filter(|_| chips.next().is_none())
    }
}

/// As `--chip` takes it.
impl fmt::Display for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GraceCpuSuperchip => "grace-cpu-superchip",
            Self::GraceHopper => "grace-hopper",
            Self::GraceHopperMulti => "grace-hopper-multi",
            Self::NeoverseV2 => "neoverse-v2",
            Self::Tegra410 => "tegra410",
            Self::SapphireRapids => "sapphire-rapids",
            Self::EmeraldRapids => "emerald-rapids",
            Self::SandyBridge => "sandy-bridge",
            Self::Other => "other",
        })
    }
}

/// As `--platform` takes it.
impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grace => "grace",
            Self::NeoverseV2 => "neoverse-v2",
            Self::Vera => "vera",
            Self::Spr => "spr",
            Self::Emr => "emr",
            Self::Snb => "snb",
            Self::Generic => "generic",
        })
    }
}

/// What is known of the machine that was counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Which families hold.
    pub platform: Platform,
    /// `None` where it cannot be told: no metric is ruled out then.
    pub chip: Option<Chip>,
    /// GPUs on NVLink-C2C for each socket.
    pub gpus_per_socket: Option<u32>,
    /// `MIDR_EL1` of CPU 0 without variant and revision.
    pub midr: Option<u32>,
}

impl Machine {
    /// A machine of that chip, with the GPUs that the chip has by its name.
    #[must_use]
    pub fn of_chip(chip: Chip) -> Self {
        let gpus_per_socket = match chip {
            Chip::GraceCpuSuperchip => Some(0),
            Chip::GraceHopper | Chip::GraceHopperMulti => Some(1),
            _ => None,
        };
        Self {
            platform: chip.platform(),
            chip: Some(chip),
            gpus_per_socket,
            midr: None,
        }
    }

    /// A machine of which only the platform is known.
    #[must_use]
    pub fn of_platform(platform: Platform) -> Self {
        match platform.only_chip() {
            Some(chip) => Self::of_chip(chip),
            None => Self {
                platform,
                chip: None,
                gpus_per_socket: None,
                midr: None,
            },
        }
    }
}
