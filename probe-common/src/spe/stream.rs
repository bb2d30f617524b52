//! From a stream of bytes to records: where one ends and the next begins, in the kernel and in user
//! space.
//!
//! Each record has the size that it has: it begins at the first byte behind the one before that is
//! no padding, and ends with its end or timestamp packet. Neoverse cores fill it up to a cell of 64
//! bytes, others write records of 32 or 44 bytes one behind the other. What came before decides
//! only where to go on after damage: at the next multiple of 64 where records fill cells, else
//! behind the next end or timestamp packet.

use super::{
    BadKind, Bytes, Record, WINDOW,
    decode::{Stop, decode_packets, rest_is_padding},
};

/// The largest record that the architecture allows (`PMSIDR_EL1.MaxSize`).
const MAX_RECORD: u64 = 2048;

/// A window, which is as large as a cell.
const CELL: u64 = WINDOW as u64;

/// Limit of [`Stream::cells`]: a single record of another layout does not change what is known.
const SURE: i32 = 2;

/// Where a walk over a stream is. Places count from the start of the AUX buffer, as alignment
/// packets do, or from a multiple of 2^16 bytes before it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stream {
    /// Place of the next window.
    pub at: u64,
    /// Where the bytes end.
    pub end: u64,
    /// Where the record at hand began.
    begin: u64,
    /// Its packets in the windows before this one.
    before: u16,
    /// 1: it began in a window before this one.
    open: u16,
    /// Above 0 where the last records filled cells, below where they did not.
    cells: i32,
    /// 1: after damage, until a record has ended.
    lost: u64,
}

/// What a window held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A record, or its end.
    Record,
    /// No packet, but so many bytes of padding.
    Padding(u64),
    /// The first part of a record, which goes on in the next window.
    Part,
    /// So many bytes more of damage that was given before.
    Lost(u64),
    /// Damage.
    Bad {
        /// Why decoding stopped.
        kind: BadKind,
        /// The place of the byte at which it did.
        at: u64,
        /// The bytes that are left out.
        bytes: u64,
    },
}

impl Stream {
    /// A walk over the bytes between two places, of which the first begins a record.
    #[must_use]
    pub const fn new(at: u64, end: u64) -> Self {
        Self {
            at,
            end,
            begin: at,
            before: 0,
            open: 0,
            cells: 0,
            lost: 0,
        }
    }

    /// The same over other bytes of one buffer: how records lay in it is not forgotten.
    #[inline(always)]
    pub const fn restart(&mut self, at: u64, end: u64) {
        let cells = self.cells;
        *self = Self::new(at, end);
        self.cells = cells;
    }

    /// Whether the last records filled cells, so that one is expected at each multiple of 64.
    #[must_use]
    #[inline(always)]
    pub const fn in_cells(&self) -> bool {
        self.cells > 0
    }

    /// How many bytes of the next window are there; 0 at the end.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "less than a window")]
    pub const fn window(&self) -> u32 {
        let left = self.end.wrapping_sub(self.at);
        if self.at >= self.end {
            0
        } else if left < CELL {
            left as u32
        } else {
            WINDOW
        }
    }

    /// Decodes the next window, not the end, and moves on. After [`Found::Record`] the record is
    /// whole in `record`.
    #[inline(always)]
    pub fn decode(&mut self, bytes: &impl Bytes, record: &mut Record) -> Found {
        let stop = self.packets(bytes, record);
        self.found(stop, bytes, record)
    }

    /// The first half of [`Self::decode`]: the packets of the window. The verifier wants the halves
    /// apart, each in a round of its own, or it follows the second from every way out of the first.
    ///
    /// In eBPF `self` and `record` have to be map values: on the stack the verifier follows every
    /// set of packets by itself and gives up (tried on Linux 6.1, 6.12 and 6.18).
    #[inline(always)]
    pub fn packets(&mut self, bytes: &impl Bytes, record: &mut Record) -> Stop {
        if self.open == 0 {
            *record = Record::EMPTY;
            self.begin = self.at;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "alignment needs the low bits"
        )]
        let offset = self.at as u32;
        decode_packets(bytes, offset, record)
    }

    /// The second half: what the window held, by where the packets stopped.
    #[inline(always)]
    pub fn found(&mut self, stop: Stop, bytes: &impl Bytes, record: &mut Record) -> Found {
        let (at, limit) = (self.at, self.window());
        match stop {
            Stop::End { next } if next <= limit => {
                self.at = at.wrapping_add(next.into());
                if self.lost != 0 {
                    self.lost = 0;
                    return Found::Lost(next.into());
                }
                if self.open != 0 {
                    return self.joined(record);
                }
                // An end packet alone ends nothing (DDI 0487, D18.2).
                if record.is_empty() {
                    return Found::Padding(next.into());
                }
                let fills =
                    at.is_multiple_of(CELL) && limit == WINDOW && rest_is_padding(bytes, next);
                if fills {
                    self.at = at.wrapping_add(CELL);
                }
                self.count(fills);
                Found::Record
            }
            // The data end within the record, and maybe within its last packet.
            Stop::End { .. } => self.cut(record),
            Stop::Open { .. } if limit < WINDOW => self.cut(record),
            Stop::Open { next } => {
                let place = at.wrapping_add(next.into());
                self.at = if place < self.end { place } else { self.end };
                let moved = self.at.wrapping_sub(at);
                if self.lost != 0 {
                    return Found::Lost(moved);
                }
                if self.open == 0 && record.is_empty() && next >= WINDOW {
                    return Found::Padding(moved);
                }
                let present = record.take_present();
                if self.before & present != 0 || self.at.wrapping_sub(self.begin) > MAX_RECORD {
                    self.lost = 1;
                    return self.damage(BadKind::Unterminated, self.begin);
                }
                self.before |= present;
                self.open = 1;
                Found::Part
            }
            Stop::Bad { at: bad, kind } => {
                let place = at.wrapping_add(bad.into());
                self.at = place.wrapping_add(1);
                if self.lost != 0 {
                    return Found::Lost(self.at.wrapping_sub(at));
                }
                self.lost = 1;
                self.damage(kind, place)
            }
        }
    }

    /// The data end in this window, and no record does.
    #[inline(always)]
    const fn cut(&mut self, record: &Record) -> Found {
        let left = self.end.wrapping_sub(self.at);
        self.at = self.end;
        if self.lost != 0 {
            return Found::Lost(left);
        }
        if self.open == 0 && record.is_empty() {
            return Found::Padding(left);
        }
        self.damage(BadKind::CutShort, self.end)
    }

    /// The damage that the end of the bytes makes: of a record that goes on behind it.
    #[must_use]
    #[inline(always)]
    pub const fn finish(&mut self) -> Option<Found> {
        if self.open == 0 {
            return None;
        }
        self.at = self.end;
        Some(self.damage(BadKind::CutShort, self.end))
    }

    /// A record of several windows has ended.
    #[inline(always)]
    const fn joined(&mut self, record: &mut Record) -> Found {
        // No record has a packet twice: the first one's end is lost.
        if !record.join(self.before) {
            return self.damage(BadKind::Unterminated, self.begin);
        }
        (self.open, self.before) = (0, 0);
        self.count(false);
        Found::Record
    }

    /// Leaves the record at hand out; where records fill cells, its cell and not more.
    #[inline(always)]
    const fn damage(&mut self, kind: BadKind, at: u64) -> Found {
        (self.open, self.before) = (0, 0);
        if self.cells >= 0 && !matches!(kind, BadKind::CutShort) {
            self.lost = 0;
            self.at = (self.begin | (CELL - 1)).wrapping_add(1);
        }
        if self.at > self.end {
            self.at = self.end;
        }
        Found::Bad {
            kind,
            at,
            bytes: self.at.wrapping_sub(self.begin),
        }
    }

    #[inline(always)]
    const fn count(&mut self, fills: bool) {
        if fills && self.cells < SURE {
            self.cells += 1;
        } else if !fills && self.cells > -SURE {
            self.cells -= 1;
        }
    }
}
