//! Memory shared with perf events (`perf_event_open(2)`): a control page followed by a ring of
//! records. [`SharedMapping`] also maps BPF maps.

use std::{
    ffi::c_void,
    io,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping, unmapped on drop.
pub(crate) struct SharedMapping {
    start: NonNull<u8>,
    pub(crate) size: usize,
}

// SAFETY: the mapping belongs to this value alone; the kernel does not care which thread reads it.
unsafe impl Send for SharedMapping {}

impl SharedMapping {
    /// Maps memory of a perf event, or an array map of the BPF programs.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        size: usize,
        offset: u64,
        protection: ProtFlags,
    ) -> io::Result<Self> {
        let null = std::ptr::null_mut();
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let start = unsafe { mmap(null, size, protection, MapFlags::SHARED, fd, offset) }?;
        Self::at(start, size)
    }

    fn at(start: *mut c_void, size: usize) -> io::Result<Self> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, size })
    }

    /// The 64-bit word at index `at`, which the kernel may write meanwhile.
    pub(crate) fn word(&self, at: usize) -> u64 {
        assert!(at < self.size / 8, "a word of the mapping");
        let words = self.start.cast::<u64>();
        // SAFETY: a word inside the mapping, which is aligned to pages; both sides access words as
        // a whole.
        unsafe { AtomicU64::from_ptr(words.as_ptr().add(at)) }.load(Ordering::Acquire)
    }

    /// Copies from the ring that begins after the first `skip` bytes of the mapping: appends `size`
    /// bytes from `position` on to `into`. Positions wrap.
    ///
    /// # Safety
    ///
    /// Nobody may write these bytes meanwhile.
    pub(crate) unsafe fn copy(&self, skip: usize, position: u64, size: u64, into: &mut Vec<u8>) {
        let capacity = (self.size - skip) as u64;
        let size = size.min(capacity);
        // Both numbers are at most the capacity, which is a usize.
        #[expect(clippy::cast_possible_truncation, reason = "see above")]
        let (at, size) = ((position % capacity) as usize, size as usize);
        let first = size.min(self.size - skip - at);
        // SAFETY: both parts lie inside the mapping; the caller ensures that nobody writes them.
        unsafe {
            let ring = self.start.as_ptr().add(skip);
            into.extend_from_slice(std::slice::from_raw_parts(ring.add(at), first));
            into.extend_from_slice(std::slice::from_raw_parts(ring, size - first));
        }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, and no reference into it outlives this. The call fails only
        // for addresses that are not mapped.
        let _unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// The control page of an event and its ring of records. The kernel does not overwrite unread
/// records.
pub(crate) struct RecordRing {
    mapping: SharedMapping,
    /// Size of the control page in bytes.
    page: usize,
    /// Position after the last record that was read.
    tail: u64,
}

/// Address of a field of the control page.
type ControlField = fn(*mut perf_event_mmap_page) -> *mut u64;

impl RecordRing {
    /// Maps the control page and the ring. `size` is the ring's size in bytes: a power of two of
    /// pages, or 0 for no ring.
    pub(crate) fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let read_write = ProtFlags::READ | ProtFlags::WRITE;
        Ok(Self {
            mapping: SharedMapping::new(event, page + size, 0, read_write)?,
            page,
            tail: 0,
        })
    }

    /// Maps the AUX buffer of the same event after the ring. Without `PROT_WRITE` the kernel
    /// overwrites unread bytes.
    pub(crate) fn map_aux(
        &self,
        event: BorrowedFd<'_>,
        size: usize,
        protection: ProtFlags,
    ) -> io::Result<SharedMapping> {
        let (control, offset) = (self.control(), self.mapping.size as u64);
        // SAFETY: the control page; the kernel reads these two fields at the next mmap only.
        unsafe {
            (&raw mut (*control).aux_offset).write_volatile(offset);
            (&raw mut (*control).aux_size).write_volatile(size as u64);
        }
        SharedMapping::new(event, size, offset, protection)
    }

    pub(crate) fn control(&self) -> *mut perf_event_mmap_page {
        self.mapping.start.cast().as_ptr()
    }

    pub(crate) fn load(&self, field: ControlField) -> u64 {
        // SAFETY: an aligned word of the control page, which both sides access as a whole.
        unsafe { AtomicU64::from_ptr(field(self.control())) }.load(Ordering::Acquire)
    }

    pub(crate) fn store(&self, field: ControlField, value: u64) {
        // SAFETY: as in `load`.
        unsafe { AtomicU64::from_ptr(field(self.control())) }.store(value, Ordering::Release);
    }

    /// Position after the last record that the kernel has written.
    pub(crate) fn head(&self) -> u64 {
        // SAFETY: only the address of a field is taken.
        self.load(|page| unsafe { &raw mut (*page).data_head })
    }

    /// Position after the last record that was taken.
    pub(crate) const fn tail(&self) -> u64 {
        self.tail
    }

    /// Moves all records from the ring to `records`. Returns the number of bytes that were free in
    /// the ring.
    pub(crate) fn take(&mut self, records: &mut Vec<u8>) -> u64 {
        self.take_to(self.head(), records)
    }

    /// Like [`Self::take`], but only up to `head`, which is not beyond [`Self::head`].
    pub(crate) fn take_to(&mut self, head: u64, records: &mut Vec<u8>) -> u64 {
        let size = head.wrapping_sub(self.tail);
        let capacity = self.size() as u64;
        // SAFETY: the kernel does not write between tail and head.
        unsafe { self.mapping.copy(self.page, self.tail, size, records) };
        self.tail = head;
        // SAFETY: only the address of a field is taken.
        self.store(|page| unsafe { &raw mut (*page).data_tail }, head);
        capacity - size.min(capacity)
    }

    /// Size of the ring in bytes.
    pub(crate) const fn size(&self) -> usize {
        self.mapping.size - self.page
    }
}

/// Rings in plain memory, and functions that write into them in place of the kernel.
#[cfg(test)]
pub(crate) mod fake {
    use std::mem::ManuallyDrop;

    use rustix::mm::mmap_anonymous;

    use super::*;

    pub(crate) fn mapping(size: usize) -> SharedMapping {
        let read_write = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: the kernel chooses the address.
        let start = unsafe { mmap_anonymous(null, size, read_write, MapFlags::SHARED) };
        SharedMapping::at(start.unwrap(), size).unwrap()
    }

    pub(crate) fn records(size: usize) -> RecordRing {
        let page = rustix::param::page_size();
        RecordRing {
            mapping: mapping(page + size),
            page,
            tail: 0,
        }
    }

    impl SharedMapping {
        /// Writes bytes into a ring; false if they do not fit.
        pub(crate) fn put(&self, skip: usize, head: &mut u64, tail: u64, bytes: &[u8]) -> bool {
            let capacity = (self.size - skip) as u64;
            if *head - tail + bytes.len() as u64 > capacity {
                return false;
            }
            for byte in bytes {
                let at = skip + usize::try_from(*head % capacity).unwrap();
                // SAFETY: inside the mapping, between head and tail.
                unsafe { self.start.as_ptr().add(at).write(*byte) };
                *head += 1;
            }
            true
        }
    }

    impl RecordRing {
        pub(crate) fn push(&self, record: &[u8]) -> bool {
            // SAFETY: only the address of a field is taken.
            let head = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).data_head };
            let mut at = self.load(head);
            let written = self.mapping.put(self.page, &mut at, self.tail, record);
            self.store(head, at);
            written
        }

        /// A writer in place of the kernel. Use it only while the ring exists.
        pub(crate) fn writer(&self) -> RingWriter {
            let SharedMapping { start, size } = self.mapping;
            RingWriter(ManuallyDrop::new(Self {
                mapping: SharedMapping { start, size },
                page: self.page,
                tail: 0,
            }))
        }
    }

    /// Writes into a ring that is read elsewhere.
    pub(crate) struct RingWriter(ManuallyDrop<RecordRing>);

    // SAFETY: words are accessed as a whole, and tests write from one thread.
    unsafe impl Sync for RingWriter {}

    impl RingWriter {
        pub(crate) fn push(&self, record: &[u8]) -> bool {
            // SAFETY: only the address of a field is taken.
            let head = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).data_head };
            // SAFETY: only the address of a field is taken.
            let tail = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).data_tail };
            let RecordRing { mapping, page, .. } = &*self.0;
            let mut at = self.0.load(head);
            let written = mapping.put(*page, &mut at, self.0.load(tail), record);
            self.0.store(head, at);
            written
        }
    }
}
