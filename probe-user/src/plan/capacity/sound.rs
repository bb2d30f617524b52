//! Soundness: how many counters of a core PMU count right, by a loop whose instructions are known.
//!
//! Some virtual PMUs offer a counter that counts next to nothing. The kernel gives counters out
//! from the first one on, so a PMU whose last counters are wrong can be used without them.

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

/// Events that count every instruction a thread has executed, by the names that drivers give them.
const KNOWN: [&str; 2] = ["instructions", "inst_retired"];

/// Rounds of the loop: 0.3 ms where an instruction takes as many cycles as it should.
const ROUNDS: u64 = 500_000;

/// What the loop executes.
const EXECUTED: u64 = ROUNDS * PER_ROUND;

/// A count may be off by one part in so many: that is more than the entry into the kernel and back
/// adds.
const TOLERANCE: u64 = 100;

/// More counters than any core PMU has.
const MOST: usize = 64;

/// A counter that another user, or the hypervisor, takes for a moment is there again at the next
/// try.
const TRIES: usize = 3;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// What the counters of a core PMU counted of a known loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SoundCounters {
    /// Instructions that the loop executed.
    pub(crate) executed: u64,
    /// What each counter counted of them, in the order in which the kernel gives counters out.
    pub(crate) counts: Vec<u64>,
    /// Counters besides, which others held.
    pub(crate) held: usize,
}

/// Why the counters of a PMU could not be tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Untried {
    /// It names no event whose true count is known.
    #[error("it names no event that counts instructions")]
    NoEvent,
    /// This process cannot run where it counts.
    #[error("this process may not run on its CPUs")]
    NoCpu,
    /// The kernel does not open the event.
    #[error("the kernel refuses {event}: {reason}")]
    Refused {
        /// In perf's syntax.
        event: String,
        /// What it says.
        reason: String,
    },
    /// Not one counter was free.
    #[error("others hold all of its counters")]
    Held,
}

impl SoundCounters {
    /// True where a count is what was executed, so that the others can be compared with the truth.
    fn is_true(&self) -> bool {
        self.counts.iter().any(|count| near(*count, self.executed))
    }

    /// How many counters count right, from the first on. Where none does, the events of this PMU
    /// are not what they are called (as those of an emulated one), and counters count alike, or
    /// not.
    pub(crate) fn sound(&self) -> usize {
        let truth = if self.is_true() {
            self.executed
        } else {
            self.counts.first().copied().unwrap_or(0)
        };
        let right = |count: &&u64| truth > 0 && near(**count, truth);
        self.counts.iter().take_while(right).count()
    }

    /// What is wrong with the counters of a PMU; None where each is right.
    pub(crate) fn fault(&self, pmu: &str) -> Option<String> {
        let (all, sound, executed) = (self.counts.len(), self.sound(), self.executed);
        if let Some(wrong) = self.counts.get(sound) {
            let truth = if self.is_true() {
                format!("{executed} instructions")
            } else {
                format!("{executed} instructions, and counter 1 {}", self.counts[0])
            };
            return Some(format!(
                "counter {} of the {all} that {pmu} has free counted {wrong} of {truth}: the \
                 first {sound} are used",
                sound + 1
            ));
        }
        let first = self.counts.first()?;
        (!self.is_true()).then(|| {
            format!(
                "the counters of {pmu} count alike, but {first} where {executed} instructions were \
                 executed"
            )
        })
    }
}

/// The counters of a core PMU, and an event to try them with.
pub(crate) struct Counters {
    pub(crate) event: Counter,
    /// In perf's syntax.
    name: String,
}

impl Counters {
    /// The PMU names an event that counts instructions, or they cannot be tried.
    pub(crate) fn of(pmu: &Pmu, pmus: &Pmus) -> Result<Self, Untried> {
        let mut known = KNOWN.into_iter();
        let name = known.find(|name| pmu.event(name).is_some());
        let name = format!("{}/{}/u", pmu.name, name.ok_or(Untried::NoEvent)?);
        let refused = |reason: String| Untried::Refused {
            event: name.clone(),
            reason,
        };
        let parsed = event::parse(&name, pmus).map_err(|error| refused(error.to_string()))?;
        let mut events = parsed.into_iter().flat_map(|group| group.events);
        match events.next().map(|event| event.source) {
            Some(Source::Counter(event)) => Ok(Self { event, name }),
            Some(Source::DurationTime) | None => Err(Untried::NoEvent),
        }
    }

    /// Runs a known loop on one of the PMU's CPUs, in a thread of our own, with as many counters as
    /// can be had there at one time; of a few runs, that in which most counters were right.
    pub(crate) fn count(&self) -> Result<SoundCounters, Untried> {
        let run = || {
            let cpu = pin(&self.event.scope).ok_or(Untried::NoCpu)?;
            let mut opened = open_all(&self.event, cpu).map_err(|error| Untried::Refused {
                event: self.name.clone(),
                reason: error.to_string(),
            })?;
            let most = opened.len();
            while !opened.is_empty() {
                if let Some(counts) = best(&opened) {
                    return Ok(SoundCounters {
                        executed: EXECUTED,
                        held: most - counts.len(),
                        counts,
                    });
                }
                opened.pop();
            }
            Err(Untried::Held)
        };
        // The pinning goes with the thread.
        let ran = thread::scope(|scope| scope.spawn(run).join());
        ran.expect("the trial does not panic")
    }
}

/// Keeps this thread on the first CPU that it may run on and that the PMU counts.
fn pin(scope: &Scope) -> Option<u32> {
    let allowed = sched_getaffinity(None).ok()?;
    let runs_on = |cpu: &u32| usize::try_from(*cpu).is_ok_and(|cpu| allowed.is_set(cpu));
    let cpu = (0..u32::try_from(CpuSet::MAX_CPU).ok()?)
        .filter(|cpu| scope.counts_on(*cpu))
        .find(runs_on)?;
    let mut only = CpuSet::new();
    only.set(usize::try_from(cpu).ok()?);
    sched_setaffinity(None, &only).ok()?;
    Some(cpu)
}

/// As many as the kernel takes into one group.
fn open_all(counter: &Counter, cpu: u32) -> io::Result<Vec<OwnedFd>> {
    let mut opened: Vec<OwnedFd> = vec![perf::open_own(&counter.attr(), cpu, None)?];
    while opened.len() < MOST {
        match perf::open_own(&counter.attr(), cpu, Some(opened[0].as_fd())) {
            Ok(event) => opened.push(event),
            Err(_) => break,
        }
    }
    Ok(opened)
}

/// The counts of the run in which most counters were right; None where the group never ran.
fn best(group: &[OwnedFd]) -> Option<Vec<u64>> {
    let mut best: Option<SoundCounters> = None;
    for attempt in 0..TRIES {
        if attempt > 0 {
            thread::sleep(PAUSE);
        }
        let Some(counts) = run(group) else { continue };
        let counted = SoundCounters {
            executed: EXECUTED,
            counts,
            held: 0,
        };
        let right = |counted: &SoundCounters| (counted.is_true(), counted.sound());
        if best
            .as_ref()
            .is_none_or(|best| right(&counted) > right(best))
        {
            best = Some(counted);
        }
        if best
            .as_ref()
            .is_some_and(|best| best.sound() == group.len())
        {
            break;
        }
    }
    best.map(|best| best.counts)
}

/// What each counter of the group counts of one run of the loop.
fn run(group: &[OwnedFd]) -> Option<Vec<u64>> {
    let leader = group[0].as_fd();
    let before = perf::read_group(leader, group.len()).ok();
    perf::enable(leader).ok()?;
    spin(ROUNDS);
    let ran = perf::read_group(leader, group.len());
    // It is off the PMU until the next run; where that fails, the next run shows it.
    let _ = perf::disable(leader);
    // Counters that others hold leave a group that must run in an error, which reads as nothing.
    let ran = ran.ok()?;
    let before = before.unwrap_or_default();
    let delta = |(at, now): (usize, &perf::Reading)| {
        let before = before.get(at).copied().unwrap_or_default();
        let (enabled, running) = (now.enabled - before.enabled, now.running - before.running);
        (running > 0 && running == enabled).then(|| now.count.saturating_sub(before.count))
    };
    ran.iter().enumerate().map(delta).collect()
}

fn near(count: u64, truth: u64) -> bool {
    count.abs_diff(truth) <= truth / TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &[u64]) -> SoundCounters {
        SoundCounters {
            executed: EXECUTED,
            counts: counts.to_vec(),
            held: 0,
        }
    }

    #[test]
    fn counters_are_compared_with_the_truth_not_with_each_other() {
        let right = EXECUTED + 37;
        assert_eq!(counted(&[right; 6]).fault("cpu"), None);
        assert_eq!(counted(&[right; 6]).sound(), 6);
        // Seen on an AMD EPYC under KVM.
        let last = counted(&[right, right, right, right, right, 2]);
        assert_eq!(last.sound(), 5);
        assert_eq!(
            last.fault("cpu").unwrap(),
            "counter 6 of the 6 that cpu has free counted 2 of 1000000 instructions: the first 5 \
             are used"
        );
        // Those behind a wrong one cannot be had without it.
        assert_eq!(counted(&[right, 2, right]).sound(), 1);
        assert_eq!(counted(&[2, right, right]).sound(), 0);
    }

    #[test]
    fn zeros_agree_and_are_not_right() {
        assert_eq!(counted(&[0; 4]).sound(), 0);
        assert!(counted(&[0; 4]).fault("cpu").is_some());
    }

    #[test]
    fn an_emulated_pmu_whose_counters_agree_is_used_and_said() {
        let alike = counted(&[5_000_000, 5_000_100, 5_000_200]);
        assert_eq!(alike.sound(), 3);
        assert_eq!(
            alike.fault("cpu").unwrap(),
            "the counters of cpu count alike, but 5000000 where 1000000 instructions were executed"
        );
        let last = counted(&[5_000_000, 5_000_100, 9]);
        assert_eq!(last.sound(), 2);
        assert_eq!(
            last.fault("cpu").unwrap(),
            "counter 3 of the 3 that cpu has free counted 9 of 1000000 instructions, and counter 1 \
             5000000: the first 2 are used"
        );
    }

    /// On this machine, where it has a PMU: whatever is found is about counters that were free.
    #[test]
    fn counters_of_this_machine() {
        let pmus = Pmus::read(std::path::Path::new("/sys")).unwrap();
        let Some(pmu) = pmus.cores().next() else {
            println!("skipped: this machine has no core PMU");
            return;
        };
        match Counters::of(pmu, &pmus).and_then(|counters| counters.count()) {
            Ok(counted) => {
                println!("{counted:?}");
                assert!(!counted.counts.is_empty());
            }
            Err(reason) => println!("skipped: {reason}"),
        }
    }
}
