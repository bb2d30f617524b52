//! The resolver's thread: when it asks, and how it reports failures.

use std::{
    collections::HashSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    ResolverConfig, RuntimeEndpoint, SharedCache,
    source::{Fault, NameSource, Reply},
};

/// Minimum pause between two rounds of requests, in which new ids are collected.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// The pause after a round is this many times its duration.
const PAUSE_FACTOR: u32 = 20;

/// Maximum pause after a slow round.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Asks until the resolver is dropped.
pub(super) async fn run(shared: &SharedCache, config: &ResolverConfig) {
    tokio::select! {
        () = shared.stop.notified() => {}
        () = ask_when_due(shared, config) => {}
    }
}

async fn ask_when_due(shared: &SharedCache, config: &ResolverConfig) {
    let mut sources = NameSource::all(config);
    let mut faults = FaultLog {
        named: matches!(config.runtime, RuntimeEndpoint::Socket(_)),
        reported: HashSet::new(),
    };
    let mut pause_end = Instant::now();
    loop {
        let due = shared.cache().due();
        let Some(due) = due else {
            shared.wake.notified().await;
            continue;
        };
        let due = due.max(pause_end);
        if due > Instant::now() {
            tokio::select! {
                () = shared.wake.notified() => {}
                () = tokio::time::sleep_until(due.into()) => {}
            }
            continue;
        }
        let began = Instant::now();
        ask(shared, config, &mut sources, &mut faults).await;
        let took = began.elapsed();
        pause_end = Instant::now()
            + took
                .saturating_mul(PAUSE_FACTOR)
                .clamp(MIN_PAUSE, MAX_PAUSE);
    }
}

/// One round: asks every source in order for the ids that the previous ones did not know.
async fn ask(
    shared: &SharedCache,
    config: &ResolverConfig,
    sources: &mut [NameSource],
    faults: &mut FaultLog,
) {
    let mut wanted = shared.cache().waiting();
    for source in sources {
        if wanted.is_empty() {
            break;
        }
        let reply = source.ask(&wanted, config.timeout).await;
        faults.report(source, &reply);
        wanted.remove(&reply.answer);
        let mut cache = shared.cache();
        if let Some(fault) = &reply.fault {
            cache.count_fault(fault);
        }
        cache.apply(reply.answer, Instant::now());
        drop(cache);
        shared.changed.notify_all();
    }
    shared.cache().schedule_retries(&wanted, Instant::now());
    shared.changed.notify_all();
}

/// Reports the failure of a source once, until it answers again.
struct FaultLog {
    /// The user named the socket: it must exist.
    named: bool,
    /// Paths of the sources with a reported failure.
    reported: HashSet<PathBuf>,
}

impl FaultLog {
    fn report(&mut self, source: &NameSource, reply: &Reply) {
        let path = source.path();
        let reason = match &reply.fault {
            Some(Fault::Timeout) => "it does not answer in time",
            Some(Fault::Failed(reason)) => reason,
            None if reply.absent && self.named => "no runtime has CRI there",
            None => {
                if !reply.absent && self.reported.remove(path) {
                    tracing::info!("{} answers: rows show names", path.display());
                }
                return;
            }
        };
        if self.reported.insert(path.to_owned()) {
            tracing::warn!(
                "cannot read names of containers from {}: {reason}; rows show ids until it answers \
                 (--runtime-endpoint names another runtime, or switches this off)",
                path.display()
            );
        }
    }
}
