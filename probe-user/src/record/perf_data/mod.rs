//! Files in the format of perf's own `perf.data`
//! (tools/perf/Documentation/perf.data-file-format.txt), so that perf can read a recording. The
//! tests of the SPE decoder (probe-common/tests) include this file to compare with perf, so it uses
//! only the standard library.
//!
//! Whenever the rings were read the file is whole, though its writer may be killed: what perf wants
//! behind the records is among them then, and the header is written last. Bytes that are no records
//! are hidden: as those of an AUX area that the index of AUX areas does not name, over which perf
//! passes. Only `perf report -D`, which takes no index, shows them, as bad packets.

mod format;

use std::io::{self, Seek, SeekFrom, Write};

pub use format::{ATTR, Beginning, Event, SPE_SAMPLE, Time, feature, text, words, words32};

/// Records that perf itself adds to the kernel's (tools/lib/perf/include/perf/event.h).
const FINISHED_ROUND: u32 = 68;
const AUXTRACE_INFO: u32 = 70;
const AUXTRACE: u32 = 71;
const TIME_CONV: u32 = 79;

/// `enum auxtrace_type`.
const ARM_SPE: u32 = 4;

const HEADER: u64 = 104;
/// Size of a place in the file: offset and size.
const SECTION: u64 = 16;
/// The number of the AUX area that hides bytes; those of the recording follow it.
const HIDDEN: [u32; 3] = [0, u32::MAX, u32::MAX];
/// Size of an AUXTRACE record without the bytes that follow.
const AUXTRACE_SIZE: u64 = 48;
/// Places of AUX bytes that the first index has room for.
const FIRST_INDEX: u64 = 4096;

/// A place in the file: offset and size.
type Place = (u64, u64);

/// A file that is being written.
#[derive(Debug)]
pub struct PerfData<W> {
    out: W,
    /// Where the data section begins.
    data: u64,
    /// Bytes of the data section so far.
    size: u64,
    /// Sections by their bit.
    features: Vec<(u32, Place)>,
    /// A section that changes, until it is written.
    changed: Option<(u32, Vec<u8>)>,
    /// Numbers of each event.
    ids: Vec<Vec<u64>>,
    ids_changed: bool,
    /// Offsets and sizes of the records about AUX bytes in the file. Without this index perf
    /// decodes while it reads, and gives up an area for good after a round or two without data.
    index: Vec<u64>,
    /// Where the index is, and for how many it has room.
    room: Option<Place>,
    /// How many of it are there.
    indexed: usize,
    /// There is more than rounds since the file was last whole.
    more: bool,
}

impl<W: Write + Seek> PerfData<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn begin(out: W, beginning: Beginning) -> io::Result<Self> {
        let Beginning {
            pmu_type,
            per_cpu,
            time,
            events,
            features,
        } = beginning;
        let mut file = Self {
            out,
            data: 0,
            size: 0,
            features: Vec::new(),
            changed: None,
            ids: events.iter().map(|event| event.ids.clone()).collect(),
            ids_changed: false,
            index: Vec::new(),
            room: None,
            indexed: 0,
            more: true,
        };
        // Thirteen words of header: none of them is known yet.
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
        // perf takes their places in this order.
        file.features.sort_unstable();
        file.data = at;
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
        self.more |= !records.is_empty();
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
        self.index.extend([self.data + self.size, AUXTRACE_SIZE]);
        let size = (bytes.len() + padding) as u64;
        let (tid, cpu) = (tid.unwrap_or(u32::MAX), cpu.unwrap_or(u32::MAX));
        self.auxtrace(size, offset, [HIDDEN[0] + 1 + area, tid, cpu])?;
        self.records(bytes)?;
        self.records(&[0; 8][..padding])
    }

    /// The record before AUX bytes, which follow it.
    fn auxtrace(&mut self, size: u64, offset: u64, owner: [u32; 3]) -> io::Result<()> {
        // Size, offset, reference, then index, tid, cpu, reserved.
        let mut body = words(&[size, offset, 0]);
        body.extend(words32(&owner));
        body.extend(words32(&[0]));
        self.record(AUXTRACE, &body)
    }

    /// The events' numbers so far, in the order of the events.
    pub fn ids(&mut self, ids: Vec<Vec<u64>>) {
        if ids != self.ids && ids.len() == self.ids.len() {
            self.ids = ids;
            self.ids_changed = true;
            self.more = true;
        }
    }

    /// Puts a section that changes in the place of what it was.
    pub fn feature(&mut self, bit: u32, content: Vec<u8>) {
        self.changed = Some((bit, content));
        self.more = true;
    }

    /// Marks that all rings were read: perf may sort what came before the last round. From here on
    /// the file can be read as far as this.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn round(&mut self) -> io::Result<()> {
        let more = self.more;
        self.record(FINISHED_ROUND, &[])?;
        if more { self.whole() } else { Ok(()) }
    }

    fn record(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let size = u16::try_from(8 + body.len()).map_err(io::Error::other)?;
        let mut record = words32(&[kind]);
        record.extend([0, 0]);
        record.extend(size.to_ne_bytes());
        record.extend(body);
        self.records(&record)
    }

    /// Hides bytes among the records, and says where they are.
    fn hide(&mut self, bytes: &[u8]) -> io::Result<Place> {
        let padded = bytes.len().next_multiple_of(8);
        self.auxtrace(padded as u64, 0, HIDDEN)?;
        let place = (self.data + self.size, bytes.len() as u64);
        self.records(bytes)?;
        self.records(&[0; 8][..padded - bytes.len()])?;
        Ok(place)
    }

    /// Makes the file whole up to here.
    fn whole(&mut self) -> io::Result<()> {
        if self.index.is_empty() {
            // Without an index perf would take hidden bytes for samples, and there are none yet.
            return self.header(self.size, &[]);
        }
        let room = self.index_room()?;
        if let Some((bit, content)) = self.changed.take() {
            let place = self.hide(&content)?;
            self.features.retain(|(known, _)| *known != bit);
            self.features.push((bit, place));
        }
        let ids = match self.ids_changed {
            true => Some(self.hide(&words(&self.ids.concat()))?),
            false => None,
        };
        let mut features = self.features.clone();
        features.push((feature::AUXTRACE, (room.0, 8 + SECTION * room.1)));
        features.sort_unstable();
        let places = features.iter().flat_map(|(_, place)| [place.0, place.1]);
        let places = words(&places.collect::<Vec<_>>());
        // perf looks for them where the data end: there, from now on, hidden bytes begin.
        let (table, _) = self.hide(&places)?;
        self.write_index(room)?;
        if let Some((at, _)) = ids {
            self.ids_at(at)?;
            self.ids_changed = false;
        }
        let bits: Vec<u32> = features.iter().map(|(bit, _)| *bit).collect();
        self.header(table - self.data, &bits)
    }

    /// A place that the whole index fits: room for as many again where the last one is full.
    fn index_room(&mut self) -> io::Result<Place> {
        let count = self.index.len() as u64 / 2;
        if let Some(room) = self.room.filter(|room| room.1 >= count) {
            return Ok(room);
        }
        let places = (2 * count).max(FIRST_INDEX);
        let bytes = 8 + SECTION * places;
        self.auxtrace(bytes, 0, HIDDEN)?;
        let room = (self.data + self.size, places);
        // A hole, which takes no space on the disk.
        self.size += bytes;
        self.out.seek(SeekFrom::Start(self.data + self.size))?;
        (self.room, self.indexed) = (Some(room), 0);
        Ok(room)
    }

    fn write_index(&mut self, (at, _): Place) -> io::Result<()> {
        let new = words(&self.index[self.indexed..]);
        self.write_at(at + 8 + 8 * self.indexed as u64, &new)?;
        self.indexed = self.index.len();
        self.write_at(at, &words(&[self.index.len() as u64 / 2]))
    }

    /// The events' numbers are there from now on.
    fn ids_at(&mut self, mut at: u64) -> io::Result<()> {
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

    fn header(&mut self, size: u64, features: &[u32]) -> io::Result<()> {
        let entry = ATTR as u64 + SECTION;
        let mut header = b"PERFILE2".to_vec();
        header.extend(words(&[HEADER, entry]));
        header.extend(words(&[HEADER, entry * self.ids.len() as u64]));
        header.extend(words(&[self.data, size, 0, 0]));
        let features = features.iter().fold(0, |bits, bit| bits | 1_u64 << bit);
        header.extend(words(&[features, 0, 0, 0]));
        self.more = false;
        self.write_at(0, &header)
    }

    /// Writes something that was there before, after all that comes before it in time.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(at))?;
        self.out.write_all(bytes)?;
        self.out.seek(SeekFrom::Start(self.data + self.size))?;
        Ok(())
    }

    /// Ends the file: what was hidden is behind the data then.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        let size = self.size;
        let mut index = words(&[self.index.len() as u64 / 2]);
        index.extend(words(&self.index));
        let changed = self.changed.take();
        let changed = changed.into_iter().chain([(feature::AUXTRACE, index)]);
        let changed: Vec<(u32, Vec<u8>)> = changed.collect();
        let known = |bit| changed.iter().any(|(new, _)| *new == bit);
        self.features.retain(|(bit, _)| !known(*bit));
        let count = (self.features.len() + changed.len()) as u64;
        let mut at = self.data + size + SECTION * count;
        for (bit, content) in &changed {
            self.features.push((*bit, (at, content.len() as u64)));
            at += content.len() as u64;
        }
        self.features.sort_unstable();
        let (bits, places): (Vec<u32>, Vec<Place>) = self.features.iter().copied().unzip();
        let places = places.into_iter().flat_map(|(at, size)| [at, size]);
        self.records(&words(&places.collect::<Vec<_>>()))?;
        for (_, content) in &changed {
            self.records(content)?;
        }
        self.records(&words(&self.ids.concat()))?;
        self.ids_at(at)?;
        self.header(size, &bits)?;
        self.out.flush()?;
        Ok(self.out)
    }
}
