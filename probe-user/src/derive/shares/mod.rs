//! Shares of documented metrics: a socket's value times the part of its counts that an owner
//! caused.

mod per_access;

use std::time::Duration;

use super::{
    Attributes, Estimate, Method, Metric, Reason, Report, Spread, Subject, Value, metrics,
};
use crate::{
    join::{
        EntityShares, Joined,
        share::{self, NoShare},
    },
    plan::{Plan, PlannedMetric},
    window::Window,
};

/// The suffix of the names of shares.
pub(super) const APPORTIONED: &str = "_apportioned";

/// The share of an owner in a socket's value of a metric.
#[derive(Clone, Debug, PartialEq)]
struct ShareRow {
    whose: Subject,
    socket: u32,
    /// What it is a share of, with the names of its devices, where that is not the whole socket.
    device: Option<String>,
    method: Option<share::Method>,
    share: Result<Estimate, Reason>,
}

/// Adds the shares of owners in the counts of sockets, with the bytes of each access that they go
/// by, and resctrl's counts for the same rows.
pub(super) fn add(report: &mut Report, plan: &Plan, window: &Window, joined: &Joined) {
    per_access::add(report, plan, window, joined);
    for shared in &joined.shares {
        let planned = &plan.metrics.list[shared.of.metric];
        let metric = report.add_metric(Metric::gauge(
            format!("{}{APPORTIONED}", planned.metric.name),
            format!(
                "{}: the share of each; not validated here where it goes by a weight",
                planned.metric.title
            ),
            &*planned.metric.unit,
        ));
        for row in rows(plan, window, shared) {
            let attributes = report.add_attributes(Attributes {
                socket: Some(row.socket),
                device: row.device,
                method: row.method.map(Method::Apportioned).unwrap_or_default(),
                ..Attributes::default()
            });
            let subject = report.subject(row.whose);
            report.push(
                [subject, metric, attributes],
                row.share.map(Value::Gauge),
                None,
            );
        }
    }
    for ((entity, socket), bytes) in &joined.monitored {
        let metric = report.add_metric(Metric::gauge(
            "resctrl_bandwidth",
            "Memory traffic of the row on that socket, read and written, as resctrl counted it: at \
             the last-level cache, or at the memory (mon_MB_*)",
            "GB/s",
        ));
        let attributes = report.add_attributes(Attributes {
            socket: Some(*socket),
            ..Attributes::default()
        });
        let subject = report.subject(Subject::Entity(entity.clone()));
        let rate = Estimate::exact(per_second(*bytes, window.length) / 1e9);
        report.push([subject, metric, attributes], Ok(Value::Gauge(rate)), None);
    }
}

fn rows(plan: &Plan, window: &Window, shared: &EntityShares) -> Vec<ShareRow> {
    let of = &shared.of;
    let planned = &plan.metrics.list[of.metric];
    let device = device(plan, planned, shared);
    let row = |whose, method, share| ShareRow {
        whose,
        socket: of.socket,
        device: device.clone(),
        method,
        share,
    };
    let unknown = |reason| vec![row(Subject::Unknown, None, Err(reason))];
    let shares = match &of.shares {
        Ok(shares) => shares,
        Err(reason) => return unknown(Reason::NoShare(*reason)),
    };
    let value = metrics::at_socket(plan, planned, of.source, window, of.socket);
    let value = match value {
        Some(Ok(value)) => value,
        Some(Err(reason)) => return unknown(Reason::NoValue(reason)),
        None => return unknown(Reason::NoShare(NoShare::NotMeasured)),
    };
    let stated = match shares.method.needs_validation() {
        true => Spread::CountingOnly,
        false => Spread::Error,
    };
    let (errors, measured) = (shares.errors(), shares.measured());
    let part = |whose, count: u64, live: f64, counting_error: Option<f64>| {
        let own = value.value * errors.fraction(count);
        let share = Estimate {
            value: own,
            live: value.live.min(live),
            spread: counting_error.map_or(Spread::Unknown, |error| stated(error * own.abs())),
            above_bound: None,
        };
        row(whose, Some(shares.method.clone()), Ok(share))
    };
    let mut entities: Vec<_> = shared.entities.iter().collect();
    entities.sort_by_key(|(_, share)| std::cmp::Reverse(share.count));
    let mut all = Vec::new();
    for (entity, share) in entities {
        let whose = Subject::Entity(entity.clone());
        let known = share.samples > 0 && measured > 0;
        match (share.count, share.why_incomplete) {
            _ if shares.saturated => {
                all.push(row(whose, None, Err(Reason::NoShare(NoShare::Saturated))));
            }
            (0, None) if !known => {}
            (0, Some(reason)) => all.push(row(whose, None, Err(Reason::NoShare(reason)))),
            (count, _) => {
                let live = share.time.live();
                all.push(part(whose, count, live, errors.of(share)));
            }
        }
    }
    if !planned.metric.io.is_empty() {
        all.push(part(Subject::Io, shares.io, 1.0, None));
    }
    all.push(part(Subject::Unattributed, shares.unattributed, 1.0, None));
    all
}

/// The device whose traffic is shared, where it is not that of the whole socket.
fn device(plan: &Plan, planned: &PlannedMetric, shared: &EntityShares) -> Option<String> {
    let source = planned.sources.as_ref().ok()?.get(shared.of.source)?;
    let names = metrics::devices(plan, source, shared.of.socket);
    (!names.is_empty()).then(|| format!("{} ({})", source.place, names.join(", ")))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate of more than 2^53 bytes is one to 2^-53"
)]
fn per_second(bytes: u64, length: Duration) -> f64 {
    bytes as f64 / length.as_secs_f64()
}

#[cfg(test)]
mod tests;
