//! What tasks do while they do not run: the counters that the hook `sched-switch` keeps for each
//! CPU ([`SchedulerCounter`]), and the state of each thread that it keeps between two runs of the
//! thread ([`WaitTask`]).
//!
//! The counters follow the kernel's own accounts (`kernel/sched/stats.h`, `CONFIG_SCHED_INFO`): a
//! thread's `run_delay` is the time that it was runnable and did not run.

use crate::{CgroupId, SLOTS, pod::pod};

/// A counter of the hook. Its number is the `config` of its event, and its index in
/// [`CpuState::scheduler`](crate::CpuState::scheduler) plus 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum SchedulerCounter {
    /// Nanoseconds that threads were runnable and did not run, counted when a wait ends.
    Wait = 1,
    /// Waits that ended.
    Waits = 2,
    /// Waits with an unknown part: threads that the kernel did not take as waiting (preempted after
    /// they had set another state), and threads whose [`WaitTask`] was replaced by another
    /// thread's.
    UnknownWaits = 3,
    /// Switches away from threads that blocked or slept.
    VoluntarySwitches = 4,
    /// Switches away from threads that could have run on.
    InvoluntarySwitches = 5,
    /// Nanoseconds in uninterruptible sleep (state D), counted when it ends.
    Uninterruptible = 6,
    /// Nanoseconds that interrupts and the hypervisor took from running threads.
    Stolen = 7,
}

impl SchedulerCounter {
    /// The number of counters.
    pub const COUNT: usize = 7;

    /// Bits per slot in the programs' global `SCHEDULER_SLOTS`.
    pub const BITS: usize = 3;
}

const _: () = {
    assert!(SchedulerCounter::COUNT < 1 << SchedulerCounter::BITS);
    assert!(SLOTS * SchedulerCounter::BITS <= 64);
};

/// Number of [`WaitTask`] entries. A thread's address selects its entry ([`WaitTask::place`]).
pub const WAIT_TASKS: u32 = 1 << WAIT_TASKS_BITS;

const WAIT_TASKS_BITS: u32 = 16;

/// The golden ratio's digits, which spread small differences over all bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Another odd factor, for the second word of a checksum.
const SPREAD_2: u64 = SPREAD >> 1 | 1;

pod! {
    /// The state of a thread from one of its switches to the next.
    ///
    /// If two threads have the same place, the CPUs that they run on may write the entry at the
    /// same time. [`Self::check`] reveals a mix of both.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WaitTask {
        /// The thread's `run_delay` when it was last switched in or out.
        pub run_delay: u64,
        /// The value of `run_delay` up to which the thread's current wait is in the ledger.
        pub divided: u64,
        /// The run queue's clock when the thread was switched out into uninterruptible sleep; 0 if
        /// it was not. [`Self::FIRST`] in the wait before its first switch.
        pub blocked: u64,
        /// Checksum of the fields above and of the thread's address. The thread's id would change
        /// when a thread other than the leader calls exec.
        pub check: u64,
    }
}

impl WaitTask {
    /// [`Self::blocked`] of a thread that has not run yet.
    pub const FIRST: u64 = u64::MAX;

    /// The entry of the thread at this address, which is switched in or out.
    #[inline(always)]
    #[must_use]
    pub const fn new(address: u64, run_delay: u64, blocked: u64) -> Self {
        Self::waiting(address, run_delay, run_delay, blocked)
    }

    /// The entry of the thread at this address, whose wait is in the ledger up to `divided`.
    #[inline(always)]
    #[must_use]
    pub const fn waiting(address: u64, run_delay: u64, divided: u64, blocked: u64) -> Self {
        Self {
            run_delay,
            divided,
            blocked,
            check: Self::sum(address, run_delay, divided, blocked),
        }
    }

    /// The place of the thread at this address.
    #[inline(always)]
    #[must_use]
    pub const fn place(address: u64) -> u32 {
        (address.wrapping_mul(SPREAD) >> (u64::BITS - WAIT_TASKS_BITS)) as u32
    }

    /// Whether this entry belongs to the thread at this address, and is not a mix of two entries.
    #[inline(always)]
    #[must_use]
    pub const fn is_of(&self, address: u64) -> bool {
        self.check == Self::sum(address, self.run_delay, self.divided, self.blocked)
    }

    /// Whether this entry belongs to the thread at this address, and the thread has waited only in
    /// its current run queue since its last switch. False after a switch into uninterruptible
    /// sleep.
    #[inline(always)]
    #[must_use]
    pub const fn is_plain(&self, address: u64, run_delay: u64) -> bool {
        self.run_delay == run_delay && self.check == Self::plain_sum(address, run_delay)
    }

    /// Updates a [plain](Self::is_plain) entry to the thread's new [`Self::run_delay`].
    #[inline(always)]
    pub const fn set_plain(&mut self, address: u64, run_delay: u64) {
        self.run_delay = run_delay;
        self.divided = run_delay;
        self.blocked = 0;
        self.check = Self::plain_sum(address, run_delay);
    }

    /// Whether no thread has been at this place.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.check == 0
    }

    #[inline(always)]
    const fn sum(address: u64, run_delay: u64, divided: u64, blocked: u64) -> u64 {
        let times = run_delay
            .wrapping_mul(SPREAD)
            .wrapping_add(divided.wrapping_mul(SPREAD_2));
        address ^ times ^ blocked.rotate_left(32)
    }

    /// [`Self::sum`] if `divided` is `run_delay` and `blocked` is 0, by one product.
    #[inline(always)]
    const fn plain_sum(address: u64, run_delay: u64) -> u64 {
        address ^ run_delay.wrapping_mul(SPREAD.wrapping_add(SPREAD_2))
    }
}

pod! {
    /// Key of a row of the WAITS map, whose value is nanoseconds: `waiting` waited for a CPU while
    /// `running` ran there.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct WaitKey {
        /// Owner of the wait.
        pub waiting: CgroupId,
        /// Cgroup that ran, even if rows are keyed by process; [`CgroupId::IDLE`]: none ran;
        /// [`CgroupId::EARLIER`], [`CgroupId::OTHER_CPU`]: not known.
        pub running: CgroupId,
        /// Process of the wait; 0 unless counting by process.
        pub tgid: u32,
        /// CPU number.
        pub cpu: u32,
    }
}

/// Buckets of the lengths of waits.
pub const WAIT_BUCKETS: usize = 32;

pod! {
    /// Value of the `WAIT_TIMES` map: ended waits by their lengths, except waits with an unknown
    /// part. The key is a [`UsageKey`](crate::UsageKey) of group 0.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WaitTimes {
        /// Waits, by [`Self::bucket`].
        pub counts: [u64; WAIT_BUCKETS],
        /// Sum of their lengths in nanoseconds.
        pub nanos: u64,
    }
}

impl WaitTimes {
    /// Bucket 0 ends at 2^`FIRST_END` seconds.
    pub const FIRST_END: i32 = -20;

    /// 2^20 / 10^9 in units of 2^-28: converts nanoseconds to units of 2^-20 s. The relative error
    /// is below 10^-7.
    const UNITS: u64 = 281_475;
    const FRACTION: u32 = 28;

    /// Whether a wait is in this [`bucket`](Self::bucket); also false for some waits in the last
    /// bucket. Cheaper than [`Self::bucket`].
    #[inline(always)]
    #[must_use]
    pub const fn is_in(nanos: u64, bucket: u64) -> bool {
        // Bucket n begins at 2^(n-1) units, and all of bucket 0 counts as half a unit.
        let half = 1 << (Self::FRACTION - 1);
        let shift = (Self::FRACTION as u64 - 1 + bucket) & 63;
        nanos >> 44 == 0 && ((nanos * Self::UNITS) | half) >> shift == 1
    }

    /// The bucket of a wait: 0 below 2^-20 s (0.95 us), n from 2^(n-21) s to 2^(n-20) s. The last
    /// bucket has all longer waits.
    #[inline(always)]
    #[must_use]
    pub const fn bucket(nanos: u64) -> usize {
        // Limited to 2^44 ns (5 h), far into the last bucket, so that the product fits.
        let nanos = if nanos >> 44 == 0 { nanos } else { 1 << 44 };
        let units = (nanos * Self::UNITS) >> Self::FRACTION;
        let limit = 1 << (WAIT_BUCKETS - 2);
        let units = if units < limit { units } else { limit };
        // LLVM's own logarithm takes twice the instructions on this target.
        let (mut rest, mut log) = (units, 0);
        let mut step = 16;
        while step > 0 {
            if rest >> step != 0 {
                rest >>= step;
                log += step;
            }
            step /= 2;
        }
        match rest {
            0 => log,
            _ => log + 1,
        }
    }

    /// The number of waits.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.counts.iter().copied().fold(0, u64::saturating_add)
    }

    /// The counts of `self` and `other` together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = *self;
        for (sum, other) in sum.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(other);
        }
        sum.nanos = sum.nanos.saturating_add(other.nanos);
        sum
    }

    /// The increase since an earlier reading. If any number is smaller, the row was freed and
    /// created again: everything is new.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut gain = *self;
        let counts = gain.counts.iter_mut().zip(earlier.counts);
        let numbers = counts.chain([(&mut gain.nanos, earlier.nanos)]);
        for (now, before) in numbers {
            let Some(increase) = now.checked_sub(before) else {
                return *self;
            };
            *now = increase;
        }
        gain
    }

    /// The end of a bucket in seconds, which belongs to the next bucket; None for the last.
    #[must_use]
    pub fn end(bucket: usize) -> Option<f64> {
        let last = WAIT_BUCKETS - 1;
        (bucket < last).then(|| f64::from(1_u32 << bucket) / f64::from(1_u32 << -Self::FIRST_END))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_end_at_powers_of_two_of_a_second() {
        let end_nanos = |bucket: usize| WaitTimes::end(bucket).unwrap() * 1e9;
        for bucket in 0..WAIT_BUCKETS - 1 {
            let end = end_nanos(bucket);
            #[expect(clippy::cast_possible_truncation, reason = "less than 2^44")]
            #[expect(clippy::cast_sign_loss, reason = "positive")]
            let [below, above] =
                [end * (1.0 - 1e-6) - 1.0, end * (1.0 + 1e-6) + 1.0].map(|it| it as u64);
            assert_eq!(WaitTimes::bucket(below), bucket, "{below}");
            assert_eq!(WaitTimes::bucket(above), bucket + 1, "{above}");
            for nanos in [below, above] {
                let bucket = WaitTimes::bucket(nanos) as u64;
                for other in 0..WAIT_BUCKETS as u64 {
                    assert_eq!(WaitTimes::is_in(nanos, other), other == bucket, "{nanos}");
                }
            }
        }
        let last = [1_u64 << 43, 1 << 44, 1 << 60, u64::MAX].map(WaitTimes::bucket);
        assert_eq!(last, [WAIT_BUCKETS - 1; 4]);
        let is_in_earlier_bucket =
            |nanos: u64| (0..WAIT_BUCKETS as u64 - 1).any(|it| WaitTimes::is_in(nanos, it));
        assert!(
            ![1 << 43, 1 << 44, 1 << 60, u64::MAX]
                .into_iter()
                .any(is_in_earlier_bucket)
        );
        assert!(WaitTimes::is_in(0, 0));
        assert!(!(1..WAIT_BUCKETS as u64).any(|bucket| WaitTimes::is_in(0, bucket)));
        assert_eq!(
            (WaitTimes::bucket(0), WaitTimes::end(WAIT_BUCKETS - 1)),
            (0, None)
        );
    }

    const ADDRESSES: [u64; 2] = [0xffff_8880_0001_0000, 0xffff_8880_0001_2340];

    #[test]
    fn a_mix_of_two_threads_belongs_to_neither() {
        let rows = [
            WaitTask::new(ADDRESSES[0], 1000, 0),
            WaitTask::waiting(ADDRESSES[1], 1001, 1500, 5000),
        ];
        let mut owned = 0;
        // Bit n of `sources`: which row field n comes from.
        for sources in 0..16 {
            let source = |field: usize| &rows[sources >> field & 1];
            let row = WaitTask {
                run_delay: source(0).run_delay,
                divided: source(1).divided,
                blocked: source(2).blocked,
                check: source(3).check,
            };
            owned += ADDRESSES.iter().filter(|it| row.is_of(**it)).count();
        }
        // Only the two unmixed rows.
        assert_eq!(owned, 2);
        assert!(WaitTask::ZERO.is_empty() && !rows[0].is_empty());
    }

    #[test]
    fn a_plain_entry_is_that_of_a_thread_without_other_waits() {
        let mut row = WaitTask::new(ADDRESSES[0], 1000, 0);
        assert!(row.is_plain(ADDRESSES[0], 1000));
        row.set_plain(ADDRESSES[0], 1500);
        assert_eq!(row, WaitTask::new(ADDRESSES[0], 1500, 0));
        assert!(!row.is_plain(ADDRESSES[1], 1500) && !row.is_plain(ADDRESSES[0], 1501));
        let others = [
            WaitTask::new(ADDRESSES[0], 1000, 7),
            WaitTask::new(ADDRESSES[0], 1000, WaitTask::FIRST),
            WaitTask::waiting(ADDRESSES[0], 1000, 1001, 0),
            WaitTask::ZERO,
        ];
        for row in others {
            assert!(!row.is_plain(ADDRESSES[0], 1000));
        }
    }

    /// With addresses as the kernel allocates threads: several in each block of 32 KiB.
    #[test]
    fn threads_are_spread_over_all_places() {
        let mut used = [false; WAIT_TASKS as usize];
        let mut shared = 0;
        for thread in 0..10_000 {
            let address = ADDRESSES[0] + (thread / 4) * 0x8000 + (thread % 4) * 0x1f40;
            let place = &mut used[WaitTask::place(address) as usize];
            shared += usize::from(core::mem::replace(place, true));
        }
        // 10,000 random addresses would share 726 of the 65,536 places.
        assert!(shared < 1000, "{shared}");
    }
}
