//! Reading the account of a CPU that samples. While the program serves a chunk the account is
//! between two states: the bytes of the chunk are in it, those that it will skip are not. So a CPU
//! is looked at while it is stopped, when all that it wrote is handed over and no other chunk can
//! come.

use probe_common::spe::SpeCpu;

use super::idle::IdleRows;
use crate::session::{Drained, Object, SessionError, spe::SpeCpuEvent};

/// A CPU that samples.
pub(super) trait Sampling {
    type Event;

    /// Stops, and has all that was written served before it returns.
    fn stop(&mut self) -> Result<Drained, SessionError>;
    /// What the programs say of the CPU.
    fn account(&self) -> Result<SpeCpu, SessionError>;
    /// Frees rows while nothing is added to them.
    fn free_rows(&mut self) -> Result<(), SessionError>;
    /// Samples on.
    fn go_on(&mut self, period: Option<u64>) -> Result<(), SessionError>;
    fn event(&mut self) -> &mut Self::Event;
}

/// A CPU's event and the map of accounts.
pub(super) struct Account<'a> {
    pub(super) event: &'a mut SpeCpuEvent,
    pub(super) object: &'a Object,
    pub(super) idle: &'a mut IdleRows,
}

impl Sampling for Account<'_> {
    type Event = SpeCpuEvent;

    fn stop(&mut self) -> Result<Drained, SessionError> {
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

    fn go_on(&mut self, period: Option<u64>) -> Result<(), SessionError> {
        Ok(self.event.go_on(period)?)
    }

    fn event(&mut self) -> &mut SpeCpuEvent {
        self.event
    }
}

/// The account of a CPU between two chunks; it samples on after, with `period` where one is given.
/// It is made to hand over once more while `again` says so. None where its event is dead.
pub(super) fn look<S: Sampling>(
    cpu: &mut S,
    period: Option<u64>,
    mut again: impl FnMut(&mut S::Event, &SpeCpu) -> bool,
) -> Result<Option<SpeCpu>, SessionError> {
    if cpu.stop()? == Drained::Dead {
        return Ok(None);
    }
    let mut account = cpu.account()?;
    while again(cpu.event(), &account) {
        cpu.go_on(None)?;
        cpu.stop()?;
        account = cpu.account()?;
    }
    cpu.free_rows()?;
    cpu.go_on(period)?;
    Ok(Some(account))
}

/// What each decoded byte stands for, of those that a CPU wrote between two looks.
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

    /// A CPU that writes, and whose program serves chunks between any two calls.
    struct Fake {
        event: (),
        sampling: bool,
        account: RefCell<SpeCpu>,
        /// Bytes that the chunk that is served will skip.
        serving: Cell<Option<u64>>,
        /// The chunks to come, bytes and those skipped; between two calls a chunk begins or ends,
        /// or both.
        chunks: RefCell<Vec<(u64, u64, bool)>>,
    }

    impl Fake {
        fn end_chunk(&self) {
            if let Some(skipped) = self.serving.take() {
                self.account.borrow_mut().skipped += skipped;
            }
        }

        /// As in probe-ebpf/src/spe/chunk.rs: bytes first, what was skipped at the end.
        fn time_passes(&self) {
            self.end_chunk();
            let next = self.sampling.then(|| self.chunks.borrow_mut().pop());
            if let Some((bytes, skipped, ends)) = next.flatten() {
                self.account.borrow_mut().bytes += bytes;
                self.serving.set(Some(skipped.min(bytes)));
                if ends {
                    self.end_chunk();
                }
            }
        }
    }

    impl Sampling for Fake {
        type Event = ();

        fn stop(&mut self) -> Result<Drained, SessionError> {
            self.time_passes();
            self.sampling = false;
            self.end_chunk();
            Ok(Drained::Yes)
        }

        fn account(&self) -> Result<SpeCpu, SessionError> {
            self.time_passes();
            Ok(*self.account.borrow())
        }

        fn free_rows(&mut self) -> Result<(), SessionError> {
            assert!(!self.sampling && self.serving.get().is_none());
            self.time_passes();
            Ok(())
        }

        fn go_on(&mut self, _: Option<u64>) -> Result<(), SessionError> {
            self.sampling = true;
            self.time_passes();
            Ok(())
        }

        fn event(&mut self) -> &mut () {
            &mut self.event
        }
    }

    proptest! {
        /// Whatever chunk is being served when a CPU is looked at: what is decoded between two
        /// looks is what was written less what was skipped.
        #[test]
        fn a_look_falls_between_two_chunks(
            chunks in prop::collection::vec((0..1000_u64, 0..1000_u64, any::<bool>()), 0..200),
            again in prop::collection::vec(0..4_u32, 1..40),
        ) {
            let mut cpu = Fake {
                event: (),
                sampling: true,
                account: RefCell::default(),
                serving: Cell::new(None),
                chunks: RefCell::new(chunks),
            };
            let mut before = SpeCpu::default();
            for mut times in again {
                let again = |(): &mut (), _: &SpeCpu| {
                    times = times.saturating_sub(1);
                    times > 0
                };
                let now = look(&mut cpu, None, again).unwrap().unwrap();
                prop_assert!(now.skipped - before.skipped <= now.bytes - before.bytes);
                prop_assert!(weight(&before, &now) >= 1.0);
                before = now;
            }
        }
    }
}
