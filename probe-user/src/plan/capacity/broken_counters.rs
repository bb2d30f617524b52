//! Finds broken counters of a core PMU, by a loop with a known number of instructions.
//!
//! Some virtual PMUs offer a counter that counts next to nothing. The kernel assigns counters from
//! the first one on, so a PMU with broken last counters can be used without them.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    thread,
    time::Duration,
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{
    event::{self, Counter, Scope, Source},
    machine::{Pmu, Pmus},
    sys::{
        perf,
        spin::{PER_ROUND, spin},
    },
};

/// Events that count every instruction that a thread executes, by the names in drivers.
const INSTRUCTION_EVENTS: [&str; 2] = ["instructions", "inst_retired"];

/// Rounds of the loop: 0.3 ms at the expected cycles per instruction.
const ROUNDS: u64 = 500_000;

/// Instructions that the loop executes.
const EXECUTED_INSTRUCTIONS: u64 = ROUNDS * PER_ROUND;

/// A count may be wrong by 1 in this number, more than entering and leaving the kernel adds.
const TOLERANCE: u64 = 100;

/// More counters than any core PMU has.
const MAX_COUNTERS: usize = 64;

/// Number of tries: a counter that another user or the hypervisor takes for a moment is free at the
/// next try.
const TRIES: usize = 3;

/// The time between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// What the counters of a core PMU counted during a known loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CounterTestResult {
    /// Instructions that the loop executed.
    pub(crate) executed: u64,
    /// The count of each counter, in the order in which the kernel assigns counters.
    pub(crate) counts: Vec<u64>,
    /// Counters that other users held.
    pub(crate) held: usize,
}

/// Why the counters of a PMU could not be tested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CounterTestError {
    /// The PMU names no event that counts instructions.
    #[error("it names no event that counts instructions")]
    NoEvent,
    /// This process cannot run on the PMU's CPUs.
    #[error("this process may not run on its CPUs")]
    NoCpu,
    /// The kernel does not open the event.
    #[error("the kernel refuses {event}: {reason}")]
    Refused {
        /// In perf's syntax.
        event: String,
        /// The error of the kernel.
        reason: String,
    },
    /// No counter was free.
    #[error("others hold all of its counters")]
    Held,
}

impl CounterTestResult {
    /// Whether a count equals the executed instructions, so that this number is the reference.
    fn has_true_count(&self) -> bool {
        self.counts
            .iter()
            .any(|count| is_near(*count, self.executed))
    }

    /// How many counters count correctly, from the first on. If no count equals the executed
    /// instructions, the event does not count what its name says (as on an emulated PMU), and the
    /// first counter is the reference.
    pub(crate) fn working(&self) -> usize {
        let reference = if self.has_true_count() {
            self.executed
        } else {
            self.counts.first().copied().unwrap_or(0)
        };
        let is_right = |count: &&u64| reference > 0 && is_near(**count, reference);
        self.counts.iter().take_while(is_right).count()
    }

    /// What is wrong with the counters of a PMU; `None` if nothing is.
    pub(crate) fn fault(&self, pmu: &str) -> Option<String> {
        let (all, working, executed) = (self.counts.len(), self.working(), self.executed);
        if let Some(wrong) = self.counts.get(working) {
            let expected = if self.has_true_count() {
                format!("{executed} instructions")
            } else {
                format!("{executed} instructions, and counter 1 {}", self.counts[0])
            };
            return Some(format!(
                "counter {} of the {all} that {pmu} has free counted {wrong} of {expected}: the \
                 first {working} are used",
                working + 1
            ));
        }
        let first = self.counts.first()?;
        (!self.has_true_count()).then(|| {
            format!(
                "the counters of {pmu} count alike, but {first} where {executed} instructions were \
                 executed"
            )
        })
    }
}

/// The test of a core PMU's counters, with the event to count.
pub(crate) struct CounterTest {
    pub(crate) event: Counter,
    /// The event in perf's syntax.
    name: String,
}

impl CounterTest {
    /// The test for this PMU, if it names an event that counts instructions.
    pub(crate) fn for_pmu(pmu: &Pmu, pmus: &Pmus) -> Result<Self, CounterTestError> {
        let listed = INSTRUCTION_EVENTS
            .into_iter()
            .find(|name| pmu.event(name).is_some())
            .ok_or(CounterTestError::NoEvent)?;
        let name = format!("{}/{listed}/u", pmu.name);
        let refused = |reason: String| CounterTestError::Refused {
            event: name.clone(),
            reason,
        };
        let parsed = event::parse(&name, pmus).map_err(|error| refused(error.to_string()))?;
        let mut events = parsed.into_iter().flat_map(|group| group.events);
        match events.next().map(|event| event.source) {
            Some(Source::Counter(event)) => Ok(Self { event, name }),
            Some(Source::DurationTime) | None => Err(CounterTestError::NoEvent),
        }
    }

    /// Runs a known loop on one of the PMU's CPUs, in a thread of its own, with as many counters as
    /// are free there at one time. Returns the run in which most counters were right.
    pub(crate) fn count(&self) -> Result<CounterTestResult, CounterTestError> {
        let run = || {
            let cpu = pin(&self.event.scope).ok_or(CounterTestError::NoCpu)?;
            let mut opened =
                open_all(&self.event, cpu).map_err(|error| CounterTestError::Refused {
                    event: self.name.clone(),
                    reason: error.to_string(),
                })?;
            let opened_count = opened.len();
            while !opened.is_empty() {
                if let Some(counts) = best_counts(&opened) {
                    return Ok(CounterTestResult {
                        executed: EXECUTED_INSTRUCTIONS,
                        held: opened_count - counts.len(),
                        counts,
                    });
                }
                opened.pop();
            }
            Err(CounterTestError::Held)
        };
        // The CPU affinity ends with the thread.
        let ran = thread::scope(|scope| scope.spawn(run).join());
        ran.expect("the trial does not panic")
    }
}

/// Pins this thread to the first CPU of the PMU that it may run on, and returns the CPU. `None` if
/// there is none.
pub(super) fn pin(scope: &Scope) -> Option<u32> {
    let allowed = sched_getaffinity(None).ok()?;
    let runs_on = |cpu: &u32| usize::try_from(*cpu).is_ok_and(|cpu| allowed.is_set(cpu));
    let cpu = (0..u32::try_from(CpuSet::MAX_CPU).ok()?)
        .filter(|cpu| scope.counts_on(*cpu))
        .find(runs_on)?;
    let mut one_cpu = CpuSet::new();
    one_cpu.set(usize::try_from(cpu).ok()?);
    sched_setaffinity(None, &one_cpu).ok()?;
    Some(cpu)
}

/// Opens as many counters as the kernel takes into one group.
fn open_all(counter: &Counter, cpu: u32) -> io::Result<Vec<OwnedFd>> {
    let mut opened: Vec<OwnedFd> = vec![perf::open_own(&counter.attr(), cpu, None)?];
    while opened.len() < MAX_COUNTERS {
        match perf::open_own(&counter.attr(), cpu, Some(opened[0].as_fd())) {
            Ok(event) => opened.push(event),
            Err(_) => break,
        }
    }
    Ok(opened)
}

/// The counts of the run in which most counters were right; `None` if the group never ran.
fn best_counts(group: &[OwnedFd]) -> Option<Vec<u64>> {
    let mut best: Option<CounterTestResult> = None;
    for attempt in 0..TRIES {
        if attempt > 0 {
            thread::sleep(PAUSE);
        }
        let Some(counts) = run_loop(group) else {
            continue;
        };
        let counted = CounterTestResult {
            executed: EXECUTED_INSTRUCTIONS,
            counts,
            held: 0,
        };
        let rank = |counted: &CounterTestResult| (counted.has_true_count(), counted.working());
        if best.as_ref().is_none_or(|best| rank(&counted) > rank(best)) {
            best = Some(counted);
        }
        if best
            .as_ref()
            .is_some_and(|best| best.working() == group.len())
        {
            break;
        }
    }
    best.map(|best| best.counts)
}

/// The count of each counter of the group for one run of the loop; `None` if the group was not on
/// the PMU all the time.
fn run_loop(group: &[OwnedFd]) -> Option<Vec<u64>> {
    let leader = group[0].as_fd();
    let before = perf::read_group(leader, group.len()).ok();
    perf::enable(leader).ok()?;
    spin(ROUNDS);
    let ran = perf::read_group(leader, group.len());
    // Takes the group off the PMU until the next run. If this fails, the next run shows it.
    let _ = perf::disable(leader);
    // If other users hold counters, the pinned group is in an error state, and reading it fails.
    let ran = ran.ok()?;
    let before = before.unwrap_or_default();
    let delta = |(at, now): (usize, &perf::CounterReading)| {
        let ran = now.since(before.get(at).copied().unwrap_or_default());
        (ran.running > 0 && ran.running == ran.enabled).then_some(ran.count)
    };
    ran.iter().enumerate().map(delta).collect()
}

fn is_near(count: u64, reference: u64) -> bool {
    count.abs_diff(reference) <= reference / TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &[u64]) -> CounterTestResult {
        CounterTestResult {
            executed: EXECUTED_INSTRUCTIONS,
            counts: counts.to_vec(),
            held: 0,
        }
    }

    #[test]
    fn counters_are_compared_with_the_executed_instructions() {
        let right = EXECUTED_INSTRUCTIONS + 37;
        assert_eq!(counted(&[right; 6]).fault("cpu"), None);
        assert_eq!(counted(&[right; 6]).working(), 6);
        // As on an AMD EPYC under KVM.
        let last = counted(&[right, right, right, right, right, 2]);
        assert_eq!(last.working(), 5);
        assert_eq!(
            last.fault("cpu").unwrap(),
            "counter 6 of the 6 that cpu has free counted 2 of 1000000 instructions: the first 5 \
             are used"
        );
        // Counters after a broken one cannot be used without it.
        assert_eq!(counted(&[right, 2, right]).working(), 1);
        assert_eq!(counted(&[2, right, right]).working(), 0);
    }

    #[test]
    fn equal_counts_of_zero_are_a_fault() {
        assert_eq!(counted(&[0; 4]).working(), 0);
        assert!(counted(&[0; 4]).fault("cpu").is_some());
    }

    #[test]
    fn an_emulated_pmu_with_consistent_counters_is_used_and_reported() {
        let alike = counted(&[5_000_000, 5_000_100, 5_000_200]);
        assert_eq!(alike.working(), 3);
        assert_eq!(
            alike.fault("cpu").unwrap(),
            "the counters of cpu count alike, but 5000000 where 1000000 instructions were executed"
        );
        let last = counted(&[5_000_000, 5_000_100, 9]);
        assert_eq!(last.working(), 2);
        assert_eq!(
            last.fault("cpu").unwrap(),
            "counter 3 of the 3 that cpu has free counted 9 of 1000000 instructions, and counter 1 \
             5000000: the first 2 are used"
        );
    }

    /// Runs on this machine if it has a core PMU. Only counters that were free are tested.
    #[test]
    fn free_counters_of_this_machine_are_tested() {
        let pmus = Pmus::read(std::path::Path::new("/sys")).unwrap();
        let Some(pmu) = pmus.cores().next() else {
            println!("skipped: this machine has no core PMU");
            return;
        };
        match CounterTest::for_pmu(pmu, &pmus).and_then(|counters| counters.count()) {
            Ok(counted) => {
                println!("{counted:?}");
                assert!(!counted.counts.is_empty());
            }
            Err(reason) => println!("skipped: {reason}"),
        }
    }
}
