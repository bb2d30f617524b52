//! Why a plan cannot be made.

use crate::event::EventError;

/// Why the requested events cannot be planned. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// More events than the programs have slots for.
    #[error(
        "{events} events in {groups} groups are more than fit at once: at most {slots} counters, \
         {in_group} in a group"
    )]
    TooManyEvents {
        /// Requested events.
        events: usize,
        /// Groups of these events.
        groups: usize,
        /// Slots of the programs.
        slots: usize,
        /// Maximum number of counters in one group.
        in_group: usize,
    },
    /// More sampled events than counters.
    #[error(
        "cannot sample {events} at one time on {pmu}: {why}; {}", match fit {
            0 => "count them, in turns (`-e`), or sample cpu-clock".to_owned(),
            fit => format!("sample at most the first {fit} of them, and the others in another run"),
        }
    )]
    Sampled {
        /// Names of all events to sample there.
        events: String,
        /// Their PMU.
        pmu: String,
        /// Why they do not fit.
        why: String,
        /// How many of the events fit, counted from the first.
        fit: usize,
    },
    /// A group of the user does not fit together with the sampled events.
    #[error("cannot count {events} at one time: {why}; sample or count fewer events")]
    SampledConflict {
        /// Names of the group's events.
        events: String,
        /// Why they do not fit.
        why: String,
    },
    /// The hypervisor hides an event.
    #[error("cannot count {events}: {why}")]
    Hidden {
        /// Names of its group's events.
        events: String,
        /// Why it counts nothing.
        why: String,
    },
    /// Filters of events and metrics exclude each other.
    #[error(transparent)]
    Filters(#[from] EventError),
}
