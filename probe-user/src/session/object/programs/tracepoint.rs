//! Programs at tracepoints, which can be pinned with their links.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aya::programs::{BtfTracePoint, Program, links::FdLink};

use super::{
    super::refused_pin, EbpfPrograms, Tracepoint, attempts, find, label, missing, refused,
};
use crate::{
    machine::btf::KIND_TYPEDEF,
    session::{
        SessionError,
        pins::{Continuity, SessionPins, program_files},
    },
};

impl Tracepoint {
    /// Name of the program.
    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    /// Name of the kernel's tracepoint.
    pub(crate) fn at(self) -> &'static str {
        self.at
    }
}

/// The pins of programs at tracepoints and of their links.
pub(super) struct PinnedPrograms {
    directory: PathBuf,
    /// Whether the pinned programs are of this build, and so are kept.
    keeps_pinned: bool,
}

impl PinnedPrograms {
    pub(super) fn new(pins: &SessionPins) -> Self {
        Self {
            directory: pins.directory(),
            keeps_pinned: pins.continuity == Continuity::TakenOver,
        }
    }
}

impl EbpfPrograms {
    /// Sets the directory of the pins. Must be called after the directory was renamed.
    pub(crate) fn set_pin_directory(&mut self, directory: &Path) {
        if let Some(pins) = &mut self.pins {
            directory.clone_into(&mut pins.directory);
        }
    }

    /// Whether the program is attached by a pinned link.
    pub(crate) fn is_pinned(&self, program: Tracepoint) -> bool {
        let pins = self.pins.as_ref();
        pins.is_some_and(|pins| program_files(&pins.directory, program.name).1.exists())
    }

    /// Loads a program in advance, so that attaching it does not wait for the verifier.
    pub(crate) fn prepare(
        &mut self,
        program: Tracepoint,
    ) -> Result<&mut BtfTracePoint, SessionError> {
        let loaded: &mut BtfTracePoint = find(&mut self.ebpf, program.name)?;
        if loaded.fd().is_err() {
            let types = self.types.get();
            attempts::load(|| loaded.load(program.at, types))
                .map_err(|error| refused(label(program.name), &error))?;
        }
        Ok(loaded)
    }

    /// Loads and attaches a program. A pinned program of this build is kept instead; a pinned
    /// program of another build is replaced.
    pub(crate) fn attach(&mut self, program: Tracepoint) -> Result<(), SessionError> {
        let failed = |error: &dyn std::error::Error| refused_pin(label(program.name), error);
        let Some(pins) = &self.pins else {
            let attached = self.prepare(program)?.attach();
            return attached.map(drop).map_err(|error| failed(&error));
        };
        let (pin, link_pin) = program_files(&pins.directory, program.name);
        if pins.keeps_pinned && link_pin.exists() {
            let pinned = BtfTracePoint::from_pin(pin).map_err(|error| failed(&error))?;
            let unpinned = self.ebpf.program_mut(program.name);
            *unpinned.ok_or_else(|| missing(label(program.name)))? = Program::BtfTracePoint(pinned);
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
        let link_id = loaded.attach().map_err(|error| failed(&error))?;
        let link: FdLink = loaded
            .take_link(link_id)
            .map_err(|error| failed(&error))?
            .into();
        loaded.pin(pin).map_err(|error| failed(&error))?;
        // From here on the pin alone keeps the program attached.
        link.pin(link_pin).map(drop).map_err(|error| failed(&error))
    }

    /// Whether this kernel has the program's tracepoint.
    pub(crate) fn can_attach(&self, program: Tracepoint) -> bool {
        self.types.has(KIND_TYPEDEF, &type_name(program.at))
    }
}

/// The kernel type by which programs attach to a tracepoint.
pub(super) fn type_name(tracepoint: &str) -> String {
    format!("btf_trace_{tracepoint}")
}
