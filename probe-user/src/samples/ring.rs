//! The memory of a buffer that the kernel shares: control page, record ring, and the samples in an
//! AUX area or in a second ring (`perf_event_open(2)`).

use std::{io, os::fd::AsFd, sync::atomic::Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::ProtFlags;

use super::clock::TickClock;
use crate::sys::ring::{RecordRing, SharedMapping};

/// The mapping that failed.
#[derive(Debug)]
pub(super) enum MapError {
    Ring(io::Error),
    Aux(io::Error),
}

/// Where the kernel writes samples.
enum SampleArea {
    /// An AUX area, and the position after the last byte that was read.
    Aux(SharedMapping, u64),
    /// A ring of records.
    Records(RecordRing),
}

/// A ring of records about tasks, and the samples. Both are in normal mode: the kernel does not
/// overwrite unread bytes.
pub(super) struct BufferRings {
    records: RecordRing,
    samples: SampleArea,
}

impl BufferRings {
    /// Maps the ring and the AUX area of an event. Sizes are in bytes: powers of two, and whole
    /// pages.
    pub(super) fn map(fd: impl AsFd, ring: usize, aux: usize) -> Result<Self, MapError> {
        let records = RecordRing::map(fd.as_fd(), ring).map_err(MapError::Ring)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let aux = records
            .map_aux(fd.as_fd(), aux, protection)
            .map_err(MapError::Aux)?;
        Ok(Self {
            records,
            samples: SampleArea::Aux(aux, 0),
        })
    }

    /// Maps two rings of `size` bytes: one of the event that follows tasks, and one of a sampling
    /// event.
    pub(super) fn pair(tasks: impl AsFd, samples: impl AsFd, size: usize) -> io::Result<Self> {
        Ok(Self {
            records: RecordRing::map(tasks.as_fd(), size)?,
            samples: SampleArea::Records(RecordRing::map(samples.as_fd(), size)?),
        })
    }

    /// Whether samples are records in a ring, not bytes in an AUX area.
    pub(super) const fn has_sample_ring(&self) -> bool {
        matches!(self.samples, SampleArea::Records(_))
    }

    /// Position after the last sample byte that the kernel has written. The kernel advances it only
    /// after it has written the record that announces AUX bytes.
    pub(super) fn samples_head(&self) -> u64 {
        // SAFETY: only the address of a field is taken.
        let head = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).aux_head };
        match &self.samples {
            SampleArea::Aux(..) => self.records.load(head),
            SampleArea::Records(records) => records.head(),
        }
    }

    /// Moves all records of the ring into `records`. True if the ring was so full that records may
    /// have been lost and their loss is not reported yet.
    pub(super) fn take(&mut self, records: &mut Vec<u8>) -> bool {
        // A record can have up to 64 KiB - 1. The largest record of these events has a mapped
        // file's path, of up to 4 KiB.
        let largest_record = 4608.min(self.records.size() as u64 / 2);
        self.records.take(records) < largest_record
    }

    /// Position after the last sample byte that was read.
    pub(super) const fn samples_tail(&self) -> u64 {
        match &self.samples {
            SampleArea::Aux(_, tail) => *tail,
            SampleArea::Records(records) => records.tail(),
        }
    }

    /// Moves samples up to `to`, at most [`Self::samples_head`], into `bytes`, and frees their
    /// space.
    pub(super) fn take_samples(&mut self, to: u64, bytes: &mut Vec<u8>) {
        match &mut self.samples {
            SampleArea::Aux(aux, tail) => {
                let size = to.wrapping_sub(*tail);
                // SAFETY: the kernel does not write between tail and head.
                unsafe { aux.copy(0, *tail, size, bytes) };
                *tail = to;
                // SAFETY: only the address of a field is taken.
                let tail = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).aux_tail };
                self.records.store(tail, to);
            }
            SampleArea::Records(records) => {
                records.take_to(to, bytes);
            }
        }
    }

    /// Size of the AUX area or the samples' ring, in bytes.
    pub(super) const fn samples_size(&self) -> usize {
        match &self.samples {
            SampleArea::Aux(aux, _) => aux.size,
            SampleArea::Records(records) => records.size(),
        }
    }

    /// Conversion of ticks to ns; None without `cap_user_time_zero`.
    pub(super) fn ticks(&self) -> Option<TickClock> {
        let control = self.records.control();
        // SAFETY: these are fields of the control page; the kernel changes them only under the
        // sequence lock.
        unsafe {
            loop {
                let lock = || (&raw const (*control).lock).read_volatile();
                let before = lock();
                std::sync::atomic::fence(Ordering::Acquire);
                let has_time_zero = (*control)
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
                    return has_time_zero.then_some(clock);
                }
            }
        }
    }
}

/// Rings in plain memory, and functions that write into them in place of the kernel.
#[cfg(test)]
pub(super) mod fake {
    use super::*;
    use crate::sys::ring::fake;

    pub(in super::super) fn ring(size: usize, aux: usize) -> BufferRings {
        BufferRings {
            records: fake::records(size),
            samples: SampleArea::Aux(fake::mapping(aux), 0),
        }
    }

    pub(in super::super) fn pair(size: usize) -> BufferRings {
        BufferRings {
            records: fake::records(size),
            samples: SampleArea::Records(fake::records(size)),
        }
    }

    impl BufferRings {
        pub(in super::super) fn push(&self, record: &[u8]) -> bool {
            self.records.push(record)
        }

        pub(in super::super) fn writer(&self) -> fake::RingWriter {
            self.records.writer()
        }

        pub(in super::super) fn push_aux(&self, bytes: &[u8]) -> bool {
            // SAFETY: only the address of a field is taken.
            let head = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).aux_head };
            match &self.samples {
                SampleArea::Aux(aux, tail) => {
                    let mut at = self.records.load(head);
                    let fits = aux.put(0, &mut at, *tail, bytes);
                    self.records.store(head, at);
                    fits
                }
                SampleArea::Records(records) => records.push(bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// All bytes are read once, in order, over many wraps of both areas.
        #[test]
        fn no_byte_is_lost_when_rings_wrap(
            // Sizes of a record and of AUX bytes to write, and whether to read all afterwards.
            steps in prop::collection::vec((1..900_usize, 1..900_usize, any::<bool>()), 1..80),
        ) {
            let mut ring = fake::ring(4096, 4096);
            let (mut sent, mut sent_aux) = (Vec::new(), Vec::new());
            let (mut got, mut got_aux) = (Vec::new(), Vec::new());
            for (count, (size, aux, read)) in steps.into_iter().enumerate() {
                let byte = u8::try_from(count % 251).unwrap();
                if ring.push(&vec![byte; size]) {
                    sent.extend(vec![byte; size]);
                }
                if ring.push_aux(&vec![!byte; aux]) {
                    sent_aux.extend(vec![!byte; aux]);
                }
                if read {
                    ring.take(&mut got);
                    ring.take_samples(ring.samples_head(), &mut got_aux);
                }
            }
            ring.take(&mut got);
            ring.take_samples(ring.samples_head(), &mut got_aux);
            prop_assert_eq!(got, sent);
            prop_assert_eq!(got_aux, sent_aux);
        }
    }

    #[test]
    fn taking_from_a_nearly_full_ring_reports_a_possible_loss() {
        let mut ring = fake::ring(16384, 4096);
        let mut bytes = Vec::new();
        assert!(ring.push(&[1; 8000]));
        assert!(!ring.take(&mut bytes));
        assert!(ring.push(&[1; 12000]));
        assert!(ring.take(&mut bytes));
    }
}
