//! Runs the flush program, which closes the open slice of a CPU before the maps are read.

use probe_common::{FLUSH_BUSY, FlushMode};

use super::{EbpfObject, Session, SessionError, object::FLUSH};

/// Tries before a flush fails. A flush rarely interrupts program `sched_exit`, and the program is
/// hardly ever interrupted for longer than one try.
const FLUSH_TRIES: u32 = 10_000;

impl Session {
    /// Runs the flush program on a CPU. From then on the first `events` slots after those of the
    /// fixed groups hold the counters of the rotated group `live`.
    pub(crate) fn flush(
        &mut self,
        cpu: u32,
        mode: FlushMode,
        (live, events): (u64, u64),
    ) -> Result<(), SessionError> {
        let multiplexed = self.config.plan.multiplexed_groups(cpu).nth(1).is_some();
        let ran = run(&mut self.object, cpu, mode, (live, events), multiplexed)?;
        self.flushes += u64::from(ran);
        Ok(())
    }
}

/// [`Session::flush`] without a session; `multiplexed` says whether groups are multiplexed on this
/// CPU. Returns false if the CPU is offline, and so runs no task to charge.
pub(super) fn run(
    object: &mut EbpfObject,
    cpu: u32,
    mode: FlushMode,
    (live, events): (u64, u64),
    multiplexed: bool,
) -> Result<bool, SessionError> {
    let index = object.maps.counters.index_of(cpu)?;
    let arguments = [mode as u64, live, events, multiplexed.into(), index.into()];
    for _ in 0..FLUSH_TRIES {
        match object.programs.run(FLUSH, Some(cpu), &arguments)? {
            Some(FLUSH_BUSY) => std::thread::yield_now(),
            ran => return Ok(ran.is_some()),
        }
    }
    Err(SessionError::Busy {
        cpu,
        tries: FLUSH_TRIES,
    })
}
