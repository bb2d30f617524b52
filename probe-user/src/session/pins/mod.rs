//! Pins keep counters running across restarts. They are the maps, programs and links of a session
//! in a bpffs, which the next session takes over (docs/how-it-works/state.md).
//!
//! A session's pins are in a directory whose name is a `PinStamp`: layout, build and plan. While a
//! session starts, its directory has a temporary name, so that no later session takes over the pins
//! of an incomplete start.

mod error;
mod handover;
mod pin_dir;
mod stamp;

use std::path::{Path, PathBuf};

pub use self::error::PinError;
use self::{
    handover::Handover,
    pin_dir::{LINK, PinDir},
    stamp::{PinStamp, UNFINISHED},
};
use super::{Config, object};
use crate::{
    machine::{Machine, Roots},
    snapshot::Hook,
};

/// Path of a directory for pins, on a bpffs. The directory is created if it is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinPath(pub PathBuf);

/// `/sys/fs/bpf/pmuscope`.
impl Default for PinPath {
    fn default() -> Self {
        Self(Roots::default().sys.join("fs/bpf/pmuscope"))
    }
}

/// Whether a session is new or continues an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Continuity {
    /// Counting began with this session.
    #[default]
    New,
    /// The pinned programs are of this build, and count without interruption.
    TakenOver,
    /// The maps are those of an earlier process. Its programs were of another build, and were
    /// replaced.
    Replaced,
}

/// The pins of a session. Dropping this value removes them, unless they are kept
/// ([`Self::keep`]).
#[derive(Debug)]
pub(crate) struct SessionPins {
    pin_dir: PinDir,
    stamp: PinStamp,
    /// The current name of the directory.
    name: String,
    pub(crate) continuity: Continuity,
    pub(crate) handover: Handover,
    /// Whether the pins stay when this value is dropped.
    keep_on_drop: bool,
}

/// The files of a program and its link.
pub(crate) fn program_files(directory: &Path, program: &str) -> (PathBuf, PathBuf) {
    let link = directory.join(format!("{program}{LINK}"));
    (directory.join(program), link)
}

impl SessionPins {
    /// Finds pins that this session can continue, and removes all others.
    pub(super) fn open(
        path: &PinPath,
        config: &Config,
        machine: &Machine,
    ) -> Result<Self, PinError> {
        if config.hook != Hook::SchedSwitch {
            return Err(PinError::Unsuited(
                "the hook cgroup-switches needs a process that watches it",
            ));
        }
        if config.follow_command {
            return Err(PinError::Unsuited("it follows a command's processes"));
        }
        let pin_dir = PinDir::lock_or_create(&path.0)?;
        let stamp = PinStamp::for_config(config, machine);
        let mut sessions = pin_dir.sessions()?;
        let usable_pins = Self::find(&pin_dir, &sessions, &stamp, config, machine);
        let (mut name, continuity) =
            usable_pins.unwrap_or_else(|| (UNFINISHED.to_owned(), Continuity::New));
        if continuity != Continuity::New {
            sessions.retain(|session| *session != name);
        }
        for session in sessions {
            pin_dir.remove(&session)?;
            let why = match PinStamp::parse(&session) {
                None if session == UNFINISHED => "a start that was killed left them",
                None => "their name is none that pmuscope gives",
                Some(other) if other.layout != stamp.layout => {
                    "their layout is that of another version: totals start from zero"
                }
                Some(other) if other.plan != stamp.plan => "other events were counted",
                Some(_) => "they were not complete",
            };
            tracing::info!(
                "removed the pins {}/{session}: {why}",
                pin_dir.path().display()
            );
        }
        match continuity {
            Continuity::New => pin_dir.make(&name)?,
            Continuity::TakenOver => {}
            // From here on the programs may be of two builds. If this start is killed, no session
            // of either build may take them over.
            Continuity::Replaced => {
                let mixed = stamp.mixed().name();
                if mixed != name {
                    pin_dir.rename(&name, &mixed)?;
                }
                name = mixed;
            }
        }
        Ok(Self {
            pin_dir,
            stamp,
            name,
            continuity,
            handover: Handover::default(),
            // A failed start must not end the counting of the earlier session.
            keep_on_drop: continuity != Continuity::New,
        })
    }

    /// The pins among `sessions` that this session can continue.
    fn find(
        pin_dir: &PinDir,
        sessions: &[String],
        stamp: &PinStamp,
        config: &Config,
        machine: &Machine,
    ) -> Option<(String, Continuity)> {
        let has_maps = |name: &String| object::can_use(&pin_dir.path().join(name));
        let mut programs = config.lifecycle(machine);
        if config.counts_on_cpus() {
            programs.push(object::SCHED_SWITCH);
        }
        let has_programs = |name: &String| {
            programs.iter().all(|program| {
                let (program, link) = program_files(&pin_dir.path().join(name), program.name());
                program.exists() && link.exists()
            })
        };
        let same_build = stamp.name();
        if sessions.contains(&same_build) && has_maps(&same_build) && has_programs(&same_build) {
            return Some((same_build, Continuity::TakenOver));
        }
        let has_usable_maps = |name: &&String| {
            PinStamp::parse(name).is_some_and(|found| {
                found.layout == stamp.layout
                    && found.plan == stamp.plan
                    && found.build != stamp.build
            }) && has_maps(name)
        };
        let other_build = sessions.iter().find(has_usable_maps)?;
        Some((other_build.clone(), Continuity::Replaced))
    }

    /// Whether the maps are those of an earlier process.
    pub(super) fn resumes(&self) -> bool {
        self.continuity != Continuity::New
    }

    /// Number of rows for which the maps of an earlier process have room; None for new pins.
    pub(super) fn row_capacity(&self) -> Option<u32> {
        let pinned = self.resumes().then(|| self.directory())?;
        object::row_capacity(&pinned)
    }

    /// The current directory of the pins.
    pub(crate) fn directory(&self) -> PathBuf {
        self.pin_dir.path().join(&self.name)
    }

    /// Gives the directory its final name: the session has started, and the next one can take it
    /// over.
    pub(super) fn complete(&mut self) -> Result<(), PinError> {
        let name = self.stamp.name();
        if name != self.name {
            self.pin_dir.rename(&self.name, &name)?;
            self.name = name;
        }
        self.keep_on_drop = false;
        Ok(())
    }

    /// Keeps the pins when the session ends.
    pub(super) fn keep(&mut self) {
        self.keep_on_drop = true;
    }
}

impl Drop for SessionPins {
    fn drop(&mut self) {
        if self.keep_on_drop {
            return;
        }
        if let Err(error) = self.pin_dir.remove(&self.name) {
            tracing::warn!("{error}");
        }
        self.pin_dir.remove_if_empty();
    }
}

/// Removes every pin of pmuscope in a directory, so that counting ends. Also removes the directory
/// if it is empty then. Returns the number of sessions that had pins.
///
/// # Errors
///
/// If a process still uses the pins, or the kernel refuses to remove them.
pub fn unpin(path: &PinPath) -> Result<usize, PinError> {
    let Some(pin_dir) = PinDir::lock_existing(&path.0)? else {
        return Ok(0);
    };
    let sessions = pin_dir.sessions()?;
    for session in &sessions {
        pin_dir.remove(session)?;
    }
    pin_dir.remove_if_empty();
    Ok(sessions.len())
}
