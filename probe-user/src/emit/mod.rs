//! Emit: a [`Report`] as text.

mod csv;
mod interval;
mod json;
pub mod printable;
mod spe;
mod table;

use std::io::{self, Write};

pub use self::spe::SpeEmitter;
use crate::{
    derive::{PlaceRow, Report, Whose},
    join::Entity,
    snapshot::Health,
};

/// Formats of `stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON object per window and line.
    Json,
    /// One line per row and event, with a heading line.
    Csv,
}

/// Writes reports of one session in one format.
pub struct Emitter<W> {
    out: W,
    format: Format,
    /// Programs' account of themselves too.
    with_self: bool,
    first: bool,
}

impl<W: Write> Emitter<W> {
    /// Writes to `out`.
    pub fn new(out: W, format: Format, with_self: bool) -> Self {
        Self {
            out,
            format,
            with_self,
            first: true,
        }
    }

    /// Writes one window.
    ///
    /// # Errors
    ///
    /// Where the writer fails.
    pub fn write(&mut self, report: &Report, health: &Health) -> io::Result<()> {
        let health = self.with_self.then_some(health);
        match self.format {
            Format::Table => table::write(&mut self.out, report, health, self.first)?,
            Format::Json => json::write(&mut self.out, report, health)?,
            Format::Csv => csv::write(&mut self.out, report, health, self.first)?,
        }
        self.first = false;
        self.out.flush()
    }
}

/// Kind and name of an entity, as every format writes them.
pub(crate) fn label(entity: &Entity) -> (&'static str, String) {
    match entity {
        Entity::Command(name) => ("command", name.clone()),
        Entity::Pod(uid) => ("pod", uid.clone()),
        Entity::Container { id, .. } => ("container", id.clone()),
        Entity::Cgroup(path) => ("cgroup", path.clone()),
        Entity::Process { tgid, name } => (
            "process",
            format!("{} {tgid}", name.as_deref().unwrap_or("(name not known)")),
        ),
        Entity::EndedProcesses => ("ended", "other processes that ended".to_owned()),
        Entity::Unnamed(id) => ("cgroup", format!("id {id} (name lost)")),
        Entity::System => ("system", "system".to_owned()),
        Entity::Overflow => ("overflow", "system (overflow)".to_owned()),
        Entity::Unattributed => ("unattributed", "unattributed".to_owned()),
        Entity::Idle => ("idle", "idle".to_owned()),
        Entity::SystemAndIdle => ("system+idle", "system+idle".to_owned()),
    }
}

/// Kind and name of whose a share is, as every format writes them.
pub(crate) fn whose(whose: &Whose) -> (&'static str, String) {
    match whose {
        Whose::Entity(entity) => label(entity),
        Whose::Io => ("io", "io".to_owned()),
        Whose::Unattributed => ("unattributed", "unattributed".to_owned()),
        Whose::Unknown => ("unknown", "unknown".to_owned()),
    }
}

/// Kind and name of a socket or device, as every format writes them; the name with those of its devices.
pub(crate) fn place(row: &PlaceRow) -> (&'static str, String) {
    let kind = if row.place.device.is_some() {
        "device"
    } else {
        "socket"
    };
    let name = match row.devices.as_slice() {
        [] => row.place.to_string(),
        devices => format!("{} ({})", row.place, devices.join(", ")),
    };
    (kind, name)
}

/// The account of the programs and of what was sampled, as names and values with their units.
pub(crate) fn self_values(report: &Report, health: &Health) -> Vec<(String, String)> {
    let number = |number: Option<u64>| match number {
        Some(number) => number.to_string(),
        None => "-".to_owned(),
    };
    let mean =
        |sampled: &probe_common::SampledCost| number(sampled.nanos.checked_div(sampled.samples));
    let hook = match health.hook {
        crate::snapshot::Hook::SchedSwitch => "sched-switch",
        crate::snapshot::Hook::CgroupSwitches => "cgroup-switches",
    };
    let counted = [
        ("hook", hook.to_owned()),
        ("runs", health.runs.to_string()),
        ("charges", health.charges.to_string()),
        ("ns_per_run_same_owner", mean(&health.same)),
        ("ns_per_run_charging", mean(&health.changed)),
        (
            "sampled_runs",
            (health.same.samples + health.changed.samples).to_string(),
        ),
        ("ns_per_counter_read", number(health.cost.read.each())),
        ("counting_ppm_of_busiest_cpu", number(health.cost.ppm())),
        ("ipis_per_pull", health.flushes.to_string()),
        ("group_exchanges", health.exchanges.to_string()),
        ("rows", health.rows.to_string()),
        ("map_memory_bytes", health.memory.total().to_string()),
        ("missed_switches", health.missed_switches.to_string()),
        ("late_switches", health.late_switches.to_string()),
        ("moved_while_running", health.moved_running.to_string()),
        ("estimated_ns", health.estimated_nanos.to_string()),
        ("overflowed_charges", health.overflowed.to_string()),
        ("refused_rows_full", health.refused.full.to_string()),
        (
            "refused_rows_no_memory",
            health.refused.no_memory.to_string(),
        ),
        ("refused_rows_locked", health.refused.contended.to_string()),
        ("rebased_counters", health.rebased.to_string()),
        ("refused_reads", health.read_errors.to_string()),
        ("map_retries", health.map_retries.to_string()),
        ("lost_events", health.lost_events.to_string()),
    ];
    let sampled = report.sampling.iter();
    let sampled = sampled.map(|(name, count)| (format!("spe_{name}"), count.to_string()));
    let counted = counted.map(|(name, value)| (name.to_owned(), value));
    counted.into_iter().chain(sampled).collect()
}

#[cfg(test)]
mod tests;
