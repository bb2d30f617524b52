//! State: what user space must save so that totals continue after a restart. It is saved to a file
//! after pulls (`file`), and read at the next start.
//!
//! ```ignore
//! let boot = state::boot_id(&machine);
//! let saved = SavedState::load(directory, &boot)?;            // an error: start from zero
//! let mut session = Session::start(config, &machine)?;
//! if let Some(saved) = &saved {
//!     session.restore(saved.names(), saved.owners());
//! }
//! let first = session.pull()?;
//! // Counts since the last save are in the totals, but this window is not shown.
//! let (window, joined) = saved.resume(&first, session.generation()?, session.plan(), &view)?;
//! // ... after each pull:
//! SavedState::new(&boot, session.generation()?, session.plan(), &snapshot, &window, &joined)
//!     .save(directory)?;
//! ```

mod error;
mod file;
mod plan;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use probe_common::CgroupId;
use serde::{Deserialize, Serialize};

pub(crate) use self::file::EncodedState;
use self::plan::{PlanEvents, PlanPositions};
pub use self::{error::StateError, file::StateFile};
use crate::{
    join::{Joined, Rows, View},
    machine::Machine,
    plan::Plan,
    snapshot::{Names, SampleReading, Snapshot, SpeReading, UncoreReading, UsageRows},
    window::{SampleUsage, Totals, Usage, Window},
};

/// The saved totals of a session, at one of its snapshots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedState<'a> {
    /// The boot id: clocks and ids of the kernel are valid only in this boot.
    boot: Cow<'a, str>,
    /// Generation of the maps from which the rows were read.
    generation: u64,
    /// `CLOCK_MONOTONIC` at the snapshot.
    at: Duration,
    /// Which event each count is of.
    counts: PlanEvents,
    /// The rows of the snapshot: later counts in the same maps include them.
    rows: Cow<'a, UsageRows>,
    #[serde(with = "names_of_owners")]
    names: Cow<'a, Names>,
    totals: Totals<'a>,
    entities: Cow<'a, Rows<Usage>>,
    samples: Option<Cow<'a, Rows<SampleUsage>>>,
}

/// Saves the names of cgroups and processes. Runtimes are asked again for the names of containers.
mod names_of_owners {
    use std::{borrow::Cow, collections::BTreeMap};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::snapshot::Names;

    pub(super) fn serialize<S: Serializer>(
        names: &Names,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        // Sorted, so that equal names are equal bytes.
        let cgroups: BTreeMap<_, _> = names.cgroups.iter().collect();
        let processes: BTreeMap<_, _> = names.processes.iter().collect();
        (cgroups, processes).serialize(serializer)
    }

    pub(super) fn deserialize<'a, 'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Cow<'a, Names>, D::Error> {
        let (cgroups, processes) = Deserialize::deserialize(deserializer)?;
        Ok(Cow::Owned(Names {
            cgroups,
            processes,
            ..Names::default()
        }))
    }
}

/// Identifies this boot of the machine.
#[must_use]
pub fn boot_id(machine: &Machine) -> String {
    // Without procfs all boots have the same empty id.
    machine
        .proc("sys/kernel/random/boot_id")
        .unwrap_or_default()
}

impl<'a> SavedState<'a> {
    /// The state after a window that ended with `snapshot`. `generation` is the session's
    /// ([`Session::generation`](crate::session::Session::generation)).
    #[must_use]
    pub fn new(
        boot: &'a str,
        generation: u64,
        plan: &Plan,
        snapshot: &'a Snapshot,
        window: &'a Window,
        joined: &'a Joined,
    ) -> Self {
        Self {
            boot: boot.into(),
            generation,
            at: snapshot.at,
            counts: PlanEvents::from_plan(plan),
            rows: Cow::Borrowed(&snapshot.rows),
            names: Cow::Borrowed(&snapshot.names),
            totals: window.totals(),
            entities: Cow::Borrowed(&joined.rows),
            samples: joined.samples.as_ref().map(Cow::Borrowed),
        }
    }

    /// `CLOCK_MONOTONIC` at the snapshot.
    #[must_use]
    pub fn at(&self) -> Duration {
        self.at
    }

    /// Names of cgroups and processes.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The cgroups that have counts.
    #[must_use]
    pub fn owners(&self) -> BTreeSet<CgroupId> {
        let owners = self.rows.keys().map(|key| key.cgroup);
        owners.filter(|owner| owner.is_cgroup()).collect()
    }

    /// Continues the totals with the first snapshot of a session. Returns the window from the
    /// state's snapshot to `first`, and its rows, with the state's totals plus the counts since.
    /// The window serves as the predecessor of the next one; its length is the length of the pause.
    ///
    /// If the session has other maps than the state, all counts in them are new. Totals of samples
    /// continue if the sources of samples are unchanged.
    ///
    /// # Errors
    ///
    /// An event is in another group than before: its totals cannot continue.
    pub fn resume(
        self,
        first: &Snapshot,
        generation: u64,
        plan: &Plan,
        view: &View,
    ) -> Result<(Window, Joined), StateError> {
        let positions = PlanPositions::between(&self.counts, &PlanEvents::from_plan(plan))
            .ok_or(StateError::OtherEvents)?;
        let rows = match generation == self.generation {
            true => self.rows.into_owned(),
            false => UsageRows::default(),
        };
        let before = before(first, self.at, rows);
        let mut window = Window::between(&before, first, plan);
        window.apply_totals(&positions.totals(self.totals));
        let entities = positions.rows(self.entities.into_owned());
        let joined = view.resume(plan, &window, &entities, self.samples.as_deref());
        Ok((window, joined))
    }
}

/// A snapshot with these rows. The other readings are as when the session of `first` began: uncore
/// counters and samples are zero, and everything without totals equals that of `first`.
fn before(first: &Snapshot, at: Duration, rows: UsageRows) -> Snapshot {
    let zero = |reading: &UncoreReading| UncoreReading {
        count: Some(0),
        skew: 0,
        enabled: 0,
        running: 0,
        ..*reading
    };
    let without_lists = |spe: &SpeReading| SpeReading {
        pages: Vec::new(),
        lines: Vec::new(),
        tables: Arc::clone(&spe.tables),
        health: spe.health.clone(),
    };
    let no_samples = |samples: &SampleReading| SampleReading {
        spe: samples.spe.as_ref().map(without_lists),
        events: samples.events.clone(),
        ..SampleReading::default()
    };
    Snapshot {
        at,
        boot_time: first.boot_time,
        rows,
        freed: Vec::new(),
        uncore: first.uncore.iter().map(zero).collect(),
        topology: first.topology.clone(),
        sources: first.sources.clone(),
        samples: first.samples.as_ref().map(no_samples),
        names: Arc::clone(&first.names),
        health: first.health.clone(),
    }
}
