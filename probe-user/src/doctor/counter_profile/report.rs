//! A [`CounterProfile`] as findings and as JSON.

use serde_json::{Value, json};

use super::{
    super::{Area, Finding, Loss, Subject},
    AGENT, CorePmu, CounterProfile, DefaultEvents, MultiplexedGroup,
};
use crate::plan::{CoreCounters, RESERVE_COUNTERS};

const AREA: Area = Area::Counters;

impl CounterProfile {
    /// Name of the profile, by which a user of a fleet groups machines.
    #[must_use]
    pub fn name(&self) -> String {
        let names: Vec<String> = self.pmus.iter().map(CorePmu::profile).collect();
        match (names.as_slice(), self.architectural_only) {
            ([], _) => "no core PMU".to_owned(),
            (names, true) => format!("architectural events alone, {}", names.join(", ")),
            (names, false) => names.join(", "),
        }
    }

    /// The findings. Empty without a core PMU, which another check reports.
    pub(in crate::doctor) fn findings(&self, subject: &Subject) -> Vec<Finding> {
        if self.pmus.is_empty() {
            return Vec::new();
        }
        let defaults = self.defaults.iter();
        let defaults = defaults.map(|events| self.default_events(events, subject));
        [self.core_counters()].into_iter().chain(defaults).collect()
    }

    fn core_counters(&self) -> Finding {
        let check = "core counters";
        let reasons = self.pmus.iter().map(CorePmu::reason);
        let found = format!(
            "{}: {}",
            self.name(),
            reasons.collect::<Vec<_>>().join("; ")
        );
        if !self.architectural_only {
            return AREA.ok(check, found);
        }
        let found =
            format!("{found}; a model-specific event ran in a loop that causes it, and was 0");
        let loss = Loss::new("model-specific events, and every metric that needs one").advise(
            "have the virtual machine started with all events (Google Cloud: the PMU type \
             STANDARD), or take an instance type that has them",
        );
        AREA.degraded(check, found, loss)
    }

    fn default_events(&self, events: &DefaultEvents, subject: &Subject) -> Finding {
        let check = format!("default events of {}", events.verbs.join(" and "));
        if let Some(error) = &events.error {
            let loss = Loss::new("what they count if nothing is named")
                .advise("name events (`-e`; in the agent's configuration, count.events)");
            return AREA.missing(check, format!("none: {error}"), loss);
        }
        let found = self.counted_text(events);
        if events.left_out.is_empty() {
            return AREA.ok(check, found);
        }
        let mut loss = Loss::new(events.lost());
        let is_of_agent = events.verbs == AGENT;
        if let Some(MultiplexedGroup { events, one_of }) = &events.all {
            let percent = 100 / one_of;
            let multiplexed = format!("in {one_of} groups that count {percent}% of the time each");
            loss = match is_of_agent {
                true => loss.advise(format!(
                    "name all of them in the agent's configuration (count.events): they are \
                     multiplexed, {multiplexed}"
                )),
                false => loss.run(
                    format!("multiplex all of them, {multiplexed}"),
                    format!("pmuscope stat -e {},task-clock", events.join(",")),
                ),
            };
            if self.reserve() > 0 {
                loss = loss.advise(match is_of_agent {
                    true => "leave no counter free for others: count.reserve_counters = 0",
                    false => "leave no counter free for others: --reserve-counters 0",
                });
            }
            if subject.is_virtual() {
                loss = loss
                    .advise("a larger instance type may have more counters: docs/how-to/clouds.md");
            }
        } else {
            loss = loss.advise(
                "`pmuscope list events` shows which events this machine counts: name some in the \
                 agent's configuration (count.events)",
            );
        }
        AREA.degraded(check, found, loss)
    }

    fn counted_text(&self, events: &DefaultEvents) -> String {
        let mut found = match events.at_one_time.as_slice() {
            [] => "no event of the cores".to_owned(),
            names => format!("{} at one time", names.join(", ")),
        };
        if events.multiplexed.is_empty() {
            found += "; nothing is multiplexed";
        }
        for MultiplexedGroup { events, one_of } in &events.multiplexed {
            let (events, percent) = (events.join(", "), 100 / one_of);
            found += &format!("; {events} multiplexed, {percent}% of the time");
        }
        match self.reserve() {
            0 => found += "; no counter stays free for others",
            1 => found += "; 1 counter stays free for others",
            free => found += &format!("; {free} counters stay free for others"),
        }
        found
    }

    /// Counters of each core that stay free for other programs.
    fn reserve(&self) -> usize {
        let counters = self.pmus.iter().filter_map(|pmu| pmu.counters.as_ref());
        let reserve = counters.map(|counters| counters.reserve).min();
        reserve.unwrap_or(RESERVE_COUNTERS)
    }

    /// The profile for programs.
    pub(in crate::doctor) fn json(&self) -> Value {
        json!({
            "profile": self.name(),
            "architectural_only": self.architectural_only,
            "pmus": self.pmus.iter().map(CorePmu::json).collect::<Vec<_>>(),
            "defaults": self.defaults.iter().map(DefaultEvents::json).collect::<Vec<_>>(),
        })
    }
}

impl CorePmu {
    /// The numbers of counters, in words.
    fn profile(&self) -> String {
        let Some(CoreCounters { general, fixed, .. }) = &self.counters else {
            return "an unknown number of counters".to_owned();
        };
        let fixed = match fixed.as_slice() {
            [] => "none fixed".to_owned(),
            [name] => format!("a fixed one for {name}"),
            names => format!("fixed ones for {}", names.join(" and ")),
        };
        let counters = if *general == 1 { "counter" } else { "counters" };
        format!("{general} general {counters}, {fixed}")
    }

    /// Where the numbers come from.
    fn reason(&self) -> String {
        let name = &self.name;
        match &self.counters {
            None => format!("{name} could not be tested, and no document of this core is known"),
            Some(CoreCounters {
                is_probed: false, ..
            }) => format!("{name}, by the core's documents"),
            Some(CoreCounters {
                general,
                documented: Some(documented),
                ..
            }) if documented != general => {
                format!("{name} ran as many at one time; the core has {documented} general ones")
            }
            Some(_) => format!("{name} ran as many at one time"),
        }
    }

    fn json(&self) -> Value {
        let counters = self.counters.as_ref();
        json!({
            "name": self.name,
            "general": counters.map(|it| it.general),
            "fixed": counters.map(|it| &it.fixed),
            "documented": counters.and_then(|it| it.documented),
            "probed": counters.is_some_and(|it| it.is_probed),
            "reserved": counters.map(|it| it.reserve),
        })
    }
}

impl DefaultEvents {
    /// What is left out, by reason.
    fn lost(&self) -> String {
        let by_reason = self.left_out.chunk_by(|a, b| a.reason == b.reason);
        let lost = by_reason.map(|events| {
            let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
            format!("{}: {}", names.join(", "), events[0].reason)
        });
        lost.collect::<Vec<_>>().join("; ")
    }

    fn json(&self) -> Value {
        let group = |group: &MultiplexedGroup| {
            json!({
                "events": group.events,
                "groups": group.one_of,
                "running_ratio": 1.0 / group.one_of as f64,
            })
        };
        let left_out = self.left_out.iter();
        let left_out = left_out.map(|it| json!({"name": it.name, "reason": it.reason}));
        json!({
            "verbs": self.verbs,
            "at_one_time": self.at_one_time,
            "multiplexed": self.multiplexed.iter().map(group).collect::<Vec<_>>(),
            "without_counter": self.without_counter,
            "metrics": self.metrics,
            "left_out": left_out.collect::<Vec<_>>(),
            "all_multiplexed": self.all.as_ref().map(group),
            "error": self.error,
        })
    }
}
