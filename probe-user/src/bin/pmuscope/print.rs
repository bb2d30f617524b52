//! Output of the verbs that print once and end.

use std::{
    env, fmt,
    io::{self, ErrorKind, Write as _},
};

use anyhow::{Context as _, Result};
use probe_user::emit::printable::printable_lines;

use crate::logging;

/// Output formats of a verb that prints once and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// Writes a note to standard error, unless only errors are shown.
pub(crate) fn note(line: fmt::Arguments<'_>) {
    if !logging::is_quiet() {
        error(line);
    }
}

/// Writes an error to standard error; a failure is ignored.
pub(crate) fn error(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "pmuscope: {line}");
}

/// Writes to standard output. A reader that closed it (`| head`) is no error.
pub(crate) fn to_stdout(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<()> {
    let mut text = Vec::new();
    write(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    match io::stdout().write_all(printable_lines(&text).as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// The command line of this process, for the metadata of files.
pub(crate) fn command_line() -> Vec<String> {
    let words = env::args_os();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}
