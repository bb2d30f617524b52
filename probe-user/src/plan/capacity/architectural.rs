//! Model-specific events of Intel's cores, which a hypervisor may hide from a guest.
//!
//! KVM's event filter lets the guest open and run a hidden event, which then counts nothing.
//! Architectural events are those of Intel's Software Developer's Manual, volume 3, "Pre-defined
//! Architectural Performance Events".

use std::{hint::black_box, os::fd::AsFd as _, thread};

use super::broken_counters::pin;
use crate::{
    catalogue::{Catalogue, Hardware},
    event::{self, Counter, Scope, Source},
    machine::Pmus,
    sys::perf,
};

/// Event and unit mask of each architectural event.
const ARCHITECTURAL: [(u64, u64); 8] = [
    (0x3c, 0x00),
    (0x3c, 0x01),
    (0xc0, 0x00),
    (0x2e, 0x4f),
    (0x2e, 0x41),
    (0xc4, 0x00),
    (0xc5, 0x00),
    (0xa4, 0x01),
];

/// The event code of fixed counters, by the kernel's convention.
const FIXED: u64 = 0x00;

/// The catalogue's name of a model-specific event that every load of a program causes.
const LOADS: &str = "MEM_INST_RETIRED.ALL_LOADS";

/// Loads in the loop that causes the event [`LOADS`].
const LOOP_LOADS: u32 = 100_000;

/// Whether a counter of an Intel core needs more than the architectural events.
pub(super) fn is_model_specific(counter: &Counter) -> bool {
    if matches!(counter.scope, Scope::Uncore { .. }) || !counter.is_hardware() {
        return false;
    }
    let code = (counter.config & 0xff, counter.config >> 8 & 0xff);
    let is_architectural = code.0 == FIXED || ARCHITECTURAL.contains(&code);
    !counter.is_generic() && (counter.is_cache() || !is_architectural)
}

/// The event [`LOADS`] of this machine's cores; `None` if the catalogue has none for them.
pub(super) fn model_specific_event(
    catalogue: &Catalogue,
    machine: &Hardware,
    pmus: &Pmus,
) -> Option<Counter> {
    let mut specs = catalogue
        .families()
        .filter(|family| family.holds_on(machine))
        .flat_map(|family| &family.pmus)
        .filter(|spec| spec.pattern.is_core());
    let event = specs.find_map(|spec| spec.events.get(LOADS))?;
    let text = event.perf.replace("{pmu}", &pmus.cores().next()?.name);
    let groups = event::parse(&text, pmus).ok()?;
    let mut events = groups.into_iter().flat_map(|group| group.events);
    match events.next()?.source {
        Source::Counter(counter) => Some(counter),
        Source::DurationTime => None,
    }
}

/// Whether the event [`LOADS`] runs on its PMU during a loop of loads, and counts none.
pub(super) fn counts_nothing(event: &Counter) -> bool {
    let run = || {
        let cpu = pin(&event.scope)?;
        let opened = perf::open_own(&event.attr(), cpu, None).ok()?;
        perf::enable(opened.as_fd()).ok()?;
        let word = 0_u32;
        for _ in 0..LOOP_LOADS {
            black_box(*black_box(&word));
        }
        let readings = perf::read_group(opened.as_fd(), 1).ok()?;
        let reading = readings.first()?;
        Some(reading.running > 0 && reading.count == 0)
    };
    // The CPU affinity ends with the thread.
    let ran = thread::scope(|scope| scope.spawn(run).join());
    ran.expect("the trial does not panic").unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use test_support::sysfs;

    use super::*;

    #[test]
    fn the_default_events_are_architectural_and_stalls_are_not() {
        let pmus = Pmus::read(&sysfs("spr")).unwrap();
        let is_model_specific = |text: &str| {
            let groups = event::parse(text, &pmus).unwrap();
            match &groups[0].events[0].source {
                Source::Counter(counter) => is_model_specific(counter),
                Source::DurationTime => panic!("{text}"),
            }
        };
        for architectural in [
            "cycles",
            "instructions",
            "ref-cycles",
            "cache-misses",
            "cache-references",
            "branches",
            "branch-misses",
            "cpu/event=0x2e,umask=0x41/",
            "cpu/slots/",
            "task-clock",
            "uncore_imc_0/event=0x05,umask=0xcf/",
        ] {
            assert!(!is_model_specific(architectural), "{architectural}");
        }
        for model_specific in [
            "cpu/event=0xa3,umask=0x05,cmask=5/",
            "cpu/event=0xd0,umask=0x81/",
            "dTLB-loads",
            "L1-dcache-loads",
        ] {
            assert!(is_model_specific(model_specific), "{model_specific}");
        }
    }

    #[test]
    fn only_intel_servers_have_the_event_of_loads() {
        let catalogue = Catalogue::builtin().unwrap();
        let event_of = |tree: &str, platform: &str| {
            let pmus = Pmus::read(&sysfs(tree)).unwrap();
            let platform = crate::catalogue::Platform::named(platform).unwrap();
            let hardware = Hardware::of_platform(platform);
            model_specific_event(&catalogue, &hardware, &pmus)
        };
        assert_eq!(event_of("spr", "emr").unwrap().config, 0x81d0);
        assert_eq!(event_of("zen4", "zen4"), None);
        assert_eq!(event_of("grace", "grace"), None);
    }
}
