//! Header contents of a perf.data file, and encodings of its sections.

/// Feature sections, by their bit in the header (tools/perf/util/header.h).
pub mod feature {
    /// Build ids of mapped files.
    pub const BUILD_ID: u32 = 2;
    /// Host name.
    pub const HOSTNAME: u32 = 3;
    /// Release of the kernel.
    pub const OSRELEASE: u32 = 4;
    /// Version of the recording program.
    pub const VERSION: u32 = 5;
    /// Architecture, as in `uname -m`.
    pub const ARCH: u32 = 6;
    /// Number of CPUs: possible and online.
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
    /// Names and type numbers of PMUs.
    pub const PMU_MAPPINGS: u32 = 16;
    /// Index of AUXTRACE records.
    pub const AUXTRACE: u32 = 18;
    /// NUMA nodes with their physical memory.
    pub const MEM_TOPOLOGY: u32 = 22;
}

/// Size of `struct perf_event_attr` of Linux 5.13 to 6.2, which every later perf can read.
pub const ATTR: usize = 128;

/// `sample_type` bits of the fields that perf's decoder fills from an SPE record, in addition to
/// those of every trailer: IP, ADDR, PERIOD, WEIGHT, `DATA_SRC` and `PHYS_ADDR`. perf prints only
/// fields that the event's attributes have.
pub const SPE_SAMPLE: u64 = 1 | 1 << 3 | 1 << 8 | 1 << 14 | 1 << 15 | 1 << 19;

/// An event of the file.
#[derive(Clone, Debug)]
pub struct FileEvent {
    /// Its `perf_event_attr`, cut to [`ATTR`] bytes; the size field says so.
    pub attr: [u8; ATTR],
    /// Its ids, which its records carry.
    pub ids: Vec<u64>,
}

/// `time_zero`, `time_mult` and `time_shift` of the control page.
#[derive(Clone, Copy, Debug)]
pub struct TimeConversion {
    /// `time_zero` in ns.
    pub zero: u64,
    /// `time_mult`, the factor.
    pub mult: u32,
    /// `time_shift`: bits by which the product is shifted right.
    pub shift: u16,
}

/// Contents of the file's header.
#[derive(Clone, Debug)]
pub struct FileHead {
    /// The PMU type of the SPE.
    pub pmu_type: u32,
    /// Whether buffers belong to CPUs; else they belong to threads.
    pub per_cpu: bool,
    /// Conversion of ticks to ns.
    pub time: Option<TimeConversion>,
    /// The events, SPE first.
    pub events: Vec<FileEvent>,
    /// Fixed feature sections: bit and content.
    pub features: Vec<(u32, Vec<u8>)>,
}

/// Encodes a string of a section: its padded length, then its bytes and the padding zeros.
#[must_use]
pub fn text(value: &str) -> Vec<u8> {
    let size = (value.len() + 1).next_multiple_of(64);
    let mut bytes = u32::try_from(size).unwrap_or(0).to_ne_bytes().to_vec();
    bytes.extend(value.as_bytes());
    bytes.resize(4 + size, 0);
    bytes
}

/// Encodes words of 64 bits.
#[must_use]
pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Encodes words of 32 bits.
#[must_use]
pub fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
