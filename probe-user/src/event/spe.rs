//! Arm's Statistical Profiling Extension (SPE) among the PMUs: which they are, and the events that
//! sample with them. Machines with several kinds of core have a PMU for each.

use std::sync::Arc;

use super::{Counter, EventError, Exclude, Scope, Source, accesses::described, parse};
use crate::machine::{Pmu, Pmus, SysfsError, cpus::CpuList};

/// The driver drops the low 8 bits of a period (`PMSIRR_EL1.INTERVAL`).
pub const PERIOD_STEP: u64 = 256;

/// Why nothing can be sampled with SPE here.
#[derive(Debug, thiserror::Error)]
pub enum NoSpe {
    /// The machine has neither SPE nor what x86 has in its place, or hides it.
    #[error(
        "this machine shows nothing that samples memory accesses: no SPE (PMU arm_spe_*), no IBS \
         (PMU ibs_op), no event mem-loads; `pmuscope doctor` says why, and what to do"
    )]
    NoPmu,
    /// What x86 has in its place is there, and does not do.
    #[error(
        "this needs Arm's SPE (PMU arm_spe_*), which this machine does not have: `pmuscope mem` \
         and `pmuscope mem record` do without"
    )]
    OnlyWithSpe,
    /// Files of a PMU cannot be read. Without it, what its cores do would be missing.
    #[error("cannot read {0}; `pmuscope doctor` says more")]
    Unreadable(Arc<SysfsError>),
    /// A PMU does not say on which CPUs it is.
    #[error("{0} has no cpumask file in sysfs, so the CPUs to open it on are not known")]
    NoCpumask(String),
    /// A period out of the hardware's range.
    #[error("period {period} is below the {min} operations that {pmu} allows at least")]
    Period {
        /// As asked for, without what the driver drops.
        period: u64,
        /// As the PMU says.
        min: u64,
        /// The PMU.
        pmu: String,
    },
    /// A term that a PMU does not have, or that its field does not hold.
    #[error("cannot sample with SPE: {0}")]
    Event(#[from] EventError),
}

/// The event that samples with one PMU.
#[derive(Clone, Debug)]
pub struct SpeEvent {
    /// The PMU.
    pub pmu: String,
    /// What to open.
    pub counter: Counter,
    /// At which levels nothing is sampled.
    pub exclude: Exclude,
    /// The CPUs that have this PMU.
    pub cpus: CpuList,
    /// Operations from one sample to the next beyond the period, on average.
    pub jitter: f64,
}

/// Whether a PMU of this name is SPE's.
#[must_use]
pub fn is_spe(name: &str) -> bool {
    name.starts_with("arm_spe_")
}

/// SPE's PMUs, at least one.
///
/// # Errors
/// There is none, or one of them cannot be read.
pub fn pmus(pmus: &Pmus) -> Result<Vec<&Pmu>, NoSpe> {
    let names = pmus.names().filter(|name| is_spe(name));
    let found: Result<Vec<&Pmu>, _> = names.filter_map(|name| pmus.get(name)).collect();
    match found {
        Ok(found) if found.is_empty() => Err(match described(pmus) {
            None => NoSpe::NoPmu,
            Some(_) => NoSpe::OnlyWithSpe,
        }),
        Ok(found) => Ok(found),
        Err(error) => Err(NoSpe::Unreadable(Arc::clone(error))),
    }
}

/// The shortest period that a PMU allows, in operations (`caps/min_interval`); architected as at
/// least 256.
#[must_use]
pub fn min_interval(pmu: &Pmu) -> u64 {
    let stated = pmu.caps.get("min_interval");
    let stated = stated.and_then(|text| text.parse().ok());
    stated.unwrap_or(PERIOD_STEP)
}

/// The longest latency that a record of a PMU can hold, in cycles: its counters have 12 or 16 bits
/// (`caps/count_size`), and saturate.
#[must_use]
pub fn max_latency(pmu: &Pmu) -> u16 {
    match pmu.caps.get("count_size").map(|text| text.trim()) {
        Some("12") => (1 << 12) - 1,
        _ => u16::MAX,
    }
}

/// The period that the hardware takes of one that is asked for: the driver drops the low bits.
///
/// # Errors
/// There is no PMU, or it is below what one of them allows.
pub fn period(all: &Pmus, asked: u64) -> Result<u64, NoSpe> {
    let period = asked - asked % PERIOD_STEP;
    for pmu in pmus(all)? {
        let min = min_interval(pmu);
        if period < min {
            let pmu = pmu.name.clone();
            return Err(NoSpe::Period { period, min, pmu });
        }
    }
    Ok(period)
}

/// Mean of the random number that jitter adds, 0 to 255 (`PMSICR_EL1`: eight bits).
const MEAN_JITTER: f64 = 127.5;

/// What jitter adds to the mean period of a PMU. Cores whose `PMSIDR_EL1.ERnd` is 0 (`caps/ernd`)
/// add a random number to each interval (DDI 0487, `PMSIRR_EL1.RND`); with 1 it only moves the
/// sample, and intervals stay as they are.
fn mean_jitter(pmu: &Pmu, terms: &str) -> f64 {
    let jitter = terms.split(',').rev().find_map(|term| {
        let (name, value) = term.trim().split_once('=').unwrap_or((term.trim(), "1"));
        (name == "jitter").then_some(value)
    });
    let off = |value: &str| {
        value
            .trim_start_matches("0x")
            .chars()
            .all(|digit| digit == '0')
    };
    let on = jitter.is_some_and(|value| !off(value));
    let adds = pmu.caps.get("ernd").is_some_and(|text| text.trim() == "0");
    if on && adds { MEAN_JITTER } else { 0.0 }
}

/// The event of every PMU, with terms as in `arm_spe_0/load_filter=1,min_latency=100/`.
///
/// # Errors
/// There is no PMU, or one of them cannot be used or does not know a term.
pub fn events(all: &Pmus, terms: &str) -> Result<Vec<SpeEvent>, NoSpe> {
    let mut resolved = Vec::new();
    for pmu in pmus(all)? {
        let groups = parse(&format!("{}/{terms}/", pmu.name), all)?;
        for event in groups.into_iter().flat_map(|group| group.events) {
            let Source::Counter(counter) = event.source else {
                continue;
            };
            let cpus = match &counter.scope {
                Scope::Uncore { cpus } | Scope::Cpus(cpus) => cpus.clone(),
                Scope::Cpu => return Err(NoSpe::NoCpumask(pmu.name.clone())),
            };
            resolved.push(SpeEvent {
                pmu: pmu.name.clone(),
                counter,
                exclude: event.exclude,
                cpus,
                jitter: mean_jitter(pmu, terms),
            });
        }
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tree::Tree;

    fn refused(root: &Tree) -> String {
        let all = Pmus::read(root.path()).unwrap();
        let error = events(&all, "load_filter").unwrap_err().to_string();
        error.replace(root.path().to_str().unwrap(), "SYS")
    }

    #[test]
    fn the_longest_latency_is_as_wide_as_the_counters() {
        for (stated, longest) in [(Some("12\n"), 4095), (Some("16\n"), 65_535), (None, 65_535)] {
            let root = Tree::new();
            let mut files = vec![("type", "20\n"), ("cpumask", "0\n")];
            files.extend(stated.map(|bits| ("caps/count_size", bits)));
            root.pmu("arm_spe_0", &files);
            let all = Pmus::read(root.path()).unwrap();
            assert_eq!(max_latency(pmus(&all).unwrap()[0]), longest, "{stated:?}");
        }
    }

    /// Only where `caps/ernd` is 0, and only where jitter is on.
    #[test]
    fn jitter_adds_to_the_mean_period_of_cores_that_say_so() {
        let root = Tree::new();
        let formats = [
            ("type", "20\n"),
            ("cpumask", "0-3\n"),
            ("format/load_filter", "config:33\n"),
            ("format/jitter", "config:16\n"),
        ];
        root.pmu("arm_spe_0", &formats);
        let jitter = |terms: &str| {
            let all = Pmus::read(root.path()).unwrap();
            events(&all, terms).unwrap()[0].jitter
        };
        assert_eq!(jitter("load_filter,jitter"), 0.0);
        root.pmu("arm_spe_0", &[("caps/ernd", "1\n")]);
        assert_eq!(jitter("load_filter,jitter"), 0.0);
        root.pmu("arm_spe_0", &[("caps/ernd", "0\n")]);
        for (terms, mean) in [
            ("load_filter", 0.0),
            ("jitter", 127.5),
            ("load_filter=1,jitter=1", 127.5),
            ("jitter=0x1", 127.5),
            ("jitter=0", 0.0),
        ] {
            assert_eq!(jitter(terms), mean, "{terms}");
        }
    }

    /// Who has IBS or PEBS is not told that nothing can sample.
    #[test]
    fn what_is_in_its_place_is_known() {
        let root = Tree::new();
        root.pmu("ibs_op", &[("type", "11\n")]);
        assert!(refused(&root).starts_with("this needs Arm's SPE (PMU arm_spe_*)"));
    }

    /// All of SPE is sampled or none of it: cores that are left out would show no memory accesses.
    #[test]
    fn a_pmu_that_cannot_be_used_is_never_left_out() {
        let root = Tree::new();
        root.pmu("software", &[("type", "1\n")]);
        assert!(refused(&root).starts_with("this machine shows nothing that samples memory"));
        let files = [("cpumask", "0-3\n"), ("format/load_filter", "config:33\n")];
        root.pmu("arm_spe_0", &files);
        root.pmu(
            "arm_spe_0",
            &[("type", "20\n"), ("caps/min_interval", "1024\n")],
        );
        let all = Pmus::read(root.path()).unwrap();
        let [event] = &events(&all, "load_filter").unwrap()[..] else {
            panic!("one PMU, one event")
        };
        assert_eq!(
            (event.pmu.as_str(), event.cpus.to_string()),
            ("arm_spe_0", "0-3".into())
        );
        assert_eq!((event.counter.type_, event.counter.config), (20, 1 << 33));
        assert_eq!(min_interval(pmus(&all).unwrap()[0]), 1024);
        assert_eq!(period(&all, 5000).unwrap(), 4864);
        assert_eq!(
            period(&all, 1023).unwrap_err().to_string(),
            "period 768 is below the 1024 operations that arm_spe_0 allows at least"
        );

        root.pmu("arm_spe_1", &files[1..]);
        root.pmu("arm_spe_1", &[("type", "no number\n")]);
        assert_eq!(
            refused(&root),
            "cannot read SYS/bus/event_source/devices/arm_spe_1/type: does not hold a number; \
             `pmuscope doctor` says more"
        );
        root.pmu("arm_spe_1", &[("type", "21\n")]);
        assert_eq!(
            refused(&root),
            "arm_spe_1 has no cpumask file in sysfs, so the CPUs to open it on are not known"
        );
    }
}
