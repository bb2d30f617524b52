//! PMUs of Arm's Statistical Profiling Extension (SPE), and the events that sample with them.
//! Machines with several kinds of core have one PMU for each kind.

use std::sync::Arc;

use super::{Counter, EventError, Exclude, Scope, Source, accesses::describe_mechanism, parse};
use crate::machine::{Pmu, Pmus, SysfsError, cpus::CpuList};

/// The driver drops the low 8 bits of a period (`PMSIRR_EL1.INTERVAL`).
pub const PERIOD_STEP: u64 = 256;

/// Why this machine cannot sample with SPE.
#[derive(Debug, thiserror::Error)]
pub enum NoSpe {
    /// The machine has neither SPE nor the x86 equivalents, or hides them.
    #[error(
        "this machine shows nothing that samples memory accesses: no SPE (PMU arm_spe_*), no IBS \
         (PMU ibs_op), no event mem-loads; `pmuscope doctor` says why, and what to do"
    )]
    NoPmu,
    /// The machine has only an x86 equivalent of SPE, which is not enough here.
    #[error(
        "this needs Arm's SPE (PMU arm_spe_*), which this machine does not have: `pmuscope mem` \
         and `pmuscope mem record` do without"
    )]
    OnlyWithSpe,
    /// Files of a PMU cannot be read. Without that PMU, the accesses of its cores would be missing.
    #[error("cannot read {0}; `pmuscope doctor` says more")]
    Unreadable(Arc<SysfsError>),
    /// A PMU does not state its CPUs.
    #[error("{0} has no cpumask file in sysfs, so the CPUs to open it on are not known")]
    NoCpumask(String),
    /// A period below the hardware's minimum.
    #[error("period {period} is below the {min} operations that {pmu} allows at least")]
    Period {
        /// As requested, rounded down as the driver does.
        period: u64,
        /// The minimum of the PMU.
        min: u64,
        /// The PMU.
        pmu: String,
    },
    /// A PMU lacks a term, or the value does not fit its field.
    #[error("cannot sample with SPE: {0}")]
    Event(#[from] EventError),
}

/// The sampling event of one PMU.
#[derive(Clone, Debug)]
pub struct SpeEvent {
    /// The PMU.
    pub pmu: String,
    /// The attributes to open.
    pub counter: Counter,
    /// The levels that are not sampled.
    pub exclude: Exclude,
    /// The CPUs that have this PMU.
    pub cpus: CpuList,
    /// Mean number of operations that jitter adds to the period.
    pub jitter: f64,
}

/// Whether a PMU of this name is SPE.
#[must_use]
pub fn is_spe(name: &str) -> bool {
    name.starts_with("arm_spe_")
}

/// The SPE PMUs, at least one.
///
/// # Errors
/// There is none, or one cannot be read.
pub fn pmus(pmus: &Pmus) -> Result<Vec<&Pmu>, NoSpe> {
    let names = pmus.names().filter(|name| is_spe(name));
    let spe_pmus: Result<Vec<&Pmu>, _> = names.filter_map(|name| pmus.get(name)).collect();
    match spe_pmus {
        Ok(spe_pmus) if spe_pmus.is_empty() => Err(match describe_mechanism(pmus) {
            None => NoSpe::NoPmu,
            Some(_) => NoSpe::OnlyWithSpe,
        }),
        Ok(spe_pmus) => Ok(spe_pmus),
        Err(error) => Err(NoSpe::Unreadable(Arc::clone(error))),
    }
}

/// Minimum period of a PMU in operations (`caps/min_interval`); at least 256 by the architecture.
#[must_use]
pub fn min_interval(pmu: &Pmu) -> u64 {
    let stated = pmu.caps.get("min_interval");
    stated
        .and_then(|text| text.parse().ok())
        .unwrap_or(PERIOD_STEP)
}

/// Maximum latency in a record, in cycles: the PMU's counters have 12 or 16 bits
/// (`caps/count_size`) and saturate.
#[must_use]
pub fn max_latency(pmu: &Pmu) -> u16 {
    match pmu.caps.get("count_size").map(|text| text.trim()) {
        Some("12") => (1 << 12) - 1,
        _ => u16::MAX,
    }
}

/// The period in effect for a requested one: the driver drops the low bits.
///
/// # Errors
/// There is no PMU, or the period is below the minimum of one.
pub fn period(all_pmus: &Pmus, asked: u64) -> Result<u64, NoSpe> {
    let period = asked - asked % PERIOD_STEP;
    for pmu in pmus(all_pmus)? {
        let min = min_interval(pmu);
        if period < min {
            let pmu = pmu.name.clone();
            return Err(NoSpe::Period { period, min, pmu });
        }
    }
    Ok(period)
}

/// Mean of the random number that jitter adds, which is from 0 to 255 (`PMSICR_EL1`: eight bits).
const MEAN_JITTER: f64 = 127.5;

/// Mean number of operations that jitter adds to the period of a PMU. With `PMSIDR_EL1.ERnd` 0
/// (`caps/ernd`) cores add a random number to each interval (DDI 0487, `PMSIRR_EL1.RND`); with 1
/// only the sample moves, and intervals are unchanged.
fn mean_jitter(pmu: &Pmu, terms: &str) -> f64 {
    let jitter = terms.split(',').rev().find_map(|term| {
        let (name, value) = term.trim().split_once('=').unwrap_or((term.trim(), "1"));
        (name == "jitter").then_some(value)
    });
    let is_zero = |value: &str| {
        value
            .trim_start_matches("0x")
            .chars()
            .all(|digit| digit == '0')
    };
    let is_enabled = jitter.is_some_and(|value| !is_zero(value));
    let is_added = pmu.caps.get("ernd").is_some_and(|text| text.trim() == "0");
    if is_enabled && is_added {
        MEAN_JITTER
    } else {
        0.0
    }
}

/// The event of each PMU, with terms as in `arm_spe_0/load_filter=1,min_latency=100/`.
///
/// # Errors
/// There is no PMU, or one cannot be used or lacks a term.
pub fn events(all_pmus: &Pmus, terms: &str) -> Result<Vec<SpeEvent>, NoSpe> {
    let mut resolved = Vec::new();
    for pmu in pmus(all_pmus)? {
        let groups = parse(&format!("{}/{terms}/", pmu.name), all_pmus)?;
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
    use test_support::Tree;

    use super::*;

    fn refusal(root: &Tree) -> String {
        let all_pmus = Pmus::read(root.path()).unwrap();
        let error = events(&all_pmus, "load_filter").unwrap_err().to_string();
        error.replace(root.path().to_str().unwrap(), "SYS")
    }

    #[test]
    fn the_maximum_latency_follows_the_counter_width() {
        for (stated, longest) in [(Some("12\n"), 4095), (Some("16\n"), 65_535), (None, 65_535)] {
            let root = Tree::new();
            let mut files = vec![("type", "20\n"), ("cpumask", "0\n")];
            files.extend(stated.map(|bits| ("caps/count_size", bits)));
            root.pmu("arm_spe_0", &files);
            let all_pmus = Pmus::read(root.path()).unwrap();
            assert_eq!(
                max_latency(pmus(&all_pmus).unwrap()[0]),
                longest,
                "{stated:?}"
            );
        }
    }

    #[test]
    fn jitter_adds_to_the_mean_period_if_ernd_is_0_and_the_terms_enable_it() {
        let root = Tree::new();
        let formats = [
            ("type", "20\n"),
            ("cpumask", "0-3\n"),
            ("format/load_filter", "config:33\n"),
            ("format/jitter", "config:16\n"),
        ];
        root.pmu("arm_spe_0", &formats);
        let jitter = |terms: &str| {
            let all_pmus = Pmus::read(root.path()).unwrap();
            events(&all_pmus, terms).unwrap()[0].jitter
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

    /// With IBS or PEBS the message does not claim that nothing can sample.
    #[test]
    fn ibs_and_pebs_are_recognized_without_spe() {
        let root = Tree::new();
        root.pmu("ibs_op", &[("type", "11\n")]);
        assert!(refusal(&root).starts_with("this needs Arm's SPE (PMU arm_spe_*)"));
    }

    /// All SPE PMUs are sampled or none: cores left out would show no memory accesses.
    #[test]
    fn a_pmu_that_cannot_be_used_is_never_left_out() {
        let root = Tree::new();
        root.pmu("software", &[("type", "1\n")]);
        assert!(refusal(&root).starts_with("this machine shows nothing that samples memory"));
        let files = [("cpumask", "0-3\n"), ("format/load_filter", "config:33\n")];
        root.pmu("arm_spe_0", &files);
        root.pmu(
            "arm_spe_0",
            &[("type", "20\n"), ("caps/min_interval", "1024\n")],
        );
        let all_pmus = Pmus::read(root.path()).unwrap();
        let [event] = &events(&all_pmus, "load_filter").unwrap()[..] else {
            panic!("one PMU, one event")
        };
        assert_eq!(
            (event.pmu.as_str(), event.cpus.to_string()),
            ("arm_spe_0", "0-3".into())
        );
        assert_eq!((event.counter.type_, event.counter.config), (20, 1 << 33));
        assert_eq!(min_interval(pmus(&all_pmus).unwrap()[0]), 1024);
        assert_eq!(period(&all_pmus, 5000).unwrap(), 4864);
        assert_eq!(
            period(&all_pmus, 1023).unwrap_err().to_string(),
            "period 768 is below the 1024 operations that arm_spe_0 allows at least"
        );

        root.pmu("arm_spe_1", &files[1..]);
        root.pmu("arm_spe_1", &[("type", "no number\n")]);
        assert_eq!(
            refusal(&root),
            "cannot read SYS/bus/event_source/devices/arm_spe_1/type: does not hold a number; \
             `pmuscope doctor` says more"
        );
        root.pmu("arm_spe_1", &[("type", "21\n")]);
        assert_eq!(
            refusal(&root),
            "arm_spe_1 has no cpumask file in sysfs, so the CPUs to open it on are not known"
        );
    }
}
