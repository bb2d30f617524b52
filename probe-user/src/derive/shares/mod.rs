//! Shares of documented metrics: a socket's value times the part of its counts that is somebody's.

use super::{MetricHead, Report, metrics};
use crate::{
    join::{
        Entity, View,
        share::{self, Method, MetricShares, NoShare, Shares, Weight},
    },
    load::Plan,
    window::Window,
};

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
    /// The metric's name with `_apportioned` behind it, and its unit.
    pub metric: MetricHead,
    /// The share, or why nothing is known.
    pub share: Result<Share, String>,
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
    }
}

fn rows(plan: &Plan, window: &Window, view: &View, shared: &MetricShares) -> Vec<ShareRow> {
    let socket = shared.socket;
    let planned = &plan.metrics.list[shared.metric];
    let head = MetricHead {
        name: format!("{}_apportioned", planned.metric.name),
        unit: planned.metric.unit.clone(),
    };
    let row = |whose, share| ShareRow {
        whose,
        socket,
        metric: head.clone(),
        share,
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
    let mut entities: Vec<(Entity, Weight)> = entities.into_iter().collect();
    entities.sort_by_key(|(_, share)| std::cmp::Reverse(share.weight));
    let mut all: Vec<ShareRow> = entities
        .into_iter()
        .filter(|(_, share)| share.weight > 0)
        .map(|(entity, share)| {
            let share = part(share.weight, shares.rel_error(&share));
            row(Whose::Entity(entity), share)
        })
        .collect();
    if planned.metric.io.is_some() {
        all.push(row(Whose::Io, part(shares.io, None)));
    }
    all.push(row(Whose::Unattributed, part(shares.unattributed, None)));
    all
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
