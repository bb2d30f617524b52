//! Programs at functions of user space (uprobes).

use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya::programs::{
    UProbe,
    uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
};

use super::{EbpfPrograms, Uprobe, attempts, find, label, refused};
use crate::{session::SessionError, sys::roots::Roots};

impl EbpfPrograms {
    /// Attaches a program to functions of a file, by their offsets, for all processes that execute
    /// the file. The program gets the cookie beside the offset. If one function fails, none is
    /// attached.
    pub(crate) fn attach_uprobes(
        &mut self,
        program: Uprobe,
        file: BorrowedFd<'_>,
        points: impl IntoIterator<Item = (u64, u64)>,
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
        let mut attached = Vec::new();
        for (offset, cookie) in points {
            let point = UProbeAttachPoint {
                location: UProbeAttachLocation::AbsoluteOffset(offset),
                cookie: Some(cookie),
            };
            match loaded.attach(point, &path, UProbeScope::AllProcesses) {
                Ok(link) => attached.push(link),
                Err(error) => {
                    for link in attached {
                        // The error of the attachment is the one to report.
                        let _detached = loaded.detach(link);
                    }
                    return Err(refused(error));
                }
            }
        }
        Ok(())
    }
}
