//! The open connections: at the limit, a new one replaces the one that was idle longest.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use tokio::task::{AbortHandle, JoinSet};

use super::in_flight::{Activity, InFlight};
use crate::agent::published::Published;

/// The open connections.
pub(super) struct Connections {
    limit: usize,
    tasks: JoinSet<()>,
    in_flight: Arc<InFlight>,
    open: Vec<(AbortHandle, Arc<Activity>)>,
}

impl Connections {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            tasks: JoinSet::new(),
            in_flight: Arc::default(),
            open: Vec::new(),
        }
    }

    /// Serves a connection in a task of its own.
    pub(super) fn spawn<F>(&mut self, published: &Published, serve: impl FnOnce(Arc<Activity>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|(task, _)| !task.is_finished());
        if self.open.len() >= self.limit {
            self.close_longest_idle(published);
        }
        published.served.connections.fetch_add(1, Relaxed);
        let activity = Activity::new(&self.in_flight);
        let task = self.tasks.spawn(serve(Arc::clone(&activity)));
        self.open.push((task, activity));
    }

    /// Closes the connection that was idle longest; false if none is open.
    pub(super) fn close_longest_idle(&mut self, published: &Published) -> bool {
        let open = self.open.iter().enumerate();
        let longest_idle = open.min_by_key(|(_, (_, activity))| activity.last_active());
        let Some((at, _)) = longest_idle else {
            return false;
        };
        let (task, _) = self.open.swap_remove(at);
        task.abort();
        published.served.closed_connections.fetch_add(1, Relaxed);
        true
    }
}
