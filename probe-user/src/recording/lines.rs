//! The lines of a recording, packed and unpacked.

use std::io::{self, BufRead, BufReader, Cursor, Read, Write as _};

use flate2::{Compression, bufread::GzDecoder, write::GzEncoder};
use serde::Serialize;

/// Maximum bytes of a line, since a few compressed bytes can expand to any length. A snapshot with
/// a million rows fits.
const MAX_LINE_BYTES: u64 = 1 << 30;

/// The first byte of each gzip member, and of no line of JSON.
pub(super) const GZIP: u8 = 0x1f;

/// Bytes that are read first, to recognize files of other kinds.
const BEGIN_BYTES: u64 = 64;

/// Packs a value as one line in one gzip member.
pub(super) fn pack(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    serde_json::to_writer(&mut gzip, value)?;
    gzip.write_all(b"\n")?;
    gzip.finish()
}

/// Reads the lines of a recording one by one.
pub(super) struct Lines {
    /// The first bytes of the file.
    pub(super) begin: Vec<u8>,
    input: Box<dyn BufRead>,
    /// The gzip member that is being read: one line, unless it was packed by another program.
    member: Cursor<Vec<u8>>,
    max_bytes: u64,
}

impl Lines {
    pub(super) fn new(mut input: impl Read + 'static) -> io::Result<Self> {
        let mut begin = Vec::new();
        (&mut input).take(BEGIN_BYTES).read_to_end(&mut begin)?;
        let all = Cursor::new(begin.clone()).chain(input);
        Ok(Self {
            begin,
            input: Box::new(BufReader::new(all)),
            member: Cursor::default(),
            max_bytes: MAX_LINE_BYTES,
        })
    }

    /// Whether no line is left. Empty members are skipped.
    pub(super) fn is_at_end(&mut self) -> io::Result<bool> {
        while self.member.fill_buf()?.is_empty() {
            // Only the first byte is examined, since the buffer may have no more.
            match self.input.fill_buf()?.first() {
                None => return Ok(true),
                Some(&GZIP) => self.read_member()?,
                Some(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    fn read_member(&mut self) -> io::Result<()> {
        let mut member = Vec::new();
        let mut gzip = GzDecoder::new(&mut *self.input).take(self.max_bytes);
        gzip.read_to_end(&mut member)?;
        check_limit(gzip.limit(), self.max_bytes)?;
        self.member = Cursor::new(member);
        Ok(())
    }

    /// The next line; None at the end. The checksum of a member is verified before its first line
    /// is returned.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.is_at_end()? {
            return Ok(None);
        }
        let mut line = Vec::new();
        if self.member.fill_buf()?.is_empty() {
            let mut text = (&mut *self.input).take(self.max_bytes);
            text.read_until(b'\n', &mut line)?;
            check_limit(text.limit(), self.max_bytes)?;
        } else {
            self.member.read_until(b'\n', &mut line)?;
        }
        match line.pop_if(|last| *last == b'\n') {
            Some(_) => Ok(Some(line)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// An error if no bytes of the limit remain.
fn check_limit(remaining: u64, max_bytes: u64) -> io::Result<()> {
    if remaining > 0 {
        return Ok(());
    }
    let sentence = format!("it has {max_bytes} bytes or more");
    Err(io::Error::new(io::ErrorKind::InvalidData, sentence))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Gives one byte at a time.
    struct Drip(Cursor<Vec<u8>>);

    impl Read for Drip {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let some = bytes.len().min(1);
            self.0.read(&mut bytes[..some])
        }
    }

    fn all(mut lines: Lines) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| lines.next().unwrap()).collect()
    }

    /// Second members start at many offsets of the reader's buffer, including its last byte.
    #[test]
    fn lines_of_any_length_are_read() {
        // Random text, which is packed to three quarters of its length.
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'0' + u8::try_from(state >> 26).unwrap())
        };
        let mut starts = BTreeSet::new();
        for length in (10_600..10_800).flat_map(|length| [length; 6]) {
            let texts: [String; 2] =
                std::array::from_fn(|_| (0..length).map(|_| random()).collect());
            let packed = texts.each_ref().map(|text| pack(text).unwrap());
            starts.insert(packed[0].len());
            let found = all(Lines::new(Cursor::new(packed.concat())).unwrap());
            let expected = texts.map(|text| serde_json::to_vec(&text).unwrap());
            assert_eq!(found, expected, "{length}");
        }
        let buffer = 8192;
        for last in [
            buffer - 1,
            buffer,
            buffer - 1 + usize::try_from(BEGIN_BYTES).unwrap(),
        ] {
            assert!(starts.contains(&last), "{last}: {starts:?}");
        }
    }

    #[test]
    fn members_with_no_line_or_several_are_read() {
        let nothing = GzEncoder::new(Vec::new(), Compression::fast()).finish();
        let mut two = GzEncoder::new(Vec::new(), Compression::fast());
        two.write_all(b"[2]\n[3]\n").unwrap();
        let members = [pack(&[1]).unwrap(), nothing.unwrap(), two.finish().unwrap()];
        let bytes = [members.concat(), b"[4]\n".to_vec()].concat();
        let expected = [b"[1]", b"[2]", b"[3]", b"[4]"];
        assert_eq!(
            all(Lines::new(Cursor::new(bytes.clone())).unwrap()),
            expected
        );
        assert_eq!(all(Lines::new(Drip(Cursor::new(bytes))).unwrap()), expected);
    }

    #[test]
    fn a_line_that_unpacks_to_too_many_bytes_is_refused() {
        let packed = pack(&"x".repeat(100_000)).unwrap();
        assert!(packed.len() < 1_000);
        let read = |bytes: &[u8], max_bytes| {
            let input = Cursor::new(bytes.to_vec());
            let mut lines = Lines {
                max_bytes,
                ..Lines::new(input).unwrap()
            };
            lines.next()
        };
        // The line has the text, two quotes, and its end. One more byte must stay unused.
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
