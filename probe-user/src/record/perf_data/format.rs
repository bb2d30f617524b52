//! What a file in perf's format is begun with, and how its parts are written.

/// Sections about the recording, by their bit in the header (tools/perf/util/header.h).
pub mod feature {
    /// Build ids of the files that were mapped.
    pub const BUILD_ID: u32 = 2;
    /// Host name.
    pub const HOSTNAME: u32 = 3;
    /// Release of the kernel.
    pub const OSRELEASE: u32 = 4;
    /// Of the program that recorded.
    pub const VERSION: u32 = 5;
    /// Machine, as `uname -m` has it.
    pub const ARCH: u32 = 6;
    /// Numbers of CPUs.
    pub const NRCPUS: u32 = 7;
    /// `MIDR_EL1` in hex.
    pub const CPUID: u32 = 9;
    /// Kilobytes of memory.
    pub const TOTAL_MEM: u32 = 10;
    /// The command line.
    pub const CMDLINE: u32 = 11;
    /// Names of the events.
    pub const EVENT_DESC: u32 = 12;
    /// Sockets and cores.
    pub const CPU_TOPOLOGY: u32 = 13;
    /// NUMA nodes with their CPUs.
    pub const NUMA_TOPOLOGY: u32 = 14;
    /// Numbers of PMUs.
    pub const PMU_MAPPINGS: u32 = 16;
    /// The index of AUX areas.
    pub const AUXTRACE: u32 = 18;
    /// NUMA nodes with their physical memory.
    pub const MEM_TOPOLOGY: u32 = 22;
}

/// `struct perf_event_attr` as of Linux 5.13 to 6.2: what every perf since then can read.
pub const ATTR: usize = 128;

/// The fields that perf's decoder makes of an SPE record, beside those of every trailer: IP, ADDR,
/// PERIOD, WEIGHT, `DATA_SRC` and `PHYS_ADDR` of `perf_event_attr.sample_type`. perf prints only
/// fields that are in the event's attributes.
pub const SPE_SAMPLE: u64 = 1 | 1 << 3 | 1 << 8 | 1 << 14 | 1 << 15 | 1 << 19;

/// An event of the file.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its `perf_event_attr`, cut to the size that it states.
    pub attr: [u8; ATTR],
    /// The numbers by which records name it.
    pub ids: Vec<u64>,
}

/// `time_zero`, `time_mult` and `time_shift` of the control page.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// ns.
    pub zero: u64,
    /// Factor.
    pub mult: u32,
    /// Bits.
    pub shift: u16,
}

/// What a file is begun with.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// The PMU type of the SPE.
    pub pmu_type: u32,
    /// Its buffers are of CPUs, not of threads.
    pub per_cpu: bool,
    /// How ticks become ns.
    pub time: Option<Time>,
    /// The events, SPE's first.
    pub events: Vec<Event>,
    /// Sections that do not change: bit and content.
    pub features: Vec<(u32, Vec<u8>)>,
}

/// A string of a section: its length, then itself, padded with zeros.
#[must_use]
pub fn text(value: &str) -> Vec<u8> {
    let size = (value.len() + 1).next_multiple_of(64);
    let mut bytes = u32::try_from(size).unwrap_or(0).to_ne_bytes().to_vec();
    bytes.extend(value.as_bytes());
    bytes.resize(4 + size, 0);
    bytes
}

/// Words of 64 bits.
#[must_use]
pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Words of 32 bits.
#[must_use]
pub fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
