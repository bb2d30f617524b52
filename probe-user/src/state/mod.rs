//! State: what user space must remember so that totals go on after a restart. It is saved to a file
//! after pulls (`file`), and read at the next start.
//!
//! ```ignore
//! let boot = state::boot_id(&machine);
//! let saved = State::load(directory, &boot)?;            // an error: say it, and begin anew
//! let mut session = Session::start(config, &machine)?;
//! if let Some(saved) = &saved {
//!     session.recall(saved.names(), saved.owners())?;
//! }
//! let first = session.pull()?;
//! // What was counted since the last save: in the totals, but no window to be shown.
//! let (window, joined) = saved.resume(&first, session.generation()?, session.plan(), &view)?;
//! // ... after each pull:
//! State::of(&boot, session.generation()?, session.plan(), &snapshot, &window, &joined)
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

pub(crate) use self::file::Encoded;
use self::plan::{Counts, Places};
pub use self::{error::StateError, file::StateFile};
use crate::{
    join::{Joined, Rows, View},
    machine::Machine,
    plan::Plan,
    snapshot::{Names, Snapshot, SpeReading, UncoreReading, UsageRows},
    window::{SpeUsage, Totals, Usage, Window},
};

/// What is remembered of a session at one of its snapshots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State<'a> {
    /// The boot since which the kernel's clocks and numbers hold.
    boot: Cow<'a, str>,
    /// Which maps the rows are of.
    generation: u64,
    /// `CLOCK_MONOTONIC` at the snapshot.
    at: Duration,
    /// What each count is of.
    counts: Counts,
    /// The rows as the snapshot has them: what is in the maps later began with these.
    rows: Cow<'a, UsageRows>,
    #[serde(with = "names_of_owners")]
    names: Cow<'a, Names>,
    totals: Totals<'a>,
    entities: Cow<'a, Rows<Usage>>,
    sampled: Option<Cow<'a, Rows<SpeUsage>>>,
}

/// Names of cgroups and processes: what runtimes call containers is asked again.
mod names_of_owners {
    use std::{borrow::Cow, collections::BTreeMap};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::snapshot::Names;

    pub(super) fn serialize<S: Serializer>(
        names: &Names,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        // In their order: the same names are the same bytes.
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

/// What tells this boot of the machine from any other.
#[must_use]
pub fn boot_id(machine: &Machine) -> String {
    // Without procfs no boot is known: a state is of none other then either.
    machine
        .proc("sys/kernel/random/boot_id")
        .unwrap_or_default()
}

impl<'a> State<'a> {
    /// The state after a window, which ended with `snapshot`. `generation` is that of the session
    /// ([`Session::generation`](crate::session::Session::generation)).
    #[must_use]
    pub fn of(
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
            counts: Counts::of(plan),
            rows: Cow::Borrowed(&snapshot.rows),
            names: Cow::Borrowed(&snapshot.names),
            totals: Totals {
                // Which events these are of is not saved: they begin with each session.
                sampled: None,
                ..window.totals()
            },
            entities: Cow::Borrowed(&joined.rows),
            sampled: joined.samples.as_ref().map(Cow::Borrowed),
        }
    }

    /// `CLOCK_MONOTONIC` at its snapshot.
    #[must_use]
    pub fn at(&self) -> Duration {
        self.at
    }

    /// The names that were known.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The cgroups that had counts.
    #[must_use]
    pub fn owners(&self) -> BTreeSet<CgroupId> {
        let owners = self.rows.keys().map(|key| key.cgroup);
        owners.filter(|owner| owner.is_cgroup()).collect()
    }

    /// Goes on with the first snapshot of a session: a window from the state's snapshot to that
    /// one, and its rows by entity, whose totals are those of the state with what was counted
    /// since. The window is there to be the one before the next; its length is that of the pause.
    ///
    /// Where the session's maps are others than those of the state, all that is in them was counted
    /// since they were made.
    ///
    /// # Errors
    ///
    /// Where an event is counted together with others than before: its totals cannot go on.
    pub fn resume(
        self,
        first: &Snapshot,
        generation: u64,
        plan: &Plan,
        view: &View,
    ) -> Result<(Window, Joined), StateError> {
        let places = Places::of(&self.counts, &Counts::of(plan)).ok_or(StateError::OtherEvents)?;
        let rows = match generation == self.generation {
            true => self.rows.into_owned(),
            false => UsageRows::default(),
        };
        let before = before(first, self.at, rows);
        let mut window = Window::between(&before, first, plan);
        window.go_on(&places.totals(self.totals));
        let entities = places.rows(self.entities.into_owned());
        let sampled = self.sampled.map(Cow::into_owned);
        let joined = view.resume(plan, &window, &entities, sampled.as_ref());
        Ok((window, joined))
    }
}

/// A snapshot with these rows. All else is as when the session of `first` began: uncore counters
/// and samples begin with it, and what it does not keep totals of shows no difference.
fn before(first: &Snapshot, at: Duration, rows: UsageRows) -> Snapshot {
    let zero = |reading: &UncoreReading| UncoreReading {
        count: Some(0),
        skew: 0,
        enabled: 0,
        running: 0,
        ..*reading
    };
    let unsampled = |spe: &SpeReading| SpeReading {
        rows: Default::default(),
        freed: Vec::new(),
        pages: Vec::new(),
        lines: Vec::new(),
        tables: Arc::clone(&spe.tables),
        health: spe.health.clone(),
    };
    Snapshot {
        at,
        boot_time: first.boot_time,
        rows,
        freed: Vec::new(),
        uncore: first.uncore.iter().map(zero).collect(),
        topology: first.topology.clone(),
        devices: first.devices.clone(),
        monitored: first.monitored.clone(),
        memory: first.memory.clone(),
        spe: first.spe.as_ref().map(unsampled),
        sampled: None,
        names: Arc::clone(&first.names),
        health: first.health.clone(),
    }
}
