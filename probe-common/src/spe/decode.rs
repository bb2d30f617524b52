//! From bytes to a record: the loop that runs in the kernel and in user space.
//!
//! Its shape is what the verifier admits: every read goes through [`Bytes`], whose
//! implementation masks the index; nothing is sliced, compared with a length that
//! only a type knows, or able to panic; the loop has a constant bound.

use super::{BadKind, Record};

/// Bytes that the decoder looks at for one record. On every core known today a
/// record fills exactly one window, its cell; [`super::Records`] moves the window over records of other sizes.
pub const WINDOW: u32 = 64;

/// Read access to a window of [`WINDOW`] bytes.
///
/// The decoder asks for offsets below [`WINDOW`] only. An implementation in eBPF
/// masks `at` with `WINDOW - 1` itself (in inline assembly, so that the compiler
/// cannot drop the mask) over a value of at least `WINDOW + 7` bytes.
pub trait Bytes {
    /// The byte at `at`.
    fn byte(&self, at: u32) -> u8;

    /// The eight bytes from `at` on, little-endian. Those past the window may be anything.
    fn word(&self, at: u32) -> u64;
}

/// What a 64-byte cell of the buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// One record, in the cell from its first to its last byte or padded with zeros.
    Record,
    /// No record: padding. The next one begins at or after this many bytes from the start of the cell.
    Padding(u32),
}

/// Decodes the record in one cell of [`WINDOW`] bytes.
///
/// `offset` is the cell's place in the AUX buffer, for alignment packets. `record`
/// is overwritten; after an error it holds what was read until then.
///
/// # Errors
/// The kind of damage, where the cell holds neither one whole record nor padding.
/// The next cell is not touched by it.
#[inline(always)]
pub fn decode_record(
    bytes: &impl Bytes,
    offset: u32,
    record: &mut Record,
) -> Result<Cell, BadKind> {
    *record = Record::EMPTY;
    match decode_packets(bytes, WINDOW, offset, record) {
        Stop::End { next } if rest_is_padding(bytes, next) => Ok(Cell::Record),
        Stop::End { .. } => Err(BadKind::Trailing),
        Stop::Open { next } if record.is_empty() && next >= WINDOW => Ok(Cell::Padding(next)),
        Stop::Open { .. } => Err(BadKind::Unterminated),
        Stop::Bad { kind, .. } => Err(kind),
    }
}

/// Where [`decode_packets`] stopped: offsets from the start of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// After the packet that ends a record.
    End { next: u32 },
    /// At a packet that begins after the window or does not fit in it.
    Open { next: u32 },
    /// At bytes that are no packet.
    Bad { at: u32, kind: BadKind },
}

const PAD: u8 = 0x00;
const END: u8 = 0x01;
const TIMESTAMP: u8 = 0x71;

/// Decodes packets from the start of the window into `record` until the record
/// ends or `limit` (at most [`WINDOW`]) is reached.
#[inline(always)]
pub(super) fn decode_packets(
    bytes: &impl Bytes,
    limit: u32,
    offset: u32,
    record: &mut Record,
) -> Stop {
    let mut at = 0;
    let mut steps = 0;
    // Every step moves on by a byte at least; the verifier wants to see the bound itself.
    while at < limit && steps < WINDOW {
        match step(bytes, limit, offset, at, record) {
            Step::Next(next) => at = next,
            Step::Stop(stop) => return stop,
        }
        steps = steps.wrapping_add(1);
    }
    Stop::Open { next: at }
}

enum Step {
    Next(u32),
    Stop(Stop),
}

/// One packet, or one run of padding.
#[inline(always)]
fn step(bytes: &impl Bytes, limit: u32, offset: u32, at: u32, record: &mut Record) -> Step {
    let first = bytes.byte(at);
    if first == PAD {
        let run = pad_run(bytes.word(at));
        let next = at.wrapping_add(run);
        return Step::Next(if next < limit { next } else { limit });
    }
    if first == END {
        return Step::Stop(Stop::End {
            next: at.wrapping_add(1),
        });
    }
    let mut header = first;
    let mut index = first & 7;
    let mut payload_at = at.wrapping_add(1);
    if first & 0xfc == 0x20 {
        if payload_at >= limit {
            return Step::Stop(Stop::Open { next: at });
        }
        header = bytes.byte(payload_at);
        index = (first & 3) << 3 | header & 7;
        payload_at = at.wrapping_add(2);
        if header == 0 {
            return Step::Next(aligned(offset, at, first));
        }
        if header & 0xf8 != 0xb0 && header & 0xf8 != 0x98 {
            return Step::Stop(Stop::Bad {
                at,
                kind: BadKind::ExtendedHeader,
            });
        }
    }
    let field = match header {
        0xb0..=0xb7 => Field::Address,
        0x98..=0x9f => Field::Counter,
        0x42 | 0x52 | 0x62 | 0x72 => Field::Events,
        0x43 | 0x53 | 0x63 | 0x73 => Field::DataSource,
        0x48..=0x4b => Field::Operation,
        0x64..=0x67 => Field::Context,
        TIMESTAMP => Field::Timestamp,
        _ => {
            return Step::Stop(Stop::Bad {
                at,
                kind: BadKind::Header,
            });
        }
    };
    let log2 = u32::from(header >> 4) & 3;
    let next = payload_at.wrapping_add(1 << log2);
    if next > limit {
        return Step::Stop(Stop::Open { next: at });
    }
    let word = bytes.word(payload_at);
    let payload = word & (u64::MAX >> (64u32.wrapping_sub(8 << log2) & 63));
    let [b0, b1, b2, b3, ..] = payload.to_le_bytes();
    match field {
        Field::Address => record.set_address(index, payload),
        Field::Counter => record.set_counter(index, u16::from_le_bytes([b0, b1])),
        Field::Events => record.set_events(payload),
        Field::DataSource => record.set_data_source(payload),
        Field::Operation => record.set_operation(header & 3, b0),
        Field::Context => record.set_context(header & 3, u32::from_le_bytes([b0, b1, b2, b3])),
        Field::Timestamp => {
            record.set_timestamp(payload);
            return Step::Stop(Stop::End { next });
        }
    }
    Step::Next(next)
}

enum Field {
    Address,
    Counter,
    Events,
    DataSource,
    Operation,
    Context,
    Timestamp,
}

/// How many of the word's bytes are padding before the first that is not: 1 to 8, as the first byte is.
#[inline(always)]
const fn pad_run(word: u64) -> u32 {
    word.trailing_zeros() >> 3
}

/// Where an alignment packet at `at` leads to: the next multiple, counted from the
/// start of the buffer, of two to the power of its low four bits plus one.
#[inline(always)]
const fn aligned(offset: u32, at: u32, first: u8) -> u32 {
    let below = (2u32 << (first & 0xf)).wrapping_sub(1);
    let place = offset.wrapping_add(at);
    (place | below).wrapping_add(1).wrapping_sub(offset)
}

/// Whether the window holds only zeros from `at` on.
#[inline(always)]
fn rest_is_padding(bytes: &impl Bytes, at: u32) -> bool {
    let mut at = at;
    let mut steps = 0;
    while at < WINDOW && steps < WINDOW / 8 {
        let inside = WINDOW.wrapping_sub(at);
        let word = bytes.word(at);
        let mask = if inside < 8 {
            u64::MAX >> (64u32.wrapping_sub(8 * inside) & 63)
        } else {
            u64::MAX
        };
        if word & mask != 0 {
            return false;
        }
        at = at.wrapping_add(8);
        steps += 1;
    }
    true
}
