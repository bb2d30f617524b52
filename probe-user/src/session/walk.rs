//! Running the walks over all processes and cgroups of the machine.

use std::io::Read as _;

use aya::{Btf, Ebpf, maps::Array, programs::Iter};
use probe_common::Walk;

use super::{SessionError, chain, no_map, program};

/// Walks: what `walk` asks for goes into the maps, what it found is returned.
///
/// # Errors
///
/// Where the kernel refuses the program, or its list of processes could not be read to the end.
pub(crate) fn run(ebpf: &mut Ebpf, btf: &Btf, walk: Walk) -> Result<Walk, SessionError> {
    put(ebpf, &walk)?;
    read(ebpf, btf, "walk")?;
    let walk = get(ebpf)?;
    if walk.complete == 1 {
        Ok(walk)
    } else {
        Err(SessionError::Bpf {
            what: "program walk".into(),
            reason: format!(
                "the kernel's list of processes could not be read behind the first {}",
                walk.visited
            ),
        })
    }
}

/// Runs the program of an iterator that does all at its first call.
pub(crate) fn read(ebpf: &mut Ebpf, btf: &Btf, name: &str) -> Result<(), SessionError> {
    let failed = |error: &dyn std::error::Error| SessionError::Bpf {
        what: format!("program {name}"),
        reason: chain(error),
    };
    let program: &mut Iter = program(ebpf, name)?;
    if program.fd().is_err() {
        program
            .load("bpf_map", btf)
            .map_err(|error| failed(&error))?;
    }
    let link = program.attach().map_err(|error| failed(&error))?;
    let link = program.take_link(link).map_err(|error| failed(&error))?;
    let mut file = link.into_file().map_err(|error| failed(&error))?;
    // The program prints nothing; reading is what runs it.
    file.read_to_end(&mut Vec::new())
        .map_err(|error| failed(&error))?;
    Ok(())
}

type Words = [u64; Walk::WORDS];

fn put(ebpf: &mut Ebpf, walk: &Walk) -> Result<(), SessionError> {
    let map = ebpf.map_mut("WALK").ok_or_else(|| no_map("WALK"))?;
    let mut map: Array<_, Words> = map.try_into().map_err(|error| refused(&error))?;
    map.set(0, walk.to_words(), 0)
        .map_err(|error| refused(&error))
}

fn get(ebpf: &Ebpf) -> Result<Walk, SessionError> {
    let map = ebpf.map("WALK").ok_or_else(|| no_map("WALK"))?;
    let map: Array<_, Words> = map.try_into().map_err(|error| refused(&error))?;
    map.get(&0, 0)
        .map(|words| Walk::from_words(&words))
        .map_err(|error| refused(&error))
}

fn refused(error: &aya::maps::MapError) -> SessionError {
    SessionError::Bpf {
        what: "map WALK".into(),
        reason: chain(error),
    }
}
