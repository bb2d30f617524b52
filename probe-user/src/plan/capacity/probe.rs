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

/// Tests of the running machine's counters.
pub(super) trait Probe {
    /// Whether a group runs together with `spare`. These are copies of one of its events, and
    /// occupy the counters that must stay free for others. `hardware` are the group's hardware
    /// events.
    fn runs(
        &self,
        pmu: Option<&str>,
        group: &[RequestedEvent],
        hardware: &[&RequestedEvent],
        spare: &[&RequestedEvent],
    ) -> Result<(), Refusal>;

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
    /// For each PMU, the number of hardware events in a group that the kernel opened but never ran.
    never_ran: RefCell<HashMap<Option<String>, usize>>,
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
            never_ran: RefCell::default(),
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
    fn runs(
        &self,
        pmu: Option<&str>,
        group: &[RequestedEvent],
        hardware: &[&RequestedEvent],
        spare: &[&RequestedEvent],
    ) -> Result<(), Refusal> {
        if hardware.iter().any(|it| is_model_specific(&it.counter)) && self.is_architectural_only()
        {
            return Err(Refusal::ArchitecturalOnly);
        }
        let pmu = pmu.map(str::to_owned);
        let never_ran = self.never_ran.borrow().get(&pmu).copied();
        if never_ran.is_some_and(|never_ran| hardware.len() >= never_ran) {
            return Err(Refusal::NeverRan);
        }
        let key = format!("{group:?} {}", spare.len());
        if let Some(known) = self.results.borrow().get(&key) {
            return known.clone();
        }
        let result = self.open(group, hardware, spare);
        if result == Err(Refusal::NeverRan) {
            self.never_ran.borrow_mut().insert(pmu, hardware.len());
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
