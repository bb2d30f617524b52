//! The hardware that metrics are for.

use serde::{Deserialize, Serialize};

use super::{
    chip::{Chip, Platform},
    platform::ProfileSpec,
};

/// What is known of the hardware that metrics are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// The platform, which decides which families apply.
    pub platform: Platform,
    /// The chip; `None` if unknown, and then no metric is excluded because of it.
    pub chip: Option<Chip>,
    /// GPUs on a coherent link, per socket; `None` if unknown.
    pub gpus_per_socket: Option<u32>,
    /// `MIDR_EL1` of CPU 0 without variant and revision; `None` if unknown.
    pub midr: Option<u32>,
    /// The number of sockets; `None` if unknown.
    pub sockets: Option<u32>,
}

impl Hardware {
    /// What the agent counts here by default; `None` if no profile of the platform applies.
    #[must_use]
    pub fn profile(&self) -> Option<&'static ProfileSpec> {
        let profiles = &self.platform.spec().agent;
        let profile_for = |sockets| profiles.iter().find(|it| it.sockets == sockets);
        self.sockets
            .and_then(|sockets| profile_for(Some(sockets)))
            .or_else(|| profile_for(None))
    }

    /// The hardware of a chip, with the GPUs per socket that its name implies.
    #[must_use]
    pub fn of_chip(chip: Chip) -> Self {
        Self {
            platform: chip.platform(),
            chip: Some(chip),
            gpus_per_socket: chip.spec().gpus_per_socket,
            midr: None,
            sockets: None,
        }
    }

    /// The hardware of a platform, with its chip if it has exactly one.
    #[must_use]
    pub fn of_platform(platform: Platform) -> Self {
        match platform.only_chip() {
            Some(chip) => Self::of_chip(chip),
            None => Self {
                platform,
                chip: None,
                gpus_per_socket: None,
                midr: None,
                sockets: None,
            },
        }
    }
}
