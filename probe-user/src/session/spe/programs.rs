//! Attaching the programs of SPE's accounting.

use probe_common::Walk;

use super::SpeError;
use crate::{
    session::{
        Object, SessionError,
        object::{
            SPE_ATTACH, SPE_CHUNK, SPE_CHUNK_KPROBE, SPE_EXEC, SPE_EXIT, SPE_FORK,
            SPE_PREALLOCATE_ROWS,
        },
        walk,
    },
    snapshot::SpeHook,
};

/// Keeps the task map from now on, then fills it.
pub(super) fn attach_tasks(object: &mut Object) -> Result<(), SessionError> {
    for program in [SPE_FORK, SPE_EXIT, SPE_EXEC, SPE_ATTACH] {
        object.programs.attach(program)?;
    }
    let walk = Walk {
        threads: 1,
        ..Walk::ZERO
    };
    walk::run(object, walk).map(drop)
}

/// Makes a CPU ready to sample. One that went offline is no error: opening its event will say so.
pub(super) fn preallocate_rows(object: &mut Object, cpu: u32) -> Result<(), SessionError> {
    let ran = object.programs.run(SPE_PREALLOCATE_ROWS, Some(cpu), &[]);
    ran.map(drop)
}

/// Attaches the program that walks over chunks.
pub(super) fn attach_chunks(object: &mut Object) -> Result<SpeHook, SessionError> {
    let Err(fentry) = object.programs.attach_fentry(SPE_CHUNK) else {
        return Ok(SpeHook::Fentry);
    };
    let Err(kprobe) = object.programs.attach_kprobe(SPE_CHUNK_KPROBE) else {
        return Ok(SpeHook::Kprobe);
    };
    let error = SpeError::Hook {
        fentry: fentry.reason(),
        kprobe: kprobe.reason(),
    };
    Err(error.into())
}
