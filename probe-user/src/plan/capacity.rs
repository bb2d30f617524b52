//! Capacity: whether a PMU can count some events at one time.
//!
//! Two checks must pass: the documented counters of the PMU (the catalogue's `counters`), and a
//! probe on this machine, which also finds what the NMI watchdog, a hypervisor or other users hold.
//!
//! Sampled events hold their counters all the time; counted events must fit in the others.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
};

use probe_common::GROUP_COUNTERS;

use super::{PlanError, RequestedEvent};
use crate::{
    catalogue::{Catalogue, EventSpec, Hardware, PmuSpec},
    event::{self, Counter, Scope, Source, sampling::SampledEvent},
    machine::{Pmus, cpus::CpuList},
};

mod broken_counters;
mod probe;
pub(crate) use broken_counters::{CounterTest, CounterTestError, CounterTestResult};
use probe::GroupProbe;

/// Why some events cannot be counted at one time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// More than the documented counters, or than the programs' own limit.
    #[error(
        "needs more counters at once than there are: {counters} for any event, of which {reserve} \
         stay free for others (--reserve-counters)"
    )]
    Full { counters: usize, reserve: usize },
    /// More than the counters that count a known loop correctly.
    #[error(
        "needs more counters at once than count right: {working}, of which {reserve} stay free for \
         others (--reserve-counters)"
    )]
    BrokenCounters { working: usize, reserve: usize },
    /// The kernel rejects the group.
    #[error("the kernel refuses its events as one group: {0}")]
    Kernel(String),
    /// The group opened, but never ran on the PMU.
    #[error(
        "no free counters: others use them (the NMI watchdog takes one: `sysctl \
         kernel.nmi_watchdog=0` gives it back)"
    )]
    NeverRan,
    /// All CPUs of the PMU are offline.
    #[error("every CPU of its PMU is offline")]
    Offline,
    /// They would fit without the sampled events.
    #[error("{why}, with {sampled} for what is sampled")]
    SampledConflict {
        /// Counters of that PMU that sampled events hold.
        sampled: usize,
        why: Box<Refusal>,
    },
}

impl Refusal {
    /// Whether sampled events hold the counters that it would need.
    pub(super) const fn is_sampled_conflict(&self) -> bool {
        matches!(self, Self::SampledConflict { .. })
    }
}

/// What the PMUs of this machine can count at one time.
pub struct Capacity {
    /// Counters that stay free for others.
    reserve: usize,
    documented: BTreeMap<String, DocumentedCounters>,
    probe: Option<GroupProbe>,
    /// Sampled events, which hold counters of cores all the time.
    sampled: Vec<RequestedEvent>,
}

/// The counters of a PMU, as the catalogue documents them.
#[derive(Default)]
struct DocumentedCounters {
    counters: usize,
    /// Events with a fixed counter, or that some counters cannot count.
    constrained: Vec<(Counter, EventSpec)>,
}

impl Capacity {
    /// The capacity of the running machine, probed on the `online` CPUs. `reserve` counters of each
    /// core stay free for other users.
    #[must_use]
    pub fn of_this_machine(
        catalogue: &Catalogue,
        machine: &Hardware,
        pmus: &Pmus,
        online: CpuList,
        reserve: usize,
    ) -> Self {
        let cores = pmus.cores().filter_map(|pmu| {
            let counters = CounterTest::for_pmu(pmu, pmus).ok()?;
            Some((pmu.name.clone(), (counters, OnceCell::new())))
        });
        let probe = GroupProbe {
            online,
            cores: cores.collect(),
            results: RefCell::default(),
            never_ran: RefCell::default(),
        };
        Self {
            probe: Some(probe),
            ..Self::documented(catalogue, machine, pmus, reserve)
        }
    }

    /// The capacity by the documents alone.
    pub(crate) fn documented(
        catalogue: &Catalogue,
        machine: &Hardware,
        pmus: &Pmus,
        reserve: usize,
    ) -> Self {
        let mut documented: BTreeMap<String, DocumentedCounters> = BTreeMap::new();
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
            // Several families may describe one PMU, each with events of its own.
            for name in names {
                let known = documented.entry(name.to_owned()).or_default();
                known.counters = counters as usize;
                known
                    .constrained
                    .extend(constrained_events(spec, name, pmus));
            }
        }
        Self {
            reserve,
            documented,
            probe: None,
            sampled: Vec::new(),
        }
    }

    /// The capacity that these sampled events leave for counting.
    ///
    /// # Errors
    ///
    /// If a PMU has too few counters for the sampled events alone.
    pub(crate) fn with_sampled(
        mut self,
        sampled: &[SampledEvent],
        pmus: &Pmus,
    ) -> Result<Self, PlanError> {
        let mut by_pmu: BTreeMap<Option<&str>, Vec<(&str, Vec<RequestedEvent>)>> = BTreeMap::new();
        for event in sampled {
            let sampled_counters = event
                .counters(pmus)
                .into_iter()
                .map(|counter| RequestedEvent {
                    name: event.name.clone(),
                    counter: counter.clone(),
                    exclude: event.exclude,
                });
            let of_pmu = by_pmu.entry(event.counter.pmu.as_deref()).or_default();
            of_pmu.push((&event.name, sampled_counters.collect()));
        }
        for (pmu, events) in by_pmu {
            let sampled_counters = |events: &[(&str, Vec<RequestedEvent>)]| -> Vec<RequestedEvent> {
                events
                    .iter()
                    .flat_map(|(_, sampled_counters)| sampled_counters)
                    .cloned()
                    .collect()
            };
            let all = sampled_counters(&events);
            let others = |refusal| matches!(refusal, Refusal::Kernel(_) | Refusal::Offline);
            // If the kernel rejects one of them, opening it reports the reason.
            let alone = |one| self.can_count(std::slice::from_ref(one)).is_err_and(others);
            if let Err(why) = self.can_count(&all)
                && !all.iter().any(alone)
            {
                let fits =
                    |count: &usize| self.can_count(&sampled_counters(&events[..*count])).is_ok();
                let fit = (1..events.len()).rev().find(fits).unwrap_or(0);
                let names: Vec<&str> = events.iter().map(|(name, _)| *name).collect();
                return Err(PlanError::Sampled {
                    events: names.join(","),
                    pmu: pmu.unwrap_or("the CPU's PMU").to_owned(),
                    why: why.to_string(),
                    fit,
                });
            }
            self.sampled.extend(all);
        }
        Ok(self)
    }

    /// Whether these events can be counted at one time, as one group.
    pub(crate) fn can_schedule(&self, group: &[RequestedEvent]) -> Result<(), Refusal> {
        self.can_count(group)?;
        check_length(group, self.reserve)
    }

    /// Whether these events can be counted at one time, as one group or several.
    pub(super) fn can_count(&self, group: &[RequestedEvent]) -> Result<(), Refusal> {
        let mut hardware = group.iter().filter(|it| it.counter.is_hardware());
        let Some(first) = hardware.next() else {
            return Ok(());
        };
        let shares = |it: &&RequestedEvent| it.counter.pmu == first.counter.pmu;
        let sampled: Vec<RequestedEvent> = self.sampled.iter().filter(shares).cloned().collect();
        if sampled.is_empty() {
            return self.fits(group);
        }
        let together = self.fits(&[group, &sampled].concat());
        together.map_err(|why| match self.fits(group) {
            Ok(()) => Refusal::SampledConflict {
                sampled: sampled.len(),
                why: why.into(),
            },
            Err(alone) => alone,
        })
    }

    /// Whether these events can be counted at one time, without the sampled ones.
    fn fits(&self, group: &[RequestedEvent]) -> Result<(), Refusal> {
        let hardware: Vec<&RequestedEvent> = group
            .iter()
            .filter(|wanted| wanted.counter.is_hardware())
            .collect();
        let Some(first) = hardware.first() else {
            return Ok(());
        };
        let pmu = &first.counter.pmu;
        // The kernel multiplexes uncore groups, so other users have their intervals anyway.
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
        if let Some(working) = pmu.as_ref().and_then(|pmu| self.working_counters(pmu))
            && !documented
                .unwrap_or(&DocumentedCounters::default())
                .can_schedule(&hardware, working, reserve)
        {
            return Err(Refusal::BrokenCounters { working, reserve });
        }
        let Some(probe) = &self.probe else {
            return Ok(());
        };
        // Counters for other users are probed with copies of an event that every counter can count.
        let constrained = |wanted: &RequestedEvent| {
            documented.is_some_and(|known| known.constraint(wanted).is_some())
        };
        let spare: Vec<&RequestedEvent> = hardware
            .iter()
            .find(|wanted| !constrained(wanted))
            .into_iter()
            .flat_map(|wanted| std::iter::repeat_n(*wanted, reserve))
            .collect();
        probe.runs(pmu.as_deref(), group, &hardware, &spare)
    }

    /// How many counters of a core PMU count every event correctly; None if all do, or if they
    /// cannot be tested. Warns about the others, once.
    fn working_counters(&self, pmu: &str) -> Option<usize> {
        let (counters, known) = self.probe.as_ref()?.cores.get(pmu)?;
        *known.get_or_init(|| {
            let counted = counters.count().inspect_err(|reason| {
                tracing::debug!("the counters of {pmu} were not tried: {reason}");
            });
            let counted = counted.ok()?;
            let fault = counted.fault(pmu)?;
            tracing::warn!("{fault}");
            let working = counted.working();
            // A fixed counter for the test's event is among the tested counters.
            let is_fixed = self.documented.get(pmu).is_some_and(|known| {
                let mut constrained = known.constrained.iter();
                constrained.any(|(event, spec)| *event == counters.event && spec.fixed)
            });
            (working < counted.counts.len()).then(|| working.saturating_sub(usize::from(is_fixed)))
        })
    }
}

/// Checks that the group fits in a row of the programs' map.
fn check_length(group: &[RequestedEvent], reserve: usize) -> Result<(), Refusal> {
    if group.len() <= GROUP_COUNTERS {
        return Ok(());
    }
    Err(Refusal::Full {
        counters: GROUP_COUNTERS,
        reserve,
    })
}

/// The events of a PMU that not every counter can count, by all encodings of the catalogue.
fn constrained_events(spec: &PmuSpec, pmu: &str, pmus: &Pmus) -> Vec<(Counter, EventSpec)> {
    let mut constrained = Vec::new();
    for event in spec.events.values() {
        if !event.fixed && event.counters.is_none() {
            continue;
        }
        let texts = std::iter::once(event.perf.replace("{pmu}", pmu)).chain(event.also.clone());
        for text in texts {
            // An encoding with other placeholders, or a name that only tools know, does not parse.
            let Ok(groups) = event::parse(&text, pmus) else {
                continue;
            };
            for found in groups.into_iter().flat_map(|group| group.events) {
                if let Source::Counter(counter) = found.source {
                    constrained.push((counter, event.clone()));
                }
            }
        }
    }
    constrained
}

impl DocumentedCounters {
    fn constraint(&self, wanted: &RequestedEvent) -> Option<&EventSpec> {
        let mut constrained = self.constrained.iter();
        let found = constrained.find(|(counter, _)| *counter == wanted.counter);
        found.map(|(_, spec)| spec)
    }

    /// Whether the events fit on the first `counters`, with `reserve` of them left over.
    fn can_schedule(&self, hardware: &[&RequestedEvent], counters: usize, reserve: usize) -> bool {
        let any: Vec<usize> = (0..counters).collect();
        let mut fixed: Vec<&EventSpec> = Vec::new();
        let mut general: Vec<Vec<usize>> = Vec::new();
        for wanted in hardware {
            match self.constraint(wanted) {
                // The fixed counter counts the event once; with another filter it needs a general
                // counter.
                Some(spec) if spec.fixed && fixed.iter().all(|known| known.perf != spec.perf) => {
                    fixed.push(spec);
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

/// Whether each event can have a free counter among those that can count it.
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
