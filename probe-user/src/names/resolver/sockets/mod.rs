//! Runtimes that answer on a unix socket.

mod cri;
mod engine;
pub(super) mod messages;

use std::{error::Error, io, path::Path};

pub(super) use self::{cri::Cri, engine::Engine};
use super::source::Fault;

/// Whether nothing exists at this path. False if that is unknown because a directory is
/// inaccessible: connecting then fails and is reported.
fn is_absent(socket: &Path) -> bool {
    let metadata = socket.symlink_metadata();
    metadata.is_err_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    })
}

/// A fault with the innermost cause of an error, such as the kernel's.
fn fault(error: &(dyn Error + 'static)) -> Fault {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    Fault::Failed(cause.to_string())
}
