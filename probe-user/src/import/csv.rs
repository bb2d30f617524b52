//! A line of `perf stat -x,`:
//! `[time stamp,][scope,[CPUs,]]count,unit,event,[cgroup,]running,percent[,metric,unit]`.
//!
//! perf does not quote, so that the commas between an event's slashes separate fields too.

use super::{Reading, Set, counted, interval, times};

pub(super) fn line(line: &str) -> Result<Reading, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let count_at = |at: usize| fields.get(at).copied().and_then(counted);
    let mut at = 0;
    let mut set = Set::default();
    // A count is followed by its unit, which is no number; a time stamp by a scope or a count.
    let stamped = count_at(0).is_some()
        && fields
            .get(1)
            .is_some_and(|next| counted(next).is_some() || is_scope(next));
    if stamped {
        let seconds = fields[0].parse().ok();
        set.interval = seconds.and_then(interval);
        at += 1;
    }
    if count_at(at).is_none() {
        let scope = fields.get(at).filter(|scope| !scope.is_empty());
        set.scope = Some(scope.ok_or("it has no count")?.to_string());
        at += 1;
        // How many CPUs the scope has.
        if count_at(at).is_some() && count_at(at + 1).is_some() {
            at += 1;
        }
    }
    let count = count_at(at).ok_or("it has no count where one should be")?;
    let unit = *fields.get(at + 1).ok_or("it ends before the unit")?;
    let mut event = fields
        .get(at + 2)
        .filter(|event| !event.is_empty())
        .ok_or("it has no event")?
        .to_string();
    at += 3;
    while event.matches('/').count() % 2 == 1 {
        let more = fields.get(at).ok_or("the event's slash is not closed")?;
        event.push(',');
        event.push_str(more);
        at += 1;
    }
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    if let Some(cgroup) = fields.get(at).filter(|field| !field.is_empty())
        && number(at).is_none()
    {
        set.scope = Some(cgroup.to_string());
        at += 1;
    }
    let (enabled, live) = times(number(at), number(at + 1));
    Ok(Reading {
        set,
        event,
        count,
        unit: unit.to_owned(),
        enabled,
        live,
    })
}

/// `S0`, `S0-D1-C2`, `N1`, `CPU12`: letters, then a number.
fn is_scope(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.ends_with(|c: char| c.is_ascii_digit())
}
