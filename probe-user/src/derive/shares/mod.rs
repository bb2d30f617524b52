//! Shares of documented metrics: the value of a socket times the fraction of its counts that an
//! owner caused.

mod per_access;

use std::time::Duration;

use super::{
    Attributes, Estimate, MetricInfo, RESCTRL, Reason, Report, Spread, Subject, Value, ValueMethod,
    metrics,
};
use crate::{
    catalogue::{Apportion, MemoryTraffic},
    join::{
        EntityShares, Joined,
        share::{self, NoShare, ShareError},
    },
    plan::{Plan, PlannedMetric},
    window::Window,
};

/// The suffix of the names of shares.
pub(super) const APPORTIONED: &str = "_apportioned";

/// The names of the metrics of shares in memory traffic, each with its traffic. Metrics of the
/// traffic that one socket's CPUs send are left out: it is a part of the memory traffic.
pub(crate) fn memory_shares(plan: &Plan) -> impl Iterator<Item = (String, MemoryTraffic)> {
    let planned = plan.metrics.list.iter().filter(|it| it.sources.is_ok());
    let planned = planned.map(|it| &it.metric);
    let of_memories = planned
        .filter(|metric| matches!(metric.apportion, Apportion::CpuRead | Apportion::CpuWrite));
    of_memories.filter_map(|metric| Some((share_name(&metric.name), metric.apportion.needs()?)))
}

/// The traffic that resctrl counts and these shares lack: reads or writes; None if they have both.
pub(crate) fn lacking(shared: &[(String, MemoryTraffic)]) -> Option<&'static str> {
    let counted = [
        (MemoryTraffic::Reads, "reads"),
        (MemoryTraffic::Writes, "writes"),
    ];
    let is_lacking = |traffic| !shared.iter().any(|(_, shared)| *shared == traffic);
    let mut lacking = counted
        .into_iter()
        .filter(|(traffic, _)| is_lacking(*traffic));
    lacking.next().map(|(_, name)| name)
}

/// The name of the metric of shares in `metric`.
fn share_name(metric: &str) -> String {
    format!("{metric}{APPORTIONED}")
}

/// The share of an owner in a metric of a socket.
#[derive(Clone, Debug, PartialEq)]
struct ShareRow {
    owner: Subject,
    socket: u32,
    /// The device with its PCI names; None for the whole socket.
    device: Option<String>,
    method: Option<share::Method>,
    share: Result<Estimate, Reason>,
}

/// Adds the shares of owners in metrics of sockets, the measured bytes per access, and resctrl's
/// counts for these rows.
pub(super) fn add(report: &mut Report, plan: &Plan, window: &Window, joined: &Joined) {
    per_access::add(report, plan, window, joined);
    for shared in &joined.shares {
        let planned = &plan.metrics.list[shared.by_owner.metric];
        let metric = report.add_metric(MetricInfo::gauge(
            share_name(&planned.metric.name),
            format!(
                "{}: share of each owner; not validated here if by a weight alone",
                planned.metric.title
            ),
            &*planned.metric.unit,
        ));
        for row in rows(plan, window, shared) {
            let attributes = report.add_attributes(Attributes {
                socket: Some(row.socket),
                device: row.device,
                method: row.method.map(ValueMethod::Apportioned).unwrap_or_default(),
                ..Attributes::default()
            });
            let subject = report.subject(row.owner);
            report.push(
                [subject, metric, attributes],
                row.share.map(Value::Gauge),
                None,
            );
        }
    }
    for ((entity, socket), bytes) in joined.sources.resctrl.iter().flat_map(|it| &it.0) {
        let metric = report.add_metric(MetricInfo::gauge(
            RESCTRL,
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
    let by_owner = &shared.by_owner;
    let planned = &plan.metrics.list[by_owner.metric];
    let device = device(plan, planned, shared);
    let row = |owner, method, share| ShareRow {
        owner,
        socket: by_owner.socket,
        device: device.clone(),
        method,
        share,
    };
    let unknown = |reason| vec![row(Subject::Unknown, None, Err(reason))];
    let shares = match &by_owner.shares {
        Ok(shares) => shares,
        Err(reason) => return unknown(Reason::NoShare(*reason)),
    };
    let value = match metrics::at_socket(plan, planned, by_owner.source, window, by_owner.socket) {
        Some(Ok(value)) => value,
        Some(Err(reason)) => return unknown(Reason::NoValue(reason)),
        None => return unknown(Reason::NoShare(NoShare::NotMeasured)),
    };
    let has_weights = shares.method.validation().is_some();
    let spread = |value: f64, error: ShareError| match error {
        ShareError::Calibrated(error) => Spread::Calibrated(error.scale(value.abs())),
        ShareError::Counting(error) if has_weights => Spread::CountingOnly(error * value.abs()),
        ShareError::Counting(error) => Spread::Error(error * value.abs()),
    };
    let (errors, measured) = (shares.errors(), shares.measured());
    let share_row = |owner, count: u64, running_ratio: f64, error: Option<ShareError>| {
        let share_value = value.value * errors.fraction(count);
        let share = Estimate {
            value: share_value,
            running_ratio: value.running_ratio.min(running_ratio),
            spread: error.map_or(Spread::None, |error| spread(share_value, error)),
            exceeded_bound: None,
            over_threshold: false,
        };
        row(owner, Some(shares.method.clone()), Ok(share))
    };
    let mut entities: Vec<_> = shared.entities.iter().collect();
    entities.sort_by_key(|(_, share)| std::cmp::Reverse(share.count));
    let mut share_rows = Vec::new();
    for (entity, share) in entities {
        let owner = Subject::Entity(entity.clone());
        let is_known = share.samples > 0 && measured > 0;
        match (share.count, share.why_incomplete) {
            _ if shares.saturated => {
                share_rows.push(row(owner, None, Err(Reason::NoShare(NoShare::Saturated))));
            }
            (0, None) if !is_known => {}
            (0, Some(reason)) => share_rows.push(row(owner, None, Err(Reason::NoShare(reason)))),
            (count, _) => {
                let running_ratio = share.time.running_ratio();
                share_rows.push(share_row(owner, count, running_ratio, errors.of(share)));
            }
        }
    }
    if !planned.metric.io.is_empty() {
        share_rows.push(share_row(Subject::Io, shares.io, 1.0, None));
    }
    share_rows.push(share_row(
        Subject::Unattributed,
        shares.unattributed,
        1.0,
        None,
    ));
    share_rows
}

/// The device whose traffic is shared; None for the whole socket.
fn device(plan: &Plan, planned: &PlannedMetric, shared: &EntityShares) -> Option<String> {
    let source = planned.sources.as_ref().ok()?.get(shared.by_owner.source)?;
    let names = metrics::devices(plan, source, shared.by_owner.socket);
    (!names.is_empty()).then(|| format!("{} ({})", source.place, names.join(", ")))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "above 2^53 bytes a rate is exact to 2^-53 of it"
)]
fn per_second(bytes: u64, length: Duration) -> f64 {
    bytes as f64 / length.as_secs_f64()
}

#[cfg(test)]
mod tests;
