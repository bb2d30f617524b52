//! The events packet: what happened to the operation.

/// The events of a record, including bits without a name here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Events(u64);

impl Events {
    /// The operation generated an exception (bit 0).
    pub const EXCEPTION: Self = Self(1 << 0);
    /// It retired architecturally (bit 1).
    pub const RETIRED: Self = Self(1 << 1);
    /// It accessed the level 1 data cache (bit 2).
    pub const L1D_ACCESS: Self = Self(1 << 2);
    /// It missed the level 1 data cache (bit 3).
    pub const L1D_REFILL: Self = Self(1 << 3);
    /// It accessed the TLB (bit 4).
    pub const TLB_ACCESS: Self = Self(1 << 4);
    /// It needed a translation table walk (bit 5).
    pub const TLB_WALK: Self = Self(1 << 5);
    /// A conditional branch that was not taken (bit 6).
    pub const NOT_TAKEN: Self = Self(1 << 6);
    /// A branch that was predicted wrongly (bit 7).
    pub const MISPREDICTED: Self = Self(1 << 7);
    /// It accessed the last level cache (bit 8).
    pub const LLC_ACCESS: Self = Self(1 << 8);
    /// It missed the last level cache (bit 9).
    pub const LLC_MISS: Self = Self(1 << 9);
    /// It accessed another socket (bit 10).
    pub const REMOTE_ACCESS: Self = Self(1 << 10);
    /// It was misaligned (bit 11).
    pub const MISALIGNED: Self = Self(1 << 11);
    /// It ran within a transaction (bit 16).
    pub const TRANSACTIONAL: Self = Self(1 << 16);
    /// A vector operation with some lanes inactive (bit 17).
    pub const PARTIAL_PREDICATE: Self = Self(1 << 17);
    /// A vector operation with all lanes inactive (bit 18).
    pub const EMPTY_PREDICATE: Self = Self(1 << 18);
    /// It accessed the level 2 data cache (bit 19).
    pub const L2D_ACCESS: Self = Self(1 << 19);
    /// It missed the level 2 data cache (bit 20).
    pub const L2D_MISS: Self = Self(1 << 20);
    /// The data were modified in the cache that supplied them (bit 21).
    pub const CACHE_DATA_MODIFIED: Self = Self(1 << 21);
    /// The data were fetched recently (bit 22).
    pub const RECENTLY_FETCHED: Self = Self(1 << 22);
    /// The data came from a snooped cache (bit 23).
    pub const DATA_SNOOPED: Self = Self(1 << 23);
    /// It ran in streaming SVE mode (bit 24).
    pub const STREAMING_SVE: Self = Self(1 << 24);
    /// It ran on a shared matrix unit (bit 25).
    pub const SHARED_MATRIX_UNIT: Self = Self(1 << 25);

    pub(super) const fn new(payload: u64) -> Self {
        Self(payload)
    }

    /// All bits, as in the packet.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether every event of `other` happened.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
