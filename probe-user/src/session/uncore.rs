//! Uncore counters: opened only on the CPUs of the PMU's cpumask, not on every CPU.
//!
//! A driver accepts any CPU of its part of the machine, and moves the event to the CPU of the
//! cpumask. So a counter per CPU would count the same traffic many times. Events in braces are one
//! kernel group: they count over the same time. The kernel multiplexes groups that do not fit on
//! the PMU at once, as enabled and running time show.

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

use self::unit::{UncoreCounter, UncoreUnit};
use super::{SessionError, counters};
use crate::{
    event::Scope,
    machine::{self, Machine, cpus::CpuList, topology::Topology},
    plan::Plan,
    snapshot::UncoreReading,
    sys::{
        clock::now,
        perf::{self, Attr, CounterReading},
    },
};

/// Time within which the enabled time of a working counter certainly grows.
const STALLED_AFTER: Duration = Duration::from_millis(1);

/// All uncore counters of a session.
pub(crate) struct Uncore {
    groups: Vec<UncoreGroup>,
    topology: Arc<Topology>,
    machine: Arc<Machine>,
    /// Events of [`Plan::uncore`] whose counts are apportioned to owners by counts of CPUs.
    apportioned: BTreeSet<usize>,
    /// Whether the cpumasks must be read again: a CPU came online or went offline, or a counter is
    /// dead.
    pub(crate) rescan: bool,
    /// `CLOCK_MONOTONIC` at the last reading.
    last: Duration,
}

/// Events that are opened as one group, on every CPU of their PMU's cpumask.
struct UncoreGroup {
    /// Indices into [`Plan::uncore`].
    events: Range<usize>,
    pmu: String,
    /// The kernel's number of the PMU, which changes when its driver is bound again.
    type_: u32,
    state: PmuState,
    /// Whether the kernel refused to reopen events: then the next reading retries.
    refused: bool,
    /// Units by socket, and by the number of the hardware instance on this socket.
    units: BTreeMap<(u32, u16), UncoreUnit>,
}

#[derive(PartialEq)]
enum PmuState {
    Counting,
    /// The PMU is gone, which was logged. Its series are interrupted until it comes back.
    Gone,
}

impl Uncore {
    /// Opens every uncore event of the plan.
    pub(crate) fn open(plan: &Plan, machine: &Arc<Machine>) -> Result<Self, SessionError> {
        let mut uncore = Self {
            groups: Vec::new(),
            topology: Arc::new(machine.topology().clone()),
            machine: Arc::clone(machine),
            apportioned: skew::apportioned(plan),
            rescan: false,
            last: now(),
        };
        for events in &plan.uncore_groups {
            let first = &plan.uncore[events.start];
            let (Some(pmu), Scope::Uncore { cpus }) = (&first.counter.pmu, &first.counter.scope)
            else {
                continue;
            };
            let mut group = UncoreGroup {
                events: events.clone(),
                pmu: pmu.clone(),
                type_: first.counter.type_,
                state: PmuState::Counting,
                refused: false,
                units: BTreeMap::new(),
            };
            for (instance, cpu) in uncore.instances(pmu, cpus) {
                let counters = uncore.open_unit(plan, &group, cpu)?;
                group.units.insert(instance, UncoreUnit { cpu, counters });
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

    /// The topology; None if no uncore events are counted.
    pub(crate) fn topology(&self) -> Option<Arc<Topology>> {
        (!self.groups.is_empty()).then(|| Arc::clone(&self.topology))
    }

    /// The CPUs of a cpumask, each with its socket and its number on this socket.
    fn instances(&self, pmu: &str, cpus: &CpuList) -> Vec<((u32, u16), u32)> {
        let mut next_numbers: BTreeMap<u32, u16> = BTreeMap::new();
        let instance = |cpu| {
            let socket = self.socket(pmu, cpu);
            let number = next_numbers.entry(socket).or_default();
            let instance = (socket, *number);
            *number += 1;
            (instance, cpu)
        };
        cpus.iter().map(instance).collect()
    }

    /// The socket of a PMU that is read on this CPU: the CPU's socket. If the topology lacks it,
    /// the NUMA node that NVIDIA's drivers put into the PMU's name gives the socket.
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
        let node_socket = || Some(self.topology.socket_of_node(named?).unwrap_or(named?));
        socket.or_else(node_socket).unwrap_or(0)
    }

    /// Opens a group on a CPU without enabling it.
    fn open_unit(
        &self,
        plan: &Plan,
        group: &UncoreGroup,
        cpu: u32,
    ) -> Result<Vec<UncoreCounter>, SessionError> {
        let mut opened: Vec<OwnedFd> = Vec::new();
        for planned in &plan.uncore[group.events.clone()] {
            let leader = opened.first().map(|fd| fd.as_fd());
            let attr = Attr {
                type_: group.type_,
                ..planned.counter.attr()
            };
            let result = match leader {
                None => perf::open_leader(&attr, planned.exclude, cpu),
                leader => perf::open(&attr, planned.exclude, cpu, leader),
            };
            let event = result.map_err(|error| {
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
        let counter = |event| UncoreCounter {
            event: Some(event),
            base: CounterReading::default(),
            last: CounterReading::default(),
        };
        Ok(opened.into_iter().map(counter).collect())
    }

    fn is_offline(&self, cpu: u32) -> bool {
        self.machine
            .online()
            .is_ok_and(|online| !online.contains(cpu))
    }

    /// Reads every counter. If necessary, first reads the cpumasks again.
    pub(crate) fn read(&mut self, plan: &Plan) -> Vec<UncoreReading> {
        self.rescan |= self.is_any_back() || self.groups.iter().any(|group| group.refused);
        if mem::take(&mut self.rescan) {
            Arc::make_mut(&mut self.topology).refresh(self.machine.sysfs());
            self.follow_cpumasks(plan);
        }
        let now = now();
        let must_have_grown = now.saturating_sub(self.last) > STALLED_AFTER;
        self.last = now;
        let mut readings = Vec::new();
        for group in &mut self.groups {
            let mut has_dead_unit = false;
            for ((socket, instance), unit) in &mut group.units {
                let before = unit.enabled();
                let is_open = unit.counters.iter().any(|counter| counter.event.is_some());
                let is_readable = unit.read().is_ok();
                let is_stalled = must_have_grown && unit.enabled() == before;
                let is_counting = group.state == PmuState::Counting;
                has_dead_unit |= is_counting && is_open && (!is_readable || is_stalled);
                for (at, counter) in group.events.clone().zip(&unit.counters) {
                    let reading = (is_readable && is_counting).then_some(counter.last);
                    let CounterReading {
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
            // In a network namespace there are no messages about CPUs, so a dead unit also causes a
            // rescan.
            self.rescan |= has_dead_unit;
        }
        readings
    }

    /// Whether a PMU that was gone is back.
    fn is_any_back(&self) -> bool {
        let mut gone = self.groups.iter().filter(|it| it.state == PmuState::Gone);
        gone.any(|group| self.directory(&group.pmu).exists())
    }

    fn directory(&self, pmu: &str) -> PathBuf {
        let devices = self.machine.sysfs().join("bus/event_source/devices");
        devices.join(pmu)
    }

    /// Moves events to the CPUs that the cpumasks name, ends the series of PMUs that are gone, and
    /// continues the series of PMUs that are back.
    fn follow_cpumasks(&mut self, plan: &Plan) {
        let mut groups = mem::take(&mut self.groups);
        let mut gone = BTreeSet::new();
        for group in &mut groups {
            let was_counting = group.state == PmuState::Counting;
            self.follow_cpumask(plan, group);
            if was_counting && group.state == PmuState::Gone {
                gone.insert(&group.pmu);
            }
        }
        for pmu in gone {
            tracing::warn!("{pmu} is gone: its counts end here, the others go on");
        }
        self.groups = groups;
    }

    fn follow_cpumask(&self, plan: &Plan, group: &mut UncoreGroup) {
        let dir = self.directory(&group.pmu);
        let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
        let mask = read("cpumask").and_then(|mask| mask.parse::<CpuList>().ok());
        let number = read("type").and_then(|number| number.trim().parse().ok());
        let Some((cpus, number)) = mask.zip(number) else {
            group.state = PmuState::Gone;
            for unit in group.units.values_mut() {
                unit.counters
                    .iter_mut()
                    .for_each(|counter| counter.event = None);
            }
            return;
        };
        (group.state, group.type_) = (PmuState::Counting, number);
        let mut instances: BTreeMap<_, _> = self.instances(&group.pmu, &cpus).into_iter().collect();
        // A single instance keeps its identity, even if another CPU reads it.
        if let (Some(instance), Some(cpu)) =
            (single(group.units.keys()), single(instances.values()))
        {
            instances = [(*instance, *cpu)].into();
        }
        let mut units = mem::take(&mut group.units);
        let mut refused = false;
        for (instance, unit) in &mut units {
            match instances.get(instance) {
                Some(cpu) if *cpu == unit.cpu && unit.is_counting() => {}
                Some(cpu) => refused |= !self.reopen(plan, group, unit, *cpu),
                // No CPU of the instance's socket is online.
                None => unit.close(),
            }
        }
        for (instance, cpu) in instances {
            units.entry(instance).or_insert_with(|| {
                let mut unit = UncoreUnit {
                    cpu,
                    counters: Vec::new(),
                };
                refused |= !self.reopen(plan, group, &mut unit, cpu);
                unit
            });
        }
        (group.units, group.refused) = (units, refused);
    }

    /// Opens new events on `cpu`, which continue the counts so far. Returns false if the kernel
    /// refuses them, which is logged once.
    fn reopen(&self, plan: &Plan, group: &UncoreGroup, unit: &mut UncoreUnit, cpu: u32) -> bool {
        let opened = self.open_unit(plan, group, cpu);
        unit.close();
        let opened = opened.and_then(|counters| {
            let new = UncoreUnit { cpu, counters };
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

/// The item of an iterator with exactly one item.
fn single<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}
