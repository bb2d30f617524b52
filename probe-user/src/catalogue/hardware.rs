//! The hardware that metrics are for.

use serde::{Deserialize, Serialize};

use super::{
    chip::{Chip, Platform},
    platform::ProfileSpec,
};

/// What is known of the hardware that metrics are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// Which families hold.
    pub platform: Platform,
    /// `None` where it cannot be told: no metric is ruled out then.
    pub chip: Option<Chip>,
    /// GPUs on a coherent link for each socket.
    pub gpus_per_socket: Option<u32>,
    /// `MIDR_EL1` of CPU 0 without variant and revision.
    pub midr: Option<u32>,
    /// `None` where the machine does not tell.
    pub sockets: Option<u32>,
}

impl Hardware {
    /// What an agent counts here unless it is told.
    #[must_use]
    pub fn profile(&self) -> Option<&'static ProfileSpec> {
        let profiles = &self.platform.spec().agent;
        let on = |sockets| profiles.iter().find(|it| it.sockets == sockets);
        self.sockets
            .and_then(|sockets| on(Some(sockets)))
            .or_else(|| on(None))
    }

    /// That chip, with the GPUs that it has by its name.
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

    /// That of which only the platform is known.
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
