//! Probes whether this machine runs events at one time.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use super::{CounterTest, Refusal};
use crate::{event::Scope, machine::cpus::CpuList, plan::RequestedEvent, sys::perf};

/// Long enough for the kernel to run every waiting group (`perf_event_mux_interval_ms` is 4 ms).
const FULL_ROTATION: Duration = Duration::from_millis(20);

/// Probes on this machine, and their results.
pub(super) struct GroupProbe {
    pub(super) online: CpuList,
    /// By core PMU: the test of its counters, and how many count correctly if not all do.
    pub(super) cores: BTreeMap<String, (CounterTest, OnceCell<Option<usize>>)>,
    pub(super) results: RefCell<HashMap<String, Result<(), Refusal>>>,
    /// By PMU: the number of hardware events of a group that the kernel opened but never ran.
    pub(super) never_ran: RefCell<HashMap<Option<String>, usize>>,
}

impl GroupProbe {
    /// Opens the group, with the counters that must stay free for others, and checks that it runs.
    pub(super) fn runs(
        &self,
        pmu: Option<&str>,
        group: &[RequestedEvent],
        hardware: &[&RequestedEvent],
        spare: &[&RequestedEvent],
    ) -> Result<(), Refusal> {
        let pmu = pmu.map(str::to_owned);
        let never_ran = self.never_ran.borrow().get(&pmu).copied();
        if never_ran.is_some_and(|never_ran| hardware.len() >= never_ran) {
            return Err(Refusal::NeverRan);
        }
        let key = format!("{group:?}");
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
        let running = || perf::read(leader).is_ok_and(|reading| reading.running > 0);
        if running() {
            return Ok(());
        }
        std::thread::sleep(FULL_ROTATION);
        if running() {
            Ok(())
        } else {
            Err(Refusal::NeverRan)
        }
    }
}
