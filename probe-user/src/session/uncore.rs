//! Uncore counters: opened once for each CPU that the PMU's cpumask lists, never once per CPU.
//!
//! The drivers take any CPU of their part of the machine and move the event to the one of the
//! cpumask, so a counter per CPU would count the same thing many times over. Events in braces are
//! one group of the kernel's: they count over the same time, and what does not fit the PMU at once
//! is rotated by the kernel, as enabled and running time tell.

mod skew;
#[cfg(test)]
mod tests;
mod unit;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, mem,
    ops::Range,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use self::unit::{Counter, Unit};
use super::{SessionError, counters};
use crate::{
    event::Scope,
    machine::{self, Machine, cpus::CpuList, topology::Topology},
    plan::Plan,
    snapshot::UncoreReading,
    sys::{
        clock::now,
        perf::{self, Attr, Reading},
    },
};

/// An enabled counter cannot have been enabled for no time at all over so long.
const CERTAINLY_ENABLED: Duration = Duration::from_millis(1);

/// All uncore counters of a session.
pub(crate) struct Uncore {
    groups: Vec<Group>,
    topology: Arc<Topology>,
    machine: Arc<Machine>,
    /// Those of [`Plan::uncore`] that are divided by what CPUs counted.
    divided: BTreeSet<usize>,
    /// A CPU came or went since the last look at the cpumasks.
    pub(crate) look: bool,
    last: Duration,
}

/// Events that are opened as one group, on every CPU of their PMU's cpumask.
struct Group {
    /// Indices into [`Plan::uncore`].
    events: Range<usize>,
    pmu: String,
    /// The kernel's number of the PMU: another one when its driver comes back.
    type_: u32,
    state: State,
    /// The kernel refused to open events again: the next read tries once more.
    refused: bool,
    /// What is open, by the socket and the number of the hardware's instance on that socket.
    units: BTreeMap<(u32, u16), Unit>,
}

#[derive(PartialEq)]
enum State {
    Counting,
    /// The PMU is gone, as the log has said: its series have ended until it comes back.
    Gone,
}

impl Uncore {
    /// Opens every uncore event of the plan.
    pub(crate) fn open(plan: &Plan, machine: &Arc<Machine>) -> Result<Self, SessionError> {
        let mut uncore = Self {
            groups: Vec::new(),
            topology: Arc::new(machine.topology().clone()),
            machine: Arc::clone(machine),
            divided: skew::divided(plan),
            look: false,
            last: now(),
        };
        for events in &plan.uncore_groups {
            let first = &plan.uncore[events.start];
            let (Some(pmu), Scope::Uncore { cpus }) = (&first.counter.pmu, &first.counter.scope)
            else {
                continue;
            };
            let mut group = Group {
                events: events.clone(),
                pmu: pmu.clone(),
                type_: first.counter.type_,
                state: State::Counting,
                refused: false,
                units: BTreeMap::new(),
            };
            for (place, cpu) in uncore.places(pmu, cpus) {
                let counters = uncore.open_unit(plan, &group, cpu)?;
                group.units.insert(place, Unit { cpu, counters });
            }
            uncore.groups.push(group);
        }
        for group in &uncore.groups {
            for unit in group.units.values() {
                unit.enable(plan, &group.events)?;
            }
        }
        Ok(uncore)
    }

    /// The sockets, where anything is counted for them.
    pub(crate) fn topology(&self) -> Option<Arc<Topology>> {
        (!self.groups.is_empty()).then(|| Arc::clone(&self.topology))
    }

    /// The CPUs of a cpumask by socket, and by their number on that socket.
    fn places(&self, pmu: &str, cpus: &CpuList) -> Vec<((u32, u16), u32)> {
        let mut next: BTreeMap<u32, u16> = BTreeMap::new();
        let place = |cpu| {
            let socket = self.socket(pmu, cpu);
            let number = next.entry(socket).or_default();
            let place = (socket, *number);
            *number += 1;
            (place, cpu)
        };
        cpus.iter().map(place).collect()
    }

    /// The socket that a PMU counts for when it is read on this CPU: the CPU's own. Where the
    /// machine does not tell, NVIDIA's drivers tell its NUMA node in the PMU's name.
    fn socket(&self, pmu: &str, cpu: u32) -> u32 {
        let named = machine::named_node(pmu);
        let socket = self.topology.socket(cpu);
        if let (Some(named), Some(socket)) = (named, socket)
            && named != socket
            && self.topology.node(cpu) != Some(named)
        {
            tracing::warn!(
                "{pmu} is named after NUMA node {named}, but its CPU {cpu} is not there: taking it \
                 for socket {socket}, the CPU's own"
            );
        }
        let of_node = || Some(self.topology.socket_of_node(named?).unwrap_or(named?));
        socket.or_else(of_node).unwrap_or(0)
    }

    /// Opens a group on a CPU; it counts once it is enabled.
    fn open_unit(
        &self,
        plan: &Plan,
        group: &Group,
        cpu: u32,
    ) -> Result<Vec<Counter>, SessionError> {
        let mut opened: Vec<OwnedFd> = Vec::new();
        for planned in &plan.uncore[group.events.clone()] {
            let leader = opened.first().map(|fd| fd.as_fd());
            let attr = Attr {
                type_: group.type_,
                ..planned.counter.attr()
            };
            let event = match leader {
                None => perf::open_leader(&attr, planned.exclude, cpu),
                leader => perf::open(&attr, planned.exclude, cpu, leader),
            };
            let event = event.map_err(|error| {
                if self.is_offline(cpu) {
                    SessionError::OfflineCpumask {
                        event: plan.columns[planned.column].name.clone(),
                        pmu: planned.counter.pmu.clone().unwrap_or_default(),
                        cpu,
                    }
                } else {
                    counters::refused(plan, planned, cpu, &error)
                }
            })?;
            opened.push(event);
        }
        let counter = |event| Counter {
            event: Some(event),
            base: Reading::default(),
            last: Reading::default(),
        };
        Ok(opened.into_iter().map(counter).collect())
    }

    fn is_offline(&self, cpu: u32) -> bool {
        self.machine
            .online()
            .is_ok_and(|online| !online.contains(cpu))
    }

    /// Reads every counter, in one pass.
    pub(crate) fn read(&mut self, plan: &Plan) -> Vec<UncoreReading> {
        self.look |= self.is_any_back() || self.groups.iter().any(|group| group.refused);
        if mem::take(&mut self.look) {
            Arc::make_mut(&mut self.topology).refresh(self.machine.sysfs());
            self.follow_cpumasks(plan);
        }
        let now = now();
        let passed = now.saturating_sub(self.last) > CERTAINLY_ENABLED;
        self.last = now;
        let mut readings = Vec::new();
        for group in &mut self.groups {
            let mut dead = false;
            for ((socket, instance), unit) in &mut group.units {
                let before = unit.enabled();
                let open = unit.counters.iter().any(|counter| counter.event.is_some());
                let counts = unit.read().is_ok();
                let stands = passed && unit.enabled() == before;
                let counting = group.state == State::Counting;
                dead |= counting && open && (!counts || stands);
                for (at, counter) in group.events.clone().zip(&unit.counters) {
                    let reading = (counts && counting).then_some(counter.last);
                    let Reading {
                        enabled, running, ..
                    } = reading.unwrap_or_default();
                    readings.push(UncoreReading {
                        at,
                        socket: *socket,
                        instance: *instance,
                        count: reading.map(|reading| reading.count),
                        skew: 0,
                        enabled,
                        running,
                    });
                }
            }
            // Without a message about a CPU, since network namespaces have none: look next time.
            self.look |= dead;
        }
        readings
    }

    /// Whether a PMU that was gone is there again.
    fn is_any_back(&self) -> bool {
        let mut gone = self.groups.iter().filter(|it| it.state == State::Gone);
        gone.any(|group| self.directory(&group.pmu).exists())
    }

    fn directory(&self, pmu: &str) -> PathBuf {
        let devices = self.machine.sysfs().join("bus/event_source/devices");
        devices.join(pmu)
    }

    /// Moves events to the CPU that the cpumask names, ends the series of PMUs that are gone, and
    /// goes on with those that are back.
    fn follow_cpumasks(&mut self, plan: &Plan) {
        let mut groups = mem::take(&mut self.groups);
        let mut gone = BTreeSet::new();
        for group in &mut groups {
            let counted = group.state == State::Counting;
            self.follow(plan, group);
            if counted && group.state == State::Gone {
                gone.insert(&group.pmu);
            }
        }
        for pmu in gone {
            tracing::warn!("{pmu} is gone: its counts end here, the others go on");
        }
        self.groups = groups;
    }

    fn follow(&self, plan: &Plan, group: &mut Group) {
        let dir = self.directory(&group.pmu);
        let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
        let mask = read("cpumask").and_then(|mask| mask.parse::<CpuList>().ok());
        let number = read("type").and_then(|number| number.trim().parse().ok());
        let Some((cpus, number)) = mask.zip(number) else {
            group.state = State::Gone;
            for unit in group.units.values_mut() {
                unit.counters
                    .iter_mut()
                    .for_each(|counter| counter.event = None);
            }
            return;
        };
        (group.state, group.type_) = (State::Counting, number);
        let mut places: BTreeMap<_, _> = self.places(&group.pmu, &cpus).into_iter().collect();
        // The only instance keeps its place, also where another CPU reads it.
        if let (Some(place), Some(cpu)) = (only(group.units.keys()), only(places.values())) {
            places = [(*place, *cpu)].into();
        }
        let mut units = mem::take(&mut group.units);
        let mut refused = false;
        for (place, unit) in &mut units {
            match places.get(place) {
                Some(cpu) if *cpu == unit.cpu && unit.lives() => {}
                Some(cpu) => refused |= !self.reopen(plan, group, unit, *cpu),
                // Every CPU of that socket is offline.
                None => unit.end(),
            }
        }
        for (place, cpu) in places {
            units.entry(place).or_insert_with(|| {
                let mut unit = Unit {
                    cpu,
                    counters: Vec::new(),
                };
                refused |= !self.reopen(plan, group, &mut unit, cpu);
                unit
            });
        }
        (group.units, group.refused) = (units, refused);
    }

    /// Goes on with new events on `cpu`, and keeps what was counted so far. False where the kernel
    /// refuses them, which is logged once.
    fn reopen(&self, plan: &Plan, group: &Group, unit: &mut Unit, cpu: u32) -> bool {
        let opened = self.open_unit(plan, group, cpu);
        unit.end();
        let opened = opened.and_then(|counters| {
            let new = Unit { cpu, counters };
            new.enable(plan, &group.events).map(|()| new)
        });
        match opened {
            Ok(mut new) => {
                for (new, old) in new.counters.iter_mut().zip(&unit.counters) {
                    (new.base, new.last) = (old.last, old.last);
                }
                tracing::info!("{} is counted on CPU {cpu} now", group.pmu);
                *unit = new;
                true
            }
            Err(error) => {
                if !group.refused {
                    tracing::warn!("{error}: no counts of it until that works");
                }
                false
            }
        }
    }
}

/// The item of an iterator that has one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}
