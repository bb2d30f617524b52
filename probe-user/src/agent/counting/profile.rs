//! The profile of the machine, which an agent counts if its configuration names nothing.

use crate::{
    catalogue::{Catalogue, Hardware},
    event::{self, Counter, Event, Source, UncountableEvent},
    machine::{Machine, Pmus},
    plan::{Capacity, Plan, PlanRequest, PlanRequestError},
};

/// The plan of a request within a capacity. If the request names nothing, plans the machine's
/// profile or, if that does not fit at one time, the default events.
///
/// # Errors
///
/// As [`PlanRequest::plan`].
pub(crate) fn plan_within(
    wanted: &PlanRequest,
    capacity: &Capacity,
    machine: &Machine,
    catalogue: &Catalogue,
    hardware: Hardware,
) -> Result<Plan, PlanRequestError> {
    let plan = || wanted.plan_within(capacity, machine, catalogue, hardware);
    let Some(profile) = profile_request(wanted, &hardware) else {
        return plan();
    };
    let why = match profile.plan_within(capacity, machine, catalogue, hardware) {
        Ok(plan) => match reason_not_to_count(&plan, capacity) {
            None => return Ok(plan),
            Some(why) => why,
        },
        Err(error) => error.to_string(),
    };
    tracing::warn!("cannot count the profile of this machine: {why}; counting what can be counted");
    let mut plan = plan()?;
    let pmus = machine.pmus()?;
    let aliases = Aliases::new(catalogue, &hardware, pmus);
    let mut left_out = aliases.left_out(&profile, &plan, pmus);
    let metrics = profile.metrics.iter().filter(|name| !plan.computes(name));
    left_out.extend(metrics.cloned());
    let left_out = left_out.into_iter().map(|name| UncountableEvent {
        name,
        reason: format!("the profile of this machine cannot be counted: {why}"),
    });
    plan.left_out.splice(..0, left_out);
    Ok(plan)
}

/// Why the plan of a profile cannot be counted; None if it can.
fn reason_not_to_count(plan: &Plan, capacity: &Capacity) -> Option<String> {
    if let Some(event) = plan.uncountable.first() {
        return Some(event.reason.clone());
    }
    if plan.rotated > 0 {
        return Some("not all of its events fit at one time".to_owned());
    }
    let refused = capacity.check(plan).err()?;
    Some(refused.to_string())
}

/// The profile of the machine, if it has one and the configuration names nothing.
pub(super) fn profile_request(wanted: &PlanRequest, hardware: &Hardware) -> Option<PlanRequest> {
    let profile = hardware.profile()?;
    let named = !wanted.events.is_empty() || !wanted.metrics.is_empty();
    (!named).then(|| PlanRequest {
        events: vec![profile.events.clone()],
        metrics: profile.metrics.clone(),
        own_weights: profile.own_weights,
        ..wanted.clone()
    })
}

/// For each core event of the catalogue: the counters of all its encodings.
struct Aliases(Vec<Vec<Counter>>);

impl Aliases {
    fn new(catalogue: &Catalogue, hardware: &Hardware, pmus: &Pmus) -> Self {
        let Some(core) = pmus.cores().next() else {
            return Self(Vec::new());
        };
        let families = catalogue
            .families()
            .filter(|family| family.holds_on(hardware));
        let specs = families
            .flat_map(|family| &family.pmus)
            .filter(|spec| spec.pattern.is_core())
            .flat_map(|spec| spec.events.values());
        let counters = |text: String| {
            let groups = event::parse(&text, pmus).into_iter().flatten();
            let events = groups.flat_map(|group| group.events);
            events.filter_map(|event| counter(&event).cloned())
        };
        let aliases = specs.map(|spec| {
            let own = std::iter::once(spec.perf.replace("{pmu}", &core.name));
            own.chain(spec.also.clone()).flat_map(counters).collect()
        });
        Self(aliases.collect())
    }

    /// Names of a profile's events that a plan does not count.
    fn left_out(&self, profile: &PlanRequest, plan: &Plan, pmus: &Pmus) -> Vec<String> {
        let text = profile.events.join(",");
        let Ok((groups, uncountable)) = event::parse_countable(&text, pmus) else {
            return vec![text];
        };
        let opens = |counter: &Counter| {
            let mut planned = plan.groups.iter().flatten();
            planned.any(|planned| planned.counter == *counter)
        };
        let is_counted = |event: &Event| {
            counter(event).is_none_or(|own| {
                let mut aliases = self.0.iter().filter(|all| all.contains(own)).flatten();
                opens(own) || aliases.any(opens)
            })
        };
        let events = groups.into_iter().flat_map(|group| group.events);
        let uncounted = events.filter(|event| !is_counted(event));
        let uncounted = uncounted.map(|event| event.name);
        uncounted
            .chain(uncountable.into_iter().map(|event| event.name))
            .collect()
    }
}

/// The counter that an event opens; None for `duration_time`, which opens none.
fn counter(event: &Event) -> Option<&Counter> {
    match &event.source {
        Source::Counter(counter) => Some(counter),
        Source::DurationTime => None,
    }
}
