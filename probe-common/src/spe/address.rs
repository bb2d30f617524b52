//! Addresses of a record: 56 bits of address, and what the top byte says of them.

const ADDRESS: u64 = (1 << 56) - 1;

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

    /// The virtual address. A record holds 56 bits; those of a kernel (non-secure
    /// EL1 and EL2) have their top byte filled with ones, as perf does.
    #[must_use]
    pub const fn address(self) -> u64 {
        let kernel = matches!(self.level(), ExceptionLevel::El1 | ExceptionLevel::El2);
        if self.non_secure() && kernel {
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

    /// Whether the instruction ran in the non-secure state (bit 63).
    #[must_use]
    pub const fn non_secure(self) -> bool {
        self.0 >> 63 != 0
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

    /// Whether the address is in the non-secure space (bit 63).
    #[must_use]
    pub const fn non_secure(self) -> bool {
        self.0 >> 63 != 0
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
