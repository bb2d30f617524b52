//! The core PMU's own counts of SPE's sampling, if it has events for them: operations that could be
//! sampled, and samples taken, kept, and dropped because another sample was still in flight.

use std::os::fd::{AsFd as _, OwnedFd};

use crate::{
    event::{self, Counter, Source},
    machine::{Pmus, cpus::CpuList},
    sys::perf,
};

/// Architected core PMU events (`SAMPLE_POP` 0x4000 to `SAMPLE_COLLISION` 0x4003), by the names of
/// their files. They count only while SPE runs on the CPU.
const SAMPLER_EVENTS: [&str; 4] = [
    "sample_pop",
    "sample_feed",
    "sample_filtrate",
    "sample_collision",
];

/// The sampler events of this machine's core PMUs: name, counter, and the CPUs that have it.
#[derive(Clone, Debug, Default)]
pub(super) struct SamplerEvents(Vec<(&'static str, Counter, Option<CpuList>)>);

impl SamplerEvents {
    pub(super) fn find(pmus: &Pmus) -> Self {
        let mut events = Vec::new();
        for pmu in pmus.cores() {
            for name in SAMPLER_EVENTS {
                if pmu.event(name).is_none() {
                    continue;
                }
                let Ok(groups) = event::parse(&format!("{}/{name}/", pmu.name), pmus) else {
                    continue;
                };
                for event in groups.into_iter().flat_map(|group| group.events) {
                    if let Source::Counter(counter) = event.source {
                        events.push((name, counter, pmu.cpus.clone()));
                    }
                }
            }
        }
        Self(events)
    }

    /// The events of one CPU.
    pub(super) fn on(
        &self,
        cpu: u32,
    ) -> impl Iterator<Item = &(&'static str, Counter, Option<CpuList>)> {
        let covers = move |cpus: &Option<CpuList>| cpus.as_ref().is_none_or(|it| it.contains(cpu));
        self.0.iter().filter(move |(_, _, cpus)| covers(cpus))
    }
}

/// The open sampler events of one CPU.
#[derive(Default)]
pub(crate) struct SamplerCounters(Vec<(&'static str, OwnedFd)>);

impl SamplerCounters {
    /// Opens the events that the CPU has. These counts are optional, so a refused event is left
    /// out.
    pub(super) fn open(events: &SamplerEvents, cpu: u32) -> Self {
        let mut open = Vec::new();
        for (name, counter, _) in events.on(cpu) {
            let event = perf::open(&counter.attr(), event::Exclude::default(), cpu, None)
                .and_then(|event| perf::enable(event.as_fd()).map(|()| event));
            match event {
                Ok(event) => open.push((*name, event)),
                Err(error) => tracing::debug!("{name} is not counted on CPU {cpu}: {error}"),
            }
        }
        Self(open)
    }

    /// Counts since the events were opened. Leaves out events that cannot be read or never ran.
    pub(crate) fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().filter_map(|(name, event)| {
            let reading = perf::read(event.as_fd()).ok()?;
            (reading.running > 0).then_some((*name, reading.count))
        })
    }
}
