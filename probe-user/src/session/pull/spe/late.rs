//! What the program at the end of chunks was not called for: a kprobe's program is left out while
//! its CPU is in a bpf(2) call that reads or changes a map, or runs another such program.
//!
//! A chunk that was missed lies in the buffer until it is overwritten, and the next call reads it
//! too. So a drain that shows less than the kernel's log of the buffer is repeated; what is gone
//! then is lost, and the log tells how many bytes that are.

use std::collections::{BTreeMap, btree_map::Entry};

use probe_common::spe::SpeCpu;

use super::{
    SpeTotals,
    idle::IdleRows,
    stopped::{Account, look},
};
use crate::{
    session::{Drained, Object, SessionError, Spe, spe::SpeCpuEvent},
    snapshot::SpeHook,
    sys::aux::Logged,
};

/// The log of one CPU's buffers since the session began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuLog {
    sum: Logged,
    /// Bytes that no program was shown, at the last drain.
    missed: u64,
}

/// How often a CPU is drained where its program was not called: each call misses only what falls
/// into a bpf(2) call of another process.
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

    /// Whether the program of a CPU was shown less than what was lost there before.
    fn shown_less(&mut self, event: &mut SpeCpuEvent, account: &SpeCpu) -> bool {
        self.read_log(event);
        let Entry::Occupied(mut log) = self.logs.entry(event.cpu) else {
            return false;
        };
        let log = log.get_mut();
        let now = missed(log, account);
        now > std::mem::replace(&mut log.missed, now)
    }

    /// Chunks that the logs had no room for: what was in them is not in `missed_bytes`.
    pub(super) fn unlogged(&self) -> u64 {
        self.logs.values().map(|log| log.sum.lost).sum()
    }
}

impl Spe {
    /// Has a CPU hand over what lies in its buffer, and sample on; in between its idle rows are
    /// freed.
    pub(super) fn drain(
        &mut self,
        object: &Object,
        at: usize,
        period: Option<u64>,
        idle: &mut IdleRows,
    ) -> Result<Drained, SessionError> {
        let (hook, totals) = (self.hook, &mut self.totals);
        let mut tries = 0;
        let again = |event: &mut SpeCpuEvent, account: &SpeCpu| {
            tries += 1;
            hook == SpeHook::Kprobe && tries <= TRIES && totals.shown_less(event, account)
        };
        let event = &mut self.events[at];
        let number = event.cpu;
        let mut cpu = Account {
            event,
            object,
            idle,
        };
        let account = look(&mut cpu, period, again)?;
        let Some(account) = account else {
            return Ok(Drained::Dead);
        };
        self.totals.stopped.insert(number, account);
        Ok(Drained::Yes)
    }

    /// Puts what the logs say into the programs' account, which knows nothing of calls that it
    /// missed.
    pub(super) fn add_logs(&mut self, cpus: &mut BTreeMap<u32, SpeCpu>) {
        for (number, log) in &mut self.totals.logs {
            if !self.events.iter().any(|event| event.cpu == *number) {
                let account = cpus.get(number).copied().unwrap_or_default();
                log.missed = missed(log, &account);
            }
        }
        for (number, log) in &self.totals.logs {
            if let Some(cpu) = cpus.get_mut(number) {
                cpu.missed_bytes += log.missed;
                cpu.truncated = log.sum.truncated;
                cpu.partial = log.sum.partial;
                cpu.collided = log.sum.collided;
            }
        }
    }
}

/// Bytes that were written on a CPU, less those that its program was shown. Of a CPU that does not
/// sample.
fn missed(log: &CpuLog, account: &SpeCpu) -> u64 {
    log.sum.bytes.saturating_sub(account.written())
}
