//! Splits a stream of bytes into records, in the kernel and in user space ([`Stream`]).
//!
//! A record has any size: it begins after the previous record, at the first byte that is not
//! padding, and ends with its end or timestamp packet. Neoverse cores pad it to a cell of 64 bytes;
//! other cores write records of 32 or 44 bytes without gaps. Earlier records decide only where
//! decoding resumes after damage: at the next multiple of 64 if records fill cells, else after the
//! next end or timestamp packet.

use super::{
    BadKind, Bytes, Record, WINDOW,
    decode::{Stop, decode_packets, rest_is_padding},
};

/// The largest record that the architecture allows (`PMSIDR_EL1.MaxSize`).
const MAX_RECORD: u64 = 2048;

/// A window, which is as large as a cell.
const CELL: u64 = WINDOW as u64;

/// Limit of [`Stream::cells`], so that a single record of another layout does not change the
/// assumed layout.
const CELLS_LIMIT: i32 = 2;

/// The state of a walk over a stream. Positions count from the start of the AUX buffer, as
/// alignment packets do, or from a multiple of 2^16 bytes before it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stream {
    /// Position of the next window.
    pub at: u64,
    /// End of the bytes.
    pub end: u64,
    /// Start of the current record.
    begin: u64,
    /// Packets of the current record in earlier windows, as bits of `Record::present`.
    before: u16,
    /// 1: the current record began in an earlier window.
    open: u16,
    /// Above 0 if the last records filled cells, below 0 if they did not.
    cells: i32,
    /// 1 after damage, until a record has ended.
    lost: u64,
}

/// Content of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowContent {
    /// A record, or its end.
    Record,
    /// No packet, but this many bytes of padding.
    Padding(u64),
    /// The first part of a record that continues in the next window.
    Part,
    /// This many more bytes of damage that [`Self::Bad`] already reported.
    Lost(u64),
    /// Bytes that could not be decoded.
    Bad {
        /// Why decoding stopped.
        kind: BadKind,
        /// Position of the byte at which decoding stopped.
        at: u64,
        /// Number of bytes left out.
        bytes: u64,
    },
}

impl Stream {
    /// A walk over the bytes from `at` to `end`; a record begins at `at`.
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

    /// Restarts over other bytes of the same buffer; the assumed layout of records is kept.
    #[inline(always)]
    pub const fn restart(&mut self, at: u64, end: u64) {
        let cells = self.cells;
        *self = Self::new(at, end);
        self.cells = cells;
    }

    /// Whether the last records filled cells, so that a record is expected at each multiple of 64.
    #[must_use]
    #[inline(always)]
    pub const fn in_cells(&self) -> bool {
        self.cells > 0
    }

    /// Number of valid bytes in the next window; 0 at the end.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "less than a window")]
    pub const fn window(&self) -> u32 {
        let remaining = self.end.wrapping_sub(self.at);
        if self.at >= self.end {
            0
        } else if remaining < CELL {
            remaining as u32
        } else {
            WINDOW
        }
    }

    /// Decodes the next window, which must not be empty, and advances. After
    /// [`WindowContent::Record`], `record` is complete.
    #[inline(always)]
    pub fn decode(&mut self, bytes: &impl Bytes, record: &mut Record) -> WindowContent {
        let stop = self.packets(bytes, record);
        self.content(stop, bytes, record)
    }

    /// The first half of [`Self::decode`]: the packets of the window. In eBPF each half needs its
    /// own iteration of the loop; else the verifier follows the second half from every exit of the
    /// first.
    ///
    /// In eBPF `self` and `record` have to be map values: if they are on the stack, the verifier
    /// follows every set of packets separately and gives up (tried on Linux 6.1, 6.12 and 6.18).
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

    /// The second half of [`Self::decode`]: the content of the window, by where the packets
    /// stopped.
    #[inline(always)]
    pub fn content(
        &mut self,
        stop: Stop,
        bytes: &impl Bytes,
        record: &mut Record,
    ) -> WindowContent {
        let (at, limit) = (self.at, self.window());
        match stop {
            Stop::End { next } if next <= limit => {
                self.at = at.wrapping_add(next.into());
                if self.lost != 0 {
                    self.lost = 0;
                    return WindowContent::Lost(next.into());
                }
                if self.open != 0 {
                    return self.joined(record);
                }
                // An end packet alone ends nothing (DDI 0487, D18.2).
                if record.is_empty() {
                    return WindowContent::Padding(next.into());
                }
                let fills_cell =
                    at.is_multiple_of(CELL) && limit == WINDOW && rest_is_padding(bytes, next);
                if fills_cell {
                    self.at = at.wrapping_add(CELL);
                }
                self.count(fills_cell);
                WindowContent::Record
            }
            // The stream ends within the record, perhaps within its last packet.
            Stop::End { .. } => self.cut(record),
            Stop::Open { .. } if limit < WINDOW => self.cut(record),
            Stop::Open { next } => {
                let position = at.wrapping_add(next.into());
                self.at = if position < self.end {
                    position
                } else {
                    self.end
                };
                let moved = self.at.wrapping_sub(at);
                if self.lost != 0 {
                    return WindowContent::Lost(moved);
                }
                if self.open == 0 && record.is_empty() && next >= WINDOW {
                    return WindowContent::Padding(moved);
                }
                let present = record.take_present();
                if self.before & present != 0 || self.at.wrapping_sub(self.begin) > MAX_RECORD {
                    self.lost = 1;
                    return self.damage(BadKind::Unterminated, self.begin);
                }
                self.before |= present;
                self.open = 1;
                WindowContent::Part
            }
            Stop::Bad { at: bad, kind } => {
                let position = at.wrapping_add(bad.into());
                self.at = position.wrapping_add(1);
                if self.lost != 0 {
                    return WindowContent::Lost(self.at.wrapping_sub(at));
                }
                self.lost = 1;
                self.damage(kind, position)
            }
        }
    }

    /// The stream ends in this window, within a record or padding.
    #[inline(always)]
    const fn cut(&mut self, record: &Record) -> WindowContent {
        let remaining = self.end.wrapping_sub(self.at);
        self.at = self.end;
        if self.lost != 0 {
            return WindowContent::Lost(remaining);
        }
        if self.open == 0 && record.is_empty() {
            return WindowContent::Padding(remaining);
        }
        self.damage(BadKind::CutShort, self.end)
    }

    /// The damage at the end of the bytes: an incomplete record, if any.
    #[must_use]
    #[inline(always)]
    pub const fn finish(&mut self) -> Option<WindowContent> {
        if self.open == 0 {
            return None;
        }
        self.at = self.end;
        Some(self.damage(BadKind::CutShort, self.end))
    }

    /// A record of several windows has ended.
    #[inline(always)]
    const fn joined(&mut self, record: &mut Record) -> WindowContent {
        // No record has a packet twice, so another record began: the end of the first is lost.
        if !record.join(self.before) {
            return self.damage(BadKind::Unterminated, self.begin);
        }
        (self.open, self.before) = (0, 0);
        self.count(false);
        WindowContent::Record
    }

    /// Leaves out the current record. Only its cell is left out, unless the last records filled no
    /// cells or the bytes ended.
    #[inline(always)]
    const fn damage(&mut self, kind: BadKind, at: u64) -> WindowContent {
        (self.open, self.before) = (0, 0);
        if self.cells >= 0 && !matches!(kind, BadKind::CutShort) {
            self.lost = 0;
            self.at = (self.begin | (CELL - 1)).wrapping_add(1);
        }
        if self.at > self.end {
            self.at = self.end;
        }
        WindowContent::Bad {
            kind,
            at,
            bytes: self.at.wrapping_sub(self.begin),
        }
    }

    #[inline(always)]
    const fn count(&mut self, fills_cell: bool) {
        if fills_cell && self.cells < CELLS_LIMIT {
            self.cells += 1;
        } else if !fills_cell && self.cells > -CELLS_LIMIT {
            self.cells -= 1;
        }
    }
}
