//! What is counted where the user does not say: the core PMU where there is one, else what the
//! kernel counts itself.

use std::path::Path;

use super::LoadError;
use crate::{
    cpus,
    event::{self, EventError, EventGroup, Pmus, Source},
    sys::perf,
};

/// Events that belong together come first and next to each other, so that they share a group.
const HARDWARE: &str =
    "cycles,instructions,branches,branch-misses,cache-references,cache-misses,task-clock";

const SOFTWARE: &str = "task-clock,page-faults,context-switches,cpu-migrations";

/// What could not be found out about the machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefaultsError {
    /// The machine's own description.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The list of CPUs, or a right that is missing.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Cycles, instructions and what the PMU counts beside them; without a PMU, software events, and says so.
///
/// # Errors
///
/// Where the machine cannot be read, or counting is not permitted at all.
pub fn default_events(pmus: &Pmus) -> Result<Vec<EventGroup>, DefaultsError> {
    super::caps::check()?;
    let cpu = cpus::online(Path::new("/sys"))
        .map_err(LoadError::from)?
        .iter()
        .next()
        .unwrap_or(0);
    if pmus.cores().next().is_some() {
        let mut events = event::parse(HARDWARE, pmus)?;
        let mut missing = Vec::new();
        events.retain(|group| {
            group.events.iter().all(|event| {
                let counts = match &event.source {
                    Source::Counter(counter) => {
                        perf::open(counter, event.exclude, cpu, None).is_ok()
                    }
                    Source::DurationTime => true,
                };
                if !counts {
                    missing.push(event.name.clone());
                }
                counts
            })
        });
        if events
            .iter()
            .any(|group| group.events.iter().any(|event| event.name == "cycles"))
        {
            if !missing.is_empty() {
                tracing::info!("this PMU does not count {}", missing.join(", "));
            }
            return Ok(events);
        }
    }
    tracing::info!(
        "this machine has no hardware PMU: counting {}",
        SOFTWARE.replace(',', ", ")
    );
    Ok(event::parse(SOFTWARE, pmus)?)
}
