//! The lines of a recording, packed and unpacked.

use std::io::{self, BufRead, BufReader, Cursor, Read, Write as _};

use flate2::{Compression, bufread::GzDecoder, write::GzEncoder};
use serde::Serialize;

/// Most bytes of a line: a snapshot with a million rows fits. A few compressed bytes can expand to
/// any length.
const MAX_LINE_BYTES: u64 = 1 << 30;

/// The begin of each gzip member.
pub(super) const GZIP: &[u8] = &[0x1f, 0x8b];

/// Packs a value as one line in one gzip member.
pub(super) fn pack(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    serde_json::to_writer(&mut gzip, value)?;
    gzip.write_all(b"\n")?;
    gzip.finish()
}

/// Reads line by line.
pub(super) struct Lines {
    input: Box<dyn BufRead>,
    /// The gzip member that is being read: one line, unless it was packed by another program.
    member: Cursor<Vec<u8>>,
    max_bytes: u64,
}

impl Lines {
    pub(super) fn new(input: impl Read + 'static) -> Self {
        Self {
            input: Box::new(BufReader::new(input)),
            member: Cursor::default(),
            max_bytes: MAX_LINE_BYTES,
        }
    }

    /// The first bytes of what is left; empty at the end.
    pub(super) fn peek(&mut self) -> io::Result<&[u8]> {
        match self.member.fill_buf()?.is_empty() {
            true => self.input.fill_buf(),
            false => self.member.fill_buf(),
        }
    }

    /// The next line; None at the end. A checksum is compared before the first line of its member.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let max_bytes = self.max_bytes;
        let begin = self.peek()?;
        if begin.is_empty() {
            return Ok(None);
        }
        if begin.starts_with(GZIP) {
            let mut member = Vec::new();
            let mut gzip = GzDecoder::new(&mut *self.input).take(max_bytes);
            gzip.read_to_end(&mut member)?;
            is_within(gzip.limit(), max_bytes)?;
            self.member = Cursor::new(member);
        }
        let mut line = Vec::new();
        if self.member.fill_buf()?.is_empty() {
            let mut text = (&mut *self.input).take(max_bytes);
            text.read_until(b'\n', &mut line)?;
            is_within(text.limit(), max_bytes)?;
        } else {
            self.member.read_until(b'\n', &mut line)?;
        }
        match line.pop_if(|last| *last == b'\n') {
            Some(_) => Ok(Some(line)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// An error if nothing is left of a limit.
fn is_within(left: u64, max_bytes: u64) -> io::Result<()> {
    if left > 0 {
        return Ok(());
    }
    let sentence = format!("it has {max_bytes} bytes or more");
    Err(io::Error::new(io::ErrorKind::InvalidData, sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_becomes_too_large_is_refused() {
        let packed = pack(&"x".repeat(100_000)).unwrap();
        assert!(packed.len() < 1_000);
        let read = |bytes: &[u8], max_bytes| {
            let input = Cursor::new(bytes.to_vec());
            let mut lines = Lines {
                max_bytes,
                ..Lines::new(input)
            };
            lines.next()
        };
        // With quotes and the end of the line.
        let whole = read(&packed, 100_004).unwrap().unwrap();
        assert_eq!(whole.len(), 100_002);
        let text = [whole.as_slice(), b"\n"].concat();
        assert_eq!(read(&text, 100_004).unwrap(), Some(whole));
        for bytes in [&packed, &text] {
            let error = read(bytes, 100_003).unwrap_err().to_string();
            assert_eq!(error, "it has 100003 bytes or more");
            let cut = read(&bytes[..bytes.len() - 1], 100_004).unwrap_err();
            assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
