//! Data sources: where a load found its data, by the data-source numbers of each core.
//!
//! The numbers are implementation defined. The tables and their cores are those of Linux's perf
//! (tools/perf/util/arm-spe.c); part numbers are those of arch/arm64/include/asm/cputype.h.
//! NVIDIA's Olympus has the common table by NVIDIA's own patch to perf's list ("Add NVIDIA Olympus
//! MIDR to `neoverse_spe` range list", B. Wicaksono, linux-kernel, 2025-12-19). A core that is not
//! listed has no table, and its numbers are reported as they are.

/// The cache, memory or device that served a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Source {
    /// The core's level 1 data cache.
    L1d,
    /// The core's level 2 cache.
    L2,
    /// The level 3 cache, if the core distinguishes it from the system cache.
    L3,
    /// A cache of another core. On `AmpereOne` also another cache of the chip, or a device.
    PeerCore,
    /// A cache of the core's own cluster.
    LocalCluster,
    /// A cache of another cluster of this socket.
    PeerCluster,
    /// The system level cache of this socket.
    SystemCache,
    /// Another socket; on cores of the common table its caches or its memory.
    Remote,
    /// Memory of this socket; on cores of the common table all that is not [`Source::Remote`].
    Dram,
    /// Memory of another socket, if the core distinguishes it.
    RemoteDram,
    /// Uncached memory or a device.
    Device,
    /// A line that an earlier miss of the core was already fetching: Intel's fill buffers, AMD's
    /// miss address buffers.
    FillBuffer,
    /// Memory behind CXL.
    Cxl,
    /// Persistent memory.
    Pmem,
}

impl Source {
    /// All of them, in their order.
    pub const ALL: [Self; 14] = [
        Self::L1d,
        Self::L2,
        Self::L3,
        Self::PeerCore,
        Self::LocalCluster,
        Self::PeerCluster,
        Self::SystemCache,
        Self::Remote,
        Self::Dram,
        Self::RemoteDram,
        Self::Device,
        Self::FillBuffer,
        Self::Cxl,
        Self::Pmem,
    ];

    /// Whether it is a cache of another core, of a cluster (also the core's own) or of another
    /// socket.
    const fn is_peer(self) -> bool {
        matches!(
            self,
            Self::PeerCore | Self::LocalCluster | Self::PeerCluster | Self::Remote
        )
    }

    /// Its name in metrics and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::L1d => "l1",
            Self::L2 => "l2",
            Self::L3 => "l3",
            Self::PeerCore => "peer_core",
            Self::LocalCluster => "cluster",
            Self::PeerCluster => "peer_cluster",
            Self::SystemCache => "system_cache",
            Self::Remote => "remote",
            Self::Dram => "dram",
            Self::RemoteDram => "remote_dram",
            Self::Device => "device",
            Self::FillBuffer => "fill_buffer",
            Self::Cxl => "cxl",
            Self::Pmem => "pmem",
        }
    }
}

/// The meaning of a data-source number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Where the data came from.
    pub source: Source,
    /// Whether the core reports that the line was modified in that cache.
    pub modified: bool,
}

/// The data-source table of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SourceTable {
    /// Arm's Neoverse N1, N2, V1, V2 and Cortex A720, A720AE, A725, X1C, X3, X925; NVIDIA's
    /// Olympus (Vera).
    Common,
    /// `AmpereOne` (AMPERE1A).
    AmpereOne,
    /// `HiSilicon` HIP12.
    HiSilicon,
}

const fn plain(source: Source) -> Option<Origin> {
    Some(Origin {
        source,
        modified: false,
    })
}

const fn modified(source: Source) -> Option<Origin> {
    Some(Origin {
        source,
        modified: true,
    })
}

impl SourceTable {
    /// The table of the core with this `MIDR_EL1` (sysfs `regs/identification/midr_el1`), if known.
    /// Variant and revision do not matter.
    #[must_use]
    pub const fn for_midr(midr: u64) -> Option<Self> {
        let implementer = (midr >> 24) & 0xff;
        let part = (midr >> 4) & 0xfff;
        match (implementer, part) {
            // Neoverse N1, V1, N2, V2; Cortex X1C, X3, A720, X925, A725, A720AE.
            (
                0x41,
                0xd0c | 0xd40 | 0xd49 | 0xd4f | 0xd4c | 0xd4e | 0xd81 | 0xd85 | 0xd87 | 0xd89,
            )
            // Olympus.
            | (0x4e, 0x010) => Some(Self::Common),
            (0xc0, 0xac4) => Some(Self::AmpereOne),
            (0x48, 0xd06) => Some(Self::HiSilicon),
            _ => None,
        }
    }

    /// The meaning of a load's data-source number; None if the table lacks it. Only loads have a
    /// source: a store's packet, if present, means nothing on cores of the common table.
    #[must_use]
    pub const fn load(self, number: u64) -> Option<Origin> {
        match self {
            Self::Common => match number {
                0x0 => plain(Source::L1d),
                0x8 => plain(Source::L2),
                0x9 => plain(Source::PeerCore),
                0xa => plain(Source::LocalCluster),
                0xb => plain(Source::SystemCache),
                0xc => plain(Source::PeerCluster),
                0xd => plain(Source::Remote),
                0xe => plain(Source::Dram),
                _ => None,
            },
            Self::AmpereOne => match number {
                0x0 => plain(Source::PeerCore),
                0x3 => plain(Source::SystemCache),
                0x5 => plain(Source::Remote),
                0x7 => plain(Source::Dram),
                0x8 => plain(Source::L1d),
                0x9 => plain(Source::L2),
                _ => None,
            },
            Self::HiSilicon => match number {
                0 => plain(Source::PeerCore),
                1 => modified(Source::PeerCore),
                2 => plain(Source::L3),
                3 => modified(Source::L3),
                4 => plain(Source::PeerCluster),
                5 => modified(Source::PeerCluster),
                6 => plain(Source::Remote),
                7 => modified(Source::Remote),
                8 => plain(Source::Dram),
                9 => plain(Source::RemoteDram),
                13 => plain(Source::Device),
                16 => plain(Source::L2),
                17 => modified(Source::L2),
                18 => plain(Source::L1d),
                _ => None,
            },
        }
    }

    /// Bit n: a load with data source n got its data from another core: from a cache of another
    /// core, of a cluster (also the core's own) or of another socket, or as a line that is reported
    /// as modified. On cores of the common table that includes another socket's memory
    /// ([`Source::Remote`]).
    #[must_use]
    pub const fn peers(self) -> u64 {
        let (mut peers, mut number) = (0, 0);
        while number < 64 {
            if let Some(origin) = self.load(number)
                && (origin.modified || origin.source.is_peer())
            {
                peers |= 1 << number;
            }
            number += 1;
        }
        peers
    }
}
