//! Replays a recording: passes its snapshots through the stages of live runs.

use super::{ReadError, Recording};
use crate::{
    derive::{Report, Stages},
    join::{By, View},
    plan::Plan,
    snapshot::Snapshot,
};

/// Recomputes a recording window by window.
pub struct Replay {
    recording: Recording,
    stages: Stages,
    /// Whether no window was read yet.
    is_empty: bool,
}

impl Replay {
    /// Begins a replay with this view.
    ///
    /// # Errors
    ///
    /// If the first snapshot is missing or damaged.
    pub fn begin(mut recording: Recording, view: View) -> Result<Self, ReadError> {
        let Some(first) = recording.next().transpose()? else {
            return Err(ReadError::Empty(recording.file().to_owned()));
        };
        Ok(Self {
            stages: Stages::new(view, first),
            recording,
            is_empty: true,
        })
    }

    /// The report of the next window; None after the last window.
    ///
    /// # Errors
    ///
    /// If the window's snapshot is damaged, or the recording has no window.
    pub fn advance(&mut self) -> Result<Option<&Report>, ReadError> {
        let Some(now) = self.recording.next().transpose()? else {
            return match self.is_empty {
                true => Err(ReadError::Empty(self.recording.file().to_owned())),
                false => Ok(None),
            };
        };
        self.is_empty = false;
        self.stages.advance(&self.recording.head.plan, now);
        Ok(Some(self.stages.report()))
    }

    /// Changes the view, and derives the last window again. Returns its report; None before the
    /// first window.
    pub fn change_view(&mut self, change: impl FnOnce(&mut View)) -> Option<&Report> {
        self.stages.change_view(&self.recording.head.plan, change);
        (!self.is_empty).then(|| self.stages.report())
    }

    /// The current view.
    #[must_use]
    pub fn view(&self) -> &View {
        self.stages.view()
    }

    /// Whether processes were counted, so that they can be rows.
    #[must_use]
    pub fn has_processes(&self) -> bool {
        self.recording.head.view.by == By::Process
    }

    /// The plan of what was counted.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.recording.head.plan
    }

    /// The snapshot at the end of the last window.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        self.stages.snapshot()
    }
}
