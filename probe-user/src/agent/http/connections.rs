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

/// The most time for a client to receive an answer.
const SENDING: Duration = Duration::from_secs(30);

/// When something last happened on a connection, in nanoseconds of the clock.
#[derive(Default)]
pub(super) struct Activity {
    last: AtomicU64,
    /// When the last answer was made; 0 before, and while a request is handled.
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

    /// A request arrived.
    pub(super) fn asked(&self) {
        self.touch();
        self.answered.store(0, Relaxed);
    }

    /// Its answer is made.
    pub(super) fn answered(&self) {
        self.answered.store(self.touch(), Relaxed);
    }

    /// When the client must have received the last answer; from now, if none was made.
    pub(super) fn deadline(&self) -> Duration {
        let began = match self.answered.load(Relaxed) {
            0 => clock::now(),
            answered => Duration::from_nanos(answered),
        };
        began + SENDING
    }

    /// Waits until the client is late. An idle connection ends earlier.
    pub(super) async fn overdue(&self) {
        loop {
            let left = self.deadline().saturating_sub(clock::now());
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
