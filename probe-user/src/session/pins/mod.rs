//! Pins: maps, programs and links of a session in a bpffs, so that counting goes on while no
//! process of ours is there, and the next one takes it over (docs/state.md).
//!
//! A session's pins are in a directory whose name says what they are of. While a session starts its
//! directory has another name: a start that did not come to its end leaves nothing that would be
//! taken over.

mod error;
mod handover;
mod place;
mod stamp;

use std::path::{Path, PathBuf};

pub use self::error::PinError;
pub(crate) use self::handover::Handover;
use self::{
    place::{LINK, Place},
    stamp::{Stamp, UNFINISHED},
};
use super::{Config, object};
use crate::{
    machine::{Machine, Roots},
    snapshot::Hook,
};

/// A directory for pins on a bpffs, which is made where it is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinPlace(pub PathBuf);

/// `pmuscope` on the usual bpffs.
impl Default for PinPlace {
    fn default() -> Self {
        Self(Roots::default().sys.join("fs/bpf/pmuscope"))
    }
}

/// How a session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Continuity {
    /// Counting began with it.
    #[default]
    New,
    /// Programs of the same build have counted on, and still do.
    TakenOver,
    /// The maps are those of an earlier process; its programs, of another build, were replaced.
    Replaced,
}

/// The pins of a session. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct Pins {
    place: Place,
    stamp: Stamp,
    /// The directory's name at present.
    name: String,
    pub(crate) found: Continuity,
    /// They stay when this is dropped.
    keep: bool,
}

/// The files of a program and its link.
pub(crate) fn program_files(directory: &Path, program: &str) -> (PathBuf, PathBuf) {
    let link = directory.join(format!("{program}{LINK}"));
    (directory.join(program), link)
}

impl Pins {
    /// Looks for pins that this session can go on with, and removes all others.
    pub(super) fn open(
        place: &PinPlace,
        config: &Config,
        machine: &Machine,
    ) -> Result<Self, PinError> {
        if config.hook != Hook::SchedSwitch {
            return Err(PinError::Unsuited(
                "with the hook cgroup-switches, which a process has to watch",
            ));
        }
        if config.follow_command {
            return Err(PinError::Unsuited(
                "where a command's processes are followed",
            ));
        }
        let place = Place::hold(&place.0)?;
        let stamp = Stamp::of(config);
        let mut sessions = place.sessions()?;
        let found = Self::find(&place, &sessions, &stamp, config, machine);
        let (mut name, found) = found.unwrap_or_else(|| (UNFINISHED.to_owned(), Continuity::New));
        if found != Continuity::New {
            sessions.retain(|session| *session != name);
        }
        for session in sessions {
            place.remove(&session)?;
            let why = match Stamp::parse(&session) {
                None if session == UNFINISHED => "a start that was killed left them",
                None => "their name is none that pmuscope gives",
                Some(other) if other.layout != stamp.layout => {
                    "their layout is that of another version: totals begin anew"
                }
                Some(other) if other.plan != stamp.plan => "other events were counted",
                Some(_) => "they were not complete",
            };
            tracing::info!(
                "removed the pins {}/{session}: {why}",
                place.path().display()
            );
        }
        match found {
            Continuity::New => place.make(&name)?,
            Continuity::TakenOver => {}
            // From here on the programs may be those of two builds: neither of them may adopt what
            // a start leaves that comes to no end.
            Continuity::Replaced => {
                let mixed = stamp.mixed().name();
                if mixed != name {
                    place.rename(&name, &mixed)?;
                }
                name = mixed;
            }
        }
        Ok(Self {
            place,
            stamp,
            name,
            found,
            // What counts must not end because a start fails.
            keep: found != Continuity::New,
        })
    }

    /// The pins among these that this session can go on with.
    fn find(
        place: &Place,
        sessions: &[String],
        stamp: &Stamp,
        config: &Config,
        machine: &Machine,
    ) -> Option<(String, Continuity)> {
        let has_maps = |name: &String| object::can_use(&place.path().join(name));
        let mut programs = config.lifecycle(machine);
        if config.counts_on_cpus() {
            programs.push(object::SCHED_SWITCH);
        }
        let has_programs = |name: &String| {
            programs.iter().all(|program| {
                let (program, link) = program_files(&place.path().join(name), program.name());
                program.exists() && link.exists()
            })
        };
        let same = stamp.name();
        if sessions.contains(&same) && has_maps(&same) && has_programs(&same) {
            return Some((same, Continuity::TakenOver));
        }
        let usable = |name: &&String| {
            Stamp::parse(name).is_some_and(|found| {
                found.layout == stamp.layout
                    && found.plan == stamp.plan
                    && found.build != stamp.build
            }) && has_maps(name)
        };
        let other = sessions.iter().find(usable)?;
        Some((other.clone(), Continuity::Replaced))
    }

    /// Whether they are those of an earlier process.
    pub(super) fn goes_on(&self) -> bool {
        self.found != Continuity::New
    }

    /// Rows that the maps of an earlier process take; None where there are none.
    pub(super) fn rows(&self) -> Option<u32> {
        let pinned = self.goes_on().then(|| self.directory())?;
        object::rows_of(&pinned)
    }

    /// Where the pins are now.
    pub(crate) fn directory(&self) -> PathBuf {
        self.place.path().join(&self.name)
    }

    /// The session has started: from here on the next one can take it over.
    pub(super) fn complete(&mut self) -> Result<(), PinError> {
        let name = self.stamp.name();
        if name != self.name {
            self.place.rename(&self.name, &name)?;
            self.name = name;
        }
        self.keep = false;
        Ok(())
    }

    /// They stay when the session ends.
    pub(super) fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = self.place.remove(&self.name) {
            tracing::warn!("{error}");
        }
        self.place.leave();
    }
}

/// Removes every pin of pmuscope, and the directory where nothing else is in it: counting ends.
/// Returns how many sessions had pins there.
///
/// # Errors
///
/// Where a process still uses them, or the kernel refuses.
pub fn unpin(place: &PinPlace) -> Result<usize, PinError> {
    let Some(place) = Place::hold_existing(&place.0)? else {
        return Ok(0);
    };
    let sessions = place.sessions()?;
    for session in &sessions {
        place.remove(session)?;
    }
    place.leave();
    Ok(sessions.len())
}
