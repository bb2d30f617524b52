//! Finds what the names in expressions stand for: an event of the files, of the kernel, or of
//! another PMU.

use std::collections::BTreeMap;

use super::encoding::{CORE, JsonEvent, number, pattern, terms_text};
use crate::catalogue::{CountOf, EventSpec, Pattern};

/// Events that the kernel has on any core, by perf's names.
const GENERIC: [&str; 9] = [
    "cycles",
    "cpu-cycles",
    "instructions",
    "ref-cycles",
    "branches",
    "branch-misses",
    "cache-references",
    "cache-misses",
    "bus-cycles",
];

/// The pseudo-events of Intel's top-down, each with the ordinary events that count the same. The
/// ordinary events are preferred, since each read of a pseudo-event stops the PMU.
const TOPDOWN: [(&str, &[&str]); 8] = [
    ("slots", &["topdown.slots_p"]),
    ("topdown.slots", &["topdown.slots_p"]),
    ("topdown-retiring", &["uops_retired.slots"]),
    (
        "topdown-fe-bound",
        &["idq_bubbles.core", "idq_uops_not_delivered.core"],
    ),
    ("topdown-be-bound", &["topdown.backend_bound_slots"]),
    ("topdown-bad-spec", &["topdown.bad_spec_slots"]),
    ("topdown-mem-bound", &["topdown.memory_bound_slots"]),
    ("topdown-br-mispredict", &["topdown.br_mispredict_slots"]),
];

/// intel/perfmon's names of the top-down pseudo-events.
const PERF_METRICS: [(&str, &str); 8] = [
    ("perf_metrics.retiring", "topdown-retiring"),
    ("perf_metrics.frontend_bound", "topdown-fe-bound"),
    ("perf_metrics.backend_bound", "topdown-be-bound"),
    ("perf_metrics.bad_speculation", "topdown-bad-spec"),
    ("perf_metrics.memory_bound", "topdown-mem-bound"),
    ("perf_metrics.branch_mispredicts", "topdown-br-mispredict"),
    ("perf_metrics.heavy_operations", "topdown-heavy-ops"),
    ("perf_metrics.fetch_latency", "topdown-fetch-lat"),
];

/// The events of the files.
pub(super) struct Events {
    /// By name in lower case.
    by_name: BTreeMap<String, JsonEvent>,
    /// The number of general counters by PMU.
    pub(super) counters: BTreeMap<String, u32>,
}

/// The event that a name in an expression stands for.
pub(super) struct ResolvedEvent {
    /// The key of its PMU.
    pub(super) pmu: String,
    pub(super) spec: EventSpec,
}

impl Events {
    pub(super) fn new(events: Vec<JsonEvent>, counters: BTreeMap<String, u32>) -> Self {
        let mut by_name = BTreeMap::new();
        for event in events {
            by_name
                .entry(event.name.to_ascii_lowercase())
                .or_insert(event);
        }
        Self { by_name, counters }
    }

    pub(super) fn named(&self, name: &str) -> Option<&JsonEvent> {
        self.by_name.get(&name.to_ascii_lowercase())
    }

    /// The event of a name in perf's form: `NAME`, `NAME:mods`, `PMU/terms/mods`.
    ///
    /// # Errors
    /// Why no event has this name, as part of a sentence.
    pub(super) fn find(&self, id: &str) -> Result<ResolvedEvent, String> {
        let renamed = PERF_METRICS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(id));
        let id = renamed.map_or(id, |(_, name)| name);
        match id.split_once('/') {
            Some((pmu, rest)) => {
                let (terms, modifiers) = rest.rsplit_once('/').unwrap_or((rest, ""));
                self.with_terms(id, pmu, terms, modifiers)
            }
            None => {
                let (name, modifiers) = id.split_once(':').unwrap_or((id, ""));
                self.plain(id, name, modifiers)
            }
        }
    }

    fn plain(&self, id: &str, name: &str, modifiers: &str) -> Result<ResolvedEvent, String> {
        let lower = name.to_ascii_lowercase();
        let pseudo = TOPDOWN.iter().find(|(pseudo, _)| **pseudo == lower);
        let ordinary = pseudo.and_then(|(_, names)| names.iter().find_map(|it| self.named(it)));
        if let Some(event) = ordinary.or_else(|| self.named(name)) {
            let perf = format!("{{pmu}}/{}/{modifiers}", terms_text(&event.terms));
            let mut resolved = self.resolved(id, event, perf);
            if !event.name.eq_ignore_ascii_case(name) {
                // The ordinary event's name stands for the same count.
                resolved.spec.also.push(event.name.clone());
            }
            return Ok(resolved);
        }
        let perf = match lower.as_str() {
            "tsc" => "msr/tsc/".to_owned(),
            generic if GENERIC.contains(&generic) => generic.to_owned(),
            // Events that the core's driver lists: topdown-*, cycles-t, tx-start.
            listed if listed.contains('-') || pseudo.is_some() => format!("{{pmu}}/{listed}/"),
            _ => {
                return Err(format!("{name} is no event and no metric of the directory"));
            }
        };
        Ok(core_event(id, perf))
    }

    fn with_terms(
        &self,
        id: &str,
        pmu: &str,
        terms: &str,
        modifiers: &str,
    ) -> Result<ResolvedEvent, String> {
        let mut terms = terms.split(',').peekable();
        let base = match self.named(pmu) {
            Some(event) => Some(event),
            None if pmu == "cpu" => {
                terms
                    .next_if(|term| !term.contains('='))
                    .map_or(Ok(None), |name| {
                        let event = self.named(name);
                        event
                            .map(Some)
                            .ok_or_else(|| format!("{name} is no event of the directory"))
                    })?
            }
            None => None,
        };
        let Some(event) = base else {
            return Ok(self.with_pmu(id, pmu));
        };
        let mut all_terms = event.terms.clone();
        for term in terms {
            let (term, value) = term.split_once('=').unwrap_or((term, "1"));
            let value = number(value).ok_or_else(|| format!("{id} has no number in {term}"))?;
            match all_terms.iter_mut().find(|(known, _)| known == term) {
                Some((_, old)) => *old = value,
                None => all_terms.push((term.to_owned(), value)),
            }
        }
        let perf = format!("{{pmu}}/{}/{modifiers}", terms_text(&all_terms));
        Ok(self.resolved(id, event, perf))
    }

    /// The event of a name that states the PMU. If the files have no such PMU, the event counts as
    /// one of the core.
    fn with_pmu(&self, id: &str, pmu: &str) -> ResolvedEvent {
        let is_pmu = |key: &&String| {
            let parsed = Pattern::parse(&pattern(key));
            parsed.is_ok_and(|pattern| {
                // perf's names of PMUs may lack the prefix `uncore_`.
                let names = [pmu.to_owned(), format!("uncore_{pmu}")];
                names
                    .iter()
                    .any(|name| pattern.instance(name).is_some() || pattern.stem() == Some(name))
            })
        };
        let mut keys = self.by_name.values().map(|event| &event.pmu);
        let key = keys.find(is_pmu).cloned();
        let perf = match pmu {
            "cpu" => id.replacen("cpu", "{pmu}", 1),
            _ => id.to_owned(),
        };
        ResolvedEvent {
            pmu: key.unwrap_or_else(|| CORE.to_owned()),
            ..core_event(id, perf)
        }
    }

    fn resolved(&self, id: &str, event: &JsonEvent, perf: String) -> ResolvedEvent {
        let number = self.counters.get(&event.pmu).copied().unwrap_or_default();
        let is_limited = !event.counters.is_empty() && event.counters.len() < number as usize;
        ResolvedEvent {
            pmu: event.pmu.clone(),
            spec: EventSpec {
                text: event.text.clone(),
                counters: is_limited.then(|| event.counters.clone()),
                fixed: event.fixed,
                ..spec(id, perf)
            },
        }
    }
}

fn core_event(id: &str, perf: String) -> ResolvedEvent {
    ResolvedEvent {
        pmu: CORE.to_owned(),
        spec: spec(id, perf),
    }
}

fn spec(id: &str, perf: String) -> EventSpec {
    EventSpec {
        perf,
        sampled: None,
        id: None,
        count: CountOf::Unstated,
        text: None,
        also: vec![id.to_owned()],
        counters: None,
        fixed: false,
    }
}
