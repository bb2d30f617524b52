//! Replay: the snapshots of a recording through the stages of live runs.

use super::{ReadError, Recording, Snapshots};
use crate::{
    derive::{Report, Stages},
    join::View,
    plan::Plan,
    snapshot::{Hook, Snapshot},
};

/// A recording, window by window.
pub struct Replay {
    plan: Plan,
    stages: Stages,
    snapshots: Snapshots,
}

impl Replay {
    /// Begins it, with rows made by `view`.
    ///
    /// # Errors
    ///
    /// Where the first snapshot is not there, or damaged.
    pub fn begin(recording: Recording, view: View) -> Result<Self, ReadError> {
        let plan = recording.plan.clone();
        let file = recording.file.clone();
        let mut snapshots = recording.into_snapshots();
        let first = snapshots.next().ok_or(ReadError::Empty(file))??;
        Ok(Self {
            plan,
            stages: Stages::new(view, first),
            snapshots,
        })
    }

    /// What the next window shows; None after the last.
    ///
    /// # Errors
    ///
    /// Where its snapshot is damaged.
    pub fn advance(&mut self) -> Result<Option<&Report>, ReadError> {
        let Some(now) = self.snapshots.next().transpose()? else {
            return Ok(None);
        };
        let merged_idle = now.health.hook == Hook::CgroupSwitches;
        self.stages.advance(&self.plan, now, merged_idle);
        Ok(Some(self.stages.report()))
    }

    /// What was counted.
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
