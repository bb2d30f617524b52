//! Programs at tracepoints, which may be pinned with their links.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aya::programs::{BtfTracePoint, Program, links::FdLink};

use super::{super::refused_pin, Programs, Tracepoint, find, missing, of, refused};
use crate::{
    machine::btf::KIND_TYPEDEF,
    session::{
        SessionError,
        pins::{Continuity, Pins, program_files},
    },
    sys::signals::uninterrupted,
};

impl Tracepoint {
    /// What we call it.
    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    /// What the kernel calls it.
    pub(crate) fn at(self) -> &'static str {
        self.at
    }
}

/// Where programs at tracepoints are pinned with their links.
pub(super) struct PinnedPrograms {
    directory: PathBuf,
    /// Those that are there are of this build, and stay what they are.
    adopt: bool,
}

impl PinnedPrograms {
    pub(super) fn of(pins: &Pins) -> Self {
        Self {
            directory: pins.directory(),
            adopt: pins.found == Continuity::TakenOver,
        }
    }
}

impl Programs {
    /// The directory of the pins has another name now.
    pub(crate) fn pins_moved(&mut self, directory: &Path) {
        if let Some(pins) = &mut self.pins {
            directory.clone_into(&mut pins.directory);
        }
    }

    /// Whether the program is attached by a pinned link.
    pub(crate) fn is_pinned(&self, program: Tracepoint) -> bool {
        let pins = self.pins.as_ref();
        pins.is_some_and(|pins| program_files(&pins.directory, program.name).1.exists())
    }

    /// Loads a program that will be attached: the verifier takes its time.
    pub(crate) fn prepare(
        &mut self,
        program: Tracepoint,
    ) -> Result<&mut BtfTracePoint, SessionError> {
        let loaded: &mut BtfTracePoint = find(&mut self.ebpf, program.name)?;
        if loaded.fd().is_err() {
            let types = self.types.get();
            uninterrupted(|| loaded.load(program.at, types))
                .map_err(|error| refused(of(program.name), &error))?;
        }
        Ok(loaded)
    }

    /// Loads and attaches a program. Where one of this build is pinned it stays what it is; one of
    /// another build is replaced.
    pub(crate) fn attach(&mut self, program: Tracepoint) -> Result<(), SessionError> {
        let failed = |error: &dyn std::error::Error| refused_pin(of(program.name), error);
        let Some(pins) = &self.pins else {
            let attached = self.prepare(program)?.attach();
            return attached.map(drop).map_err(|error| failed(&error));
        };
        let (pin, link_pin) = program_files(&pins.directory, program.name);
        if pins.adopt && link_pin.exists() {
            let pinned = BtfTracePoint::from_pin(pin).map_err(|error| failed(&error))?;
            let place = self.ebpf.program_mut(program.name);
            *place.ok_or_else(|| missing(of(program.name)))? = Program::BtfTracePoint(pinned);
            return Ok(());
        }
        let loaded = self.prepare(program)?;
        for file in [&link_pin, &pin] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&error));
                }
                _ => {}
            }
        }
        let link = loaded.attach().map_err(|error| failed(&error))?;
        let link: FdLink = loaded
            .take_link(link)
            .map_err(|error| failed(&error))?
            .into();
        loaded.pin(pin).map_err(|error| failed(&error))?;
        // From here on the pin alone keeps it attached.
        link.pin(link_pin).map(drop).map_err(|error| failed(&error))
    }

    /// Whether this kernel has the program's tracepoint.
    pub(crate) fn can_attach(&self, program: Tracepoint) -> bool {
        self.types.has(KIND_TYPEDEF, &type_name(program.at))
    }
}

/// The type of the kernel by which programs attach to a tracepoint.
pub(super) fn type_name(tracepoint: &str) -> String {
    format!("btf_trace_{tracepoint}")
}
