//! The records of a whole buffer, in user space: padding, sizes, damage.

use super::{
    BadKind, BadRecord, Bytes, Cell, Record, WINDOW,
    decode::{Stop, decode_packets},
    decode_record,
};

const SIZE: usize = WINDOW as usize;

/// A window and what [`Bytes::word`] may read past it.
const REACH: usize = SIZE + 8;

/// The largest multiple that an alignment packet can name.
const ALIGNED: usize = 1 << 16;

/// The largest record that the architecture allows (`PMSIDR_EL1.MaxSize`).
const MAX_RECORD: usize = 2048;

impl Bytes for [u8; REACH] {
    #[inline(always)]
    fn byte(&self, at: u32) -> u8 {
        self[at as usize & (SIZE - 1)]
    }

    #[inline(always)]
    fn word(&self, at: u32) -> u64 {
        match self[at as usize & (SIZE - 1)..].first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => 0,
        }
    }
}

/// How records lie in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// No record seen yet.
    Unknown,
    /// The first record filled one 64-byte cell, so each cell is decoded by itself:
    /// damage in one cannot reach another.
    Cells,
    /// Anything else: one record begins where the last one ended.
    Free,
}

/// Iterates over the records in the bytes of an AUX buffer.
///
/// Padding and alignment packets may be anywhere; records may have any size up to
/// 2048 bytes. Where bytes are no record the iterator gives one [`BadRecord`] for
/// the stretch and goes on: at the next 64-byte cell where records fill cells (as
/// on every core known today), else after the next end or timestamp packet. The
/// record that ends there is left out, since its first packets are lost.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a [u8],
    /// Offset in `data` of the next byte.
    at: usize,
    /// Offset of `data` in the AUX buffer, from which alignment is counted, modulo [`ALIGNED`].
    base: usize,
    layout: Layout,
}

impl<'a> Records<'a> {
    /// Over `data`, which begin at a multiple of 2048 bytes of the AUX buffer (or at its start).
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Self {
        Self::at(data, 0)
    }

    /// Over `data`, which begin `base` bytes after the start of the AUX buffer.
    #[must_use]
    pub const fn at(data: &'a [u8], base: usize) -> Self {
        Self {
            data,
            at: 0,
            base: base % ALIGNED,
            layout: Layout::Unknown,
        }
    }

    /// The place in the AUX buffer, as far as alignment needs it.
    #[expect(clippy::cast_possible_truncation, reason = "less than ALIGNED")]
    const fn offset(&self) -> u32 {
        (self.base.wrapping_add(self.at) % ALIGNED) as u32
    }

    /// The next record of a buffer whose records fill cells.
    #[inline]
    fn next_cell(&mut self) -> Option<Result<Record, BadRecord>> {
        let mut record = Record::EMPTY;
        loop {
            let rest = self.data.get(self.at..)?;
            let (cell, at) = match rest.first_chunk() {
                Some(cell) => (decode_record(cell, self.offset(), &mut record), self.at),
                None if rest.len() >= SIZE => (
                    decode_record(&tail(rest), self.offset(), &mut record),
                    self.at,
                ),
                // Less than a cell is left.
                None => {
                    self.layout = Layout::Free;
                    return self.next_free();
                }
            };
            match cell {
                Ok(Cell::Record) => {
                    self.at += SIZE;
                    return Some(Ok(record));
                }
                Ok(Cell::Padding(next)) => self.at = self.at.saturating_add(next as usize),
                Err(kind) => {
                    self.at += SIZE;
                    return Some(Err(BadRecord { at, kind }));
                }
            }
        }
    }

    /// The next record, wherever it begins and ends.
    fn next_free(&mut self) -> Option<Result<Record, BadRecord>> {
        let mut record = Record::EMPTY;
        // Where the record began, and what was wrong with the bytes so far.
        let mut begin = self.at;
        let mut bad: Option<BadRecord> = None;
        loop {
            if record.is_empty() && bad.is_none() {
                begin = self.skip_padding();
            }
            let rest = self.data.get(self.at..).unwrap_or_default();
            if rest.is_empty() {
                let cut = (!record.is_empty()).then_some(BadRecord {
                    at: self.data.len(),
                    kind: BadKind::CutShort,
                });
                return bad.or(cut).map(Err);
            }
            let limit = if rest.len() < SIZE {
                u32::try_from(rest.len()).unwrap_or(WINDOW)
            } else {
                WINDOW
            };
            let stop = match rest.first_chunk::<REACH>() {
                Some(window) => decode_packets(window, WINDOW, self.offset(), &mut record),
                None => decode_packets(&tail(rest), limit, self.offset(), &mut record),
            };
            match stop {
                Stop::End { next } => {
                    self.at = self.at.saturating_add(next as usize);
                    if let Some(bad) = bad {
                        return Some(Err(bad));
                    }
                    self.learn(begin);
                    return Some(Ok(record));
                }
                Stop::Open { next } if next < limit && limit < WINDOW => {
                    // A packet that the data do not hold to its end.
                    let at = self.at.saturating_add(next as usize);
                    self.at = self.data.len();
                    let cut = BadRecord {
                        at,
                        kind: BadKind::CutShort,
                    };
                    return Some(Err(bad.unwrap_or(cut)));
                }
                Stop::Open { next } => {
                    self.at = self.at.saturating_add(next as usize);
                    if bad.is_none() && !record.is_empty() && self.at - begin > MAX_RECORD {
                        bad = Some(BadRecord {
                            at: begin,
                            kind: BadKind::Unterminated,
                        });
                    }
                }
                Stop::Bad { at, kind } => {
                    let at = self.at.saturating_add(at as usize);
                    let first = bad.unwrap_or(BadRecord { at, kind });
                    if self.layout == Layout::Unknown {
                        self.at = at + SIZE - (self.base + at) % SIZE;
                        return Some(Err(first));
                    }
                    self.at = at + 1;
                    bad = Some(first);
                }
            }
        }
    }

    /// Moves to the next byte that is not padding.
    fn skip_padding(&mut self) -> usize {
        let rest = self.data.get(self.at..).unwrap_or_default();
        let run = rest.iter().position(|byte| *byte != 0);
        self.at = self.at.saturating_add(run.unwrap_or(rest.len()));
        self.at
    }

    /// Takes the layout from the first record, which began at `begin` and ended just now.
    fn learn(&mut self, begin: usize) {
        if self.layout == Layout::Unknown {
            let in_cell = (self.base + begin).is_multiple_of(SIZE) && self.at == begin + SIZE;
            self.layout = if in_cell { Layout::Cells } else { Layout::Free };
        }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, BadRecord>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.layout {
            Layout::Cells => self.next_cell(),
            Layout::Unknown | Layout::Free => self.next_free(),
        }
    }
}

/// The last bytes of the data, followed by zeros.
#[cold]
fn tail(rest: &[u8]) -> [u8; REACH] {
    let mut window = [0; REACH];
    for (to, from) in window.iter_mut().zip(rest) {
        *to = *from;
    }
    window
}
