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
    /// The file's name, until a window was shown.
    empty: Option<String>,
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

    /// What the next window shows; None after the last.
    ///
    /// # Errors
    ///
    /// Where its snapshot is damaged, or where there is no window at all.
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
