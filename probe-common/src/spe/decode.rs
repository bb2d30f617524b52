//! Decodes a window of bytes into a record: the loop that runs in the kernel and in user space.
//!
//! The verifier accepts the loop: every read goes through [`Bytes`], which masks the index, nothing
//! can panic, and the loop has a constant bound.

use super::{BadKind, Record};

/// Size of the decoder's window in bytes. Neoverse cores write each record into its own cell: 64
/// bytes, aligned to 64 and padded with zeros. Other cores write records of other sizes without
/// gaps. `stream` moves the window over either layout.
pub const WINDOW: u32 = 64;

/// Read access to a window of [`WINDOW`] bytes.
///
/// The decoder asks only for offsets below [`WINDOW`]. If the data end within the window, zeros
/// follow. An implementation in eBPF masks `at` with `WINDOW - 1` itself (in inline assembly, so
/// that the compiler cannot drop the mask) over a value of at least `WINDOW + 7` bytes.
pub trait Bytes {
    /// The byte at `at`.
    fn byte(&self, at: u32) -> u8;

    /// The eight bytes from `at` on, little-endian. Bytes past the window may have any value.
    fn word(&self, at: u32) -> u64;

    /// `at` itself. An implementation in eBPF may hide the value from the verifier, by `at ^ zero`
    /// with a zero read from a map: the verifier then follows one range of offsets through the loop
    /// instead of every sum of packet sizes. Verified instructions without and with it: 145,000 and
    /// 67,000 on Linux 6.1; on 6.18, depending on the compiler's code layout, 124,000 to 328,000
    /// and 123,000 to 157,000.
    #[inline(always)]
    fn opaque(&self, at: u32) -> u32 {
        at
    }
}

/// Where decoding of a window stopped: offsets from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After the packet that ends a record.
    End {
        /// Offset after that packet.
        next: u32,
    },
    /// At a packet that begins after the window or does not fit in it.
    Open {
        /// Offset of that packet.
        next: u32,
    },
    /// At bytes that are no packet.
    Bad {
        /// Offset of the first bad byte.
        at: u32,
        /// What is wrong.
        kind: BadKind,
    },
}

impl Stop {
    const END: u64 = 1 << 32;
    const OPEN: u64 = 2 << 32;
    const HEADER: u64 = 3 << 32;
    const EXTENDED_HEADER: u64 = 4 << 32;

    /// Packed into one word, for a map.
    #[must_use]
    #[inline(always)]
    pub const fn word(self) -> u64 {
        match self {
            Self::End { next } => Self::END | next as u64,
            Self::Open { next } => Self::OPEN | next as u64,
            Self::Bad { at, kind } => {
                let kind = match kind {
                    BadKind::ExtendedHeader => Self::EXTENDED_HEADER,
                    _ => Self::HEADER,
                };
                kind | at as u64
            }
        }
    }

    /// Unpacks a word of [`Self::word`].
    #[must_use]
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the word's low half")]
    pub const fn from_word(word: u64) -> Self {
        let at = word as u32;
        match word & !0xffff_ffff {
            Self::END => Self::End { next: at },
            Self::OPEN => Self::Open { next: at },
            Self::EXTENDED_HEADER => Self::Bad {
                at,
                kind: BadKind::ExtendedHeader,
            },
            _ => Self::Bad {
                at,
                kind: BadKind::Header,
            },
        }
    }
}

const PAD: u8 = 0x00;
const END: u8 = 0x01;
const TIMESTAMP: u8 = 0x71;

/// Decodes packets from the start of the window into `record` until the record or the window ends.
/// `offset` is the window's position in the AUX buffer, for alignment packets.
#[inline(always)]
pub(super) fn decode_packets(bytes: &impl Bytes, offset: u32, record: &mut Record) -> Stop {
    let mut at = 0;
    let mut steps = 0;
    // Every step advances by at least one byte, but the verifier needs an explicit bound.
    while at < WINDOW && steps < WINDOW {
        match step(bytes, offset, at, record) {
            Ok(next) => at = bytes.opaque(next),
            Err(stop) => return stop,
        }
        steps = steps.wrapping_add(1);
    }
    Stop::Open { next: at }
}

/// Decodes one packet or one run of padding; returns the offset after it.
#[inline(always)]
fn step(bytes: &impl Bytes, offset: u32, at: u32, record: &mut Record) -> Result<u32, Stop> {
    let first_byte = bytes.byte(at);
    if first_byte == PAD {
        let next = at.wrapping_add(pad_run(bytes.word(at)));
        return Ok(if next < WINDOW { next } else { WINDOW });
    }
    let mut header = first_byte;
    let mut packet = Packet {
        bytes,
        at,
        payload: at.wrapping_add(1),
    };
    if first_byte & 0xfc == 0x20 {
        if packet.payload >= WINDOW {
            return Err(Stop::Open { next: at });
        }
        header = bytes.byte(packet.payload);
        packet.payload = at.wrapping_add(2);
        match header {
            0x00 => return Ok(aligned(offset, at, first_byte)),
            0x98..=0x9f | 0xb0..=0xb7 => {}
            _ => {
                let kind = BadKind::ExtendedHeader;
                return Err(Stop::Bad { at, kind });
            }
        }
        // Address and counter packets with an index of 8 or more are skipped.
        if first_byte & 3 != 0 {
            let size = if header < 0xb0 { 2 } else { 8 };
            return packet.store(size, record, Record::skip);
        }
    }
    // One arm per packet, each with a constant size: the offset of the next packet then depends on
    // a predicted branch instead of the bytes of this one.
    match header {
        0xb0 => packet.store(8, record, Record::set_pc),
        0xb1 => packet.store(8, record, Record::set_branch_target),
        0xb2 => packet.store(8, record, Record::set_virtual_address),
        0xb3 => packet.store(8, record, Record::set_physical_address),
        0xb4 => packet.store(8, record, Record::set_previous_target),
        0xb5..=0xb7 => packet.store(8, record, Record::skip),
        0x98 => packet.store(2, record, Record::set_total_latency),
        0x99 => packet.store(2, record, Record::set_issue_latency),
        0x9a => packet.store(2, record, Record::set_translation_latency),
        0x9c => packet.store(2, record, Record::set_alternate_issue_latency),
        0x9b | 0x9d..=0x9f => packet.store(2, record, Record::skip),
        0x42 => packet.store(1, record, Record::set_events),
        0x52 => packet.store(2, record, Record::set_events),
        0x62 => packet.store(4, record, Record::set_events),
        0x72 => packet.store(8, record, Record::set_events),
        0x43 => packet.store(1, record, Record::set_data_source),
        0x53 => packet.store(2, record, Record::set_data_source),
        0x63 => packet.store(4, record, Record::set_data_source),
        0x73 => packet.store(8, record, Record::set_data_source),
        0x48..=0x4b => packet.store(1, record, |record, payload| {
            record.set_operation(header & 3, payload);
        }),
        0x64 => packet.store(4, record, Record::set_context_el1),
        0x65 => packet.store(4, record, Record::set_context_el2),
        0x66 | 0x67 => packet.store(4, record, Record::skip),
        TIMESTAMP => {
            let next = packet.store(8, record, Record::set_timestamp)?;
            Err(Stop::End { next })
        }
        END => Err(Stop::End {
            next: at.wrapping_add(1),
        }),
        _ => {
            let kind = BadKind::Header;
            Err(Stop::Bad { at, kind })
        }
    }
}

/// A packet with its header already read.
struct Packet<'a, B> {
    bytes: &'a B,
    /// Offset of the packet.
    at: u32,
    /// Offset of the payload.
    payload: u32,
}

impl<B: Bytes> Packet<'_, B> {
    /// Passes the payload of `size` bytes to `set`, and returns the offset of the next packet.
    #[inline(always)]
    fn store(
        self,
        size: u32,
        record: &mut Record,
        set: impl FnOnce(&mut Record, u64),
    ) -> Result<u32, Stop> {
        let next = self.payload.wrapping_add(size);
        if next > WINDOW {
            return Err(Stop::Open { next: self.at });
        }
        let word = self.bytes.word(self.payload);
        set(record, word & first_bytes(size));
        Ok(next)
    }
}

/// A mask for the first 1 to 8 bytes of a little-endian word.
#[inline(always)]
const fn first_bytes(n: u32) -> u64 {
    u64::MAX >> (64u32.wrapping_sub(n.wrapping_mul(8)) & 63)
}

/// Number of leading padding bytes of the word: 1 to 8, since the first byte is padding.
#[inline(always)]
const fn pad_run(word: u64) -> u32 {
    let after_first = word >> 8 | 1 << 56;
    1 + (after_first.trailing_zeros() >> 3)
}

/// Offset of the packet after an alignment packet at `at`: the next multiple of `2 << n`, counted
/// from the start of the buffer, where `n` is the low four bits of its first byte.
#[inline(always)]
const fn aligned(offset: u32, at: u32, first_byte: u8) -> u32 {
    let below = (2u32 << (first_byte & 0xf)).wrapping_sub(1);
    let position = offset.wrapping_add(at);
    let next = (position | below).wrapping_add(1).wrapping_sub(offset);
    if next > at { next } else { at.wrapping_add(1) }
}

/// Whether the window holds only zeros from `at` on.
#[inline(always)]
pub(super) fn rest_is_padding(bytes: &impl Bytes, at: u32) -> bool {
    let mut at = at;
    let mut steps = 0;
    while at < WINDOW && steps < WINDOW / 8 {
        let inside = WINDOW.wrapping_sub(at);
        let word = bytes.word(at);
        if word & first_bytes(if inside < 8 { inside } else { 8 }) != 0 {
            return false;
        }
        at = at.wrapping_add(8);
        steps += 1;
    }
    true
}
