//! Files in the format of perf's own `perf.data`
//! (tools/perf/Documentation/perf.data-file-format.txt), so that perf can read a recording. The
//! tests of the SPE decoder (probe-common/tests) include this file to compare with perf, so it uses
//! only the standard library.

use std::io::{self, Seek, SeekFrom, Write};

/// Records that perf itself adds to the kernel's (tools/lib/perf/include/perf/event.h).
const FINISHED_ROUND: u32 = 68;
const AUXTRACE_INFO: u32 = 70;
const AUXTRACE: u32 = 71;
const TIME_CONV: u32 = 79;

/// `enum auxtrace_type`.
const ARM_SPE: u32 = 4;

/// Sections after the data, by their bit in the header.
const FEATURE_ARCH: u32 = 6;
const FEATURE_CPUID: u32 = 9;
const FEATURE_AUXTRACE: u32 = 18;

const HEADER: usize = 104;
/// Size of a place in the file: offset and size.
const SECTION: u64 = 16;

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

/// A file that is being written.
#[derive(Debug)]
pub struct PerfData<W> {
    out: W,
    /// Bytes of the data section so far.
    size: u64,
    /// Offsets and sizes of the records about AUX bytes in the file. Without this index perf
    /// decodes while it reads, and gives up an area for good after a round or two without data.
    index: Vec<u64>,
}

impl<W: Write + Seek> PerfData<W> {
    /// Begins a file of the SPE with this PMU type. `per_cpu`: its buffers are of CPUs, not of
    /// threads.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn begin(out: W, pmu_type: u32, per_cpu: bool, time: Option<Time>) -> io::Result<Self> {
        let mut file = Self {
            out,
            size: 0,
            index: Vec::new(),
        };
        // A header without sizes, as perf leaves it when it is killed.
        file.out.write_all(&[0; HEADER])?;
        if let Some(Time { zero, mult, shift }) = time {
            // Then time_cycles and time_mask, unused without cap_user_time_short, and
            // cap_user_time_zero.
            let body = words(&[shift.into(), mult.into(), zero, 0, u64::MAX, 1]);
            file.record(TIME_CONV, &body)?;
        }
        let mut body = words32(&[ARM_SPE, 0]);
        body.extend(words(&[pmu_type.into(), per_cpu.into()]));
        file.record(AUXTRACE_INFO, &body)?;
        Ok(file)
    }

    /// Adds records of a ring, whole ones.
    ///
    /// # Errors
    ///
    /// Where they cannot be written.
    pub fn records(&mut self, records: &[u8]) -> io::Result<()> {
        self.size += records.len() as u64;
        self.out.write_all(records)
    }

    /// Adds bytes of the AUX area with number `area`; `offset` bytes went through it before.
    ///
    /// # Errors
    ///
    /// Where they cannot be written.
    pub fn aux(
        &mut self,
        area: u32,
        offset: u64,
        tid: Option<u32>,
        cpu: Option<u32>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let padding = bytes.len().next_multiple_of(8) - bytes.len();
        let size = (bytes.len() + padding) as u64;
        // Size, offset, reference, then index, tid, cpu, reserved; the bytes follow the record.
        let mut body = words(&[size, offset, 0]);
        let (tid, cpu) = (tid.unwrap_or(u32::MAX), cpu.unwrap_or(u32::MAX));
        body.extend(words32(&[area, tid, cpu, 0]));
        let place = HEADER as u64 + self.size;
        self.index.extend([place, 8 + body.len() as u64]);
        self.record(AUXTRACE, &body)?;
        self.records(bytes)?;
        self.records(&[0; 8][..padding])
    }

    /// Marks that all rings were read: perf may sort what came before the last round.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn round(&mut self) -> io::Result<()> {
        self.record(FINISHED_ROUND, &[])
    }

    fn record(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let size = u16::try_from(8 + body.len()).map_err(io::Error::other)?;
        let mut record = words32(&[kind]);
        record.extend([0, 0]);
        record.extend(size.to_ne_bytes());
        record.extend(body);
        self.records(&record)
    }

    /// Ends the file: what perf must know of the machine (`cpuid` is `MIDR_EL1` in hex), the
    /// events, and the header with the sizes.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn finish(mut self, events: &[Event], arch: &str, cpuid: &str) -> io::Result<W> {
        let mut index = words(&[self.index.len() as u64 / 2]);
        index.extend(words(&self.index));
        let features = [text(arch)?, text(cpuid)?, index];
        let mut at = HEADER as u64 + self.size + SECTION * features.len() as u64;
        for feature in &features {
            let size = feature.len() as u64;
            self.out.write_all(&words(&[at, size]))?;
            at += size;
        }
        for feature in &features {
            self.out.write_all(feature)?;
        }
        for event in events {
            self.out.write_all(&words(&event.ids))?;
        }
        let mut ids = at;
        let attrs = at
            + events
                .iter()
                .map(|event| 8 * event.ids.len() as u64)
                .sum::<u64>();
        for event in events {
            let size = 8 * event.ids.len() as u64;
            self.out.write_all(&event.attr)?;
            self.out.write_all(&words(&[ids, size]))?;
            ids += size;
        }
        let entry = ATTR as u64 + SECTION;
        let mut header = b"PERFILE2".to_vec();
        header.extend(words(&[HEADER as u64, entry]));
        header.extend(words(&[attrs, entry * events.len() as u64]));
        header.extend(words(&[HEADER as u64, self.size, 0, 0]));
        let features = [FEATURE_ARCH, FEATURE_CPUID, FEATURE_AUXTRACE];
        let features = features.iter().fold(0, |bits, bit| bits | 1_u64 << bit);
        header.extend(words(&[features, 0, 0, 0]));
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// A string feature: its length, then itself, padded with zeros.
fn text(value: &str) -> io::Result<Vec<u8>> {
    let size = (value.len() + 1).next_multiple_of(64);
    let mut bytes = u32::try_from(size)
        .map_err(io::Error::other)?
        .to_ne_bytes()
        .to_vec();
    bytes.extend(value.as_bytes());
    bytes.resize(4 + size, 0);
    Ok(bytes)
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
