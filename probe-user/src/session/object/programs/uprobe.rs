//! Programs at functions of user space (uprobes).

use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya::programs::{
    UProbe,
    uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
};

use super::{EbpfPrograms, Uprobe, attempts, find, label, refused};
use crate::{session::SessionError, sys::roots::Roots};

impl EbpfPrograms {
    /// Attaches a program to `offset` in a file, for all processes that execute the file. The
    /// program gets `cookie`.
    pub(crate) fn attach_uprobe(
        &mut self,
        program: Uprobe,
        file: BorrowedFd<'_>,
        offset: u64,
        cookie: u64,
    ) -> Result<(), SessionError> {
        let refused = |error| refused(label(program.name), &error);
        let loaded: &mut UProbe = find(&mut self.ebpf, program.name)?;
        if loaded.fd().is_err() {
            attempts::load(|| loaded.load()).map_err(refused)?;
        }
        // The path names the descriptor, since the file's name may be in another mount namespace.
        let path = Roots::default()
            .proc
            .join(format!("self/fd/{}", file.as_raw_fd()));
        let point = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(offset),
            cookie: Some(cookie),
        };
        let attached = loaded.attach(point, path, UProbeScope::AllProcesses);
        attached.map(drop).map_err(refused)
    }
}
