//! The STATE map: what each CPU is doing, and what the programs say of themselves.

use crate::{CgroupId, GROUPS, SLOTS, words::words};

/// What the `flush` program does; user space passes it as the first argument of the test run.
///
/// [`Self::FreeRow`] has arguments of its own. For all others the second and third are the rotated
/// group that is live from then on, and how many of its counters are in the slots
/// ([`CpuState::live`], [`CpuState::live_events`]); the fourth and fifth are [`CpuState::turns`]
/// and [`CpuState::place`]. It returns [`FLUSH_BUSY`] where it has to be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum FlushMode {
    /// Start counting here: take the counters as they are for the baseline, charge nobody.
    Arm = 0,
    /// Charge the open slice to its owner, and look up the owner of the running task again.
    Charge = 1,
    /// Charge the open slice and forget its owner: hook `cgroup-switches` sees owners when they
    /// leave.
    ChargeAndForget = 2,
    /// Count no more until [`Self::Arm`]: the counters here are about to be others.
    Disarm = 3,
    /// Free a row of this CPU if it is as user space read it: the two words of its key follow, and
    /// [`UsageRow::sum`](crate::UsageRow::sum). No charge here is under way meanwhile. Returns
    /// [`ROW_FREED`] if so.
    FreeRow = 4,
}

/// In place of a rotated group, on a CPU whose kind of core none of them counts.
pub const NO_GROUP: u64 = u64::MAX;

/// The flush did nothing: it interrupted a program that was working on the state of that CPU.
pub const FLUSH_BUSY: u32 = 1;

/// [`FlushMode::FreeRow`] has freed the row.
pub const ROW_FREED: u32 = 2;

words! {
    /// Durations that the programs measured of themselves, one run in [`crate::SAMPLE_EVERY`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SampledCost {
        /// Runs measured.
        pub samples: u64,
        /// Nanoseconds they took together.
        pub nanos: u64,
    }
}

words! {
    /// A time of a counter group, in ns.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct GroupTime {
        /// At the last reading.
        pub last: u64,
        /// What it had gained then.
        pub delta: u64,
    }
}

words! {
    /// What the programs counted of themselves on one CPU, or on all of them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CpuCounts {
        /// Runs of the switch hook on this CPU.
        pub runs: u64,
        /// Times the open slice was charged and closed.
        pub charges: u64,
        /// Switches that the `sched_switch` program did not see: the thread that leaves is not the
        /// one that came in. The slice is split by the scheduler's own time of that thread.
        pub missed_switches: u64,
        /// Nanoseconds of the slices that were split so between two owners: whose this time was is
        /// estimated.
        pub missed_nanos: u64,
        /// Slices whose task was moved to another cgroup by another task: the whole slice is
        /// charged to the old cgroup.
        pub moved: u64,
        /// Switches that only the `sched_exit` program saw, right after them.
        pub late: u64,
        /// Runs of the `cgroup_switch` program that found the idle task leaving.
        pub idle_runs: u64,
        /// Cost of runs that found the same owner.
        pub same: SampledCost,
        /// Cost of runs that charged.
        pub changed: SampledCost,
        /// Counters found below their last reading: taken as a new baseline, nothing charged.
        pub rebased: u64,
        /// Counter reads that the kernel refused.
        pub read_errors: u64,
        /// Rows that were made.
        pub rows_made: u64,
        /// Charges that went to the overflow row, since USAGE had no row for them and took none.
        pub overflowed: u64,
        /// Rows that USAGE did not take since it was full.
        pub full: u64,
        /// Rows that USAGE did not take since the kernel had no memory at hand.
        pub no_memory: u64,
        /// Rows that USAGE did not take for another reason: a part of it was locked.
        pub contended: u64,
        /// cgroup and process events lost because the LIFECYCLE ring was full.
        pub lost_events: u64,
    }
}

words! {
    /// State of one CPU. Only programs running on that CPU write it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CpuState {
        /// Whom the open slice belongs to.
        pub owner: CgroupId,
        /// Process of the owner when counting by process, else 0.
        pub owner_tgid: u64,
        /// Address of the task that was switched in last (hook `sched-switch`). Not its thread id,
        /// which changes when a thread that is not the leader calls exec.
        pub task: u64,
        /// Address of that task's set of cgroups, where it alone tells the owner: 0 for idle, and
        /// where rows are keyed by process or a command's process tree is followed.
        pub set: u64,
        /// [`Self::ARMED`] once user space armed this CPU, [`Self::AWAY`] while it is offline; 0
        /// before. Only an armed CPU charges. This is the only word that another CPU writes, when
        /// it takes this one offline.
        pub armed: u64,
        /// `CLOCK_MONOTONIC` nanoseconds when the open slice began by the scheduler's clock, as far
        /// back as the slice's clock counters are taken. Never before the last reading's.
        pub since: u64,
        /// `CLOCK_MONOTONIC` nanoseconds at the last reading of the counters.
        pub read: u64,
        /// What the programs here counted. Every switch counts a run: these share a cache line with
        /// the fields above.
        pub counts: CpuCounts,
        /// Nanoseconds between that reading and the one before it.
        pub length: u64,
        /// Where the maps of counters have this CPU's: its place among the possible CPUs.
        pub place: u64,
        /// The rotated counter group whose counters are in the slots behind the fixed groups';
        /// [`NO_GROUP`] where none counts on this CPU.
        pub live: u64,
        /// How many counters it has there; 0 while they are exchanged.
        pub live_events: u64,
        /// 1 where rotated groups take turns on this CPU; 0 where one is live all the time.
        pub turns: u64,
        /// The smallest lead of a clock event over the scheduler's clock at any switch, in ns.
        pub ahead: i64,
        /// 1 while a program works on this state that a flush may interrupt.
        pub busy: u64,
        /// `CLOCK_MONOTONIC` nanoseconds before which no row is made here, after USAGE was full.
        pub retry: u64,
        /// Last reading of each counter slot.
        pub last: [u64; SLOTS],
        /// What each counter slot had gained at that reading.
        pub delta: [u64; SLOTS],
        /// Enabled time of each group.
        pub enabled: [GroupTime; GROUPS],
        /// Running time of each group.
        pub running: [GroupTime; GROUPS],
    }
}

impl CpuState {
    /// This CPU counts.
    pub const ARMED: u64 = 1;
    /// It counted until the kernel took it offline, and will when it is back.
    pub const AWAY: u64 = 2;
}
