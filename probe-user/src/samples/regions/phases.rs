//! The phases of one thread over time.

use std::sync::Arc;

/// Maximum depth of nested phases; samples in deeper phases count for the enclosing phase.
const MAX_DEPTH: usize = 64;
/// Maximum number of changes kept for a thread; samples from before the oldest change get no phase.
const MAX_CHANGES: usize = 65_536;

/// A phase of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The names of the enclosing phases and of this phase, joined by slashes.
    pub name: Arc<str>,
    /// When it began, in ns of `CLOCK_MONOTONIC`.
    pub since: u64,
    /// When it ended, in ns of `CLOCK_MONOTONIC`; None while it is open.
    pub until: Option<u64>,
}

/// The phases of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadPhases {
    /// Open phases with a name, outermost first.
    open: Vec<Phase>,
    /// Number of open phases inside the last of `open`. They have no name, because of the limits.
    unnamed: u64,
    /// Changes of the innermost phase, each with its time, in ascending order.
    changes: Vec<(u64, Option<Arc<str>>)>,
}

impl ThreadPhases {
    /// Starts a phase; `intern` makes a shared copy of its full name. False if `intern` gives None:
    /// samples in the phase then count for the enclosing phase.
    pub(super) fn start(
        &mut self,
        time: u64,
        name: &str,
        intern: impl FnOnce(&str) -> Option<Arc<str>>,
    ) -> bool {
        if self.unnamed > 0 || self.open.len() == MAX_DEPTH {
            self.unnamed += 1;
            return true;
        }
        let name = match self.open.last() {
            Some(enclosing) => intern(&format!("{}/{name}", enclosing.name)),
            None => intern(name),
        };
        let Some(name) = name else {
            self.unnamed = 1;
            return false;
        };
        self.changes.push((time, Some(Arc::clone(&name))));
        self.open.push(Phase {
            name,
            since: time,
            until: None,
        });
        true
    }

    /// Ends the innermost phase and returns it, or None if it has no name. An error if no phase is
    /// open.
    pub(super) fn stop(&mut self, time: u64) -> Result<Option<Phase>, ()> {
        if let Some(remaining) = self.unnamed.checked_sub(1) {
            self.unnamed = remaining;
            return Ok(None);
        }
        let mut ended = self.open.pop().ok_or(())?;
        ended.until = Some(time);
        let enclosing = self.open.last().map(|phase| Arc::clone(&phase.name));
        self.changes.push((time, enclosing));
        Ok(Some(ended))
    }

    /// Ends all phases when the thread exits. Returns those with a name, innermost first.
    pub(super) fn end(&mut self, time: u64) -> Vec<Phase> {
        let ended: Vec<_> = self
            .open
            .drain(..)
            .rev()
            .map(|phase| Phase {
                until: Some(time),
                ..phase
            })
            .collect();
        self.unnamed = 0;
        if !ended.is_empty() {
            self.changes.push((time, None));
        }
        ended
    }

    /// Name of the innermost phase at a time, or now; None outside of phases.
    pub(super) fn at(&self, time: Option<u64>) -> Option<&Arc<str>> {
        let next = time.map_or(self.changes.len(), |time| {
            self.changes.partition_point(|(since, _)| *since <= time)
        });
        self.changes.get(next.checked_sub(1)?)?.1.as_ref()
    }

    /// The open phases, outermost first.
    pub(super) fn open(&self) -> &[Phase] {
        &self.open
    }

    /// Phases of the main thread of a child that this thread forks: it returns from the same calls,
    /// so it is in the same phases.
    pub(super) fn forked(&self, time: u64) -> Self {
        let mut child = Self {
            open: self.open.clone(),
            unnamed: self.unnamed,
            changes: Vec::new(),
        };
        for phase in &mut child.open {
            phase.since = time;
        }
        if let Some(last) = child.open.last() {
            child.changes.push((time, Some(Arc::clone(&last.name))));
        }
        child
    }

    /// Number of changes that [`Self::forget`] would drop.
    fn old_changes(&self, horizon: u64) -> usize {
        let before = self.changes.partition_point(|(since, _)| *since < horizon);
        let excess = self.changes.len().saturating_sub(MAX_CHANGES);
        before.saturating_sub(1).max(excess)
    }

    /// Whether [`Self::forget`] would drop anything.
    pub(super) fn has_old(&self, horizon: u64) -> bool {
        self.old_changes(horizon) > 0
    }

    /// Drops all but the last of the changes before `horizon`, and the oldest changes beyond
    /// [`MAX_CHANGES`].
    pub(super) fn forget(&mut self, horizon: u64) {
        self.changes.drain(..self.old_changes(horizon));
    }

    /// Number of stored entries: open phases and changes.
    pub(super) fn stored(&self) -> usize {
        self.open.len() + self.changes.len()
    }

    /// Whether the thread is in no phase from `horizon` on.
    pub(super) fn is_blank(&self, horizon: u64) -> bool {
        self.open.is_empty()
            && self
                .changes
                .last()
                .is_none_or(|(since, _)| *since < horizon)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(thread: &ThreadPhases, time: u64) -> Option<&str> {
        thread.at(Some(time)).map(|name| &**name)
    }

    fn start(thread: &mut ThreadPhases, time: u64, name: &str) {
        assert!(thread.start(time, name, |name| Some(name.into())));
    }

    #[test]
    fn phases_nest() {
        let mut thread = ThreadPhases::default();
        start(&mut thread, 10, "solve");
        start(&mut thread, 20, "triad");
        let inner = thread.stop(30).unwrap().unwrap();
        assert_eq!(
            (&*inner.name, inner.since, inner.until),
            ("solve/triad", 20, Some(30))
        );
        thread.stop(40).unwrap();
        assert_eq!(thread.stop(50), Err(()));
        let phases = [5, 10, 25, 30, 40].map(|time| at(&thread, time));
        assert_eq!(
            phases,
            [
                None,
                Some("solve"),
                Some("solve/triad"),
                Some("solve"),
                None
            ]
        );
    }

    #[test]
    fn a_phase_beyond_the_depth_limit_counts_for_the_enclosing_one() {
        let mut thread = ThreadPhases::default();
        for depth in 0..MAX_DEPTH as u64 + 3 {
            start(&mut thread, depth, "x");
        }
        for time in 100..100 + MAX_DEPTH as u64 + 3 {
            assert!(thread.stop(time).is_ok());
        }
        assert!(thread.stop(999).is_err());
        assert_eq!(at(&thread, 999), None);
    }

    #[test]
    fn a_phase_beyond_the_name_limit_and_its_inner_phases_count_for_the_enclosing_one() {
        let mut thread = ThreadPhases::default();
        start(&mut thread, 1, "a");
        assert!(!thread.start(2, "b", |_| None));
        start(&mut thread, 3, "c");
        assert_eq!(at(&thread, 3), Some("a"));
        assert_eq!([4, 5].map(|time| thread.stop(time)), [Ok(None), Ok(None)]);
        assert_eq!(at(&thread, 5), Some("a"));
        start(&mut thread, 6, "d");
        assert_eq!(at(&thread, 6), Some("a/d"));
    }

    #[test]
    fn the_exit_of_a_thread_ends_its_phases() {
        let mut thread = ThreadPhases::default();
        start(&mut thread, 1, "a");
        start(&mut thread, 2, "b");
        let ended: Vec<_> = thread
            .end(3)
            .into_iter()
            .map(|phase| phase.name.to_string())
            .collect();
        assert_eq!(ended, ["a/b", "a"]);
        assert_eq!((at(&thread, 2), at(&thread, 3)), (Some("a/b"), None));
    }

    proptest! {
        /// The phase at each time is that of a simple stack.
        #[test]
        fn phases_match_a_simple_stack(
            calls in prop::collection::vec(prop::option::of("[ab]"), 1..60),
            horizon in 0..60_u64,
        ) {
            let mut thread = ThreadPhases::default();
            let (mut stack, mut expected) = (Vec::new(), Vec::new());
            for (time, call) in (0..).zip(&calls) {
                match call {
                    Some(name) => {
                        start(&mut thread, time, name);
                        stack.push(name.clone());
                    }
                    None => prop_assert_eq!(thread.stop(time).is_ok(), stack.pop().is_some()),
                }
                expected.push((!stack.is_empty()).then(|| stack.join("/")));
            }
            thread.forget(horizon);
            for (time, expected) in (0..).zip(expected).skip_while(|(time, _)| *time < horizon) {
                prop_assert_eq!(at(&thread, time), expected.as_deref());
            }
        }
    }
}
