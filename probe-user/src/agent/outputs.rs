//! Opens the outputs of the agent (JSON lines, the OTLP collector), and makes what completes its
//! windows: names from runtimes, verdicts on neighbours, and the ledger.

use std::{path::PathBuf, sync::Arc};

use super::{
    AgentError,
    config::{self, Config},
    json_lines::JsonLines,
    ledger::Ledger,
    otlp::Push,
    privileges,
    published::Published,
};
use crate::{
    derive::{MemoryNeighbours, NeighbourEvidence, NeighbourVerdict, Neighbours, Report, Subject},
    emit::names::label,
    join::Entity,
    names::resolver::{Resolver, ResolverConfig, RuntimeEndpoint},
    plan::Plan,
};

/// The detector of noisy neighbours. It judges contention for memory only if a peak bandwidth is
/// configured.
pub(super) fn neighbours(config: &Config, plan: &Plan) -> Neighbours {
    let peak = config.verdict.peak_bandwidth;
    let memory = peak.and_then(|peak| {
        let memory = MemoryNeighbours::new(plan, peak);
        let warn = |why: &String| {
            tracing::warn!("there is no verdict on noisy neighbours at the memory: {why}");
        };
        memory.inspect_err(warn).ok()
    });
    Neighbours::new(memory)
}

/// Logs a container that suffers from others, and the suspects.
pub(super) fn log_verdict(report: &Report, verdict: &NeighbourVerdict) {
    let name = |entity: &Entity| label(&Subject::Entity(entity.clone()), &report.described);
    let suspects = |amount: &dyn Fn(f64) -> String| {
        let suspects = verdict.suspects.iter();
        let named = suspects.map(|(entity, part)| format!("{} ({})", name(entity), amount(*part)));
        match named.collect::<Vec<_>>().join(", ") {
            nobody if nobody.is_empty() => "nobody else that is known".to_owned(),
            suspects => suspects,
        }
    };
    let victim = name(&verdict.victim);
    let (mean, deviation) = verdict.usual;
    match verdict.evidence {
        NeighbourEvidence::Memory { socket, pressure } => tracing::warn!(
            "noisy neighbour: {victim} has {:.2} instructions per cycle where {mean:.2} give or \
             take {deviation:.2} are usual, and the memory of socket {socket} moves {:.0}% of its \
             peak, mostly for {} (shares are not validated here)",
            verdict.value,
            pressure * 100.0,
            suspects(&|moved| format!("{:.1} GB/s", moved / 1e9)),
        ),
        NeighbourEvidence::Cpu => tracing::warn!(
            "noisy neighbour: {victim} waits {:.0}% of its time for CPUs on which others run, \
             where {:.0}% give or take {:.0}% are usual, mostly for {}",
            verdict.value * 100.0,
            mean * 100.0,
            deviation * 100.0,
            suspects(&|part| format!("{:.0}%", part * 100.0)),
        ),
    }
}

/// Starts the pushes to a collector, if the configuration names one.
pub(super) fn start_push(
    config: &Config,
    published: &Published,
) -> Result<Option<Push>, AgentError> {
    privileges::run_without(|| Push::start(config, &published.sent)).map_err(AgentError::Push)
}

/// Starts the thread that asks runtimes for names; None if the configuration turns it off.
pub(super) fn start_resolver(names: &config::Names) -> Result<Option<Arc<Resolver>>, AgentError> {
    if names.cri == RuntimeEndpoint::Off {
        return Ok(None);
    }
    let config = ResolverConfig {
        runtime: names.cri.clone(),
        root: names.root.clone(),
        labels: names.labels.clone(),
        ..ResolverConfig::default()
    };
    let resolver = privileges::run_without(|| Resolver::start(config));
    Ok(Some(Arc::new(resolver.map_err(AgentError::Names)?)))
}

/// Loads the ledger saved before a restart; an empty one if there is none, or it cannot be read.
pub(super) fn load_ledger(config: &Config, boot: &str) -> Ledger {
    let load = |directory: &PathBuf| {
        Ledger::load(boot, directory).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Ledger::default()
        })
    };
    config.state.as_ref().map(load).unwrap_or_default()
}

/// Opens the JSON lines, if the configuration names a destination for them.
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
