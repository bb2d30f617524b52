//! Capacity: whether a PMU can count some events at one time.
//!
//! Two checks must pass: the documented counters of the PMU (the catalogue's `counters`), and a
//! probe on this machine, which also finds what the NMI watchdog, a hypervisor or other users hold.
//!
//! Sampled events hold their counters all the time; counted events must fit in the others.

use std::{cell::OnceCell, collections::BTreeMap};

use probe_common::GROUP_COUNTERS;

use super::{Plan, PlanError, RequestedEvent};
use crate::{
    catalogue::{Catalogue, Hardware},
    event::{Scope, sampling::SampledEvent},
    machine::{Pmus, cpus::CpuList},
};

mod architectural;
mod broken_counters;
mod core_counters;
mod documented;
mod probe;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) use broken_counters::{CounterTest, CounterTestError, CounterTestResult};
pub(crate) use core_counters::CoreCounters;
use documented::{DocumentedCounters, constrained_events};
use probe::{GroupProbe, Probe, Trial};

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
    /// The hypervisor filters the event.
    #[error("the hypervisor hides model-specific events, which would count 0")]
    ArchitecturalOnly,
    /// All CPUs of the PMU are offline.
    #[error("every CPU of its PMU is offline")]
    Offline,
    /// The events would fit without the sampled ones.
    #[error("{why}, with {sampled} for what is sampled")]
    SampledConflict {
        /// Counters of that PMU that sampled events hold.
        sampled: usize,
        why: Box<Refusal>,
    },
}

impl Refusal {
    /// Whether the events would fit without the sampled ones.
    pub(super) const fn is_sampled_conflict(&self) -> bool {
        matches!(self, Self::SampledConflict { .. })
    }
}

/// What the PMUs of this machine can count at one time.
pub struct Capacity {
    /// Counters that stay free for others.
    reserve: usize,
    documented: BTreeMap<String, DocumentedCounters>,
    probe: Option<Box<dyn Probe>>,
    /// The counters of each core PMU that count correctly, by the probe; `None` if they could not
    /// be tested. Tested at the first use.
    working: BTreeMap<String, OnceCell<Option<WorkingCounters>>>,
    /// Sampled events, which hold counters of cores all the time.
    sampled: Vec<RequestedEvent>,
}

/// The counters of a core PMU that count a known loop correctly, without the fixed ones.
#[derive(Clone, Copy, Debug)]
struct WorkingCounters {
    general: usize,
    /// Whether any other counter counts wrongly.
    is_any_broken: bool,
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
        let documented = Self::documented(catalogue, machine, pmus, reserve);
        let model_specific = architectural::model_specific_event(catalogue, machine, pmus);
        documented.probed(GroupProbe::new(pmus, online, model_specific), pmus)
    }

    /// This capacity, with a probe that also checks it.
    fn probed(self, probe: impl Probe + 'static, pmus: &Pmus) -> Self {
        let names = pmus.cores().map(|pmu| pmu.name.clone());
        Self {
            probe: Some(Box::new(probe)),
            working: names.map(|name| (name, OnceCell::new())).collect(),
            ..self
        }
    }

    /// The capacity by the documented counters alone.
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
                let entry = documented.entry(name.to_owned()).or_default();
                entry.counters = counters as usize;
                entry
                    .constrained
                    .extend(constrained_events(spec, name, pmus));
            }
        }
        Self {
            reserve,
            documented,
            probe: None,
            working: BTreeMap::new(),
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
            let cannot_open = |refusal| matches!(refusal, Refusal::Kernel(_) | Refusal::Offline);
            // If the kernel rejects an event even alone, opening the event reports the reason.
            let is_rejected = |event| {
                self.can_count(std::slice::from_ref(event))
                    .is_err_and(cannot_open)
            };
            if let Err(why) = self.can_count(&all)
                && !all.iter().any(is_rejected)
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

    /// Whether each group of a plan can be counted as it is.
    ///
    /// # Errors
    ///
    /// Why the first group that cannot be counted is refused.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), Refusal> {
        plan.groups.iter().try_for_each(|group| {
            let events = group.iter().map(|planned| RequestedEvent {
                name: plan.columns[planned.column].name.clone(),
                counter: planned.counter.clone(),
                exclude: planned.exclude,
            });
            self.can_schedule(&events.collect::<Vec<_>>())
        })
    }

    /// Whether these events can be counted at one time, as one group or several.
    pub(super) fn can_count(&self, group: &[RequestedEvent]) -> Result<(), Refusal> {
        let mut hardware = group.iter().filter(|it| it.counter.is_hardware());
        let Some(first) = hardware.next() else {
            return Ok(());
        };
        let same_pmu = |it: &&RequestedEvent| it.counter.pmu == first.counter.pmu;
        let sampled: Vec<RequestedEvent> = self.sampled.iter().filter(same_pmu).cloned().collect();
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
        let reserve = match first.counter.scope {
            // The kernel multiplexes uncore groups, so other users have their intervals anyway.
            Scope::Uncore { .. } => 0,
            Scope::Cpu | Scope::Cpus(_) => self.reserve(pmu.as_deref()),
        };
        self.fits_beside(&hardware, group, reserve)
    }

    /// Whether these events can be counted at one time, with `reserve` counters left over.
    fn fits_beside(
        &self,
        hardware: &[&RequestedEvent],
        group: &[RequestedEvent],
        reserve: usize,
    ) -> Result<(), Refusal> {
        let pmu = hardware[0].counter.pmu.as_deref();
        let documented = pmu.and_then(|pmu| self.documented.get(pmu));
        if let Some(known) = documented
            && !known.can_schedule(hardware, known.counters, reserve)
        {
            return Err(Refusal::Full {
                counters: known.counters,
                reserve,
            });
        }
        if let Some(WorkingCounters {
            general,
            is_any_broken: true,
        }) = pmu.and_then(|pmu| self.working(pmu))
            && !documented
                .unwrap_or(&DocumentedCounters::default())
                .can_schedule(hardware, general, reserve)
        {
            return Err(Refusal::BrokenCounters {
                working: general,
                reserve,
            });
        }
        let Some(probe) = &self.probe else {
            return Ok(());
        };
        // Copies of an event that every counter can count occupy the counters for other users.
        let is_constrained = |wanted: &RequestedEvent| {
            documented.is_some_and(|known| known.constraint(wanted).is_some())
        };
        let spare: Vec<&RequestedEvent> = hardware
            .iter()
            .find(|wanted| !is_constrained(wanted))
            .into_iter()
            .flat_map(|wanted| std::iter::repeat_n(*wanted, reserve))
            .collect();
        let constrained = hardware.iter().copied().filter(|it| is_constrained(it));
        let trial = Trial {
            pmu,
            group,
            hardware,
            constrained: constrained.collect(),
            spare,
        };
        probe.runs(&trial)
    }

    /// The counters of a core PMU that count a known loop correctly; `None` if they cannot be
    /// tested. Warns once if the test finds a fault.
    fn working(&self, pmu: &str) -> Option<WorkingCounters> {
        *self.working.get(pmu)?.get_or_init(|| {
            let (event, counted) = self.probe.as_ref()?.tested(pmu)?;
            let fault = counted.fault(pmu);
            if let Some(fault) = &fault {
                tracing::warn!("{fault}");
            }
            let (working, all) = (counted.working(), counted.counts.len());
            // A fixed counter for the test's event is among the tested counters.
            let is_fixed = self.documented.get(pmu).is_some_and(|known| {
                let mut constrained = known.constrained.iter();
                constrained.any(|(known, spec)| *known == event && spec.fixed)
            });
            Some(WorkingCounters {
                general: working.saturating_sub(usize::from(is_fixed)),
                is_any_broken: working < all,
            })
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
