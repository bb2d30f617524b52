//! The warning of `stat` that counting takes too much of a CPU.

use probe_user::{
    plan::{CountSource, Plan},
    snapshot::CountingCost,
};

/// One line about the cost, with fewer events that would cost less; None if counting is cheap.
pub(super) fn message(plan: &Plan, cost: &CountingCost) -> Option<String> {
    let (counters, ppm) = cost.affordable()?;
    let read = cost.read;
    let mut message = format!(
        "counting takes {} of CPU {}: each change of owner reads {} counters of hardware, {} ns \
         each",
        percent(cost.ppm()?),
        cost.cpu,
        read.hardware,
        read.each()?,
    );
    let events = affordable_events(plan, usize::try_from(counters).ok()?);
    let reduced = percent(ppm);
    message += &match (counters, events) {
        (0, _) => format!("; without them, as by `-e task-clock`, it would take {reduced}"),
        (_, Some(events)) => format!("; with `-e {events}` it would take {reduced}"),
        (_, None) => {
            format!("; with metrics of {counters} events at one time it would take {reduced}")
        }
    };
    Some(message)
}

/// The first of the user's events that this many counters can count, and those that need no
/// counter. None if metrics add events of their own.
fn affordable_events(plan: &Plan, counters: usize) -> Option<String> {
    let planned_events = plan.groups.iter().flatten();
    if planned_events
        .clone()
        .any(|planned| !plan.columns[planned.column].shown)
    {
        return None;
    }
    let mut available = counters;
    let columns = plan.columns.iter().filter(|column| {
        let CountSource::Core { group, at } = column.place else {
            return true;
        };
        if !plan.groups[group][at].counter.is_hardware() {
            return true;
        }
        let keep = available > 0;
        available = available.saturating_sub(1);
        keep
    });
    let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    Some(names.join(","))
}

fn percent(ppm: u64) -> String {
    format!("{}.{:02}%", ppm / 10_000, ppm % 10_000 / 100)
}

#[cfg(test)]
mod tests {
    use probe_user::{
        event::{self},
        machine::Pmus,
        snapshot::ReadCost,
    };

    use super::*;

    #[test]
    fn fewer_events_are_named() {
        let pmus = Pmus::read(&test_support::sysfs("spr")).unwrap();
        let events = "cycles,instructions,cache-misses,branch-misses,task-clock";
        let plan = Plan::new(&event::parse(events, &pmus).unwrap()).unwrap();
        // In the second of `elapsed`, 1,000 charges of 17.4 us take 1.74%.
        let cost = |charges| CountingCost {
            read: ReadCost {
                hardware: 4,
                hardware_nanos: 16_800,
                software: 1,
                software_nanos: 60,
            },
            cpu: 3,
            elapsed: 1_000_000_000,
            charges,
            charging: 17_400,
            rest: 0,
        };
        assert_eq!(message(&plan, &cost(500)), None);
        assert_eq!(
            message(&plan, &cost(1_000)).unwrap(),
            "counting takes 1.74% of CPU 3: each change of owner reads 4 counters of hardware, \
             4200 ns each; with `-e cycles,instructions,task-clock` it would take 0.90%"
        );
        assert!(
            message(&plan, &cost(30_000))
                .unwrap()
                .ends_with("; without them, as by `-e task-clock`, it would take 1.80%")
        );
    }
}
