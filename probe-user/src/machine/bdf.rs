//! PCI addresses.

use std::{fmt, str::FromStr};

use super::by_text::serde_by_text;

/// The address of a PCI function: `0005:c1:00.0` in sysfs and `lspci -D`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf {
    /// Domain, also called segment in NVIDIA's documents; 0 if not written.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, up to 31.
    pub device: u8,
    /// Function, up to 7.
    pub function: u8,
}

impl Bdf {
    /// The requester id of bus requests, which `src_bdf` of the Tegra410 PCIe PMU takes:
    /// `(bus << 8) + (device << 3) + function`. (The examples of the Tegra410 document, 27:01.1 =
    /// 0x2781 and 01:01.0 = 0x0180, contradict its formula.)
    #[must_use]
    pub fn requester(self) -> u16 {
        u16::from(self.bus) << 8 | u16::from(self.device) << 3 | u16::from(self.function)
    }
}

/// Prints the address with its domain, as in sysfs.
impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

serde_by_text!(Bdf);

/// The text is no PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a PCI address is bus:device.function in hexadecimal, such as 27:01.1, or with a domain \
     before it"
)]
pub struct ParseBdfError;

impl FromStr for Bdf {
    type Err = ParseBdfError;

    fn from_str(text: &str) -> Result<Self, ParseBdfError> {
        let number = |digits: &str, max: u32| {
            let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = u32::from_str_radix(digits, 16).ok();
            number
                .filter(|number| is_hex && *number <= max)
                .ok_or(ParseBdfError)
        };
        let byte = |digits, max| Ok(u8::try_from(number(digits, max)?).unwrap_or(u8::MAX));
        let (rest, function) = text.rsplit_once('.').ok_or(ParseBdfError)?;
        let (rest, device) = rest.rsplit_once(':').ok_or(ParseBdfError)?;
        let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
        Ok(Self {
            domain: number(domain, u32::MAX)?,
            bus: byte(bus, 0xff)?,
            device: byte(device, 0x1f)?,
            function: byte(function, 7)?,
        })
    }
}
