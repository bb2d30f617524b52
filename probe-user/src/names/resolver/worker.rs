//! The resolver's thread: when it asks, and what it says of failures.

use std::{
    collections::HashSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    ResolverConfig, RuntimeEndpoint, Shared,
    source::{Fault, Reply, Source},
};

/// The least time between two rounds of questions: what comes meanwhile is one question.
const SHORTEST: Duration = Duration::from_millis(20);

/// A round may take one part in so many of the thread's time.
const SPARE: u32 = 20;

/// The longest pause after a slow round.
const LONGEST: Duration = Duration::from_secs(10);

/// Answers until the resolver is dropped.
pub(super) async fn run(shared: &Shared, config: &ResolverConfig) {
    tokio::select! {
        () = shared.stop.notified() => {}
        () = answer(shared, config) => {}
    }
}

async fn answer(shared: &Shared, config: &ResolverConfig) {
    let mut sources = Source::all(config);
    let mut faults = Faults {
        named: matches!(config.runtime, RuntimeEndpoint::Socket(_)),
        said: HashSet::new(),
    };
    let mut rested = Instant::now();
    loop {
        let due = shared.book().due();
        let Some(due) = due else {
            shared.wake.notified().await;
            continue;
        };
        let due = due.max(rested);
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
        rested = Instant::now() + took.saturating_mul(SPARE).clamp(SHORTEST, LONGEST);
    }
}

/// One round: every source in turn, for what those before it did not know.
async fn ask(
    shared: &Shared,
    config: &ResolverConfig,
    sources: &mut [Source],
    faults: &mut Faults,
) {
    let mut wanted = shared.book().waiting();
    for source in sources {
        if wanted.is_empty() {
            break;
        }
        let reply = source.ask(&wanted, config.timeout).await;
        faults.tell(source, &reply);
        wanted.remove(&reply.answer);
        let mut book = shared.book();
        if let Some(fault) = &reply.fault {
            book.failed(fault);
        }
        book.take(reply.answer, Instant::now());
        drop(book);
        shared.changed.notify_all();
    }
    shared.book().asked(&wanted, Instant::now());
    shared.changed.notify_all();
}

/// Sources whose failure was told: it is told once, until they answer.
struct Faults {
    /// The user named the socket: it has to be there.
    named: bool,
    said: HashSet<PathBuf>,
}

impl Faults {
    fn tell(&mut self, source: &Source, reply: &Reply) {
        let place = source.place();
        let reason = match &reply.fault {
            Some(Fault::Timeout) => "it does not answer in time",
            Some(Fault::Failed(reason)) => reason,
            None if reply.absent && self.named => "no runtime has CRI there",
            None => {
                if !reply.absent && self.said.remove(place) {
                    tracing::info!("{} answers: rows show names", place.display());
                }
                return;
            }
        };
        if self.said.insert(place.to_owned()) {
            tracing::warn!(
                "cannot read names of containers from {}: {reason}; rows show ids until it answers \
                 (--runtime-endpoint names another runtime, or switches this off)",
                place.display()
            );
        }
    }
}
