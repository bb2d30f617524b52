//! Connections: at most so many, and the one that was idle longest gives way to a new one.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::task::{AbortHandle, JoinSet};

use crate::{agent::published::Published, sys::clock};

/// The most time for an answer, from when it was made until the client has it.
const SENDING: Duration = Duration::from_secs(30);

/// When something last happened on a connection, in nanoseconds of the clock.
#[derive(Default)]
pub(super) struct Activity {
    last: AtomicU64,
    /// When the last answer was made; 0 while none is under way.
    answered: AtomicU64,
}

impl Activity {
    fn now() -> Arc<Self> {
        let activity = Self::default();
        activity.touch();
        Arc::new(activity)
    }

    fn touch(&self) -> u64 {
        let now = clock::nanos(clock::now());
        self.last.store(now, Relaxed);
        now
    }

    /// There is a request.
    pub(super) fn asked(&self) {
        self.touch();
        self.answered.store(0, Relaxed);
    }

    /// Its answer was made, and is to be sent.
    pub(super) fn answered(&self) {
        self.answered.store(self.touch(), Relaxed);
    }

    /// When the last answer has to be with the client; None while none is under way.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let answered = self.answered.load(Relaxed);
        (answered > 0).then(|| Duration::from_nanos(answered) + SENDING)
    }

    /// Waits until an answer is not with its client in time. An idle connection ends before.
    pub(super) async fn overdue(&self) {
        loop {
            let now = clock::now();
            let left = self
                .deadline()
                .map_or(SENDING, |end| end.saturating_sub(now));
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

/// Those that are open.
pub(super) struct Connections {
    most: usize,
    tasks: JoinSet<()>,
    open: Vec<(AbortHandle, Arc<Activity>)>,
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            tasks: JoinSet::new(),
            open: Vec::new(),
        }
    }

    /// Serves a connection beside the others.
    pub(super) fn spawn<F>(&mut self, published: &Published, serve: impl FnOnce(Arc<Activity>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|(task, _)| !task.is_finished());
        if self.open.len() >= self.most {
            self.close_oldest(published);
        }
        published.served.connections.fetch_add(1, Relaxed);
        let activity = Activity::now();
        let task = self.tasks.spawn(serve(Arc::clone(&activity)));
        self.open.push((task, activity));
    }

    /// Closes the one on which nothing happened for longest; false where none is open.
    pub(super) fn close_oldest(&mut self, published: &Published) -> bool {
        let open = self.open.iter().enumerate();
        let oldest = open.min_by_key(|(_, (_, activity))| activity.last.load(Relaxed));
        let Some((at, _)) = oldest else {
            return false;
        };
        let (task, _) = self.open.swap_remove(at);
        task.abort();
        published.served.closed_connections.fetch_add(1, Relaxed);
        true
    }
}
