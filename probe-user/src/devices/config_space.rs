//! PCI configuration space: the register in which a Tegra410 root port says which PMU counts it.
//!
//! Layout: PCI Express Base Specification, 7.6.3 (extended capabilities from 0x100 on) and 7.9.6
//! (DVSEC, capability 0x23); the bytes behind its header are in the Tegra410 document, "Mapping the
//! RC# to lspci segment number".

use thiserror::Error;

use crate::machine::Bdf;

/// What is read without `CAP_SYS_ADMIN`.
const PUBLIC: usize = 64;
const EXTENDED: usize = 0x100;
const SIZE: usize = 0x1000;
/// Capability id of a Designated Vendor-Specific Extended Capability.
const DVSEC: u16 = 0x23;
const NVIDIA: u16 = 0x10de;
/// The DVSEC of NVIDIA's that maps a root port to its root complex.
const MAPPING: u16 = 4;

/// Where a root port is, by its own register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootPort {
    /// Number of the port in the root complex.
    pub port: u8,
    /// Number of the root complex in the socket.
    pub root_complex: u8,
    /// Socket.
    pub socket: u8,
}

/// Why the configuration space of a device does not tell.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each variant's message says what it and its fields are"
)]
pub enum ConfigError {
    #[error(
        "only the first 64 bytes of its configuration space can be read: CAP_SYS_ADMIN is needed \
         for the rest"
    )]
    NoRight,
    #[error("its configuration space cannot be read: {0}")]
    Read(String),
    #[error("its configuration space ends at byte {length:#x}, in the middle of {what}")]
    Short { length: usize, what: &'static str },
    #[error("its capabilities are a ring: the one at {0:#x} comes twice")]
    Ring(usize),
    #[error(
        "its mapping register is for bus {bus:02x} of segment {segment:02x}, which is another \
         device"
    )]
    Other { bus: u8, segment: u8 },
}

/// The mapping register of the root port at `address`; `None` where it has none.
///
/// # Errors
/// What is wrong with the configuration space.
pub fn root_port(config: &[u8], address: Bdf) -> Result<Option<RootPort>, ConfigError> {
    if config.len() == PUBLIC {
        return Err(ConfigError::NoRight);
    }
    let config = &config[..config.len().min(SIZE)];
    let Some(at) = find_mapping(config)? else {
        return Ok(None);
    };
    let byte = |offset| byte(config, at + offset, "its mapping register");
    let (bus, segment) = (byte(0xc)?, byte(0xd)?);
    if (bus, u32::from(segment)) != (address.bus, address.domain & 0xff) {
        return Err(ConfigError::Other { bus, segment });
    }
    Ok(Some(RootPort {
        port: byte(0xe)?,
        root_complex: byte(0xf)?,
        socket: byte(0x10)?,
    }))
}

/// Walks the extended capabilities.
fn find_mapping(config: &[u8]) -> Result<Option<usize>, ConfigError> {
    const LIST: &str = "its extended capabilities";
    let mut at = EXTENDED;
    let mut seen = vec![false; SIZE];
    loop {
        let header = word(config, at, LIST)?;
        // A device without extended capabilities reads as all zeros or all ones here.
        if header == 0 || header == u32::MAX {
            return Ok(None);
        }
        if std::mem::replace(&mut seen[at], true) {
            return Err(ConfigError::Ring(at));
        }
        let (id, next) = (low(header), (header >> 20) as usize);
        if id == DVSEC
            && low(word(config, at + 4, LIST)?) == NVIDIA
            && low(word(config, at + 8, LIST)?) == MAPPING
        {
            return Ok(Some(at));
        }
        if next < EXTENDED {
            return Ok(None);
        }
        at = next;
    }
}

fn low(word: u32) -> u16 {
    u16::try_from(word & 0xffff).unwrap_or_default()
}

fn word(config: &[u8], at: usize, what: &'static str) -> Result<u32, ConfigError> {
    let mut word = 0;
    for offset in (0..4).rev() {
        word = word << 8 | u32::from(byte(config, at + offset, what)?);
    }
    Ok(word)
}

fn byte(config: &[u8], at: usize, what: &'static str) -> Result<u8, ConfigError> {
    let length = config.len();
    config
        .get(at)
        .copied()
        .ok_or(ConfigError::Short { length, what })
}
