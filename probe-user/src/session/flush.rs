//! Running the flush program: it closes the open slice of a CPU before the maps are read.

use aya::programs::{ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _};
use probe_common::{FLUSH_BUSY, FlushMode};

use super::{Session, SessionError, chain, program};

/// A flush interrupts program `sched_exit` rarely, and then an interrupt that outlasts a try hardly ever.
const FLUSH_TRIES: u32 = 10_000;

impl Session {
    /// Runs the flush program on a CPU. From then on the first `events` slots behind the fixed groups'
    /// hold the counters of the rotated group `live`.
    pub(crate) fn flush(
        &mut self,
        cpu: u32,
        mode: FlushMode,
        (live, events): (u64, u64),
    ) -> Result<(), SessionError> {
        let flush: &mut RawTracePoint = program(&mut self.ebpf, "flush")?;
        for _ in 0..FLUSH_TRIES {
            let mut options = RawTracePointRunOptions::new();
            options.args[..3].copy_from_slice(&[mode as u64, live, events]);
            options.cpu = Some(cpu);
            return match flush.test_run(options) {
                Ok(ran) if ran.return_value == FLUSH_BUSY => {
                    std::thread::yield_now();
                    continue;
                }
                Ok(_) => {
                    self.flushes += 1;
                    Ok(())
                }
                // The CPU went offline: it runs nobody's task, so there is nothing to charge.
                Err(ProgramError::SyscallError(error))
                    if error.io_error.raw_os_error() == Some(libc::ENXIO) =>
                {
                    Ok(())
                }
                Err(error) => Err(SessionError::Bpf {
                    what: format!("a run of program flush on CPU {cpu}"),
                    reason: chain(&error),
                }),
            };
        }
        Err(SessionError::Busy {
            cpu,
            tries: FLUSH_TRIES,
        })
    }
}
