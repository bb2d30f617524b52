//! Shares of documented metrics: a socket's value times the part of its counts that is somebody's.

use std::{collections::BTreeSet, time::Duration};

use super::{MetricHead, Report, metrics};
use crate::{
    join::{
        Entity, View,
        share::{self, Method, MetricShares, NoShare, Part, Shares},
    },
    plan::Plan,
    window::Window,
};

/// What the names of shares end in.
const APPORTIONED: &str = "_apportioned";

/// Whose a share is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A row's of the report.
    Entity(Entity),
    /// Devices'.
    Io,
    /// Nobody's that can be told.
    Unattributed,
    /// Nothing is known.
    Unknown,
}

/// The share of somebody in a socket's value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareRow {
    /// Whose it is.
    pub whose: Whose,
    /// The socket.
    pub socket: u32,
    /// What it is a share of, with the names of its devices, where that is not the whole socket.
    pub device: Option<String>,
    /// The metric's name with `_apportioned` behind it, and its unit.
    pub metric: MetricHead,
    /// The share, or why nothing is known.
    pub share: Result<Share, String>,
    /// Bytes per second that resctrl counted for the same tasks on that socket, read and written, from memory
    /// anywhere: a measure of its own beside the share.
    pub monitored: Option<f64>,
}

/// A value that was measured for a socket and divided by what was counted for each owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// In the unit of the metric.
    pub value: f64,
    /// Share of the time for which the metric's counters were live.
    pub live: f64,
    /// How it is known.
    pub method: Method,
    /// Standard error, as a part of the value; `None` where it is not known, or there is nothing that could err.
    pub rel_error: Option<f64>,
}

impl Report {
    /// Adds who caused what sockets counted.
    pub fn add_shares(&mut self, plan: &Plan, window: &Window, view: &View) {
        for shared in share::of_window(plan, window, view) {
            self.shares.extend(rows(plan, window, view, &shared));
        }
        let monitored = share::monitored(window, view);
        let of_devices: BTreeSet<&str> = of_devices(plan).collect();
        for row in &mut self.shares {
            let Whose::Entity(entity) = &row.whose else {
                continue;
            };
            let bytes = monitored.get(&(entity.clone(), row.socket));
            let name = row.metric.name.trim_end_matches(APPORTIONED);
            row.monitored = bytes
                .filter(|_| !of_devices.contains(name))
                .map(|bytes| per_second(*bytes, window.length));
        }
    }
}

fn rows(plan: &Plan, window: &Window, view: &View, shared: &MetricShares) -> Vec<ShareRow> {
    let socket = shared.socket;
    let planned = &plan.metrics.list[shared.metric];
    let head = MetricHead {
        name: format!("{}{APPORTIONED}", planned.metric.name),
        unit: planned.metric.unit.clone(),
    };
    let sources = planned.sources.iter().flatten();
    let source = sources.skip(shared.source).take(1);
    let devices = source.filter_map(|source| {
        let names = metrics::devices(plan, source, socket);
        (!names.is_empty()).then(|| format!("{} ({})", source.place, names.join(", ")))
    });
    let device = devices.last();
    let row = |whose, share| ShareRow {
        whose,
        socket,
        device: device.clone(),
        metric: head.clone(),
        share,
        monitored: None,
    };
    let unknown = |reason: String| vec![row(Whose::Unknown, Err(reason))];
    let shares = match &shared.shares {
        Ok(shares) => shares,
        Err(reason) => return unknown(reason.to_string()),
    };
    let value = metrics::at_socket(plan, planned, shared.source, window, socket);
    let value = match value {
        Some(Ok(value)) => value,
        Some(Err(reason)) => return unknown(reason.to_string()),
        None => return unknown(NoShare::NotMeasured.to_string()),
    };
    let part = |count: u64, rel_error| {
        Ok(Share {
            value: value.value * fraction(count, shares),
            live: value.live,
            method: shares.method,
            rel_error,
        })
    };
    let entities = view.shared(shares, window);
    let mut entities: Vec<(Entity, Part)> = entities.into_iter().collect();
    entities.sort_by_key(|(_, share)| std::cmp::Reverse(share.count));
    let mut all: Vec<ShareRow> = entities
        .into_iter()
        .filter_map(|(entity, share)| {
            let share = match (share.count, share.why_incomplete) {
                (0, None) => return None,
                (0, Some(reason)) => Err(reason.to_string()),
                (count, _) => part(count, shares.rel_error(&share)),
            };
            Some(row(Whose::Entity(entity), share))
        })
        .collect();
    if planned.metric.io.is_some() {
        all.push(row(Whose::Io, part(shares.io, None)));
    }
    all.push(row(Whose::Unattributed, part(shares.unattributed, None)));
    all
}

/// Names of metrics that are about devices: what tasks moved is nothing to compare them with.
fn of_devices(plan: &Plan) -> impl Iterator<Item = &str> {
    let metrics = plan.metrics.list.iter().map(|planned| &planned.metric);
    metrics
        .filter(|metric| metric.apportion.is_of_device())
        .map(|metric| metric.name.as_str())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate of more than 2^53 bytes is one to 2^-53"
)]
fn per_second(bytes: u64, length: Duration) -> f64 {
    bytes as f64 / length.as_secs_f64()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the fraction of more than 2^53 counts has no better precision"
)]
fn fraction(count: u64, shares: &Shares) -> f64 {
    match shares.measured() {
        0 => 0.0,
        measured => count as f64 / measured as f64,
    }
}

#[cfg(test)]
mod tests;
