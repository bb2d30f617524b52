//! Attaches the programs of SPE's accounting.

use probe_common::ProcessWalk;

use super::SpeError;
use crate::{
    session::{
        EbpfObject, SessionError,
        object::{
            SPE_ATTACH, SPE_CHUNK, SPE_CHUNK_KPROBE, SPE_EXEC, SPE_EXIT, SPE_FORK,
            SPE_PREALLOCATE_ROWS,
        },
        walk,
    },
    snapshot::SpeHook,
};

/// Attaches the programs that keep the task map up to date, then fills the map.
pub(super) fn attach_tasks(object: &mut EbpfObject) -> Result<(), SessionError> {
    for program in [SPE_FORK, SPE_EXIT, SPE_EXEC, SPE_ATTACH] {
        object.programs.attach(program)?;
    }
    let walk = ProcessWalk {
        thread_map: ProcessWalk::SPE_TASKS,
        ..ProcessWalk::ZERO
    };
    walk::run(object, walk).map(drop)
}

/// Preallocates the rows of a CPU's first chunk, and records the first entry of its timeline. Does
/// nothing if the CPU went offline: opening its event fails then.
pub(super) fn preallocate_rows(object: &mut EbpfObject, cpu: u32) -> Result<(), SessionError> {
    let ran = object.programs.run(SPE_PREALLOCATE_ROWS, Some(cpu), &[]);
    ran.map(drop)
}

/// Attaches the program that decodes chunks.
pub(super) fn attach_chunks(object: &mut EbpfObject) -> Result<SpeHook, SessionError> {
    let Err(fentry_error) = object.programs.attach_fentry(SPE_CHUNK) else {
        return Ok(SpeHook::Fentry);
    };
    let Err(kprobe_error) = object.programs.attach_kprobe(SPE_CHUNK_KPROBE) else {
        return Ok(SpeHook::Kprobe);
    };
    let error = SpeError::Hook {
        fentry: fentry_error.reason(),
        kprobe: kprobe_error.reason(),
    };
    Err(error.into())
}
