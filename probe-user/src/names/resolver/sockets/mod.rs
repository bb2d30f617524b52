//! Runtimes that answer on a unix socket.

mod cri;
mod engine;
pub(super) mod messages;

use std::{error::Error, io, path::Path};

pub(super) use self::{cri::Cri, engine::Engine};
use super::source::Fault;

/// Whether there is anything at this path; a directory that must not be looked into is a fault of
/// the connect after it.
fn is_absent(socket: &Path) -> bool {
    let found = socket.symlink_metadata();
    found.is_err_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    })
}

/// The innermost cause, which is what the kernel said.
fn fault(error: &(dyn Error + 'static)) -> Fault {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    Fault::Failed(cause.to_string())
}
