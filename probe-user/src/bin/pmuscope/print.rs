//! Output of the commands that print once and end.

use std::{
    env,
    io::{self, ErrorKind, Write as _},
};

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

/// Writes to standard output; a reader that has seen enough (`| head`) is no error.
pub(crate) fn to_stdout(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let mut text = Vec::new();
    write(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    match io::stdout().write_all(printable_lines(&text).as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// How this program was called, for the metadata of what it writes.
pub(crate) fn called() -> Vec<String> {
    let words = env::args_os();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}
