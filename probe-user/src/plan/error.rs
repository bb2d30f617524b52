//! Why a plan cannot be made.

use crate::event::EventError;

/// Why the events that are asked for cannot be planned. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// More events than the programs have slots for.
    #[error(
        "{events} events in {groups} groups are more than fit at once: at most {slots} counters, \
         {in_group} in a group"
    )]
    TooManyEvents {
        /// Events asked for.
        events: usize,
        /// Groups they are in.
        groups: usize,
        /// What fits.
        slots: usize,
        /// What fits in one group.
        in_group: usize,
    },
    /// Filters of events and metrics exclude each other.
    #[error(transparent)]
    Filters(#[from] EventError),
}
