//! Run queues, and what the scheduler keeps of a task's waits.

use super::{
    CFS_RQ_RQ, RQ_CLOCK, RQ_CLOCK_TASK, RQ_CPU, SCHED_ENTITY_CFS_RQ, SCHED_INFO_LAST_ARRIVAL,
    SCHED_INFO_LAST_QUEUED, SCHED_INFO_PCOUNT, SCHED_INFO_RUN_DELAY, TASK_ON_RQ, TASK_SCHED_INFO,
    TASK_SE, Task, field,
};

/// The kernel's account of a task's waits (`struct sched_info`). Each number is loaded when it is
/// asked for.
#[derive(Clone, Copy)]
pub(crate) struct SchedInfo(*const u8);

impl SchedInfo {
    /// Nanoseconds that the task was runnable and did not run, up to its last switch or move to
    /// another run queue.
    #[inline(always)]
    pub(crate) fn run_delay(self) -> u64 {
        // SAFETY: SCHED_INFO_RUN_DELAY is the offset of a 64-bit time.
        unsafe { field(self.0, &SCHED_INFO_RUN_DELAY) }
    }

    /// When the task was put into its current run queue, by that queue's clock; 0 while it runs,
    /// and if it is in no run queue.
    #[inline(always)]
    pub(crate) fn last_queued(self) -> u64 {
        // SAFETY: SCHED_INFO_LAST_QUEUED is the offset of a 64-bit time.
        unsafe { field(self.0, &SCHED_INFO_LAST_QUEUED) }
    }

    /// When the task was last switched in, by the clock of its run queue at that time.
    #[inline(always)]
    pub(crate) fn last_arrival(self) -> u64 {
        // SAFETY: SCHED_INFO_LAST_ARRIVAL is the offset of a 64-bit time.
        unsafe { field(self.0, &SCHED_INFO_LAST_ARRIVAL) }
    }

    /// How many times the task was switched in.
    #[inline(always)]
    pub(crate) fn runs(self) -> u64 {
        // SAFETY: SCHED_INFO_PCOUNT is the offset of a 64-bit number.
        unsafe { field(self.0, &SCHED_INFO_PCOUNT) }
    }
}

/// A `struct rq` of the kernel: the run queue of a CPU.
#[derive(Clone, Copy)]
pub(crate) struct RunQueue(*const u8);

impl Task {
    /// The run queue of the CPU that this task leaves or runs on. Callers know that the kernel's
    /// types have the fields.
    #[inline(always)]
    pub(crate) fn run_queue(self) -> RunQueue {
        let entity = self.0.wrapping_add(TASK_SE.load() as usize);
        // SAFETY: the offsets lead over two pointers that a task in a run queue has.
        unsafe {
            let queue: *const u8 = field(entity, &SCHED_ENTITY_CFS_RQ);
            RunQueue(field(queue, &CFS_RQ_RQ))
        }
    }

    /// The kernel's account of its waits. Callers know that the kernel's types have the fields.
    #[inline(always)]
    pub(crate) fn sched_info(self) -> SchedInfo {
        SchedInfo(self.0.wrapping_add(TASK_SCHED_INFO.load() as usize))
    }

    /// Whether it is between two run queues. Callers know that the kernel's types have the field.
    #[inline(always)]
    pub(crate) fn is_migrating(self) -> bool {
        /// `TASK_ON_RQ_MIGRATING` of `kernel/sched/sched.h`.
        const MIGRATING: u8 = 2;
        // SAFETY: TASK_ON_RQ is the offset of a byte in task_struct, or of a little-endian int up
        // to Linux 6.18.
        let on_queue: u8 = unsafe { field(self.0, &TASK_ON_RQ) };
        on_queue == MIGRATING
    }
}

impl RunQueue {
    /// The number of its CPU.
    #[inline(always)]
    pub(crate) fn cpu(self) -> u32 {
        // SAFETY: RQ_CPU is the offset of an int in a run queue.
        unsafe { field(self.0, &RQ_CPU) }
    }

    /// Its clock. In a program at `sched_switch`, the time of the switch.
    #[inline(always)]
    pub(crate) fn clock(self) -> u64 {
        // SAFETY: RQ_CLOCK is the offset of a 64-bit time in a run queue.
        unsafe { field(self.0, &RQ_CLOCK) }
    }

    /// Its clock without interrupts and time taken by the hypervisor, as far as the kernel measures
    /// them (`CONFIG_IRQ_TIME_ACCOUNTING`, `CONFIG_PARAVIRT_TIME_ACCOUNTING`).
    #[inline(always)]
    pub(crate) fn task_clock(self) -> u64 {
        // SAFETY: RQ_CLOCK_TASK is the offset of a 64-bit time in a run queue.
        unsafe { field(self.0, &RQ_CLOCK_TASK) }
    }
}
