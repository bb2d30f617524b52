//! What runs beside a session: lines of JSON, pushes, names, verdicts.

use std::{path::PathBuf, sync::Arc};

use super::{
    AgentError,
    config::{Config, Names},
    json_lines::JsonLines,
    ledger::Ledger,
    otlp::Push,
    published::Published,
    rights,
};
use crate::{
    derive::{Neighbours, Report, Verdict},
    emit::name_of,
    names::resolver::{Resolver, ResolverConfig, RuntimeEndpoint},
    plan::Plan,
};

/// Who judges containers; None where nobody says what a socket's memory can move.
pub(super) fn neighbours(config: &Config, plan: &Plan) -> Option<Neighbours> {
    let judges = Neighbours::new(plan, config.verdict.peak_bandwidth?);
    judges.map_or_else(
        |why| {
            tracing::warn!("there is no verdict on noisy neighbours: {why}");
            None
        },
        Some,
    )
}

pub(super) fn say_verdict(report: &Report, verdict: &Verdict) {
    let suspects = verdict
        .suspects
        .iter()
        .map(|(entity, moved)| format!("{} ({:.1} GB/s)", name_of(report, entity), moved / 1e9));
    let suspects = suspects.collect::<Vec<_>>().join(", ");
    let suspects = match suspects.as_str() {
        "" => "nobody else that is known",
        suspects => suspects,
    };
    let victim = name_of(report, &verdict.victim);
    let (mean, deviation) = verdict.usual;
    tracing::warn!(
        "noisy neighbour: {victim} has {:.2} instructions per cycle where {mean:.2} give or take \
         {deviation:.2} are usual, and the memory of socket {} moves {:.0}% of its peak; most of \
         that, not validated here, is of {suspects}",
        verdict.ipc,
        verdict.socket,
        verdict.pressure * 100.0,
    );
}

/// What pushes windows to a collector, where the configuration names one.
pub(super) fn push(config: &Config, published: &Published) -> Result<Option<Push>, AgentError> {
    rights::without(|| Push::start(config, &published.sent)).map_err(AgentError::Push)
}

/// What asks runtimes for names; None where nobody is to be asked.
pub(super) fn resolver(names: &Names) -> Result<Option<Arc<Resolver>>, AgentError> {
    if names.cri == RuntimeEndpoint::Off {
        return Ok(None);
    }
    let config = ResolverConfig {
        runtime: names.cri.clone(),
        root: names.root.clone(),
        labels: names.labels.clone(),
        ..ResolverConfig::default()
    };
    let resolver = rights::without(|| Resolver::start(config));
    Ok(Some(Arc::new(resolver.map_err(AgentError::Names)?)))
}

/// What was exported before a restart; nothing where that is not known.
pub(super) fn totals(config: &Config, boot: &str) -> Ledger {
    let load = |directory: &PathBuf| {
        Ledger::load(boot, directory).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Ledger::default()
        })
    };
    config.state.as_ref().map(load).unwrap_or_default()
}

pub(super) fn open_json(
    config: &Config,
    published: &Published,
) -> Result<Option<JsonLines>, AgentError> {
    let open = |to| {
        JsonLines::open(to, &published.written).map_err(|source| AgentError::Json {
            to: to.to_string(),
            source,
        })
    };
    config.json.as_ref().map(open).transpose()
}
