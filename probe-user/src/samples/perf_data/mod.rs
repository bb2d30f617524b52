//! Writes perf.data files (tools/perf/Documentation/perf.data-file-format.txt) that perf can read.
//!
//! The file can be read up to its last round, even if its writer is killed. For this, the sections
//! that perf expects after the records are hidden among the records, and the header is written
//! last. Hidden bytes are the payload of AUXTRACE records that are not in the index of AUX areas,
//! so that perf skips them. Only `perf report -D`, which uses no index, shows them, as bad packets.

mod format;

use std::io::{self, Seek, SeekFrom, Write};

pub use format::{
    ATTR, FileEvent, FileHead, SPE_SAMPLE, TimeConversion, feature, text, words, words32,
};

/// Record types that perf adds to the kernel's (tools/lib/perf/include/perf/event.h).
const FINISHED_ROUND: u32 = 68;
const AUXTRACE_INFO: u32 = 70;
const AUXTRACE: u32 = 71;
const TIME_CONV: u32 = 79;

/// `PERF_AUXTRACE_ARM_SPE` of `enum auxtrace_type`.
const ARM_SPE: u32 = 4;

/// Size of the file's header.
const HEADER: u64 = 104;
/// Size of an encoded [`FileRange`]: offset and size.
const SECTION: u64 = 16;
/// Number, thread and CPU of the AUX area that hides bytes; the recording's areas have the numbers
/// after it.
const HIDDEN: [u32; 3] = [0, u32::MAX, u32::MAX];
/// Size of an AUXTRACE record without its payload.
const AUXTRACE_SIZE: u64 = 48;
/// Capacity of the first index, in entries.
const FIRST_INDEX: u64 = 4096;

/// A range of the file: offset and size.
type FileRange = (u64, u64);

/// A perf.data file that is being written.
#[derive(Debug)]
pub struct PerfData<W> {
    out: W,
    /// Offset of the data section.
    data: u64,
    /// Size of the data section so far.
    size: u64,
    /// Ranges of the sections, by feature bit.
    features: Vec<(u32, FileRange)>,
    /// A changed section that is not written yet.
    changed: Option<(u32, Vec<u8>)>,
    /// Ids of each event.
    ids: Vec<Vec<u64>>,
    ids_changed: bool,
    /// Offset and size of each AUXTRACE record that is not hidden. Without this index perf decodes
    /// while it reads, and drops an AUX area for good after a round or two without data.
    index: Vec<u64>,
    /// Offset of the index in the file, and its capacity in entries.
    index_range: Option<FileRange>,
    /// Number of words of `index` that are written.
    indexed: usize,
    /// Whether anything but marks of rounds was added since [`Self::make_whole`] was last called.
    dirty: bool,
}

impl<W: Write + Seek> PerfData<W> {
    /// Creates a file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn begin(out: W, head: FileHead) -> io::Result<Self> {
        let FileHead {
            pmu_type,
            per_cpu,
            time,
            events,
            features,
        } = head;
        let mut file = Self {
            out,
            data: 0,
            size: 0,
            features: Vec::new(),
            changed: None,
            ids: events.iter().map(|event| event.ids.clone()).collect(),
            ids_changed: false,
            index: Vec::new(),
            index_range: None,
            indexed: 0,
            dirty: true,
        };
        // The header of 13 words, which is written last.
        file.out.write_all(&words(&[0; 13]))?;
        let mut at = HEADER + (ATTR as u64 + SECTION) * events.len() as u64;
        for event in &events {
            let size = 8 * event.ids.len() as u64;
            file.out.write_all(&event.attr)?;
            file.out.write_all(&words(&[at, size]))?;
            at += size;
        }
        for event in &events {
            file.out.write_all(&words(&event.ids))?;
        }
        for (bit, content) in features {
            let size = content.len() as u64;
            let padded = content.len().next_multiple_of(8);
            file.out.write_all(&content)?;
            file.out.write_all(&[0; 8][..padded - content.len()])?;
            file.features.push((bit, (at, size)));
            at += padded as u64;
        }
        // perf expects the sections in the order of their bits.
        file.features.sort_unstable();
        file.data = at;
        if let Some(TimeConversion { zero, mult, shift }) = time {
            // The last three words are time_cycles and time_mask, which are unused without
            // cap_user_time_short, and cap_user_time_zero.
            let body = words(&[shift.into(), mult.into(), zero, 0, u64::MAX, 1]);
            file.add_record(TIME_CONV, &body)?;
        }
        let mut body = words32(&[ARM_SPE, 0]);
        body.extend(words(&[pmu_type.into(), per_cpu.into()]));
        file.add_record(AUXTRACE_INFO, &body)?;
        Ok(file)
    }

    /// Adds whole records of a ring.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn records(&mut self, records: &[u8]) -> io::Result<()> {
        self.dirty |= !records.is_empty();
        self.size += records.len() as u64;
        self.out.write_all(records)
    }

    /// Adds bytes of AUX area number `area`; `offset` is the number of its bytes before them.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn aux(
        &mut self,
        area: u32,
        offset: u64,
        tid: Option<u32>,
        cpu: Option<u32>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let padding = bytes.len().next_multiple_of(8) - bytes.len();
        self.index.extend([self.data + self.size, AUXTRACE_SIZE]);
        let size = (bytes.len() + padding) as u64;
        let (tid, cpu) = (tid.unwrap_or(u32::MAX), cpu.unwrap_or(u32::MAX));
        self.add_auxtrace(size, offset, [HIDDEN[0] + 1 + area, tid, cpu])?;
        self.records(bytes)?;
        self.records(&[0; 8][..padding])
    }

    /// Adds an AUXTRACE record, to be followed by its `size` payload bytes.
    fn add_auxtrace(&mut self, size: u64, offset: u64, owner: [u32; 3]) -> io::Result<()> {
        // The fields are size, offset and reference, then index, tid, cpu and reserved.
        let mut body = words(&[size, offset, 0]);
        body.extend(words32(&owner));
        body.extend(words32(&[0]));
        self.add_record(AUXTRACE, &body)
    }

    /// Sets the ids of all events so far, in the order of the events.
    pub fn ids(&mut self, ids: Vec<Vec<u64>>) {
        if ids != self.ids && ids.len() == self.ids.len() {
            self.ids = ids;
            self.ids_changed = true;
            self.dirty = true;
        }
    }

    /// Replaces a feature section.
    pub fn feature(&mut self, bit: u32, content: Vec<u8>) {
        self.changed = Some((bit, content));
        self.dirty = true;
    }

    /// Marks the end of a round, after which perf may sort all records before the previous mark.
    /// From then on the file can be read up to this mark.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn round(&mut self) -> io::Result<()> {
        let dirty = self.dirty;
        self.add_record(FINISHED_ROUND, &[])?;
        if dirty { self.make_whole() } else { Ok(()) }
    }

    fn add_record(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let size = u16::try_from(8 + body.len()).map_err(io::Error::other)?;
        let mut record = words32(&[kind]);
        record.extend([0, 0]);
        record.extend(size.to_ne_bytes());
        record.extend(body);
        self.records(&record)
    }

    /// Hides bytes among the records. Returns their range.
    fn hide(&mut self, bytes: &[u8]) -> io::Result<FileRange> {
        let padded = bytes.len().next_multiple_of(8);
        self.add_auxtrace(padded as u64, 0, HIDDEN)?;
        let range = (self.data + self.size, bytes.len() as u64);
        self.records(bytes)?;
        self.records(&[0; 8][..padded - bytes.len()])?;
        Ok(range)
    }

    /// Makes the file readable up to its current end.
    fn make_whole(&mut self) -> io::Result<()> {
        if self.index.is_empty() {
            // Without an index perf would decode hidden bytes as samples. So nothing is hidden
            // until there are samples.
            return self.write_header(self.size, &[]);
        }
        let index_range = self.reserve_index()?;
        if let Some((bit, content)) = self.changed.take() {
            let range = self.hide(&content)?;
            self.features.retain(|(known, _)| *known != bit);
            self.features.push((bit, range));
        }
        let ids = match self.ids_changed {
            true => Some(self.hide(&words(&self.ids.concat()))?),
            false => None,
        };
        let mut features = self.features.clone();
        features.push((
            feature::AUXTRACE,
            (index_range.0, 8 + SECTION * index_range.1),
        ));
        features.sort_unstable();
        let ranges = features.iter().flat_map(|(_, range)| [range.0, range.1]);
        let table = words(&ranges.collect::<Vec<_>>());
        // perf expects the table at the end of the data section. So the header says that the data
        // section ends where the table begins.
        let (table_at, _) = self.hide(&table)?;
        self.write_index(index_range)?;
        if let Some((at, _)) = ids {
            self.point_to_ids(at)?;
            self.ids_changed = false;
        }
        let bits: Vec<u32> = features.iter().map(|(bit, _)| *bit).collect();
        self.write_header(table_at - self.data, &bits)
    }

    /// Returns a hidden range large enough for the whole index. If the old range is full, reserves
    /// a new one for twice as many entries as there are.
    fn reserve_index(&mut self) -> io::Result<FileRange> {
        let count = self.index.len() as u64 / 2;
        if let Some(index_range) = self
            .index_range
            .filter(|index_range| index_range.1 >= count)
        {
            return Ok(index_range);
        }
        let capacity = (2 * count).max(FIRST_INDEX);
        let bytes = 8 + SECTION * capacity;
        self.add_auxtrace(bytes, 0, HIDDEN)?;
        let index_range = (self.data + self.size, capacity);
        // Leaves a hole, which takes no disk space.
        self.size += bytes;
        self.out.seek(SeekFrom::Start(self.data + self.size))?;
        (self.index_range, self.indexed) = (Some(index_range), 0);
        Ok(index_range)
    }

    fn write_index(&mut self, (at, _): FileRange) -> io::Result<()> {
        let new = words(&self.index[self.indexed..]);
        self.write_at(at + 8 + 8 * self.indexed as u64, &new)?;
        self.indexed = self.index.len();
        self.write_at(at, &words(&[self.index.len() as u64 / 2]))
    }

    /// Makes the events' attributes refer to the ids, which begin at offset `at`.
    fn point_to_ids(&mut self, mut at: u64) -> io::Result<()> {
        let mut attr = HEADER;
        for size in self
            .ids
            .iter()
            .map(|ids| 8 * ids.len() as u64)
            .collect::<Vec<_>>()
        {
            attr += ATTR as u64;
            self.write_at(attr, &words(&[at, size]))?;
            attr += SECTION;
            at += size;
        }
        Ok(())
    }

    fn write_header(&mut self, size: u64, features: &[u32]) -> io::Result<()> {
        let entry = ATTR as u64 + SECTION;
        let mut header = b"PERFILE2".to_vec();
        header.extend(words(&[HEADER, entry]));
        header.extend(words(&[HEADER, entry * self.ids.len() as u64]));
        header.extend(words(&[self.data, size, 0, 0]));
        let features = features.iter().fold(0, |bits, bit| bits | 1_u64 << bit);
        header.extend(words(&[features, 0, 0, 0]));
        self.dirty = false;
        self.write_at(0, &header)
    }

    /// Overwrites bytes at an earlier offset. Callers write the header after everything that it
    /// refers to.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(at))?;
        self.out.write_all(bytes)?;
        self.out.seek(SeekFrom::Start(self.data + self.size))?;
        Ok(())
    }

    /// Ends the file: writes all sections after the data.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        let size = self.size;
        let mut index = words(&[self.index.len() as u64 / 2]);
        index.extend(words(&self.index));
        let changed: Vec<(u32, Vec<u8>)> = self
            .changed
            .take()
            .into_iter()
            .chain([(feature::AUXTRACE, index)])
            .collect();
        let is_changed = |bit| changed.iter().any(|(new, _)| *new == bit);
        self.features.retain(|(bit, _)| !is_changed(*bit));
        let count = (self.features.len() + changed.len()) as u64;
        let mut at = self.data + size + SECTION * count;
        for (bit, content) in &changed {
            self.features.push((*bit, (at, content.len() as u64)));
            at += content.len() as u64;
        }
        self.features.sort_unstable();
        let (bits, ranges): (Vec<u32>, Vec<FileRange>) = self.features.iter().copied().unzip();
        let table = ranges.into_iter().flat_map(|(at, size)| [at, size]);
        self.records(&words(&table.collect::<Vec<_>>()))?;
        for (_, content) in &changed {
            self.records(content)?;
        }
        self.records(&words(&self.ids.concat()))?;
        self.point_to_ids(at)?;
        self.write_header(size, &bits)?;
        self.out.flush()?;
        Ok(self.out)
    }
}
