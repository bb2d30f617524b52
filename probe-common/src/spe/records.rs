//! The records of a whole buffer, in user space.

use super::{
    BadRecord, Bytes, Record, WINDOW,
    stream::{Stream, WindowContent},
};

const SIZE: usize = WINDOW as usize;

/// Size of a window, with the bytes that [`Bytes::word`] may read past it.
const REACH: usize = SIZE + 8;

/// The largest alignment that an alignment packet can specify.
const MAX_ALIGNMENT: usize = 1 << 16;

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

/// Iterates over the records in the bytes of an AUX buffer.
///
/// Each record may have any size up to 2048 bytes; padding and alignment packets may be anywhere.
/// For a stretch of undecodable bytes the iterator returns one [`BadRecord`] and continues at the
/// next multiple of 64 if records fill cells of 64 bytes, else after the next end or timestamp
/// packet. The record that ends with that packet is left out, since its first packets are lost.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a [u8],
    /// Offset of `data` in the AUX buffer, modulo [`MAX_ALIGNMENT`]. Alignment counts from the
    /// start of the buffer.
    base: u64,
    stream: Stream,
}

impl<'a> Records<'a> {
    /// Iterates over `data` that begin at a multiple of 65,536 bytes of the AUX buffer (or at its
    /// start): the largest alignment of an alignment packet.
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Self {
        Self::at(data, 0)
    }

    /// Iterates over `data` that begin `base` bytes after the start of the AUX buffer.
    #[must_use]
    pub const fn at(data: &'a [u8], base: usize) -> Self {
        let base = (base % MAX_ALIGNMENT) as u64;
        Self {
            data,
            base,
            stream: Stream::new(base, base + data.len() as u64),
        }
    }

    /// The index into the data of a position in the AUX buffer.
    #[expect(clippy::cast_possible_truncation, reason = "an index into a slice")]
    const fn index(&self, position: u64) -> usize {
        (position - self.base) as usize
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, BadRecord>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let mut record = Record::EMPTY;
        loop {
            let content = if self.stream.window() == 0 {
                self.stream.finish()?
            } else {
                let rest = self.data.get(self.index(self.stream.at)..)?;
                match rest.first_chunk::<REACH>() {
                    Some(window) => self.stream.decode(window, &mut record),
                    None => self.stream.decode(&tail(rest), &mut record),
                }
            };
            match content {
                WindowContent::Record => return Some(Ok(record)),
                WindowContent::Bad { kind, at, .. } => {
                    let at = self.index(at);
                    return Some(Err(BadRecord { at, kind }));
                }
                WindowContent::Padding(_) | WindowContent::Part | WindowContent::Lost(_) => {}
            }
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
