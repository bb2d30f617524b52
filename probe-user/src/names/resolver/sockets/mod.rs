//! Runtimes that answer on a unix socket.

mod cri;
mod engine;
pub(super) mod messages;

use std::{error::Error, io, path::Path};

pub(super) use self::{cri::Cri, engine::Engine};
use super::source::Fault;

/// Whether nothing exists at this path. An inaccessible directory does not count: the connect will
/// fail with a fault.
fn is_absent(socket: &Path) -> bool {
    let metadata = socket.symlink_metadata();
    metadata.is_err_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    })
}

/// The innermost cause: the kernel's error.
fn fault(error: &(dyn Error + 'static)) -> Fault {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    Fault::Failed(cause.to_string())
}
