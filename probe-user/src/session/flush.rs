//! Runs the flush program, which closes the open slice of a CPU before the maps are read.

use probe_common::{FLUSH_BUSY, FlushMode};

use super::{EbpfObject, SessionError, object::FLUSH};

/// Number of tries before a flush fails. A try fails if the flush interrupted the program
/// `sched_exit`, which is rare. The program is hardly ever interrupted for longer than one try.
const FLUSH_TRIES: u32 = 10_000;

/// Runs the flush program on a CPU. `multiplexed` says whether groups are multiplexed on it.
/// `(running, events)` are the multiplexed group that runs after the flush and the number of its
/// events. Their counters are in the slots after those of the fixed groups. Returns false if the
/// CPU is offline, and so runs no task to charge.
pub(super) fn run(
    object: &mut EbpfObject,
    cpu: u32,
    mode: FlushMode,
    (running, events): (u64, u64),
    multiplexed: bool,
) -> Result<bool, SessionError> {
    let index = object.maps.counters.index_of(cpu)?;
    let arguments = [
        mode as u64,
        running,
        events,
        multiplexed.into(),
        index.into(),
    ];
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
