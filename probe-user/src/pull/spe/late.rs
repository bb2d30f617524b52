//! What the program at the end of chunks was not called for: a kprobe's program is left out while its CPU
//! is in a bpf(2) call that reads or changes a map, or runs another such program.
//!
//! A chunk that was missed lies in the buffer until it is overwritten, and the next call reads it too. So
//! a drain that shows less than the kernel's log of the buffer is repeated; what is gone then is lost, and
//! the log tells how many bytes that are.

use std::collections::btree_map::Entry;

use aya::Ebpf;
use probe_common::spe::SpeCpu;

use super::{SpeTotals, cpus};
use crate::{
    load::{Drained, LoadError, Spe, SpeHook, spe::SpeCpuEvent},
    sys::aux::Logged,
};

/// The log of one CPU's buffers since the session began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuLog {
    sum: Logged,
    /// Bytes that no program was shown, at the last drain.
    missed: u64,
}

/// Times that a CPU is drained where its program was not called: each call misses only what falls into
/// somebody's bpf(2) call.
const TRIES: u32 = 4;

impl SpeTotals {
    /// Adds what the log of a CPU's buffer says since it was read last.
    pub(crate) fn read_log(&mut self, event: &mut SpeCpuEvent) {
        let more = event.logged();
        let sum = &mut self.logs.entry(event.cpu).or_default().sum;
        sum.bytes += more.bytes;
        sum.truncated += more.truncated;
        sum.partial += more.partial;
        sum.collided += more.collided;
        sum.lost += more.lost;
    }

    /// Chunks that the logs had no room for: what was in them is not in `missed_bytes`.
    pub(super) fn unlogged(&self) -> u64 {
        self.logs.values().map(|log| log.sum.lost).sum()
    }
}

impl Spe {
    /// Has a CPU hand over what lies in its buffer, and sample on.
    pub(super) fn drain(
        &mut self,
        ebpf: &Ebpf,
        at: usize,
        period: Option<u64>,
    ) -> Result<Drained, LoadError> {
        let event = &mut self.events[at];
        if event.stop()? == Drained::Dead {
            return Ok(Drained::Dead);
        }
        if self.hook == SpeHook::Kprobe {
            for _ in 0..TRIES {
                self.totals.read_log(event);
                let Entry::Occupied(mut log) = self.totals.logs.entry(event.cpu) else {
                    break;
                };
                let missed = missed(log.get(), &cpus(ebpf)?, event.cpu);
                // No more than is lost already.
                if missed <= log.get().missed {
                    log.get_mut().missed = missed;
                    break;
                }
                log.get_mut().missed = missed;
                event.go_on(None)?;
                event.stop()?;
            }
        }
        event.go_on(period)?;
        Ok(Drained::Yes)
    }

    /// Puts what the logs say into the programs' account, which knows nothing of calls that it missed.
    pub(super) fn add_logs(&mut self, cpus: &mut [SpeCpu]) {
        for (&number, log) in &mut self.totals.logs {
            if !self.events.iter().any(|event| event.cpu == number) {
                log.missed = missed(log, cpus, number);
            }
        }
        for (&number, log) in &self.totals.logs {
            if let Some(cpu) = cpus.get_mut(number as usize) {
                cpu.missed_bytes += log.missed;
                cpu.truncated = log.sum.truncated;
                cpu.partial = log.sum.partial;
                cpu.collided = log.sum.collided;
            }
        }
    }
}

/// Bytes that were written on a CPU, less those that its program was shown. Of a CPU that does not sample.
fn missed(log: &CpuLog, cpus: &[SpeCpu], number: u32) -> u64 {
    let shown = cpus.get(number as usize).map_or(0, SpeCpu::bytes);
    log.sum.bytes.saturating_sub(shown)
}
