//! Capacity: whether a PMU can count some events at one time.
//!
//! Two must agree: what the documents say of the PMU (the catalogue's `counters`), and a trial on
//! this machine, which knows what the NMI watchdog, a hypervisor or other users have taken.
//!
//! Events that are sampled hold their counters all the time: what is counted has to fit beside
//! them.

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

mod sound;
mod trial;
pub(crate) use sound::{Counters, SoundCounters, Untried};
use trial::Trial;

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
    /// Alone they would fit.
    #[error("{why}, with {sampled} for what is sampled")]
    BesideSampled {
        /// Counters of that PMU that sampled events hold.
        sampled: usize,
        why: Box<Refusal>,
    },
}

impl Refusal {
    /// Whether sampled events hold what it would need.
    pub(super) const fn is_of_room(&self) -> bool {
        matches!(self, Self::BesideSampled { .. })
    }
}

/// What the PMUs of this machine can count at one time.
pub struct Capacity {
    /// Counters that stay free for others.
    reserve: usize,
    documented: BTreeMap<String, Documented>,
    trial: Option<Trial>,
    /// What holds counters of cores all the time.
    sampled: Vec<RequestedEvent>,
}

/// What the catalogue says of a PMU.
#[derive(Default)]
struct Documented {
    counters: usize,
    /// Events with a counter of their own, or that some counters cannot count.
    special: Vec<(Counter, EventSpec)>,
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
            sampled: Vec::new(),
        }
    }

    /// The same where these are sampled all the time: what is left is for counting.
    ///
    /// # Errors
    ///
    /// Where a PMU has too few counters for them alone.
    pub(crate) fn beside(
        mut self,
        sampled: &[SampledEvent],
        pmus: &Pmus,
    ) -> Result<Self, PlanError> {
        let mut by_pmu: BTreeMap<Option<&str>, Vec<(&str, Vec<RequestedEvent>)>> = BTreeMap::new();
        for event in sampled {
            let held = event.counters(pmus).into_iter();
            let held = held.map(|counter| RequestedEvent {
                name: event.name.clone(),
                counter: counter.clone(),
                exclude: event.exclude,
            });
            let of_pmu = by_pmu.entry(event.counter.pmu.as_deref()).or_default();
            of_pmu.push((&event.name, held.collect()));
        }
        for (pmu, events) in by_pmu {
            let held = |events: &[(&str, Vec<RequestedEvent>)]| -> Vec<RequestedEvent> {
                events.iter().flat_map(|(_, held)| held).cloned().collect()
            };
            let all = held(&events);
            let others = |refusal| matches!(refusal, Refusal::Kernel(_) | Refusal::Offline);
            // What the kernel has against one of them is said where it is opened.
            let alone = |one| self.can_count(std::slice::from_ref(one)).is_err_and(others);
            if let Err(why) = self.can_count(&all)
                && !all.iter().any(alone)
            {
                let fits = |count: &usize| self.can_count(&held(&events[..*count])).is_ok();
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

    /// Whether they can be counted at one time, as one group.
    pub(crate) fn can_schedule(&self, group: &[RequestedEvent]) -> Result<(), Refusal> {
        self.can_count(group)?;
        short(group, self.reserve)
    }

    /// The same of events in several groups, which need not fit in one.
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
        let beside = self.fits(&[group, &sampled].concat());
        beside.map_err(|why| match self.fits(group) {
            Ok(()) => Refusal::BesideSampled {
                sampled: sampled.len(),
                why: why.into(),
            },
            Err(alone) => alone,
        })
    }

    /// Whether these, and nothing else, can be counted at one time.
    fn fits(&self, group: &[RequestedEvent]) -> Result<(), Refusal> {
        let hardware: Vec<&RequestedEvent> = group
            .iter()
            .filter(|wanted| wanted.counter.is_hardware())
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
