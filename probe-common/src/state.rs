//! The STATE map: the open slice of each CPU ([`CpuState`]), and the programs' counts of their own
//! work ([`CpuCounts`]).

use crate::{CgroupId, GROUPS, SLOTS, SchedulerCounter, UsageRow, WaitTimes, pod::pod};

/// What the `flush` program does: the first argument of its test run.
///
/// [`Self::FreeRow`] has its own arguments. For all other modes the second and third are the
/// rotated group that is active afterwards, and how many of its counters are in the slots
/// ([`CpuState::live`], [`CpuState::live_events`]); the fourth and fifth are [`CpuState::turns`]
/// and [`CpuState::place`]. The program returns [`FLUSH_BUSY`] if it has to be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum FlushMode {
    /// Start counting on this CPU: take the counters as the baseline, without a charge.
    Arm = 0,
    /// Charge the open slice to its owner, and look up the owner of the running task again.
    Charge = 1,
    /// Charge the open slice and forget its owner: hook `cgroup-switches` sees a task only when the
    /// task is switched out.
    ChargeAndForget = 2,
    /// Charge the open slice to its owner, and stop counting until [`Self::Arm`]: the counters of
    /// this CPU are about to be exchanged.
    Disarm = 3,
    /// Free a row of this CPU if it has not changed since user space read it. The arguments are the
    /// two words of its key and [`UsageRow::sum`](crate::UsageRow::sum). No charge runs on this CPU
    /// meanwhile. Returns [`ROW_FREED`] if the row was freed.
    FreeRow = 4,
}

/// No rotated group is active: none of them counts on the CPU's kind of core.
pub const NO_GROUP: u64 = u64::MAX;

/// The flush did nothing: it interrupted a program that was working on the state of that CPU.
pub const FLUSH_BUSY: u32 = 1;

/// [`FlushMode::FreeRow`] has freed the row.
pub const ROW_FREED: u32 = 2;

pod! {
    /// Durations of the programs' runs. One run in [`crate::SAMPLE_EVERY`] is measured.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SampledCost {
        /// Runs measured.
        pub samples: u64,
        /// Total duration of the measured runs in nanoseconds.
        pub nanos: u64,
    }
}

pod! {
    /// The enabled or running time of a counter group, in nanoseconds.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct GroupTime {
        /// Value at the last reading.
        pub last: u64,
        /// Increase at the last reading.
        pub delta: u64,
    }
}

pod! {
    /// The programs' counts of their own work, on one CPU or summed over all.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CpuCounts {
        /// Runs of the switch hook and of the `sched_exit` program.
        pub runs: u64,
        /// Charges: the open slice was added to its owner and closed.
        pub charges: u64,
        /// Switches that the `sched_switch` program did not see: the outgoing thread is not the one
        /// that came in. The slice is split by the scheduler's own time of the outgoing thread.
        pub missed_switches: u64,
        /// Nanoseconds of the slices that were split between two owners because of a missed
        /// switch: the split is an estimate.
        pub missed_nanos: u64,
        /// Slices during which another task moved the running task to another cgroup: the whole
        /// slice is charged to the old cgroup.
        pub moved: u64,
        /// Switches that only the `sched_exit` program saw, right after them.
        pub late: u64,
        /// Nanoseconds between the scheduler's time stamp of a switch and the program's run, where
        /// they are too many for a delay of the program. Clock counters charge them to the outgoing
        /// task, `cpu.stat` to the incoming one.
        pub stale_clock_nanos: u64,
        /// Runs of the `cgroup_switch` program in which the outgoing task was the idle task.
        pub idle_runs: u64,
        /// Cost of runs that found the same owner.
        pub same: SampledCost,
        /// Cost of runs that charged.
        pub changed: SampledCost,
        /// Counter values below their last reading: they are a new baseline, and nothing is
        /// charged.
        pub rebased: u64,
        /// Counter reads that the kernel refused.
        pub read_errors: u64,
        /// Rows created.
        pub rows_made: u64,
        /// Charges to the overflow row, because USAGE had no row for them and refused a new one.
        pub overflowed: u64,
        /// Rows that USAGE refused because it was full.
        pub full: u64,
        /// Rows that USAGE refused because the kernel was short of memory.
        pub no_memory: u64,
        /// Rows that USAGE refused for another reason: a part of the map was locked.
        pub contended: u64,
        /// cgroup and process events lost because the LIFECYCLE ring was full.
        pub lost_events: u64,
    }
}

pod! {
    /// State of one CPU. Only programs running on that CPU write it, except [`Self::armed`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CpuState {
        /// Owner of the open slice.
        pub owner: CgroupId,
        /// Process of the owner when counting by process, else 0.
        pub owner_tgid: u64,
        /// Address of the task that was switched in last (hook `sched-switch`). Not its thread id,
        /// which changes when a thread other than the leader calls exec.
        pub task: u64,
        /// Address of that task's set of cgroups, if the set alone determines the owner. 0 for
        /// idle, and if rows are keyed by process or a command's process tree is followed.
        pub set: u64,
        /// [`Self::ARMED`] once user space armed this CPU, [`Self::AWAY`] while it is offline, 0
        /// before. Only an armed CPU charges. This is the only word that another CPU writes: the
        /// CPU that takes this one offline.
        pub armed: u64,
        /// `CLOCK_MONOTONIC` nanoseconds when the open slice began: the time of the last reading,
        /// or of the switch to which clock counters were set back. Never before its previous value.
        pub since: u64,
        /// `CLOCK_MONOTONIC` nanoseconds at the last reading of the counters.
        pub read: u64,
        /// The programs' counts on this CPU. Every switch counts a run, so they share a cache line
        /// with the fields above.
        pub counts: CpuCounts,
        /// Nanoseconds between the last two readings.
        pub length: u64,
        /// Index of this CPU's counters in the maps of counters: its position among the possible
        /// CPUs.
        pub place: u64,
        /// The active rotated group; its counters are in the slots after those of the fixed groups.
        /// [`NO_GROUP`] if none counts on this CPU.
        pub live: u64,
        /// Number of the rotated group's counters in the slots; 0 while they are exchanged.
        pub live_events: u64,
        /// 1 if groups are multiplexed on this CPU; 0 if one is active all the time.
        pub turns: u64,
        /// The smallest lead of a clock event over the scheduler's clock at any switch, in ns.
        pub ahead: i64,
        /// 1 while a program that a flush may interrupt works on this state.
        pub busy: u64,
        /// `CLOCK_MONOTONIC` nanoseconds before which no row is created on this CPU, after USAGE
        /// was full.
        pub retry: u64,
        /// By [`SchedulerCounter`], from 1 on; all 0 if none is counted.
        pub scheduler: [u64; SchedulerCounter::COUNT],
        /// Lead of the run queue's clock over its task clock (`rq.clock_task`) at the last change
        /// of owner, in nanoseconds; 0 before the first change.
        pub lag: u64,
        /// When the open slice began, by the run queue's clock. Kept for the ledger of waits, as
        /// are the next two fields.
        pub slice_began: u64,
        /// When the slice before the open one began.
        pub previous_slice_began: u64,
        /// Owner of the slice before the open one.
        pub previous_owner: CgroupId,
        /// Nanoseconds that the open slice's owner waited during the slice, behind its own tasks.
        pub own_wait: u64,
        /// Nanoseconds of waits for which WAITS had no room.
        pub unplaced_wait: u64,
        /// `CLOCK_MONOTONIC` nanoseconds before which no row of WAITS is created on this CPU, after
        /// WAITS was full.
        pub retry_waits: u64,
        /// The waits of the open slice, by their lengths.
        pub wait_times: WaitTimes,
        /// The bucket of the last wait.
        pub last_bucket: u64,
        /// Bit n: a wait of the open slice, before the last wait, may be in bucket n.
        pub other_buckets: u64,
        /// Waits for which `WAIT_TIMES` had no room.
        pub unplaced_waits: u64,
        /// `CLOCK_MONOTONIC` nanoseconds before which no row of `WAIT_TIMES` is created on this
        /// CPU, after that map was full.
        pub retry_wait_times: u64,
        /// The row that is inserted into USAGE, here because it is too large for the stack: all
        /// zeros but the time of the last insertion.
        pub new_row: UsageRow,
        /// Scratch words that turn a pointer into a number: one for the hooks, one for
        /// `wait_migrate`, which may interrupt them.
        pub scratch: [u64; 2],
        /// Last reading of each counter slot.
        pub last: [u64; SLOTS],
        /// Increase of each counter slot at its last reading.
        pub delta: [u64; SLOTS],
        /// Enabled time of each group.
        pub enabled: [GroupTime; GROUPS],
        /// Running time of each group.
        pub running: [GroupTime; GROUPS],
    }
}

impl CpuState {
    /// The CPU counts.
    pub const ARMED: u64 = 1;
    /// The CPU is offline. It counted before, and will count again when it is back online.
    pub const AWAY: u64 = 2;
}
