//! Missed chunks: chunks that ended without a run of the program. The kernel skips the program of a
//! kprobe while its CPU is in a bpf(2) call that reads or changes a map, or runs a program of
//! another kprobe.
//!
//! A missed chunk stays in the buffer until it is overwritten, and the program's next run reads it
//! too. So a drain is repeated if the program read fewer bytes than the kernel's log of the buffer
//! has. Bytes that were overwritten by then are lost; the log gives their number.

use std::collections::{BTreeMap, btree_map::Entry};

use probe_common::spe::SpeCpu;

use super::{
    SpeTotals,
    drain_retry::{SpeCpuDrain, drain_cpu},
    idle::IdleSpeRows,
};
use crate::{
    session::{DrainOutcome, EbpfObject, SessionError, SpeSampling, spe::SpeCpuEvent},
    snapshot::SpeHook,
    sys::aux::AuxTotals,
};

/// Sums of the kernel's log of one CPU's buffers since the session began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuLog {
    sum: AuxTotals,
    /// Missed bytes at the last drain.
    missed: u64,
}

/// Maximum number of repeated drains of a CPU with missed chunks. A repeated drain misses only
/// chunks that end during a bpf(2) call of another process.
const MAX_RETRIES: u32 = 4;

impl SpeTotals {
    /// Adds the entries of a CPU's log since the last reading.
    pub(crate) fn read_log(&mut self, event: &mut SpeCpuEvent) {
        let added = event.logged();
        let sum = &mut self.logs.entry(event.cpu).or_default().sum;
        sum.bytes += added.bytes;
        sum.truncated += added.truncated;
        sum.partial += added.partial;
        sum.collided += added.collided;
        sum.lost += added.lost;
    }

    /// Whether a CPU has more missed bytes than at the last call for it.
    fn missed_more(&mut self, event: &mut SpeCpuEvent, account: &SpeCpu) -> bool {
        self.read_log(event);
        let Entry::Occupied(mut log) = self.logs.entry(event.cpu) else {
            return false;
        };
        let log = log.get_mut();
        let now = missed_bytes(log, account);
        now > std::mem::replace(&mut log.missed, now)
    }

    /// Number of chunks for which the logs had no room. Their bytes are not in
    /// [`SpeCpu::missed_bytes`].
    pub(super) fn unlogged(&self) -> u64 {
        self.logs.values().map(|log| log.sum.lost).sum()
    }
}

impl SpeSampling {
    /// Drains the buffer of a CPU, frees its idle rows, and resumes its sampling.
    pub(super) fn drain(
        &mut self,
        object: &EbpfObject,
        at: usize,
        period: Option<u64>,
        idle: &mut IdleSpeRows,
    ) -> Result<DrainOutcome, SessionError> {
        let (hook, totals) = (self.hook, &mut self.totals);
        let mut retries = 0;
        let retry = |event: &mut SpeCpuEvent, account: &SpeCpu| {
            retries += 1;
            hook == SpeHook::Kprobe && retries <= MAX_RETRIES && totals.missed_more(event, account)
        };
        let event = &mut self.events[at];
        let number = event.cpu;
        let mut cpu = SpeCpuDrain {
            event,
            object,
            idle,
        };
        let account = drain_cpu(&mut cpu, period, retry)?;
        let Some(account) = account else {
            return Ok(DrainOutcome::Dead);
        };
        self.totals.accounts.insert(number, account);
        Ok(DrainOutcome::Drained)
    }

    /// Adds the counts of the logs to the programs' counts, which lack missed chunks.
    pub(super) fn add_logs(&mut self, cpus: &mut BTreeMap<u32, SpeCpu>) {
        for (number, log) in &mut self.totals.logs {
            if !self.events.iter().any(|event| event.cpu == *number) {
                let account = cpus.get(number).copied().unwrap_or_default();
                log.missed = missed_bytes(log, &account);
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

/// The bytes that were written on a CPU minus the bytes that its program read. The CPU must not
/// sample between the readings of both.
fn missed_bytes(log: &CpuLog, account: &SpeCpu) -> u64 {
    log.sum.bytes.saturating_sub(account.written())
}
