//! The programs and maps of SPE's accounting.

use std::os::fd::AsFd as _;

use aya::{
    Btf, Ebpf,
    maps::{Array, Map, MapData},
    programs::{
        FEntry, KProbe, ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _,
    },
};
use probe_common::{
    Walk,
    spe::{SpeClock, SpeSetting, SpeTask},
};

use super::{SpeError, clock::Clock};
use crate::{
    machine::btf::{
        Field,
        Shape::{Integer, Pointer},
        field,
    },
    session::{SessionError, chain, hook::attach_tracepoint, no_map, program, walk},
    snapshot::SpeHook,
    sys::bpf,
};

/// Fields that only these programs read.
pub(crate) const FIELDS: [Field; 7] = {
    const HANDLE: &str = "perf_output_handle";
    const BUFFER: &str = "perf_buffer";
    [
        field("SPE_HANDLE_EVENT", HANDLE, "event", Pointer),
        field("SPE_HANDLE_RB", HANDLE, "rb", Pointer),
        field("SPE_HANDLE_HEAD", HANDLE, "head", Integer(8)),
        field("SPE_HANDLE_FLAGS", HANDLE, "aux_flags", Integer(8)),
        field("SPE_BUFFER_PAGES", BUFFER, "aux_pages", Pointer),
        field("SPE_BUFFER_NR_PAGES", BUFFER, "aux_nr_pages", Integer(4)),
        field("SPE_EVENT_ID", "perf_event", "id", Integer(8)),
    ]
};

/// The function that ends a chunk.
const FUNCTION: &str = "perf_aux_output_end";

fn refused(what: &str) -> impl Fn(&dyn std::error::Error) -> SessionError {
    move |error| SessionError::Bpf {
        what: what.to_owned(),
        reason: chain(error),
    }
}

/// Keeps the task map from now on, then fills it.
pub(super) fn attach_tasks(ebpf: &mut Ebpf, btf: &Btf) -> Result<(), SessionError> {
    attach_tracepoint(ebpf, btf, "spe_fork", "sched_process_fork")?;
    attach_tracepoint(ebpf, btf, "spe_exit", "sched_process_exit")?;
    attach_tracepoint(ebpf, btf, "spe_exec", "sched_process_exec")?;
    attach_tracepoint(ebpf, btf, "spe_attach", "cgroup_attach_task")?;
    let walk = Walk {
        threads: 1,
        ..Walk::default()
    };
    walk::run(ebpf, btf, walk).map(drop)
}

/// Loads the program that makes a CPU ready to sample.
pub(super) fn load_preallocate_rows(ebpf: &mut Ebpf) -> Result<(), SessionError> {
    let preallocate_rows: &mut RawTracePoint = program(ebpf, "spe_preallocate_rows")?;
    preallocate_rows
        .load()
        .map_err(|error| refused("program spe_preallocate_rows")(&error))
}

/// Makes a CPU ready to sample.
pub(super) fn preallocate_rows(ebpf: &mut Ebpf, cpu: u32) -> Result<(), SessionError> {
    let mut options = RawTracePointRunOptions::new();
    options.cpu = Some(cpu);
    let preallocate_rows: &mut RawTracePoint = program(ebpf, "spe_preallocate_rows")?;
    match preallocate_rows.test_run(options) {
        // It went offline: opening its event will say so.
        Ok(_) => Ok(()),
        Err(ProgramError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENXIO) =>
        {
            Ok(())
        }
        Err(error) => Err(refused("a run of program spe_preallocate_rows")(&error)),
    }
}

/// Attaches the program that walks over chunks.
pub(super) fn attach_chunks(ebpf: &mut Ebpf, btf: &Btf) -> Result<SpeHook, SessionError> {
    let fentry = |ebpf: &mut Ebpf| -> Result<(), String> {
        let chunk: &mut FEntry = program(ebpf, "spe_chunk").map_err(|error| error.to_string())?;
        chunk.load(FUNCTION, btf).map_err(|error| chain(&error))?;
        let attached = chunk.attach().map(drop).map_err(|error| chain(&error));
        if attached.is_err() {
            let _ = chunk.unload();
        }
        attached
    };
    let Err(fentry) = fentry(ebpf) else {
        return Ok(SpeHook::Fentry);
    };
    let kprobe = |ebpf: &mut Ebpf| -> Result<(), String> {
        let chunk: &mut KProbe =
            program(ebpf, "spe_chunk_kprobe").map_err(|error| error.to_string())?;
        chunk.load().map_err(|error| chain(&error))?;
        chunk
            .attach(FUNCTION, 0)
            .map(drop)
            .map_err(|error| chain(&error))
    };
    match kprobe(ebpf) {
        Ok(()) => Ok(SpeHook::Kprobe),
        Err(kprobe) => Err(SpeError::Hook { fentry, kprobe }.into()),
    }
}

/// The maps that user space writes.
pub(crate) struct Maps<'a>(pub(crate) &'a mut Ebpf);

impl Maps<'_> {
    fn map<'a, T>(&'a mut self, name: &'static str) -> Result<T, SessionError>
    where
        T: TryFrom<&'a mut Map, Error = aya::maps::MapError>,
    {
        let map = self.0.map_mut(name).ok_or_else(|| no_map(name))?;
        map.try_into()
            .map_err(|error| refused(&format!("map {name}"))(&error))
    }

    fn put<const N: usize>(
        &mut self,
        name: &'static str,
        index: u32,
        value: [u64; N],
    ) -> Result<(), SessionError> {
        let mut map: Array<&mut MapData, [u64; N]> = self.map(name)?;
        map.set(index, value, 0)
            .map_err(|error| refused(&format!("an entry of map {name}"))(&error))
    }

    pub(crate) fn set(&mut self, setting: SpeSetting, value: u64) -> Result<(), SessionError> {
        self.put("SPE_SETTINGS", setting as u32, [value])
    }

    pub(super) fn set_event(&mut self, cpu: u32, id: u64) -> Result<(), SessionError> {
        self.put("SPE_EVENTS", cpu, [id])
    }

    pub(crate) fn set_clock(&mut self, slot: u32, clock: &Clock) -> Result<(), SessionError> {
        let SpeClock { ticks, nanos, mult } = clock.current;
        self.put("SPE_CLOCKS", slot, [ticks, nanos, mult])
    }

    pub(crate) fn set_task(&mut self, thread: u64, task: SpeTask) -> Result<(), SessionError> {
        let Some(Map::HashMap(map)) = self.0.map("SPE_TASKS") else {
            return Err(no_map("SPE_TASKS"));
        };
        bpf::put(map.fd().as_fd(), &[thread], &task.to_words()).map_err(|source| {
            SessionError::Map {
                what: "write to the SPE_TASKS map",
                source,
            }
        })
    }
}
