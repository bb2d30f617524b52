//! Memory shared with the kernel's perf events: a control page with a ring of records behind it,
//! and mappings in general (`perf_event_open(2)`), also of maps.

use std::{
    ffi::c_void,
    io,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping, unmapped at the end.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    pub(crate) size: usize,
}

// SAFETY: the mapping belongs to this value alone; the kernel does not care which thread reads it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Of an event, or of an array of programs.
    pub(crate) fn new(
        of: BorrowedFd<'_>,
        size: usize,
        offset: u64,
        protection: ProtFlags,
    ) -> io::Result<Self> {
        let null = std::ptr::null_mut();
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let start = unsafe { mmap(null, size, protection, MapFlags::SHARED, of, offset) }?;
        Self::at(start, size)
    }

    fn at(start: *mut c_void, size: usize) -> io::Result<Self> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, size })
    }

    /// The 64-bit word of this number, which others may write.
    pub(crate) fn word(&self, at: usize) -> u64 {
        assert!(at < self.size / 8, "a word of the mapping");
        let words = self.start.cast::<u64>();
        // SAFETY: a word inside the mapping, which is aligned to pages; both sides access words as
        // a whole.
        unsafe { AtomicU64::from_ptr(words.as_ptr().add(at)) }.load(Ordering::Acquire)
    }

    /// Appends `size` bytes from `place` on, modulo the mapping from `skip` on.
    ///
    /// # Safety
    ///
    /// Nobody writes those bytes meanwhile.
    pub(crate) unsafe fn copy(&self, skip: usize, place: u64, size: u64, into: &mut Vec<u8>) {
        let area = (self.size - skip) as u64;
        let size = size.min(area);
        // Both are below the size of the area, which is a usize.
        #[expect(clippy::cast_possible_truncation, reason = "see above")]
        let (at, size) = ((place % area) as usize, size as usize);
        let first = size.min(self.size - skip - at);
        // SAFETY: both parts lie inside the mapping; the caller vouches for their quiet.
        unsafe {
            let area = self.start.as_ptr().add(skip);
            into.extend_from_slice(std::slice::from_raw_parts(area.add(at), first));
            into.extend_from_slice(std::slice::from_raw_parts(area, size - first));
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, and no reference into it outlives this. It fails only for
        // addresses that are not mapped.
        let _unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// The control page of an event and its ring of records, which the kernel stops filling where we
/// have not read.
pub(crate) struct Records {
    mapping: Mapping,
    page: usize,
    /// Up to where records were read.
    tail: u64,
}

/// The address of a word of the control page.
type Word = fn(*mut perf_event_mmap_page) -> *mut u64;

impl Records {
    /// Maps both; `size` is that of the ring, in bytes: a power of two of pages, or 0 for none.
    pub(crate) fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        Ok(Self {
            mapping: Mapping::new(event, page + size, 0, both)?,
            page,
            tail: 0,
        })
    }

    /// Maps the AUX area of the same event behind the ring. Without `PROT_WRITE` the kernel
    /// overwrites it for ever and waits for no reader.
    pub(crate) fn map_aux(
        &self,
        event: BorrowedFd<'_>,
        size: usize,
        protection: ProtFlags,
    ) -> io::Result<Mapping> {
        let (control, offset) = (self.control(), self.mapping.size as u64);
        // SAFETY: the control page; the kernel reads these two fields at the next mmap only.
        unsafe {
            (&raw mut (*control).aux_offset).write_volatile(offset);
            (&raw mut (*control).aux_size).write_volatile(size as u64);
        }
        Mapping::new(event, size, offset, protection)
    }

    pub(crate) fn control(&self) -> *mut perf_event_mmap_page {
        self.mapping.start.cast().as_ptr()
    }

    pub(crate) fn load(&self, word: Word) -> u64 {
        // SAFETY: an aligned word of the control page, which both sides access as a whole.
        unsafe { AtomicU64::from_ptr(word(self.control())) }.load(Ordering::Acquire)
    }

    pub(crate) fn store(&self, word: Word, value: u64) {
        // SAFETY: as in `load`.
        unsafe { AtomicU64::from_ptr(word(self.control())) }.store(value, Ordering::Release);
    }

    /// The end of the records that the kernel has written.
    pub(crate) fn head(&self) -> u64 {
        // SAFETY: only the address of a field is taken.
        self.load(|page| unsafe { &raw mut (*page).data_head })
    }

    /// The end of the records that were taken.
    pub(crate) const fn tail(&self) -> u64 {
        self.tail
    }

    /// Takes all records out of the ring, into `records`; the number of bytes that were free in it.
    pub(crate) fn take(&mut self, records: &mut Vec<u8>) -> u64 {
        self.take_to(self.head(), records)
    }

    /// The same of those up to `head`, which is not beyond [`Self::head`].
    pub(crate) fn take_to(&mut self, head: u64, records: &mut Vec<u8>) -> u64 {
        let size = head.wrapping_sub(self.tail);
        let area = (self.mapping.size - self.page) as u64;
        // SAFETY: the kernel does not write between tail and head.
        unsafe { self.mapping.copy(self.page, self.tail, size, records) };
        self.tail = head;
        // SAFETY: only the address of a field is taken.
        self.store(|page| unsafe { &raw mut (*page).data_tail }, head);
        area - size.min(area)
    }

    /// Size of the ring in bytes.
    pub(crate) const fn size(&self) -> usize {
        self.mapping.size - self.page
    }
}

/// Rings in plain memory, and the kernel's side of them.
#[cfg(test)]
pub(crate) mod fake {
    use std::mem::ManuallyDrop;

    use rustix::mm::mmap_anonymous;

    use super::*;

    pub(crate) fn mapping(size: usize) -> Mapping {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: the kernel chooses the address.
        let start = unsafe { mmap_anonymous(null, size, both, MapFlags::SHARED) };
        Mapping::at(start.unwrap(), size).unwrap()
    }

    pub(crate) fn records(size: usize) -> Records {
        let page = rustix::param::page_size();
        Records {
            mapping: mapping(page + size),
            page,
            tail: 0,
        }
    }

    impl Mapping {
        /// Bytes into an area that wraps; false where its reader has left no room.
        pub(crate) fn put(&self, skip: usize, head: &mut u64, tail: u64, bytes: &[u8]) -> bool {
            let area = (self.size - skip) as u64;
            if *head - tail + bytes.len() as u64 > area {
                return false;
            }
            for byte in bytes {
                let at = skip + usize::try_from(*head % area).unwrap();
                // SAFETY: inside the mapping, between head and tail.
                unsafe { self.start.as_ptr().add(at).write(*byte) };
                *head += 1;
            }
            true
        }
    }

    impl Records {
        pub(crate) fn push(&self, record: &[u8]) -> bool {
            // SAFETY: addresses of fields.
            let head = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).data_head };
            let mut at = self.load(head);
            let there = self.mapping.put(self.page, &mut at, self.tail, record);
            self.store(head, at);
            there
        }

        /// The kernel's side alone, as long as the ring is there.
        pub(crate) fn writer(&self) -> Writer {
            let Mapping { start, size } = self.mapping;
            Writer(ManuallyDrop::new(Self {
                mapping: Mapping { start, size },
                page: self.page,
                tail: 0,
            }))
        }
    }

    /// Writes into a ring that is read elsewhere.
    pub(crate) struct Writer(ManuallyDrop<Records>);

    // SAFETY: words are accessed as a whole, and tests write from one thread.
    unsafe impl Sync for Writer {}

    impl Writer {
        pub(crate) fn push(&self, record: &[u8]) -> bool {
            // SAFETY: addresses of fields.
            let head = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).data_head };
            // SAFETY: likewise.
            let tail = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).data_tail };
            let Records { mapping, page, .. } = &*self.0;
            let mut at = self.0.load(head);
            let there = mapping.put(*page, &mut at, self.0.load(tail), record);
            self.0.store(head, at);
            there
        }
    }
}
