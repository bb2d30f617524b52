//! The memory shared with the kernel: control page, ring of records, AUX area (`perf_event_open(2)`).

use std::{
    ffi::c_void,
    io,
    os::fd::{AsFd, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::clock::TickClock;

/// A shared mapping, unmapped at the end.
struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, size: usize, offset: u64) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                size,
                protection,
                MapFlags::SHARED,
                fd,
                offset,
            )
        }?;
        Self::at(start, size)
    }

    fn at(start: *mut c_void, size: usize) -> io::Result<Self> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, size })
    }

    /// Appends `size` bytes from `place` on, modulo the mapping from `skip` on.
    ///
    /// # Safety
    ///
    /// Nobody writes those bytes meanwhile.
    unsafe fn copy(&self, skip: usize, place: u64, size: u64, into: &mut Vec<u8>) {
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

/// Which of the two mappings could not be made.
#[derive(Debug)]
pub(super) enum MapError {
    Ring(io::Error),
    Aux(io::Error),
}

/// A ring with its AUX area, in normal mode: the kernel stops where we have not read.
pub(super) struct Ring {
    /// Control page, then the records.
    records: Mapping,
    aux: Mapping,
    page: usize,
    /// Up to where records were read.
    data_tail: u64,
    /// Up to where AUX bytes were read.
    aux_tail: u64,
}

impl Ring {
    /// Maps the ring of an event; sizes in bytes, powers of two and whole pages.
    pub(super) fn map(fd: impl AsFd, ring: usize, aux: usize) -> Result<Self, MapError> {
        let page = rustix::param::page_size();
        let records = Mapping::new(fd.as_fd(), page + ring, 0).map_err(MapError::Ring)?;
        let control = records.start.cast::<perf_event_mmap_page>().as_ptr();
        let offset = (page + ring) as u64;
        // SAFETY: the control page; the kernel reads these two fields at the next mmap only.
        unsafe {
            (*control).aux_offset = offset;
            (*control).aux_size = aux as u64;
        }
        let aux = Mapping::new(fd.as_fd(), aux, offset).map_err(MapError::Aux)?;
        Ok(Self {
            records,
            aux,
            page,
            data_tail: 0,
            aux_tail: 0,
        })
    }

    fn control(&self) -> *mut perf_event_mmap_page {
        self.records.start.cast().as_ptr()
    }

    fn load(&self, field: fn(*mut perf_event_mmap_page) -> *mut u64) -> u64 {
        // SAFETY: an aligned word of the control page, which both sides access as a whole.
        unsafe { AtomicU64::from_ptr(field(self.control())) }.load(Ordering::Acquire)
    }

    fn store(&self, field: fn(*mut perf_event_mmap_page) -> *mut u64, value: u64) {
        // SAFETY: as in `load`.
        unsafe { AtomicU64::from_ptr(field(self.control())) }.store(value, Ordering::Release);
    }

    /// Up to where the kernel has filled the AUX area. Records about those bytes were written before.
    pub(super) fn aux_head(&self) -> u64 {
        // SAFETY: only the address of a field is taken.
        self.load(|page| unsafe { &raw mut (*page).aux_head })
    }

    /// Takes all records out of the ring, into `records`. True where the ring was so full that
    /// records may have been lost without a word so far.
    pub(super) fn take(&mut self, records: &mut Vec<u8>) -> bool {
        // SAFETY: only the address of a field is taken.
        let head = self.load(|page| unsafe { &raw mut (*page).data_head });
        let size = head.wrapping_sub(self.data_tail);
        let area = (self.records.size - self.page) as u64;
        // SAFETY: the kernel does not write between tail and head.
        unsafe {
            self.records.copy(self.page, self.data_tail, size, records);
        }
        self.data_tail = head;
        // SAFETY: only the address of a field is taken.
        self.store(|page| unsafe { &raw mut (*page).data_tail }, head);
        // The largest record has 64 KiB less one byte, but those here (a mapped file's name) 4 KiB.
        area - size.min(area) < (4608).min(area / 2)
    }

    /// Up to where the AUX area was read.
    pub(super) const fn aux_tail(&self) -> u64 {
        self.aux_tail
    }

    /// Takes AUX bytes up to `to`, which is not beyond [`Self::aux_head`], and frees their place.
    pub(super) fn take_aux(&mut self, to: u64, bytes: &mut Vec<u8>) {
        let size = to.wrapping_sub(self.aux_tail);
        // SAFETY: the kernel does not write between tail and head.
        unsafe {
            self.aux.copy(0, self.aux_tail, size, bytes);
        }
        self.aux_tail = to;
        // SAFETY: only the address of a field is taken.
        self.store(|page| unsafe { &raw mut (*page).aux_tail }, to);
    }

    /// Size of the AUX area in bytes.
    pub(super) const fn aux_size(&self) -> usize {
        self.aux.size
    }

    /// How ticks become ns; none where the kernel does not say (`cap_user_time_zero`).
    pub(super) fn ticks(&self) -> Option<TickClock> {
        let control = self.control();
        // SAFETY: fields of the control page, which the kernel changes under the sequence lock only.
        unsafe {
            loop {
                let lock = || (&raw const (*control).lock).read_volatile();
                let before = lock();
                std::sync::atomic::fence(Ordering::Acquire);
                let known = (*control)
                    .__bindgen_anon_1
                    .__bindgen_anon_1
                    .cap_user_time_zero()
                    != 0;
                let clock = TickClock {
                    zero: (&raw const (*control).time_zero).read_volatile(),
                    mult: (&raw const (*control).time_mult).read_volatile(),
                    shift: (&raw const (*control).time_shift).read_volatile(),
                };
                std::sync::atomic::fence(Ordering::Acquire);
                if before & 1 == 0 && before == lock() {
                    return known.then_some(clock);
                }
            }
        }
    }
}

/// A ring in plain memory, and the kernel's side of it.
#[cfg(test)]
pub(super) mod fake {
    use rustix::mm::mmap_anonymous;

    use super::*;

    pub(in super::super) fn ring(size: usize, aux: usize) -> Ring {
        let map = |size| {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the kernel chooses the address.
            let start =
                unsafe { mmap_anonymous(std::ptr::null_mut(), size, protection, MapFlags::SHARED) };
            Mapping::at(start.unwrap(), size).unwrap()
        };
        let page = rustix::param::page_size();
        Ring {
            records: map(page + size),
            aux: map(aux),
            page,
            data_tail: 0,
            aux_tail: 0,
        }
    }

    /// Bytes into an area that wraps; false where its reader has left no room.
    fn put(mapping: &Mapping, skip: usize, head: &mut u64, tail: u64, bytes: &[u8]) -> bool {
        let area = (mapping.size - skip) as u64;
        if *head - tail + bytes.len() as u64 > area {
            return false;
        }
        for byte in bytes {
            let at = skip + usize::try_from(*head % area).unwrap();
            // SAFETY: inside the mapping, between head and tail.
            unsafe { mapping.start.as_ptr().add(at).write(*byte) };
            *head += 1;
        }
        true
    }

    impl Ring {
        pub(in super::super) fn push(&self, record: &[u8]) -> bool {
            // SAFETY: addresses of fields.
            let head = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).data_head };
            let mut at = self.load(head);
            let there = put(&self.records, self.page, &mut at, self.data_tail, record);
            self.store(head, at);
            there
        }

        pub(in super::super) fn push_aux(&self, bytes: &[u8]) -> bool {
            // SAFETY: addresses of fields.
            let head = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).aux_head };
            let mut at = self.load(head);
            let there = put(&self.aux, 0, &mut at, self.aux_tail, bytes);
            self.store(head, at);
            there
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is put in comes out once, in order, over many turns of both areas.
        #[test]
        fn nothing_is_lost_over_wraps(pieces in prop::collection::vec((1..900_usize, 1..900_usize, any::<bool>()), 1..80)) {
            let mut ring = fake::ring(4096, 4096);
            let (mut sent, mut sent_aux) = (Vec::new(), Vec::new());
            let (mut got, mut got_aux) = (Vec::new(), Vec::new());
            for (count, (size, aux, read)) in pieces.into_iter().enumerate() {
                let byte = u8::try_from(count % 251).unwrap();
                if ring.push(&vec![byte; size]) {
                    sent.extend(vec![byte; size]);
                }
                if ring.push_aux(&vec![!byte; aux]) {
                    sent_aux.extend(vec![!byte; aux]);
                }
                if read {
                    ring.take(&mut got);
                    ring.take_aux(ring.aux_head(), &mut got_aux);
                }
            }
            ring.take(&mut got);
            ring.take_aux(ring.aux_head(), &mut got_aux);
            prop_assert_eq!(got, sent);
            prop_assert_eq!(got_aux, sent_aux);
        }
    }

    #[test]
    fn a_ring_that_is_nearly_full_says_so() {
        let mut ring = fake::ring(16384, 4096);
        let mut bytes = Vec::new();
        assert!(ring.push(&[1; 8000]));
        assert!(!ring.take(&mut bytes));
        assert!(ring.push(&[1; 12000]));
        assert!(ring.take(&mut bytes));
    }
}
