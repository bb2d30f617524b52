//! Capacity: whether a PMU can count some events at one time.
//!
//! Two must agree: what the documents say of the PMU (the catalogue's `counters`), and a trial on
//! this machine, which knows what the NMI watchdog, a hypervisor or other users have taken.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use probe_common::GROUP_COUNTERS;

use super::{RequestedEvent, SOFTWARE};
use crate::{
    catalogue::{Catalogue, EventSpec, Hardware, PmuSpec},
    event::{self, Counter, Scope, Source},
    machine::{Pmus, cpus::CpuList},
    sys::perf,
};

mod sound;
pub(crate) use sound::{Counters, SoundCounters, Untried};

/// Until the kernel has given every waiting group its turn (`perf_event_mux_interval_ms` is 4 ms).
const EVERY_TURN: Duration = Duration::from_millis(20);

/// Why some events cannot be counted at one time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// By the documents, or by the programs' own limit.
    #[error(
        "needs more counters at once than there are: {counters} for any event, of which {reserve} \
         stay free for others (--reserve-counters)"
    )]
    Full { counters: usize, reserve: usize },
    /// By what the counters counted of a known loop.
    #[error(
        "needs more counters at once than count right: {sound}, of which {reserve} stay free for \
         others (--reserve-counters)"
    )]
    Unsound { sound: usize, reserve: usize },
    /// By the kernel.
    #[error("the kernel refuses its events as one group: {0}")]
    Kernel(String),
    /// Opened, but never on the PMU.
    #[error(
        "no free counters: others use them (the NMI watchdog takes one: `sysctl \
         kernel.nmi_watchdog=0` gives it back)"
    )]
    NeverRan,
    /// Of cores that are all offline.
    #[error("every CPU of its PMU is offline")]
    Offline,
}

/// What the PMUs of this machine can count at one time.
pub struct Capacity {
    /// Counters that stay free for others.
    reserve: usize,
    documented: BTreeMap<String, Documented>,
    trial: Option<Trial>,
}

/// What the catalogue says of a PMU.
#[derive(Default)]
struct Documented {
    counters: usize,
    /// Events with a counter of their own, or that some counters cannot count.
    special: Vec<(Counter, EventSpec)>,
}

/// Tries on this machine.
struct Trial {
    online: CpuList,
    /// The core PMUs by name, and how many of their counters count right, where not all do.
    cores: BTreeMap<String, (Counters, OnceCell<Option<usize>>)>,
    known: RefCell<HashMap<String, Result<(), Refusal>>>,
    /// By PMU: so many counters at once that the kernel let them open, and never ran them.
    taken: RefCell<HashMap<Option<String>, usize>>,
}

impl Capacity {
    /// The PMUs of the running machine, tried on the CPUs that are `online`. `reserve` counters of
    /// the cores' stay free for others.
    #[must_use]
    pub fn of_this_machine(
        catalogue: &Catalogue,
        machine: &Hardware,
        pmus: &Pmus,
        online: CpuList,
        reserve: usize,
    ) -> Self {
        let cores = pmus.cores().filter_map(|pmu| {
            let counters = Counters::of(pmu, pmus).ok()?;
            Some((pmu.name.clone(), (counters, OnceCell::new())))
        });
        let trial = Trial {
            online,
            cores: cores.collect(),
            known: RefCell::default(),
            taken: RefCell::default(),
        };
        Self {
            trial: Some(trial),
            ..Self::documented(catalogue, machine, pmus, reserve)
        }
    }

    /// By the documents alone.
    pub(crate) fn documented(
        catalogue: &Catalogue,
        machine: &Hardware,
        pmus: &Pmus,
        reserve: usize,
    ) -> Self {
        let mut documented = BTreeMap::new();
        let families = catalogue
            .families()
            .filter(|family| family.holds_on(machine));
        for spec in families.flat_map(|family| &family.pmus) {
            let Some(counters) = spec.counters else {
                continue;
            };
            let names: Vec<&str> = if spec.pattern.is_core() {
                pmus.cores().map(|pmu| pmu.name.as_str()).collect()
            } else {
                let names = pmus.names();
                names
                    .filter(|name| spec.pattern.instance(name).is_some())
                    .collect()
            };
            for name in names {
                let known = Documented {
                    counters: counters as usize,
                    special: special(spec, name, pmus),
                };
                documented.insert(name.to_owned(), known);
            }
        }
        Self {
            reserve,
            documented,
            trial: None,
        }
    }

    /// Whether they can be counted at one time, as one group.
    pub(crate) fn can_schedule(&self, group: &[RequestedEvent]) -> Result<(), Refusal> {
        self.can_count(group)?;
        short(group, self.reserve)
    }

    /// The same of events in several groups, which need not fit in one.
    pub(super) fn can_count(&self, group: &[RequestedEvent]) -> Result<(), Refusal> {
        let hardware: Vec<&RequestedEvent> = group
            .iter()
            .filter(|wanted| wanted.counter.type_ != SOFTWARE)
            .collect();
        let Some(first) = hardware.first() else {
            return Ok(());
        };
        let pmu = &first.counter.pmu;
        // Uncore groups are multiplexed by the kernel: others have their turns there in any case.
        let reserve = match first.counter.scope {
            Scope::Uncore { .. } => 0,
            Scope::Cpu | Scope::Cpus(_) => self.reserve,
        };
        let documented = pmu.as_ref().and_then(|pmu| self.documented.get(pmu));
        if let Some(known) = documented
            && !known.can_schedule(&hardware, known.counters, reserve)
        {
            return Err(Refusal::Full {
                counters: known.counters,
                reserve,
            });
        }
        if let Some(sound) = pmu.as_ref().and_then(|pmu| self.sound(pmu))
            && !documented
                .unwrap_or(&Documented::default())
                .can_schedule(&hardware, sound, reserve)
        {
            return Err(Refusal::Unsound { sound, reserve });
        }
        let Some(trial) = &self.trial else {
            return Ok(());
        };
        // Counters for others are kept free by more of an event that every counter can count.
        let special =
            |wanted: &RequestedEvent| documented.is_some_and(|known| known.spec(wanted).is_some());
        let spare = hardware.iter().find(|wanted| !special(wanted));
        let spare: Vec<&RequestedEvent> = spare
            .into_iter()
            .flat_map(|wanted| std::iter::repeat_n(*wanted, reserve))
            .collect();
        trial.runs(pmu.as_deref(), group, &hardware, &spare)
    }

    /// How many counters of a core PMU count any event right; None where all do, or where that
    /// cannot be told. What is wrong with the others is said once.
    fn sound(&self, pmu: &str) -> Option<usize> {
        let (counters, known) = self.trial.as_ref()?.cores.get(pmu)?;
        *known.get_or_init(|| {
            let counted = counters.count().inspect_err(|reason| {
                tracing::debug!("the counters of {pmu} were not tried: {reason}");
            });
            let counted = counted.ok()?;
            let fault = counted.fault(pmu)?;
            tracing::warn!("{fault}");
            let sound = counted.sound();
            // An event with a counter of its own was counted by that one, too.
            let own = self.documented.get(pmu).is_some_and(|known| {
                let mut special = known.special.iter();
                special.any(|(event, spec)| *event == counters.event && spec.fixed)
            });
            (sound < counted.counts.len()).then(|| sound.saturating_sub(usize::from(own)))
        })
    }
}

/// A row of the programs' map has so many counts.
fn short(group: &[RequestedEvent], reserve: usize) -> Result<(), Refusal> {
    if group.len() <= GROUP_COUNTERS {
        return Ok(());
    }
    Err(Refusal::Full {
        counters: GROUP_COUNTERS,
        reserve,
    })
}

/// The events of a PMU that not every counter can count, by all encodings that the catalogue knows.
fn special(spec: &PmuSpec, pmu: &str, pmus: &Pmus) -> Vec<(Counter, EventSpec)> {
    let mut special = Vec::new();
    for event in spec.events.values() {
        if !event.fixed && event.counters.is_none() {
            continue;
        }
        let texts = std::iter::once(event.perf.replace("{pmu}", pmu)).chain(event.also.clone());
        for text in texts {
            // An encoding with other placeholders, or a name that only tools know, is no event
            // here.
            let Ok(groups) = event::parse(&text, pmus) else {
                continue;
            };
            for found in groups.into_iter().flat_map(|group| group.events) {
                if let Source::Counter(counter) = found.source {
                    special.push((counter, event.clone()));
                }
            }
        }
    }
    special
}

impl Documented {
    fn spec(&self, wanted: &RequestedEvent) -> Option<&EventSpec> {
        let mut special = self.special.iter();
        let found = special.find(|(counter, _)| *counter == wanted.counter);
        found.map(|(_, spec)| spec)
    }

    /// Whether they have room on the first `counters`, with `reserve` of them left over.
    fn can_schedule(&self, hardware: &[&RequestedEvent], counters: usize, reserve: usize) -> bool {
        let any: Vec<usize> = (0..counters).collect();
        let mut own: Vec<&EventSpec> = Vec::new();
        let mut general: Vec<Vec<usize>> = Vec::new();
        for wanted in hardware {
            match self.spec(wanted) {
                // Its own counter counts it once; with another filter it needs one of the others.
                Some(spec) if spec.fixed && own.iter().all(|own| own.perf != spec.perf) => {
                    own.push(spec);
                }
                Some(EventSpec {
                    counters: Some(allowed),
                    ..
                }) => general.push(
                    allowed
                        .iter()
                        .map(|counter| usize::from(*counter))
                        .collect(),
                ),
                _ => general.push(any.clone()),
            }
        }
        general.len() + reserve <= counters && assign(&general, &mut vec![false; counters])
    }
}

/// Whether each of `events` can have a free counter of those that it can use.
fn assign(events: &[Vec<usize>], taken: &mut Vec<bool>) -> bool {
    let Some((first, rest)) = events.split_first() else {
        return true;
    };
    first.iter().any(|counter| {
        if taken.get(*counter).copied().unwrap_or(true) {
            return false;
        }
        taken[*counter] = true;
        let placed = assign(rest, taken);
        taken[*counter] = false;
        placed
    })
}

impl Trial {
    /// Opens the group, with as many more counters as stay free for others, and looks whether it
    /// runs.
    fn runs(
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
