//! The data source of a sampled memory access: the kernel's `perf_mem_data_src`
//! (`linux/perf_event.h`), mapped to SPE's classes and sources.
//!
//! The driver of a core decides which bits it sets: `pebs_data_source` in
//! `arch/x86/events/intel/ds.c`, `perf_ibs_get_data_src` in `arch/x86/events/amd/ibs.c`.

use crate::spe::{Class, Source};

/// Class and data source of an access, packed into a byte of a row's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSource(pub u8);

/// An unpacked [`DataSource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Load or store.
    pub class: Class,
    /// Where a load was served, if the driver reports that.
    pub source: Option<Source>,
}

/// Bits of `mem_lvl`.
mod level {
    pub(super) const MISS: u64 = 0x04;
    pub(super) const L1: u64 = 0x08;
    pub(super) const FILL_BUFFER: u64 = 0x10;
    pub(super) const L2: u64 = 0x20;
    pub(super) const L3: u64 = 0x40;
    pub(super) const LOCAL_MEMORY: u64 = 0x80;
    pub(super) const REMOTE_MEMORY: u64 = 0x100 | 0x200;
    pub(super) const REMOTE_CACHE_1: u64 = 0x400;
    pub(super) const REMOTE_CACHE_2: u64 = 0x800;
    /// `IO` and `UNC`.
    pub(super) const DEVICE: u64 = 0x1000 | 0x2000;
}

impl DataSource {
    /// From the kernel's `perf_mem_data_src`; 0 if that is neither a load nor a store.
    #[must_use]
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        /// `PERF_MEM_OP_LOAD` and `PERF_MEM_OP_STORE` of `mem_op`.
        const LOAD: u64 = 0x02;
        const STORE: u64 = 0x04;
        if word & LOAD != 0 {
            // 0 is no source, 1 the first one.
            let source = match source(word) {
                Some(source) => source as u8 + 1,
                None => 0,
            };
            return Self(Self::VALID | source);
        }
        if word & STORE != 0 {
            // The level that a store hit or missed is no source of data.
            return Self(Self::VALID | Self::STORE);
        }
        Self(0)
    }

    const VALID: u8 = 1 << 7;
    const STORE: u8 = 1 << 6;

    /// The access; None if it is neither a load nor a store.
    #[must_use]
    pub fn decode(self) -> Option<MemoryAccess> {
        let source = usize::from(self.0 & 0xf).checked_sub(1);
        (self.0 & Self::VALID != 0).then(|| match self.0 & Self::STORE {
            0 => MemoryAccess {
                class: Class::Load,
                source: source.and_then(|at| Source::ALL.get(at).copied()),
            },
            _ => MemoryAccess {
                class: Class::Store,
                source: None,
            },
        })
    }

    /// Whether it is a load or store.
    #[must_use]
    #[inline(always)]
    pub const fn is_access(self) -> bool {
        self.0 & Self::VALID != 0
    }

    /// Whether the address needed a page walk: `mem_dtlb` (bits 26 to 32) has `WK`, or both `MISS`
    /// and `L2`.
    #[must_use]
    #[inline(always)]
    pub const fn walked(word: u64) -> bool {
        const MISSED_L2: u64 = 0x04 | 0x10;
        const WALKER: u64 = 0x20;
        let translation = word >> 26;
        translation & MISSED_L2 == MISSED_L2 || translation & WALKER != 0
    }
}

/// Where a load was served, according to the old `mem_lvl` (bits 5 to 18), which all drivers fill
/// in, else to `mem_lvl_num` (bits 33 to 36). A missed level is no source.
#[inline(always)]
const fn source(word: u64) -> Option<Source> {
    let level = word >> 5 & 0x3fff;
    // `mem_remote`, `mem_hops` (bits 43 to 45).
    let remote = word >> 37 & 1 == 1;
    let hops = word >> 43 & 0x7;
    // `HITM` of `mem_snoop`, `FWD` of `mem_snoopx`: another core of the socket had the line.
    let forwarded = word >> 19 & 0x10 != 0 || word >> 38 & 1 == 1;
    if level & level::MISS != 0 {
        return None;
    }
    if level & level::L1 != 0 {
        return Some(Source::L1d);
    }
    if level & level::FILL_BUFFER != 0 {
        return Some(Source::FillBuffer);
    }
    if level & level::L2 != 0 {
        return Some(Source::L2);
    }
    if level & level::L3 != 0 {
        // Zen before 4 cannot tell the L3 from other cores' caches, and sets the bits of both.
        return Some(if forwarded {
            Source::PeerCore
        } else {
            Source::L3
        });
    }
    if level & level::LOCAL_MEMORY != 0 {
        return Some(Source::Dram);
    }
    if level & level::REMOTE_MEMORY != 0 {
        return Some(Source::RemoteDram);
    }
    if level & level::REMOTE_CACHE_1 != 0 {
        // On AMD another core complex of the same node: before Linux 6.7 without the remote bit,
        // since then with 0 hops (encoded as 1). On Intel another socket: remote, without hops.
        return Some(if remote && hops == 0 {
            Source::Remote
        } else {
            Source::PeerCluster
        });
    }
    if level & level::REMOTE_CACHE_2 != 0 {
        return Some(Source::Remote);
    }
    if level & level::DEVICE != 0 {
        return Some(Source::Device);
    }
    match word >> 33 & 0xf {
        0x1 => Some(Source::L1d),
        0x2 => Some(Source::L2),
        0x3 => Some(Source::L3),
        // L2's miss handling buffer, and the line fill buffer.
        0x5 | 0xc => Some(Source::FillBuffer),
        // A memory-side cache.
        0x6 => Some(Source::SystemCache),
        0x8 | 0xa => Some(Source::Device),
        0x9 => Some(Source::Cxl),
        0xd if remote => Some(Source::RemoteDram),
        0xd => Some(Source::Dram),
        0xe => Some(Source::Pmem),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: u64 = 0x02;
    const STORE: u64 = 0x04;
    const NA: u64 = 0x01;
    const HIT: u64 = 0x02;

    /// A `perf_mem_data_src`, as the kernel's `PERF_MEM_S` builds it.
    fn word(op: u64, level: u64, number: u64) -> u64 {
        op | level << 5 | number << 33
    }
    const REMOTE: u64 = 1 << 37;
    fn hops(n: u64) -> u64 {
        (n + 1) << 43
    }
    fn snoop(bits: u64) -> u64 {
        bits << 19
    }

    #[track_caller]
    fn assert_source(word: u64, source: Option<Source>) {
        let class = Class::Load;
        assert_eq!(
            DataSource::from_word(word).decode(),
            Some(MemoryAccess { class, source }),
            "{word:#x}"
        );
    }

    #[test]
    fn sources_are_numbered_in_their_order() {
        for (at, source) in Source::ALL.into_iter().enumerate() {
            assert_eq!(source as usize, at);
        }
    }

    /// `pebs_data_source` of Linux 6.12, by its index.
    #[test]
    fn intel_data_sources_are_mapped() {
        let hit = |level: u64, number: u64| word(LOAD, level | HIT, number);
        let table = [
            (word(LOAD, level::MISS, 3) | snoop(1), None),
            (hit(level::L1, 1), Some(Source::L1d)),
            (hit(level::FILL_BUFFER, 0xc), Some(Source::FillBuffer)),
            (hit(level::L2, 2), Some(Source::L2)),
            (hit(level::L3, 3) | snoop(2), Some(Source::L3)),
            (hit(level::L3, 3) | snoop(8), Some(Source::L3)),
            (hit(level::L3, 3) | snoop(4), Some(Source::L3)),
            (hit(level::L3, 3) | snoop(0x10), Some(Source::PeerCore)),
            (
                hit(level::REMOTE_CACHE_1, 3) | REMOTE | snoop(4),
                Some(Source::Remote),
            ),
            (
                hit(level::REMOTE_CACHE_1, 3) | REMOTE | snoop(0x10),
                Some(Source::Remote),
            ),
            (hit(level::LOCAL_MEMORY, 0xd) | snoop(4), Some(Source::Dram)),
            (hit(0x100, 3) | REMOTE | snoop(4), Some(Source::RemoteDram)),
            (
                hit(level::LOCAL_MEMORY, 0xd) | snoop(10),
                Some(Source::Dram),
            ),
            (
                hit(0x100, 0xd) | REMOTE | snoop(10),
                Some(Source::RemoteDram),
            ),
            (hit(0x1000, 0xf) | snoop(2), Some(Source::Device)),
            (hit(0x2000, 0xf) | snoop(2), Some(Source::Device)),
        ];
        for (word, source) in table {
            assert_source(word, source);
        }
        // Forwarded unmodified (`SNOOPX, FWD`).
        assert_source(hit(level::L3, 3) | 1 << 38, Some(Source::PeerCore));
    }

    /// `g_data_src` and `g_zen4_data_src` of Linux 6.7, and the words of earlier kernels.
    #[test]
    fn amd_data_sources_are_mapped() {
        let hit = |level: u64, number: u64| word(LOAD, level | HIT, number);
        let both = level::L3 | level::REMOTE_CACHE_1;
        // Zen 3 and before: the L3 or another core's cache. Older kernels have no number.
        assert_source(hit(both, 0xb) | hops(0), Some(Source::L3));
        assert_source(hit(both, 0), Some(Source::L3));
        // Zen 4.
        assert_source(hit(level::L3, 3), Some(Source::L3));
        let near = hit(level::REMOTE_CACHE_1, 0xb) | REMOTE | hops(0);
        assert_source(near, Some(Source::PeerCluster));
        assert_source(hit(level::REMOTE_CACHE_1, 0), Some(Source::PeerCluster));
        let far = hit(level::REMOTE_CACHE_2, 0xb) | REMOTE | hops(1);
        assert_source(far, Some(Source::Remote));
        assert_source(hit(level::REMOTE_CACHE_2, 0), Some(Source::Remote));
        assert_source(hit(0x100, 0xd) | REMOTE | hops(1), Some(Source::RemoteDram));
        assert_source(word(LOAD, 0, 0xe), Some(Source::Pmem));
        assert_source(word(LOAD, 0, 9), Some(Source::Cxl));
        // The source is unknown.
        assert_source(word(LOAD, NA, 0xf), None);
        assert_source(word(LOAD, NA, 0), None);
    }

    #[test]
    fn stores_have_no_source_and_other_operations_are_no_access() {
        let store = DataSource::from_word(word(STORE, level::L1 | HIT, 1));
        let access = MemoryAccess {
            class: Class::Store,
            source: None,
        };
        assert_eq!(store.decode(), Some(access));
        // `PERF_MEM_NA`: `PERF_MEM_OP_NA` is bit 0.
        for word in [word(NA, NA, 0xf), 0] {
            let other = DataSource::from_word(word);
            assert!(!other.is_access() && other.decode().is_none());
        }
    }

    #[test]
    fn a_walk_is_distinguished_from_a_hit() {
        let translation = |bits: u64| DataSource::walked(bits << 26);
        // MISS | L2 of both vendors, WK; then HIT | L1 | L2 (Intel), HIT | L2 (AMD), NA.
        assert!(translation(0x14) && translation(0x22));
        assert!(!translation(0x1a) && !translation(0x12) && !translation(0x01) && !translation(0));
    }
}
