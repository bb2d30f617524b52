//! Running the flush program: it closes the open slice of a CPU before the maps are read.

use probe_common::{FLUSH_BUSY, FlushMode};

use super::{Object, Session, SessionError, object::FLUSH};

/// A flush interrupts program `sched_exit` rarely, and then an interrupt that outlasts a try hardly
/// ever.
const FLUSH_TRIES: u32 = 10_000;

impl Session {
    /// Runs the flush program on a CPU. From then on the first `events` slots behind the fixed
    /// groups' hold the counters of the rotated group `live`.
    pub(crate) fn flush(
        &mut self,
        cpu: u32,
        mode: FlushMode,
        (live, events): (u64, u64),
    ) -> Result<(), SessionError> {
        let turns = self.config.plan.turns(cpu).nth(1).is_some();
        let ran = run(&mut self.object, cpu, mode, (live, events), turns)?;
        self.flushes += u64::from(ran);
        Ok(())
    }
}

/// The same without a session; `turns` is whether groups take turns there. False where the CPU went
/// offline: it runs nobody's task then, so there is nothing to charge.
pub(super) fn run(
    object: &mut Object,
    cpu: u32,
    mode: FlushMode,
    (live, events): (u64, u64),
    turns: bool,
) -> Result<bool, SessionError> {
    let place = object.maps.counters.place(cpu)?;
    let arguments = [mode as u64, live, events, turns.into(), place.into()];
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
