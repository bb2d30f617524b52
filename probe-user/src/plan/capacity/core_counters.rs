//! How many counters a core PMU has for any event, and which events have a fixed counter.

use super::{Capacity, RequestedEvent};
use crate::{event, machine::Pmus, plan::planner::requested_event};

/// Cores with at most this many general counters keep none free for other users: a ratio of two
/// events needs both.
const MAX_WITHOUT_RESERVE: usize = 2;

/// More counters than any core PMU has.
const MAX_COUNTERS: usize = 64;

/// Events with a fixed counter on some cores.
const FIXED: [&str; 2] = ["cycles", "instructions"];

/// Events that have a fixed counter on no core.
const GENERAL: [&str; 2] = ["branch-misses", "branches"];

/// The counters of a core PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreCounters {
    /// Counters that count any event.
    pub(crate) general: usize,
    /// Events that have a fixed counter, in addition to the general ones.
    pub(crate) fixed: Vec<&'static str>,
    /// General counters by the documents of the core; `None` if they do not say.
    pub(crate) documented: Option<usize>,
    /// Whether the machine was probed; if not, the numbers are from the documents.
    pub(crate) is_probed: bool,
    /// Counters that stay free for other users.
    pub(crate) reserve: usize,
}

impl Capacity {
    /// The counters of a core PMU; `None` if neither a probe nor the documents say how many.
    pub(crate) fn core_counters(&self, pmu: &str, pmus: &Pmus) -> Option<CoreCounters> {
        let counters = self.general_counters(pmu)?;
        let event_on_pmu = |name: &&str| {
            let parsed = event::parse(name, pmus).ok()?;
            let mut events = parsed.iter().flat_map(|group| &group.events);
            events.find_map(|event| {
                requested_event(event).filter(|it| it.counter.pmu.as_deref() == Some(pmu))
            })
        };
        let general_event = GENERAL.iter().find_map(event_on_pmu);
        let fits = |copies: usize, other: Option<RequestedEvent>| {
            let copies = general_event.iter().flat_map(|it| vec![it.clone(); copies]);
            let all: Vec<RequestedEvent> = copies.chain(other).collect();
            let hardware: Vec<&RequestedEvent> = all.iter().collect();
            !all.is_empty() && self.fits_beside(&hardware, &all, 0).is_ok()
        };
        // A guest may lack a documented fixed counter. Then a general counter was taken for it, and
        // `counters` is one too low.
        let general = match general_event {
            Some(_) => (counters..MAX_COUNTERS).find(|general| !fits(general + 1, None))?,
            None => counters,
        };
        let is_fixed = |name: &&str| {
            let event = event_on_pmu(name).filter(|_| general_event.is_some());
            event.is_some_and(|event| fits(general, Some(event)))
        };
        Some(CoreCounters {
            general,
            fixed: FIXED.into_iter().filter(is_fixed).collect(),
            documented: self.documented.get(pmu).map(|known| known.counters),
            is_probed: self.working(pmu).is_some(),
            reserve: self.reserve(Some(pmu)),
        })
    }

    /// Whether the hypervisor lets this machine count architectural events alone.
    pub(crate) fn is_architectural_only(&self) -> bool {
        let mut probe = self.probe.iter();
        probe.any(|probe| probe.is_architectural_only())
    }

    /// How many counters of a core PMU stay free for others.
    pub(super) fn reserve(&self, pmu: Option<&str>) -> usize {
        match pmu.and_then(|pmu| self.general_counters(pmu)) {
            Some(0..=MAX_WITHOUT_RESERVE) => 0,
            _ => self.reserve,
        }
    }

    /// How many counters of a core PMU count any event; `None` if unknown.
    fn general_counters(&self, pmu: &str) -> Option<usize> {
        let working = self.working(pmu).map(|working| working.general);
        working.or_else(|| Some(self.documented.get(pmu)?.counters))
    }
}
