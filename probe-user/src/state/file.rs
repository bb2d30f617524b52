//! The file of a state: a first line with the format, the state, and a checksum.
//!
//! A new file replaces the old one atomically: a killed process leaves either the old file or the
//! new one. Files are not synced to disk: after a crash of the machine the next boot starts from
//! zero anyway.

use std::{
    hash::Hasher as _,
    io::{self, Read as _, Write},
    path::Path,
};

use serde::{Serialize, de::DeserializeOwned};
use twox_hash::XxHash64;

use super::{SavedState, StateError};
use crate::{snapshot::layout, sys::trusted_files::TrustedDirectory};

/// The name of a file in the state directory. The file holds one value, for one boot of the
/// machine.
#[derive(Clone, Copy, Debug)]
pub struct StateFile(pub &'static str);

/// The file of totals.
const TOTALS: StateFile = StateFile("totals");

/// The format of all state files, the ledger's included. To be raised with every change of their
/// content: postcard is not self-describing.
const FORMAT: u32 = 10;

/// Start of the first line; the format follows.
const MARK: &str = "pmuscope totals, format ";

/// Maximum length of the first line in bytes.
const MAX_LINE: usize = 64;

/// Bytes of the checksum at the end.
const CHECKSUM: usize = 8;

/// Maximum file size in bytes: 100,000 containers without samples take less, or 30,000 with ten
/// kinds of samples each.
const MAX_SIZE: u64 = 128 << 20;

/// Name and content of a file.
#[derive(Debug)]
pub(crate) struct EncodedState {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl EncodedState {
    /// Writes a new file, which then replaces the previous one. The previous file stays if writing
    /// fails, or if `may_replace` then returns false.
    pub(crate) fn put(
        &self,
        into: &TrustedDirectory,
        may_replace: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        // The name during the write.
        let unfinished = format!("{}.new", self.name);
        let write = || {
            let mut file = into.file(&unfinished)?;
            file.set_len(0)?;
            file.write_all(&self.bytes)?;
            match may_replace() {
                true => into.rename(&unfinished, &self.name),
                false => Err(io::ErrorKind::Interrupted.into()),
            }
        };
        write().inspect_err(|_| {
            let _ = into.remove_file(&unfinished);
        })
    }
}

impl SavedState<'_> {
    /// Saves the state in a directory, which is created if missing.
    ///
    /// # Errors
    ///
    /// The file cannot be written; the previous one stays.
    pub fn save(&self, directory: &Path) -> Result<(), StateError> {
        let put = |encoded: EncodedState| encoded.put(&TrustedDirectory::make(directory)?, || true);
        self.encoded().and_then(put).map_err(|source| {
            let path = directory.join(TOTALS.0);
            StateError::Save { path, source }
        })
    }

    /// Name and content of the file of totals.
    pub(crate) fn encoded(&self) -> io::Result<EncodedState> {
        TOTALS.encoded(self)
    }
}

impl SavedState<'static> {
    /// The state saved in a directory; None if there is none.
    ///
    /// # Errors
    ///
    /// The saved state cannot be resumed: totals start from zero.
    pub fn load(directory: &Path, boot: &str) -> Result<Option<Self>, StateError> {
        TOTALS.load(directory, |state: &Self| state.boot == boot)
    }
}

impl StateFile {
    /// The file for a value.
    pub(crate) fn encoded(self, value: &impl Serialize) -> io::Result<EncodedState> {
        let mut bytes = Vec::new();
        write(value, &mut bytes)?;
        if bytes.len() as u64 > MAX_SIZE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let name = self.0.to_owned();
        Ok(EncodedState { name, bytes })
    }

    /// The value saved in a directory; None if there is none.
    ///
    /// # Errors
    ///
    /// The value is of another boot, or cannot be read.
    pub fn load<T: DeserializeOwned>(
        self,
        directory: &Path,
        is_of_boot: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, StateError> {
        let path = directory.join(self.0);
        let failed = |source| StateError::Read {
            path: path.clone(),
            source,
        };
        let Some(bytes) = read(directory, self.0).map_err(failed)? else {
            return Ok(None);
        };
        let known = known_format();
        let bytes = match bytes {
            Content::Foreign => return Err(StateError::Foreign(path)),
            Content::Format(found) if found != known => {
                return Err(StateError::Format { path, found, known });
            }
            Content::Format(_) => return Err(StateError::Damaged(path)),
            Content::Whole(bytes) => bytes,
        };
        let value = parse(&bytes).ok_or_else(|| StateError::Damaged(path.clone()))?;
        match is_of_boot(&value) {
            true => Ok(Some(value)),
            false => Err(StateError::OtherBoot(path)),
        }
    }
}

/// Writes a file: its first line, the value, and the checksum.
pub(super) fn write(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    let mut out = ChecksumWriter {
        out,
        sum: XxHash64::with_seed(0),
        failed: None,
    };
    writeln!(out, "{MARK}{}", known_format())?;
    let written = postcard::to_io(value, &mut out).map(drop);
    let ChecksumWriter { out, sum, failed } = out;
    // postcard's own error does not have the writer's error.
    if let Err(error) = written {
        return Err(failed.unwrap_or_else(|| io::Error::other(error)));
    }
    out.write_all(&sum.finish().to_le_bytes())?;
    out.flush()
}

/// The value of a file's bytes; None if the bytes were changed.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (bytes, sum) = bytes.split_last_chunk::<CHECKSUM>()?;
    if XxHash64::oneshot(0, bytes) != u64::from_le_bytes(*sum) {
        return None;
    }
    let line = bytes.iter().position(|byte| *byte == b'\n')?;
    let (value, rest) = postcard::take_from_bytes(&bytes[line + 1..]).ok()?;
    rest.is_empty().then_some(value)
}

/// Content of a file, by its first line. Only files in the current format are read to their end.
enum Content {
    /// Not a state.
    Foreign,
    /// Another format, or a file that is too large.
    Format(String),
    Whole(Vec<u8>),
}

/// The content of a file; None if there is no such file.
fn read(directory: &Path, name: &str) -> io::Result<Option<Content>> {
    let trusted = match TrustedDirectory::open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let Some(mut file) = trusted.existing(name)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    (&mut file).take(MAX_LINE as u64).read_to_end(&mut bytes)?;
    let Some(format) = format(&bytes).map(str::to_owned) else {
        return Ok(Some(Content::Foreign));
    };
    if format != known_format() || file.metadata()?.len() > MAX_SIZE {
        return Ok(Some(Content::Format(format)));
    }
    file.take(MAX_SIZE).read_to_end(&mut bytes)?;
    Ok(Some(Content::Whole(bytes)))
}

/// The format, with the layout of the maps: rows of another layout mean something else.
pub(super) fn known_format() -> String {
    format!("{FORMAT}-{}", layout())
}

/// The format in the first line; None if the file is no state.
fn format(bytes: &[u8]) -> Option<&str> {
    let mut lines = bytes[..bytes.len().min(MAX_LINE)].split(|byte| *byte == b'\n');
    let line = str::from_utf8(lines.next()?).ok()?;
    let format = line.strip_prefix(MARK)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    format.bytes().all(plain).then_some(format)
}

/// A writer that computes the checksum of its bytes.
struct ChecksumWriter<W> {
    out: W,
    sum: XxHash64,
    /// The last error of `out`.
    failed: Option<io::Error>,
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        let written = self.keep_error(written)?;
        self.sum.write(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.keep_error(flushed)
    }
}

impl<W> ChecksumWriter<W> {
    /// Keeps the writer's error for the caller.
    fn keep_error<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = error.kind();
            self.failed = Some(error);
            kind.into()
        })
    }
}
