//! Drains a CPU that samples, and reads its consistent counts. While the program handles a chunk
//! the counts are inconsistent: they include the chunk's bytes, but not yet the bytes that it will
//! skip. So the CPU is stopped first: then all its chunks are handled, and no new chunk can come.

use probe_common::spe::SpeCpu;

use super::idle::IdleSpeRows;
use crate::session::{DrainOutcome, EbpfObject, SessionError, spe::SpeCpuEvent};

/// A CPU that samples and can be drained.
pub(super) trait DrainableCpu {
    type Event;

    /// Stops sampling. All written chunks are handled before it returns.
    fn stop(&mut self) -> Result<DrainOutcome, SessionError>;
    /// The programs' counts of the CPU.
    fn account(&self) -> Result<SpeCpu, SessionError>;
    /// Frees idle rows. Called while the CPU is stopped, so that nothing is added to them.
    fn free_rows(&mut self) -> Result<(), SessionError>;
    /// Resumes sampling, with another period if it is given.
    fn resume(&mut self, period: Option<u64>) -> Result<(), SessionError>;
    fn event(&mut self) -> &mut Self::Event;
}

/// A CPU's event, the object with the map of counts, and the idle rows to free.
pub(super) struct SpeCpuDrain<'a> {
    pub(super) event: &'a mut SpeCpuEvent,
    pub(super) object: &'a EbpfObject,
    pub(super) idle: &'a mut IdleSpeRows,
}

impl DrainableCpu for SpeCpuDrain<'_> {
    type Event = SpeCpuEvent;

    fn stop(&mut self) -> Result<DrainOutcome, SessionError> {
        Ok(self.event.stop()?)
    }

    fn account(&self) -> Result<SpeCpu, SessionError> {
        let accounts = self.object.maps.spe_cpu.get(0)?;
        let account = accounts.get(&self.event.cpu);
        Ok(account.copied().unwrap_or_default())
    }

    fn free_rows(&mut self) -> Result<(), SessionError> {
        self.idle.free(self.object, self.event.cpu)
    }

    fn resume(&mut self, period: Option<u64>) -> Result<(), SessionError> {
        Ok(self.event.resume(period)?)
    }

    fn event(&mut self) -> &mut SpeCpuEvent {
        self.event
    }
}

/// Drains a CPU and returns its counts. Repeats the drain as long as `retry` returns true, then
/// resumes sampling, with `period` if it is given. None if the CPU's event is dead.
pub(super) fn drain_cpu<S: DrainableCpu>(
    cpu: &mut S,
    period: Option<u64>,
    mut retry: impl FnMut(&mut S::Event, &SpeCpu) -> bool,
) -> Result<Option<SpeCpu>, SessionError> {
    if cpu.stop()? == DrainOutcome::Dead {
        return Ok(None);
    }
    let mut account = cpu.account()?;
    while retry(cpu.event(), &account) {
        cpu.resume(None)?;
        cpu.stop()?;
        account = cpu.account()?;
    }
    cpu.free_rows()?;
    cpu.resume(period)?;
    Ok(Some(account))
}

/// Written bytes for each decoded byte of a CPU, between two drains.
#[expect(clippy::cast_precision_loss, reason = "bytes of a window")]
pub(super) fn weight(before: &SpeCpu, now: &SpeCpu) -> f64 {
    let decoded = (now.bytes - before.bytes) - (now.skipped - before.skipped);
    let written = now.written().saturating_sub(before.written()) as f64;
    if decoded > 0 {
        written / decoded as f64
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use proptest::prelude::*;

    use super::*;

    /// A CPU that writes and handles chunks between any two calls.
    struct FakeCpu {
        event: (),
        sampling: bool,
        account: RefCell<SpeCpu>,
        /// Bytes that the chunk in progress will skip; None between chunks.
        skip_at_end: Cell<Option<u64>>,
        /// Future chunks: bytes, skipped bytes, and whether the chunk ends at once. Between two
        /// calls a chunk starts or ends, or both.
        chunks: RefCell<Vec<(u64, u64, bool)>>,
    }

    impl FakeCpu {
        fn end_chunk(&self) {
            if let Some(skipped) = self.skip_at_end.take() {
                self.account.borrow_mut().skipped += skipped;
            }
        }

        /// As in probe-ebpf/src/spe/chunk.rs: adds bytes first, and skipped bytes at the end.
        fn time_passes(&self) {
            self.end_chunk();
            let next = self.sampling.then(|| self.chunks.borrow_mut().pop());
            if let Some((bytes, skipped, ends)) = next.flatten() {
                self.account.borrow_mut().bytes += bytes;
                self.skip_at_end.set(Some(skipped.min(bytes)));
                if ends {
                    self.end_chunk();
                }
            }
        }
    }

    impl DrainableCpu for FakeCpu {
        type Event = ();

        fn stop(&mut self) -> Result<DrainOutcome, SessionError> {
            self.time_passes();
            self.sampling = false;
            self.end_chunk();
            Ok(DrainOutcome::Drained)
        }

        fn account(&self) -> Result<SpeCpu, SessionError> {
            self.time_passes();
            Ok(*self.account.borrow())
        }

        fn free_rows(&mut self) -> Result<(), SessionError> {
            assert!(!self.sampling && self.skip_at_end.get().is_none());
            self.time_passes();
            Ok(())
        }

        fn resume(&mut self, _: Option<u64>) -> Result<(), SessionError> {
            self.sampling = true;
            self.time_passes();
            Ok(())
        }

        fn event(&mut self) -> &mut () {
            &mut self.event
        }
    }

    proptest! {
        /// Counts are consistent whichever chunk a drain interrupts: between two drains a CPU never
        /// skips more bytes than it reads.
        #[test]
        fn a_drain_falls_between_two_chunks(
            chunks in prop::collection::vec((0..1000_u64, 0..1000_u64, any::<bool>()), 0..200),
            retries in prop::collection::vec(0..4_u32, 1..40),
        ) {
            let mut cpu = FakeCpu {
                event: (),
                sampling: true,
                account: RefCell::default(),
                skip_at_end: Cell::new(None),
                chunks: RefCell::new(chunks),
            };
            let mut before = SpeCpu::default();
            for mut times in retries {
                let retry = |(): &mut (), _: &SpeCpu| {
                    times = times.saturating_sub(1);
                    times > 0
                };
                let now = drain_cpu(&mut cpu, None, retry).unwrap().unwrap();
                prop_assert!(now.skipped - before.skipped <= now.bytes - before.bytes);
                prop_assert!(weight(&before, &now) >= 1.0);
                before = now;
            }
        }
    }
}
