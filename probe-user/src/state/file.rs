//! The file of a state: a line that says what it is, the state, and a checksum.
//!
//! It is written beside the old one and takes its place as a whole: a process that is killed leaves
//! the old one or the new one. It is not flushed to the disk: what the kernel has not written when
//! the machine goes down is of no use to the next boot, whose counters begin anew.

use std::{
    hash::Hasher as _,
    io::{self, Read as _, Write},
    path::Path,
};

use serde::{Serialize, de::DeserializeOwned};
use twox_hash::XxHash64;

use super::{State, StateError};
use crate::{snapshot::layout, sys::own_files::OwnDirectory};

/// A file of a state's directory, by name. It holds one value, for this boot of the machine.
#[derive(Clone, Copy, Debug)]
pub struct StateFile(pub &'static str);

/// That of totals.
const TOTALS: StateFile = StateFile("totals");

/// To be raised with every change of what a state holds: its bytes do not tell what they are.
const FORMAT: u32 = 5;

/// How the first line begins; the format follows.
const MARK: &str = "pmuscope totals, format ";

/// The longest first line.
const LINE: usize = 64;

/// Bytes of the checksum at the end.
const SUM: usize = 8;

/// The largest file, in bytes: 100,000 containers take less.
const MOST: u64 = 128 << 20;

/// A file, as it is to be.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Encoded {
    /// Writes it in place of the one before, which stays where that fails, and where `still` says
    /// no once it is written.
    pub(crate) fn put(&self, into: &OwnDirectory, still: impl FnOnce() -> bool) -> io::Result<()> {
        // While it is written.
        let unfinished = format!("{}.new", self.name);
        let write = || {
            let mut file = into.file(&unfinished)?;
            file.set_len(0)?;
            file.write_all(&self.bytes)?;
            match still() {
                true => into.rename(&unfinished, &self.name),
                false => Err(io::ErrorKind::Interrupted.into()),
            }
        };
        write().inspect_err(|_| {
            let _ = into.remove_file(&unfinished);
        })
    }
}

impl State<'_> {
    /// Saves it in a directory, which is made where it is missing.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written; the one that was saved before stays.
    pub fn save(&self, directory: &Path) -> Result<(), StateError> {
        let put = |encoded: Encoded| encoded.put(&OwnDirectory::make(directory)?, || true);
        self.encoded().and_then(put).map_err(|source| {
            let path = directory.join(TOTALS.0);
            StateError::Save { path, source }
        })
    }

    /// The file.
    pub(crate) fn encoded(&self) -> io::Result<Encoded> {
        TOTALS.encoded(self)
    }
}

impl State<'static> {
    /// The state that was saved in a directory; None where none was.
    ///
    /// # Errors
    ///
    /// Where there is one that totals cannot go on with: they begin anew.
    pub fn load(directory: &Path, boot: &str) -> Result<Option<Self>, StateError> {
        TOTALS.load(directory, |state: &Self| state.boot == boot)
    }
}

impl StateFile {
    /// The content of the file for a value.
    pub(crate) fn encoded(self, value: &impl Serialize) -> io::Result<Encoded> {
        let mut bytes = Vec::new();
        write(value, &mut bytes)?;
        if bytes.len() as u64 > MOST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let name = self.0.to_owned();
        Ok(Encoded { name, bytes })
    }

    /// The value that was saved in a directory; None where none was.
    ///
    /// # Errors
    ///
    /// Where there is one that is not of this boot, or cannot be read.
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

pub(super) fn write(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    let mut out = Summed {
        out,
        sum: XxHash64::with_seed(0),
        failed: None,
    };
    writeln!(out, "{MARK}{}", known_format())?;
    let written = postcard::to_io(value, &mut out).map(drop);
    let Summed { out, sum, failed } = out;
    // postcard does not say what the writer said.
    if let Err(error) = written {
        return Err(failed.unwrap_or_else(|| io::Error::other(error)));
    }
    out.write_all(&sum.finish().to_le_bytes())?;
    out.flush()
}

/// None where the bytes are not those that were written.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (bytes, sum) = bytes.split_last_chunk::<SUM>()?;
    if XxHash64::oneshot(0, bytes) != u64::from_le_bytes(*sum) {
        return None;
    }
    let line = bytes.iter().position(|byte| *byte == b'\n')?;
    let (value, rest) = postcard::take_from_bytes(&bytes[line + 1..]).ok()?;
    rest.is_empty().then_some(value)
}

/// What a file holds, by its first line. More is read only of files in this format.
enum Content {
    /// It is none of ours.
    Foreign,
    /// It has another format, or is larger than any of ours.
    Format(String),
    Whole(Vec<u8>),
}

/// The content of a file; None where there is no such file.
fn read(directory: &Path, name: &str) -> io::Result<Option<Content>> {
    let own = match OwnDirectory::open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let Some(mut file) = own.existing(name)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    (&mut file).take(LINE as u64).read_to_end(&mut bytes)?;
    let Some(format) = format(&bytes).map(str::to_owned) else {
        return Ok(Some(Content::Foreign));
    };
    if format != known_format() || file.metadata()?.len() > MOST {
        return Ok(Some(Content::Format(format)));
    }
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(Some(Content::Whole(bytes)))
}

/// The format, with the layout of the maps: rows of another one mean something else.
pub(super) fn known_format() -> String {
    format!("{FORMAT}-{}", layout())
}

/// The format that the first line tells; None where it is none of ours.
fn format(bytes: &[u8]) -> Option<&str> {
    let line = bytes[..bytes.len().min(LINE)].split(|byte| *byte == b'\n');
    let line = str::from_utf8(line.into_iter().next()?).ok()?;
    let format = line.strip_prefix(MARK)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    format.bytes().all(plain).then_some(format)
}

/// A writer that sums up what goes through it.
struct Summed<W> {
    out: W,
    sum: XxHash64,
    failed: Option<io::Error>,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        let written = self.noted(written)?;
        self.sum.write(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.noted(flushed)
    }
}

impl<W> Summed<W> {
    fn noted<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = error.kind();
            self.failed = Some(error);
            kind.into()
        })
    }
}
