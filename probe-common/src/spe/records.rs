//! The records of a whole buffer, in user space.

use super::{
    BadRecord, Bytes, Record, WINDOW,
    stream::{Found, Stream},
};

const SIZE: usize = WINDOW as usize;

/// A window and what [`Bytes::word`] may read past it.
const REACH: usize = SIZE + 8;

/// The largest multiple that an alignment packet can name.
const ALIGNED: usize = 1 << 16;

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
/// Records may have any size up to 2048 bytes, each its own; padding and alignment packets may be
/// anywhere. Where bytes are no record the iterator gives one [`BadRecord`] for the stretch and
/// goes on: at the next multiple of 64 where records fill cells of 64 bytes, else behind the next
/// end or timestamp packet. The record that ends there is left out, since its first packets are
/// lost.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a [u8],
    /// Place of `data` in the AUX buffer, from which alignment is counted, modulo [`ALIGNED`].
    base: u64,
    stream: Stream,
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
        let base = (base % ALIGNED) as u64;
        Self {
            data,
            base,
            stream: Stream::new(base, base + data.len() as u64),
        }
    }

    /// Where a place of the AUX buffer is in the data.
    #[expect(clippy::cast_possible_truncation, reason = "a place in a slice")]
    const fn index(&self, place: u64) -> usize {
        (place - self.base) as usize
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, BadRecord>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let mut record = Record::EMPTY;
        loop {
            let found = if self.stream.window() == 0 {
                self.stream.finish()?
            } else {
                let rest = self.data.get(self.index(self.stream.at)..)?;
                match rest.first_chunk::<REACH>() {
                    Some(window) => self.stream.decode(window, &mut record),
                    None => self.stream.decode(&tail(rest), &mut record),
                }
            };
            match found {
                Found::Record => return Some(Ok(record)),
                Found::Bad { kind, at, .. } => {
                    let at = self.index(at);
                    return Some(Err(BadRecord { at, kind }));
                }
                Found::Padding(_) | Found::Part | Found::Lost(_) => {}
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
