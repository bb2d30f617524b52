//! Events that sample memory accesses on machines without SPE: AMD's IBS, or Intel's load latency
//! and stores. Samples have the address, the latency and the data source.
//!
//! Names and rules are those of the drivers: `arch/x86/events/amd/ibs.c`, and
//! `arch/x86/events/intel/core.c` (`intel_pmu_hw_config`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Counter, Source, parse,
    sampling::{Rate, SampledEvent, SamplingError, sampled},
};
use crate::machine::{Pmu, Pmus};

/// AMD's PMU of sampled operations.
const IBS: &str = "ibs_op";

/// Intel's events: loads by latency, the leader that their group needs on some cores, and stores.
const LOADS: &str = "mem-loads";
const LEADER: &str = "mem-loads-aux";
const STORES: &str = "mem-stores";

/// Minimum latency threshold of tagged loads on Intel's cores, in cycles
/// (`MSR_PEBS_LD_LAT_THRESHOLD`).
const LEAST_LATENCY: u64 = 3;

/// IBS periods are multiples of this many operations or cycles.
const IBS_STEP: u64 = 16;

/// How many operations a sample of a memory access represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessScaling {
    /// As many as its period, since the event counts all operations.
    Counted,
    /// One, since the event counts cycles, or only loads that the core chose to time.
    Tagged,
}

/// The mechanism that samples memory accesses without SPE.
#[derive(Clone, Copy)]
enum AccessMechanism<'p> {
    Ibs(&'p Pmu),
    /// Events of the core PMUs.
    Cores,
}

/// Why these events cannot sample memory accesses. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoAccesses {
    /// IBS does not support the period.
    #[error(
        "--period {period} is no multiple of {IBS_STEP}, and {IBS} counts in steps of that: give \
         --period {}",
        period.next_multiple_of(IBS_STEP)
    )]
    Step {
        /// As requested.
        period: u64,
    },
    /// An event of memory accesses cannot be sampled.
    #[error("cannot sample memory accesses: {0}")]
    Event(Box<SamplingError>),
}

impl<E: Into<SamplingError>> From<E> for NoAccesses {
    fn from(error: E) -> Self {
        Self::Event(Box::new(error.into()))
    }
}

/// The events that sample memory accesses on this machine; empty if it has none.
///
/// `rate` is a period in counts of the event (on AMD operations, or cycles if the PMU cannot count
/// operations) or a frequency in samples per second; without it the default frequency applies.
/// Loads of fewer than `least` cycles are not sampled if the core can filter them.
///
/// # Errors
/// The PMU does not support the period, or its files are malformed.
pub fn accesses(
    pmus: &Pmus,
    rate: Option<Rate>,
    least: Option<u16>,
) -> Result<Vec<SampledEvent>, NoAccesses> {
    match mechanism(pmus) {
        Some(AccessMechanism::Ibs(pmu)) => ibs(pmu, pmus, rate),
        Some(AccessMechanism::Cores) => cores(pmus, rate, least),
        None => Ok(Vec::new()),
    }
}

fn mechanism(pmus: &Pmus) -> Option<AccessMechanism<'_>> {
    if let Some(Ok(pmu)) = pmus.get(IBS) {
        return Some(AccessMechanism::Ibs(pmu));
    }
    let has_loads = |pmu: &Pmu| pmu.events.contains_key(LOADS);
    pmus.cores()
        .any(has_loads)
        .then_some(AccessMechanism::Cores)
}

fn ibs(pmu: &Pmu, pmus: &Pmus, rate: Option<Rate>) -> Result<Vec<SampledEvent>, NoAccesses> {
    if let Some(Rate::Period(period)) = rate
        && period % IBS_STEP != 0
    {
        return Err(NoAccesses::Step { period });
    }
    // Without `cnt_ctl`, the PMU can count only cycles.
    let counts_operations = pmu.formats.contains_key("cnt_ctl");
    let (terms, scaling) = match counts_operations {
        true => ("cnt_ctl=1", AccessScaling::Counted),
        false => ("config=0", AccessScaling::Tagged),
    };
    sampled_accesses(&format!("{IBS}/{terms}/"), pmus, rate, scaling)
}

fn cores(
    pmus: &Pmus,
    rate: Option<Rate>,
    least: Option<u16>,
) -> Result<Vec<SampledEvent>, NoAccesses> {
    let latency = least.map_or(LEAST_LATENCY, |least| u64::from(least).max(LEAST_LATENCY));
    let mut all = Vec::new();
    for pmu in pmus.cores().filter(|pmu| pmu.events.contains_key(LOADS)) {
        let name = &pmu.name;
        let loads = format!("{name}/{LOADS},ldlat={latency}/pp");
        let mut loads = sampled_accesses(&loads, pmus, rate, AccessScaling::Tagged)?;
        if pmu.events.contains_key(LEADER) {
            let leader = first_counter(&format!("{name}/{LEADER}/"), pmus)?;
            loads
                .iter_mut()
                .for_each(|it| it.leader.clone_from(&leader));
        }
        all.extend(loads);
        if pmu.events.contains_key(STORES) {
            let stores = format!("{name}/{STORES}/pp");
            all.extend(sampled_accesses(
                &stores,
                pmus,
                rate,
                AccessScaling::Counted,
            )?);
        }
    }
    Ok(all)
}

fn sampled_accesses(
    text: &str,
    pmus: &Pmus,
    rate: Option<Rate>,
    scaling: AccessScaling,
) -> Result<Vec<SampledEvent>, NoAccesses> {
    let mut events = sampled(text, pmus, None)?;
    for event in &mut events {
        event.accesses = Some(scaling);
        event.rate = rate.unwrap_or(event.rate);
    }
    Ok(events)
}

fn first_counter(text: &str, pmus: &Pmus) -> Result<Option<Counter>, NoAccesses> {
    let events = parse(text, pmus)?
        .into_iter()
        .flat_map(|group| group.events);
    let mut counters = events.filter_map(|event| match event.source {
        Source::Counter(counter) => Some(counter),
        Source::DurationTime => None,
    });
    Ok(counters.next())
}

/// A description for the user of the mechanism that samples memory accesses; `None` without one.
#[must_use]
pub fn describe_mechanism(pmus: &Pmus) -> Option<String> {
    mechanism(pmus).map(|mechanism| mechanism.to_string())
}

impl fmt::Display for AccessMechanism<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ibs(pmu) if pmu.formats.contains_key("cnt_ctl") => {
                write!(f, "AMD's {IBS}, by operations")
            }
            Self::Ibs(_) => write!(
                f,
                "AMD's {IBS}, by cycles: this core cannot count operations, so their numbers are \
                 not known"
            ),
            Self::Cores => write!(
                f,
                "Intel's {LOADS} and {STORES}: loads that the core chose to time, so their number \
                 is not known, and stores"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use test_support::sysfs;

    use super::*;
    use crate::machine::Pmus;

    fn spr() -> Pmus {
        Pmus::read(&sysfs("spr")).unwrap()
    }

    /// The PMUs of a machine with AMD's `ibs_op` and these format files.
    fn amd(formats: &[(&str, &str)]) -> Pmus {
        let root = tempfile::tempdir().unwrap();
        let pmu = root.path().join("bus/event_source/devices/ibs_op");
        fs::create_dir_all(pmu.join("format")).unwrap();
        fs::write(pmu.join("type"), "10\n").unwrap();
        for (name, bits) in formats {
            fs::write(pmu.join("format").join(name), bits).unwrap();
        }
        Pmus::read(root.path()).unwrap()
    }

    #[test]
    fn intels_loads_have_their_leader_and_their_latency() {
        let pmus = spr();
        let events = accesses(&pmus, Some(Rate::Period(1000)), Some(50)).unwrap();
        let [loads, stores] = events.as_slice() else {
            panic!("{events:?}");
        };
        assert_eq!(loads.counter.config, 0x1cd);
        assert_eq!((loads.counter.config1, loads.precise), (50, 2));
        assert_eq!(loads.leader.as_ref().unwrap().config, 0x8203);
        assert_eq!(stores.counter.config, 0x2cd);
        assert_eq!((stores.leader.as_ref(), stores.precise), (None, 2));
        assert_eq!(
            (loads.accesses, stores.accesses),
            (Some(AccessScaling::Tagged), Some(AccessScaling::Counted))
        );
        assert_eq!(loads.rate, Rate::Period(1000));
        // The core supports no lower latency.
        let events = accesses(&pmus, None, Some(1)).unwrap();
        assert_eq!(events[0].counter.config1, 3);
        assert!(
            describe_mechanism(&pmus)
                .unwrap()
                .starts_with("Intel's mem-loads")
        );
    }

    #[test]
    fn ibs_counts_operations_if_it_can() {
        let pmus = amd(&[("cnt_ctl", "config:19\n")]);
        let events = accesses(&pmus, Some(Rate::Period(4096)), None).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].counter.config, 1 << 19);
        assert_eq!(events[0].accesses, Some(AccessScaling::Counted));
        let by_cycles = accesses(&amd(&[]), None, None).unwrap();
        assert_eq!(by_cycles[0].accesses, Some(AccessScaling::Tagged));
        let error = accesses(&pmus, Some(Rate::Period(4100)), None)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "--period 4100 is no multiple of 16, and ibs_op counts in steps of that: give --period \
             4112"
        );
    }

    #[test]
    fn other_machines_have_no_access_events() {
        let pmus = Pmus::read(&sysfs("grace")).unwrap();
        assert_eq!(accesses(&pmus, None, None).unwrap(), []);
        assert_eq!(describe_mechanism(&pmus), None);
    }
}
