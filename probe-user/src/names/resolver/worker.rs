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

/// Minimum pause between two rounds of requests. New ids are collected during a pause.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// The pause after a round is this many times its duration.
const PAUSE_FACTOR: u32 = 20;

/// Maximum pause after a slow round.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Asks for due ids until the resolver is dropped.
pub(super) async fn run(shared: &SharedCache, config: &ResolverConfig) {
    tokio::select! {
        () = shared.stop.notified() => {}
        () = ask_when_due(shared, config) => {}
    }
}

async fn ask_when_due(shared: &SharedCache, config: &ResolverConfig) {
    let mut sources = NameSource::all(config);
    let mut faults = FaultLog {
        is_socket_given: matches!(config.runtime, RuntimeEndpoint::Socket(_)),
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
        let round_time = began.elapsed();
        pause_end = Instant::now()
            + round_time
                .saturating_mul(PAUSE_FACTOR)
                .clamp(MIN_PAUSE, MAX_PAUSE);
    }
}

/// One round: asks every source in order, each for the ids that no previous source knew.
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

/// Reports each source's failure once, and again only after it answered in between.
struct FaultLog {
    /// Whether the user gave the socket: then it must exist.
    is_socket_given: bool,
    /// Paths of the sources with a reported failure.
    reported: HashSet<PathBuf>,
}

impl FaultLog {
    fn report(&mut self, source: &NameSource, reply: &Reply) {
        let path = source.path();
        let reason = match &reply.fault {
            Some(Fault::Timeout) => "it does not answer in time",
            Some(Fault::Failed(reason)) => reason,
            None if reply.absent && self.is_socket_given => "no runtime has CRI there",
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
