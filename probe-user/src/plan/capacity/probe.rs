//! Probes whether this machine runs events at one time.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use super::{
    CounterTest, CounterTestResult, Refusal,
    architectural::{counts_nothing, is_model_specific},
};
use crate::{
    event::{Counter, Scope},
    machine::{Pmus, cpus::CpuList},
    plan::RequestedEvent,
    sys::perf,
};

/// Long enough for the kernel to run every waiting group (`perf_event_mux_interval_ms` is 4 ms).
const FULL_ROTATION: Duration = Duration::from_millis(20);

/// A group to try.
pub(super) struct Trial<'a> {
    pub(super) pmu: Option<&'a str>,
    pub(super) group: &'a [RequestedEvent],
    /// The group's hardware events.
    pub(super) hardware: &'a [&'a RequestedEvent],
    /// Those that not every counter can count, as documented.
    pub(super) constrained: Vec<&'a RequestedEvent>,
    /// Copies of one of the others, which occupy the counters that must stay free for others.
    pub(super) spare: Vec<&'a RequestedEvent>,
}

/// The counters that a group needs at one time.
#[derive(Clone, Debug)]
struct Need {
    pmu: Option<String>,
    /// All hardware events of the group.
    events: Vec<RequestedEvent>,
    /// Those that not every counter can count.
    constrained: Vec<RequestedEvent>,
    /// The number of counters for the others and for the spare copies.
    others: usize,
}

impl Need {
    fn from_trial(trial: &Trial<'_>) -> Self {
        let owned = |events: &[&RequestedEvent]| events.iter().copied().cloned().collect();
        Self {
            pmu: trial.pmu.map(str::to_owned),
            events: owned(trial.hardware),
            constrained: owned(&trial.constrained),
            others: trial.hardware.len() + trial.spare.len() - trial.constrained.len(),
        }
    }

    /// What is short if the group never ran. A single event may need a counter that others hold,
    /// even if no document says so.
    fn shortage(self) -> Self {
        match self.events.len() {
            1 => Self {
                others: self.others + self.constrained.len() - 1,
                constrained: self.events.clone(),
                ..self
            },
            _ => self,
        }
    }

    /// Whether it needs all that is short.
    fn includes(&self, shortage: &Self) -> bool {
        let count =
            |events: &[RequestedEvent], event| events.iter().filter(|it| *it == event).count();
        let mut constrained = shortage.constrained.iter();
        self.pmu == shortage.pmu
            && self.others >= shortage.others
            && constrained.all(|it| count(&self.events, it) >= count(&shortage.constrained, it))
    }
}

/// Tests of the running machine's counters.
pub(super) trait Probe {
    /// Whether a group runs together with its spare copies.
    fn runs(&self, trial: &Trial<'_>) -> Result<(), Refusal>;

    /// The event that counts instructions on a core PMU, and what each counter counted during a
    /// known loop. `None` if the counters cannot be tested.
    fn tested(&self, pmu: &str) -> Option<(Counter, CounterTestResult)>;

    /// Whether the hypervisor lets the cores count architectural events alone.
    fn is_architectural_only(&self) -> bool;
}

/// Probes this machine, and keeps the results.
pub(super) struct GroupProbe {
    online: CpuList,
    /// The test of the counters of each core PMU.
    cores: BTreeMap<String, CounterTest>,
    /// By the group and the number of its spare copies.
    results: RefCell<HashMap<String, Result<(), Refusal>>>,
    /// What was short for groups that the kernel opened but never ran.
    shortages: RefCell<Vec<Need>>,
    /// A model-specific event that any program causes, if the cores have one.
    model_specific: Option<Counter>,
    architectural_only: OnceCell<bool>,
}

impl GroupProbe {
    pub(super) fn new(pmus: &Pmus, online: CpuList, model_specific: Option<Counter>) -> Self {
        let cores = pmus.cores().filter_map(|pmu| {
            let counters = CounterTest::for_pmu(pmu, pmus).ok()?;
            Some((pmu.name.clone(), counters))
        });
        Self {
            online,
            cores: cores.collect(),
            results: RefCell::default(),
            shortages: RefCell::default(),
            model_specific,
            architectural_only: OnceCell::new(),
        }
    }

    /// Opens the group with its spare copies, and waits until it has run.
    fn open(
        &self,
        group: &[RequestedEvent],
        hardware: &[&RequestedEvent],
        spare: &[&RequestedEvent],
    ) -> Result<(), Refusal> {
        let cpu = match &hardware[0].counter.scope {
            Scope::Cpu => self.online.iter().next(),
            Scope::Cpus(cpus) | Scope::Uncore { cpus } => {
                cpus.iter().find(|cpu| self.online.contains(*cpu))
            }
        }
        .ok_or(Refusal::Offline)?;
        let refused = |error: std::io::Error| {
            Refusal::Kernel(match error.raw_os_error() {
                Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {
                    "this machine's PMU does not count one of them".to_owned()
                }
                Some(libc::EINVAL) => "the PMU cannot count them all at once".to_owned(),
                _ => error.to_string(),
            })
        };
        let mut opened: Vec<OwnedFd> = Vec::new();
        for wanted in group.iter().chain(spare.iter().copied()) {
            let leader = opened.first().map(|fd| fd.as_fd());
            let event = perf::open(&wanted.counter.attr(), wanted.exclude, cpu, leader);
            opened.push(event.map_err(refused)?);
        }
        let leader = opened[0].as_fd();
        perf::enable(leader).map_err(refused)?;
        let has_run = || perf::read(leader).is_ok_and(|reading| reading.running > 0);
        if has_run() {
            return Ok(());
        }
        std::thread::sleep(FULL_ROTATION);
        if has_run() {
            Ok(())
        } else {
            Err(Refusal::NeverRan)
        }
    }
}

impl Probe for GroupProbe {
    fn runs(&self, trial: &Trial<'_>) -> Result<(), Refusal> {
        let Trial {
            group, hardware, ..
        } = *trial;
        if hardware.iter().any(|it| is_model_specific(&it.counter)) && self.is_architectural_only()
        {
            return Err(Refusal::ArchitecturalOnly);
        }
        let need = Need::from_trial(trial);
        let mut shortages = self.shortages.borrow_mut();
        if shortages.iter().any(|shortage| need.includes(shortage)) {
            return Err(Refusal::NeverRan);
        }
        let key = format!("{group:?} {}", trial.spare.len());
        if let Some(known) = self.results.borrow().get(&key) {
            return known.clone();
        }
        let result = self.open(group, hardware, &trial.spare);
        if result == Err(Refusal::NeverRan) {
            shortages.push(need.shortage());
        }
        self.results.borrow_mut().insert(key, result.clone());
        result
    }

    fn tested(&self, pmu: &str) -> Option<(Counter, CounterTestResult)> {
        let test = self.cores.get(pmu)?;
        let counted = test.count().inspect_err(|reason| {
            tracing::debug!("the counters of {pmu} were not tried: {reason}");
        });
        Some((test.event.clone(), counted.ok()?))
    }

    fn is_architectural_only(&self) -> bool {
        let tested = || self.model_specific.as_ref().is_some_and(counts_nothing);
        *self.architectural_only.get_or_init(tested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Exclude;

    fn event(config: u64) -> RequestedEvent {
        RequestedEvent {
            name: config.to_string(),
            counter: Counter {
                config,
                ..Counter::task_clock()
            },
            exclude: Exclude::default(),
        }
    }

    /// The need of a group. Its first events are constrained.
    fn need(pmu: &str, constrained: &[u64], others: usize, spare: usize) -> Need {
        let configs = constrained.iter().copied();
        let count = constrained.len() + others;
        let events: Vec<_> = configs.chain(100..).map(event).take(count).collect();
        Need::from_trial(&Trial {
            pmu: Some(pmu),
            group: &[],
            hardware: &events.iter().collect::<Vec<_>>(),
            constrained: events[..constrained.len()].iter().collect(),
            spare: vec![&events[0]; spare],
        })
    }

    #[test]
    fn a_group_that_never_ran_refuses_only_groups_that_need_its_counters() {
        let core = |constrained: &[u64], others, spare| need("cpu", constrained, others, spare);
        // Another user holds the only counter of event 1.
        let short = core(&[1], 0, 1).shortage();
        assert!(core(&[1], 0, 1).includes(&short));
        assert!(core(&[2, 1], 3, 1).includes(&short));
        assert!(!core(&[2], 0, 1).includes(&short));
        assert!(!core(&[], 4, 1).includes(&short));
        assert!(!need("other", &[1], 0, 1).includes(&short));
        // The same of event 100, without a document.
        let short = core(&[], 1, 1).shortage();
        assert!(core(&[1], 1, 1).includes(&short));
        assert!(!core(&[1], 0, 1).includes(&short));
        // Two more counters must stay free beside two events of any counter.
        let short = core(&[], 2, 2).shortage();
        assert!(core(&[], 4, 0).includes(&short));
        assert!(core(&[1], 3, 1).includes(&short));
        assert!(!core(&[], 3, 0).includes(&short));
        assert!(!core(&[1, 2], 2, 1).includes(&short));
        // An event that is counted twice needs its counters twice.
        let short = core(&[1, 1], 0, 0).shortage();
        assert!(!core(&[1], 1, 0).includes(&short));
        assert!(core(&[1, 2, 1], 0, 0).includes(&short));
    }
}
