//! Output of the commands that print once and end.

use std::{
    env, fmt,
    io::{self, ErrorKind, Write as _},
};

use anyhow::{Context as _, Result};
use probe_user::emit::printable::printable_lines;

/// Formats of such a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON object.
    Json,
}

/// Writes a line to standard error, where somebody reads it.
pub(crate) fn note(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "pmuscope: {line}");
}

/// Writes to standard output; a reader that has seen enough (`| head`) is no error.
pub(crate) fn to_stdout(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<()> {
    let mut text = Vec::new();
    write(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    match io::stdout().write_all(printable_lines(&text).as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// How this program was called, for the metadata of what it writes.
pub(crate) fn called() -> Vec<String> {
    let words = env::args_os();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}
