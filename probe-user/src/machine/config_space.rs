//! PCI configuration space: the register of a Tegra410 root port that tells which PMU counts the
//! port.
//!
//! Layout: PCI Express Base Specification, 7.6.3 (extended capabilities from 0x100 on) and 7.9.6
//! (DVSEC, capability 0x23); the bytes behind its header are in the Tegra410 document, "Mapping the
//! RC# to lspci segment number".

use std::{
    fs,
    path::{Component, Path},
};

use thiserror::Error;

use super::Bdf;

/// Bytes that can be read without `CAP_SYS_ADMIN`.
const PUBLIC: usize = 64;
/// Offset of the first extended capability.
const EXTENDED: usize = 0x100;
/// Bytes of a whole configuration space.
const SIZE: usize = 0x1000;
/// Capability id of a Designated Vendor-Specific Extended Capability.
const DVSEC: u16 = 0x23;
/// Vendor id of NVIDIA.
const NVIDIA: u16 = 0x10de;
/// NVIDIA's DVSEC that maps a root port to its root complex.
const MAPPING: u16 = 4;
/// Bytes of that DVSEC that are read.
const MAPPING_LENGTH: u32 = 0x11;
/// Mask of a pointer to an extended capability: its lower two bits are reserved (PCI Express Base
/// Specification, 7.6.3).
const POINTER: u32 = 0xffc;

/// Location of a root port, by the port's own register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootPort {
    /// Number of the port in the root complex.
    pub port: u8,
    /// Number of the root complex in the socket.
    pub root_complex: u8,
    /// Socket.
    pub socket: u8,
}

/// Why the configuration space of a device does not give its location.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each variant's message says what it and its fields are"
)]
pub enum ConfigSpaceError {
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
    #[error(
        "its mapping register says root complex {complex} of socket {socket}, which no PMU counts"
    )]
    NoPmu { socket: u8, complex: u8 },
    #[error("its mapping register says root port {port}, and {pmu} has {ports} ports")]
    Port { port: u8, pmu: String, ports: u32 },
}

/// The mapping register of the root port above a function; `None` if there is no such register.
///
/// # Errors
/// The configuration space cannot be read or is damaged.
pub(crate) fn root_port_of(
    sysfs: &Path,
    address: Bdf,
) -> Result<Option<RootPort>, ConfigSpaceError> {
    let devices = sysfs.join("bus/pci/devices");
    let read = |error: std::io::Error| ConfigSpaceError::Read(error.to_string());
    let path = fs::canonicalize(devices.join(address.to_string())).map_err(read)?;
    let Some((_, port)) = root_bus_and_port(&path) else {
        return Ok(None);
    };
    let config = fs::read(devices.join(format!("{port}/config"))).map_err(read)?;
    root_port(&config, port)
}

/// Parses root bus and root port from `.../pci0008:00/0008:00:00.0/0008:01:00.0/...`.
pub(crate) fn root_bus_and_port(path: &Path) -> Option<((u32, u8), Bdf)> {
    let mut names = path.components().filter_map(|component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let root_bus = names.find_map(|name| {
        let (domain, bus) = name.strip_prefix("pci")?.split_once(':')?;
        let domain = u32::from_str_radix(domain, 16).ok()?;
        Some((domain, u8::from_str_radix(bus, 16).ok()?))
    })?;
    Some((root_bus, names.next()?.parse().ok()?))
}

/// Parses the mapping register of the root port at `address`; `None` if it has none.
///
/// # Errors
/// The configuration space cannot be read or is damaged.
pub fn root_port(config: &[u8], address: Bdf) -> Result<Option<RootPort>, ConfigSpaceError> {
    if config.len() == PUBLIC {
        return Err(ConfigSpaceError::NoRight);
    }
    let config = &config[..config.len().min(SIZE)];
    let Some(at) = find_mapping(config)? else {
        return Ok(None);
    };
    let byte = |offset| byte(config, at + offset, "its mapping register");
    let (bus, segment) = (byte(0xc)?, byte(0xd)?);
    if (bus, u32::from(segment)) != (address.bus, address.domain & 0xff) {
        return Err(ConfigSpaceError::Other { bus, segment });
    }
    Ok(Some(RootPort {
        port: byte(0xe)?,
        root_complex: byte(0xf)?,
        socket: byte(0x10)?,
    }))
}

/// Offset of the mapping register: walks the extended capabilities.
fn find_mapping(config: &[u8]) -> Result<Option<usize>, ConfigSpaceError> {
    const LIST: &str = "its extended capabilities";
    let mut at = EXTENDED;
    let mut seen = vec![false; SIZE];
    loop {
        let header = word(config, at, LIST)?;
        // All zeros or all ones: the device has no extended capabilities.
        if header == 0 || header == u32::MAX {
            return Ok(None);
        }
        if std::mem::replace(&mut seen[at], true) {
            return Err(ConfigSpaceError::Ring(at));
        }
        let (id, next) = (low_half(header), (header >> 20 & POINTER) as usize);
        if id == DVSEC {
            // Bits 31:20 are its length; a shorter DVSEC is of another kind.
            let vendor = word(config, at + 4, LIST)?;
            if low_half(vendor) == NVIDIA
                && vendor >> 20 >= MAPPING_LENGTH
                && low_half(word(config, at + 8, LIST)?) == MAPPING
            {
                return Ok(Some(at));
            }
        }
        if next < EXTENDED {
            return Ok(None);
        }
        at = next;
    }
}

fn low_half(word: u32) -> u16 {
    u16::try_from(word & 0xffff).unwrap_or_default()
}

fn word(config: &[u8], at: usize, what: &'static str) -> Result<u32, ConfigSpaceError> {
    let mut word = 0;
    for offset in (0..4).rev() {
        word = word << 8 | u32::from(byte(config, at + offset, what)?);
    }
    Ok(word)
}

fn byte(config: &[u8], at: usize, what: &'static str) -> Result<u8, ConfigSpaceError> {
    let length = config.len();
    config
        .get(at)
        .copied()
        .ok_or(ConfigSpaceError::Short { length, what })
}
