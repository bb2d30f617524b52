//! Addresses of a record: 56 bits of address, and the attributes in the top byte.

const ADDRESS: u64 = (1 << 56) - 1;

/// The security state of an instruction, or the space of a physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecurityState {
    /// Secure.
    Secure,
    /// Non-secure: where Linux runs.
    NonSecure,
    /// Root, of cores with the Realm Management Extension (RME).
    Root,
    /// Realm, of cores with RME.
    Realm,
}

impl SecurityState {
    /// From NS (bit 63) and NSE (bit 60; 0 on cores without RME).
    const fn new(payload: u64) -> Self {
        match (payload >> 60 & 1, payload >> 63) {
            (0, 0) => Self::Secure,
            (0, _) => Self::NonSecure,
            (_, 0) => Self::Root,
            (_, _) => Self::Realm,
        }
    }

    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Secure => "secure",
            Self::NonSecure => "non_secure",
            Self::Root => "root",
            Self::Realm => "realm",
        }
    }
}

/// The exception level of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExceptionLevel {
    /// User space.
    El0,
    /// The kernel, of a guest or without virtualisation host extensions.
    El1,
    /// The hypervisor, or the kernel of a host with those extensions.
    El2,
    /// Firmware.
    El3,
}

/// The address of an instruction: program counter, branch target, previous branch target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstructionAddress(u64);

impl InstructionAddress {
    pub(super) const fn new(payload: u64) -> Self {
        Self(payload)
    }

    /// The packet's payload.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The virtual address. A record holds 56 bits; the top byte is filled with ones for a kernel
    /// (EL1 and EL2 in the non-secure or realm state), as perf does.
    #[must_use]
    pub const fn address(self) -> u64 {
        let kernel = matches!(self.level(), ExceptionLevel::El1 | ExceptionLevel::El2);
        let normal = matches!(
            self.state(),
            SecurityState::NonSecure | SecurityState::Realm
        );
        if normal && kernel {
            self.0 | !ADDRESS
        } else {
            self.0 & ADDRESS
        }
    }

    /// The exception level (bits 62:61).
    #[must_use]
    pub const fn level(self) -> ExceptionLevel {
        match (self.0 >> 61) & 3 {
            0 => ExceptionLevel::El0,
            1 => ExceptionLevel::El1,
            2 => ExceptionLevel::El2,
            _ => ExceptionLevel::El3,
        }
    }

    /// The security state in which the instruction ran.
    #[must_use]
    pub const fn state(self) -> SecurityState {
        SecurityState::new(self.0)
    }
}

/// The virtual address of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VirtualAddress(u64);

impl VirtualAddress {
    pub(super) const fn new(payload: u64) -> Self {
        Self(payload)
    }

    /// The packet's payload.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The address without its tag: the top byte is filled with ones where bits
    /// 55:52 are ones (a kernel address), else with zeros, as perf does.
    #[must_use]
    pub const fn address(self) -> u64 {
        if (self.0 >> 52) & 0xf == 0xf {
            self.0 | !ADDRESS
        } else {
            self.0 & ADDRESS
        }
    }

    /// The tag (bits 63:56).
    #[must_use]
    pub const fn tag(self) -> u8 {
        self.0.to_le_bytes()[7]
    }
}

/// The physical address of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalAddress(u64);

impl PhysicalAddress {
    pub(super) const fn new(payload: u64) -> Self {
        Self(payload)
    }

    /// The packet's payload.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The address (bits 55:0).
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0 & ADDRESS
    }

    /// The address space.
    #[must_use]
    pub const fn space(self) -> SecurityState {
        SecurityState::new(self.0)
    }

    /// Whether the access was checked against memory tags (bit 62).
    #[must_use]
    pub const fn tag_checked(self) -> bool {
        (self.0 >> 62) & 1 != 0
    }

    /// The physical address tag (bits 59:56).
    #[must_use]
    pub const fn tag(self) -> u8 {
        self.0.to_le_bytes()[7] & 0xf
    }
}
