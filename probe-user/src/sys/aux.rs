//! An AUX buffer that the kernel overwrites for ever: user space maps it, so that it exists, and
//! never reads it.

use std::{
    ffi::c_void,
    io,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
    ptr,
};

use perf_event_open_sys::{bindings::perf_event_mmap_page, ioctls};
use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    param::page_size,
};

/// The mapped buffer of an event.
pub(crate) struct AuxBuffer {
    control: *mut c_void,
    aux: *mut c_void,
    size: usize,
}

// SAFETY: the mappings belong to this value alone, and nothing reads through them.
unsafe impl Send for AuxBuffer {}

impl AuxBuffer {
    /// Makes a buffer of `size` bytes, a power of two of pages, for a disabled event. Mapped without
    /// `PROT_WRITE` the kernel never waits for a reader; without data pages it writes no record
    /// of what it did there and wakes nobody.
    pub(crate) fn new(event: BorrowedFd<'_>, size: usize) -> io::Result<Self> {
        let page = page_size();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let control = unsafe { mmap(ptr::null_mut(), page, both, MapFlags::SHARED, event, 0) }?;
        let mut buffer = Self {
            control,
            aux: ptr::null_mut(),
            size,
        };
        // SAFETY: the control page is mapped writable and holds this structure.
        unsafe {
            let page_of = control.cast::<perf_event_mmap_page>();
            (&raw mut (*page_of).aux_offset).write_volatile(page as u64);
            (&raw mut (*page_of).aux_size).write_volatile(size as u64);
        }
        // SAFETY: as above, at the offset that the control page names.
        buffer.aux = unsafe {
            mmap(
                ptr::null_mut(),
                size,
                ProtFlags::READ,
                MapFlags::SHARED,
                event,
                page as u64,
            )
        }?;
        Ok(buffer)
    }
}

impl Drop for AuxBuffer {
    fn drop(&mut self) {
        // SAFETY: the mappings made above, which nothing refers to.
        unsafe {
            if !self.aux.is_null() {
                let _ = munmap(self.aux, self.size);
            }
            let _ = munmap(self.control, page_size());
        }
    }
}

/// The kernel's own number of an event.
pub(crate) fn id(event: &OwnedFd) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the descriptor is a perf event's; the kernel writes one word.
    result(unsafe { ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Stops an event: what it has in its buffer is handed over.
pub(crate) fn disable(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is a perf event's; the argument is plain.
    result(unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) })
}

/// Changes the period of an event that does not run.
pub(crate) fn set_period(event: &OwnedFd, period: u64) -> io::Result<()> {
    // The argument is the address of the number.
    let address = ptr::from_ref(&period) as u64;
    // SAFETY: the descriptor is a perf event's; the kernel reads one word at the address.
    result(unsafe { ioctls::PERIOD(event.as_raw_fd(), address) })
}

fn result(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
