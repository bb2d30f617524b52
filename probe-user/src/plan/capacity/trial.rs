//! Trial: whether this machine runs some events at one time.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use super::{Counters, Refusal};
use crate::{event::Scope, machine::cpus::CpuList, plan::RequestedEvent, sys::perf};

/// Until the kernel has given every waiting group its turn (`perf_event_mux_interval_ms` is 4 ms).
const EVERY_TURN: Duration = Duration::from_millis(20);

/// Tries on this machine.
pub(super) struct Trial {
    pub(super) online: CpuList,
    /// The core PMUs by name, and how many of their counters count right, where not all do.
    pub(super) cores: BTreeMap<String, (Counters, OnceCell<Option<usize>>)>,
    pub(super) known: RefCell<HashMap<String, Result<(), Refusal>>>,
    /// By PMU: so many counters at once that the kernel let them open, and never ran them.
    pub(super) taken: RefCell<HashMap<Option<String>, usize>>,
}

impl Trial {
    /// Opens the group, with as many more counters as stay free for others, and looks whether it
    /// runs.
    pub(super) fn runs(
        &self,
        pmu: Option<&str>,
        group: &[RequestedEvent],
        hardware: &[&RequestedEvent],
        spare: &[&RequestedEvent],
    ) -> Result<(), Refusal> {
        let pmu = pmu.map(str::to_owned);
        let taken = self.taken.borrow().get(&pmu).copied();
        if taken.is_some_and(|taken| hardware.len() >= taken) {
            return Err(Refusal::NeverRan);
        }
        let key = format!("{group:?}");
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        let result = self.open(group, hardware, spare);
        if result == Err(Refusal::NeverRan) {
            self.taken.borrow_mut().insert(pmu, hardware.len());
        }
        self.known.borrow_mut().insert(key, result.clone());
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
        };
        let cpu = cpu.ok_or(Refusal::Offline)?;
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
        std::thread::sleep(EVERY_TURN);
        if running() {
            Ok(())
        } else {
            Err(Refusal::NeverRan)
        }
    }
}
