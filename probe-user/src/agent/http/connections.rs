//! Connections: at most so many, and the one that was idle longest gives way to a new one.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::task::{AbortHandle, JoinSet};

use crate::{agent::published::Published, sys::clock};

/// When something last happened on a connection.
#[derive(Default)]
pub(super) struct Activity(AtomicU64);

impl Activity {
    fn now() -> Arc<Self> {
        let activity = Self::default();
        activity.touch();
        Arc::new(activity)
    }

    /// Something happened.
    pub(super) fn touch(&self) {
        self.0.store(clock::nanos(clock::now()), Relaxed);
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
        let oldest = open.min_by_key(|(_, (_, activity))| activity.0.load(Relaxed));
        let Some((at, _)) = oldest else {
            return false;
        };
        let (task, _) = self.open.swap_remove(at);
        task.abort();
        published.served.closed_connections.fetch_add(1, Relaxed);
        true
    }
}
