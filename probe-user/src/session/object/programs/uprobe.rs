//! Programs at functions of user space.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya::programs::{
    UProbe,
    uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
};

use super::{Programs, Uprobe, find, of, refused};
use crate::{
    session::SessionError,
    sys::{roots::Roots, signals::uninterrupted},
};

impl Programs {
    /// Has a program run, in all processes, at a place of a file that they execute; it finds
    /// `cookie` there. `offset` is in the file.
    pub(crate) fn attach_uprobe(
        &mut self,
        program: Uprobe,
        file: BorrowedFd<'_>,
        offset: u64,
        cookie: u64,
    ) -> Result<(), SessionError> {
        let refused = |error| refused(of(program.name), &error);
        let loaded: &mut UProbe = find(&mut self.ebpf, program.name)?;
        if loaded.fd().is_err() {
            uninterrupted(|| loaded.load()).map_err(refused)?;
        }
        // By its descriptor: its name may be in another mount namespace.
        let path = format!("self/fd/{}", file.as_raw_fd());
        let path = Roots::default().proc.join(path);
        let point = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(offset),
            cookie: Some(cookie),
        };
        let attached = loaded.attach(point, path, UProbeScope::AllProcesses);
        attached.map(drop).map_err(refused)
    }
}
