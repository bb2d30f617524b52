//! The memory shared with the kernel: control page, ring of records, and what has the samples: an
//! AUX area, or a ring of its own (`perf_event_open(2)`).

use std::{io, os::fd::AsFd, sync::atomic::Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::ProtFlags;

use super::clock::TickClock;
use crate::sys::ring::{Mapping, Records};

/// Which of the two mappings could not be made.
#[derive(Debug)]
pub(super) enum MapError {
    Ring(io::Error),
    Aux(io::Error),
}

/// What the kernel puts samples into.
enum Samples {
    /// An AUX area, and the end of its bytes that were read.
    Aux(Mapping, u64),
    /// A ring of records.
    Records(Records),
}

/// A ring of records about tasks, and what has the samples; both in normal mode: the kernel does
/// not overwrite unread bytes.
pub(super) struct Ring {
    records: Records,
    samples: Samples,
}

impl Ring {
    /// Maps the ring of an event; sizes in bytes, powers of two and whole pages.
    pub(super) fn map(fd: impl AsFd, ring: usize, aux: usize) -> Result<Self, MapError> {
        let records = Records::map(fd.as_fd(), ring).map_err(MapError::Ring)?;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let aux = records
            .map_aux(fd.as_fd(), aux, both)
            .map_err(MapError::Aux)?;
        Ok(Self {
            records,
            samples: Samples::Aux(aux, 0),
        })
    }

    /// Maps two rings of this size: of the event that follows tasks, and of one that samples.
    pub(super) fn pair(tasks: impl AsFd, samples: impl AsFd, size: usize) -> io::Result<Self> {
        Ok(Self {
            records: Records::map(tasks.as_fd(), size)?,
            samples: Samples::Records(Records::map(samples.as_fd(), size)?),
        })
    }

    /// Whether samples are records of events.
    pub(super) const fn is_of_events(&self) -> bool {
        matches!(self.samples, Samples::Records(_))
    }

    /// The end of the samples that the kernel has written, in bytes. Records about AUX bytes were
    /// written before them.
    pub(super) fn samples_head(&self) -> u64 {
        // SAFETY: only the address of a field is taken.
        let head = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).aux_head };
        match &self.samples {
            Samples::Aux(..) => self.records.load(head),
            Samples::Records(records) => records.head(),
        }
    }

    /// Takes all records out of the ring, into `records`. True where the ring was so full that
    /// records may have been lost without a record of the loss yet.
    pub(super) fn take(&mut self, records: &mut Vec<u8>) -> bool {
        // The largest record has 64 KiB less one byte, but those here (a mapped file's name) 4 KiB.
        let large = 4608.min(self.records.size() as u64 / 2);
        self.records.take(records) < large
    }

    /// The end of the samples that were read, in bytes.
    pub(super) const fn samples_tail(&self) -> u64 {
        match &self.samples {
            Samples::Aux(_, tail) => *tail,
            Samples::Records(records) => records.tail(),
        }
    }

    /// Takes samples up to `to`, which is not beyond [`Self::samples_head`], and frees their place.
    pub(super) fn take_samples(&mut self, to: u64, bytes: &mut Vec<u8>) {
        match &mut self.samples {
            Samples::Aux(aux, tail) => {
                let size = to.wrapping_sub(*tail);
                // SAFETY: the kernel does not write between tail and head.
                unsafe { aux.copy(0, *tail, size, bytes) };
                *tail = to;
                // SAFETY: only the address of a field is taken.
                let tail = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).aux_tail };
                self.records.store(tail, to);
            }
            Samples::Records(records) => {
                records.take_to(to, bytes);
            }
        }
    }

    /// Size of what has the samples, in bytes.
    pub(super) const fn samples_size(&self) -> usize {
        match &self.samples {
            Samples::Aux(aux, _) => aux.size,
            Samples::Records(records) => records.size(),
        }
    }

    /// How ticks become ns; none where the kernel does not say (`cap_user_time_zero`).
    pub(super) fn ticks(&self) -> Option<TickClock> {
        let control = self.records.control();
        // SAFETY: fields of the control page, which the kernel changes under the sequence lock
        // only.
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
    use super::*;
    use crate::sys::ring::fake;

    pub(in super::super) fn ring(size: usize, aux: usize) -> Ring {
        Ring {
            records: fake::records(size),
            samples: Samples::Aux(fake::mapping(aux), 0),
        }
    }

    pub(in super::super) fn pair(size: usize) -> Ring {
        Ring {
            records: fake::records(size),
            samples: Samples::Records(fake::records(size)),
        }
    }

    impl Ring {
        pub(in super::super) fn push(&self, record: &[u8]) -> bool {
            self.records.push(record)
        }

        pub(in super::super) fn push_aux(&self, bytes: &[u8]) -> bool {
            // SAFETY: addresses of fields.
            let head = |page: *mut perf_event_mmap_page| unsafe { &raw mut (*page).aux_head };
            match &self.samples {
                Samples::Aux(aux, tail) => {
                    let mut at = self.records.load(head);
                    let there = aux.put(0, &mut at, *tail, bytes);
                    self.records.store(head, at);
                    there
                }
                Samples::Records(records) => records.push(bytes),
            }
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
        fn nothing_is_lost_over_wraps(
            pieces in prop::collection::vec((1..900_usize, 1..900_usize, any::<bool>()), 1..80),
        ) {
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
    fn a_ring_that_is_nearly_full_says_so() {
        let mut ring = fake::ring(16384, 4096);
        let mut bytes = Vec::new();
        assert!(ring.push(&[1; 8000]));
        assert!(!ring.take(&mut bytes));
        assert!(ring.push(&[1; 12000]));
        assert!(ring.take(&mut bytes));
    }
}
