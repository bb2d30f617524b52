//! Replays a recording: passes its snapshots through the stages of live runs.

use super::{ReadError, Recording, Snapshots};
use crate::{
    derive::{Report, Stages},
    join::View,
    plan::Plan,
    snapshot::{Hook, Snapshot},
};

/// Recomputes a recording window by window.
pub struct Replay {
    plan: Plan,
    stages: Stages,
    snapshots: Snapshots,
    /// The file's name, until the first window.
    empty: Option<String>,
}

impl Replay {
    /// Begins a replay with this view.
    ///
    /// # Errors
    ///
    /// If the first snapshot is missing or damaged.
    pub fn begin(recording: Recording, view: View) -> Result<Self, ReadError> {
        let plan = recording.plan.clone();
        let file = recording.file.clone();
        let mut snapshots = recording.into_snapshots();
        let Some(first) = snapshots.next() else {
            return Err(ReadError::Empty(file));
        };
        Ok(Self {
            plan,
            stages: Stages::new(view, first?),
            snapshots,
            empty: Some(file),
        })
    }

    /// Report of the next window; None after the last.
    ///
    /// # Errors
    ///
    /// If its snapshot is damaged, or the recording has no window.
    pub fn advance(&mut self) -> Result<Option<&Report>, ReadError> {
        let Some(now) = self.snapshots.next().transpose()? else {
            return self
                .empty
                .take()
                .map_or(Ok(None), |file| Err(ReadError::Empty(file)));
        };
        self.empty = None;
        let merged_idle = now.health.hook == Hook::CgroupSwitches;
        self.stages.advance(&self.plan, now, merged_idle);
        Ok(Some(self.stages.report()))
    }

    /// The plan of what was counted.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The snapshot at the end of the last window.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        self.stages.snapshot()
    }
}
