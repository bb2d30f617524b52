//! The operation packet: class and details of the sampled operation.

/// The operation of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Neither memory access nor branch.
    Other(OtherOperation),
    /// A load, a store or an atomic.
    LoadStore(LoadStore),
    /// A branch or an exception return.
    Branch(Branch),
    /// The class that the architecture reserves.
    Reserved(u8),
}

impl Operation {
    /// From the low two bits of `class` and the packet's payload.
    pub(super) const fn new(class: u8, payload: u8) -> Self {
        match class & 3 {
            0 => Self::Other(OtherOperation(payload)),
            1 => Self::LoadStore(LoadStore(payload)),
            2 => Self::Branch(Branch(payload)),
            _ => Self::Reserved(payload),
        }
    }
}

/// Effective vector length in bits (EVL), from bits 6:4 of an SVE operation: 32 to 4096, rounded up
/// to a power of two.
const fn sve_bits(payload: u8) -> u16 {
    32 << ((payload >> 4) & 7)
}

/// Details of an operation that is neither memory access nor branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OtherOperation(u8);

impl OtherOperation {
    /// The packet's payload.
    #[must_use]
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// For an SVE operation, its effective vector length in bits.
    #[must_use]
    pub const fn sve_bits(self) -> Option<u16> {
        if self.0 & 0x89 == 0x08 {
            Some(sve_bits(self.0))
        } else {
            None
        }
    }

    /// For an SME operation, its effective tile size in bits (ETS, bits 6:4 and 2): 128 to 2^22,
    /// rounded up to a power of two.
    #[must_use]
    pub const fn sme_bits(self) -> Option<u32> {
        if self.0 & 0x89 == 0x88 {
            let log2 = ((self.0 >> 4) & 7) << 1 | (self.0 >> 2) & 1;
            Some(128 << log2)
        } else {
            None
        }
    }

    /// Whether it is an SVE operation that works on floating-point numbers.
    #[must_use]
    pub const fn sve_floating_point(self) -> bool {
        self.sve_bits().is_some() && self.0 & 2 != 0
    }

    /// Whether it is an SVE operation under a predicate.
    #[must_use]
    pub const fn sve_predicated(self) -> bool {
        self.sve_bits().is_some() && self.0 & 4 != 0
    }

    /// Whether it is a conditional select: neither SVE nor SME, and bit 0 is set.
    #[must_use]
    pub const fn conditional(self) -> bool {
        self.0 & 0x08 == 0 && self.0 & 1 != 0
    }
}

/// Details of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoadStore(u8);

/// What a load or store moves, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadStoreKind {
    /// General-purpose registers.
    General,
    /// SIMD and floating-point registers.
    SimdFp,
    /// Registers that the core does not specify.
    Unspecified,
    /// A system register of a nested guest, kept in memory.
    SystemRegister,
    /// Memory tags.
    Tag,
    /// A memory copy instruction.
    Copy,
    /// A memory set instruction.
    Set,
    /// Atomic, exclusive, or with acquire or release order.
    Ordered {
        /// An atomic.
        atomic: bool,
        /// A load or store exclusive.
        exclusive: bool,
        /// With acquire or release order.
        acquire_release: bool,
    },
    /// An SVE or SME vector.
    Sve {
        /// Effective vector length in bits.
        bits: u16,
        /// Under a predicate.
        predicated: bool,
        /// A gather load or scatter store.
        gather_scatter: bool,
    },
    /// The guarded control stack.
    ControlStack {
        /// An ordinary access, not one by a branch.
        common: bool,
    },
    /// A subclass without a name.
    Unknown,
}

impl LoadStore {
    /// The packet's payload.
    #[must_use]
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// Whether it is a store or an atomic that returns no value (bit 0, LDST). An atomic that
    /// returns a value counts as a load, though it also writes.
    #[must_use]
    pub const fn is_store(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether it is an atomic. An atomic that returns a value also writes, though
    /// [`Self::is_store`] is false.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        self.0 & 0xe6 == 0x06
    }

    /// What it moves, and how.
    #[must_use]
    pub const fn kind(self) -> LoadStoreKind {
        let v = self.0;
        match v & 0xfe {
            0x00 => return LoadStoreKind::General,
            0x04 => return LoadStoreKind::SimdFp,
            0x10 => return LoadStoreKind::Unspecified,
            0x14 => return LoadStoreKind::Tag,
            0x20 => return LoadStoreKind::Copy,
            0x30 => return LoadStoreKind::SystemRegister,
            _ => {}
        }
        if v == 0x25 {
            LoadStoreKind::Set
        } else if v & 0xe2 == 0x02 {
            LoadStoreKind::Ordered {
                atomic: v & 0x04 != 0,
                exclusive: v & 0x08 != 0,
                acquire_release: v & 0x10 != 0,
            }
        } else if v & 0x0a == 0x08 {
            LoadStoreKind::Sve {
                bits: sve_bits(v),
                predicated: v & 0x04 != 0,
                gather_scatter: v & 0x80 != 0,
            }
        } else if v & 0xfa == 0x40 {
            LoadStoreKind::ControlStack {
                common: v & 0x04 != 0,
            }
        } else {
            LoadStoreKind::Unknown
        }
    }
}

/// Details of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Branch(u8);

impl Branch {
    /// The packet's payload.
    #[must_use]
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// Whether it depends on a condition (bit 0).
    #[must_use]
    pub const fn is_conditional(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether its target is in a register (bit 1).
    #[must_use]
    pub const fn is_indirect(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether it is a call (bits 4:3 are 1); cores before SPE 1.3 do not report that.
    #[must_use]
    pub const fn is_call(self) -> bool {
        (self.0 >> 3) & 3 == 1
    }

    /// Whether it is a return (bits 4:3 are 2); cores before SPE 1.3 do not report that.
    #[must_use]
    pub const fn is_return(self) -> bool {
        (self.0 >> 3) & 3 == 2
    }
}
