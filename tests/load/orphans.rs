//! Orphans: processes without a parent, whose exit wakes init.

use std::{
    io::{self, Error, Read as _},
    time::Duration,
};

use crate::burn;

/// Orphans run one after another, each for `each`.
pub(crate) fn orphans(count: u64, each: Duration) -> io::Result<()> {
    for _ in 0..count {
        let (mut ended, running) = io::pipe()?;
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => return Err(Error::last_os_error()),
            0 => {
                // SAFETY: as above.
                let orphan = unsafe { libc::fork() };
                if orphan == 0 {
                    burn(each);
                }
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(orphan < 0)) }
            }
            parent => {
                drop(running);
                let mut status = 0;
                // SAFETY: waits for our child.
                if unsafe { libc::waitpid(parent, &raw mut status, 0) } != parent || status != 0 {
                    return Err(Error::other("the orphan's parent failed"));
                }
                // The orphan keeps the other end open until it exits.
                ended.read_to_end(&mut Vec::new())?;
            }
        }
    }
    Ok(())
}
