//! The programs of the object, by the way in which they are run.

mod attempts;
mod event;
mod tracepoint;
mod uprobe;

use std::{io::Read as _, os::fd::AsFd as _, time::Duration};

use aya::{
    Ebpf,
    programs::{
        FEntry, Iter, KProbe, Program, ProgramError, RawTracePoint, RawTracePointRunOptions,
        TestRun as _,
    },
};

pub(crate) use self::event::EventLinks;
use self::tracepoint::PinnedPrograms;
use super::{attach_types::AttachTypes, missing, refused};
use crate::{
    machine::btf::{KIND_FUNCTION, KIND_TYPEDEF},
    session::{SessionError, pins::SessionPins},
    sys::bpf,
};

macro_rules! programs {
    ($($kind:ident {
        $($(#[$meta:meta])* $constant:ident = $name:literal $(at $at:literal)?,)*
    })*) => {
        $($($(#[$meta])*
        pub(crate) const $constant: $kind = $kind { name: $name, $(at: $at)? };)*)*

        pub(super) const ALL: &[&str] = &[$($($name,)*)*];

        /// Kind and attach target of the programs that have a target.
        const ATTACH_TARGETS: &[(&str, &str)] = &[$($($((stringify!($kind), $at),)?)*)*];
    };
}

/// A program at a tracepoint, with typed access to kernel structures (`tp_btf`).
#[derive(Clone, Copy)]
pub(crate) struct Tracepoint {
    name: &'static str,
    at: &'static str,
}

/// A program that is never attached: user space runs it with `BPF_PROG_TEST_RUN` (kernel 5.10).
#[derive(Clone, Copy)]
pub(crate) struct OnDemand {
    name: &'static str,
}

/// A program of an iterator, which does its whole walk in the first call.
#[derive(Clone, Copy)]
pub(crate) struct Walker {
    name: &'static str,
}

/// A program at the software event cgroup-switches.
#[derive(Clone, Copy)]
pub(crate) struct EventProgram {
    name: &'static str,
}

/// A program at the overflows of events that user space opens.
#[derive(Clone, Copy)]
pub(crate) struct OverflowProgram {
    name: &'static str,
}

/// A program at the start of a kernel function, by a trampoline.
#[derive(Clone, Copy)]
pub(crate) struct Fentry {
    name: &'static str,
    at: &'static str,
}

/// A program at the start of a kernel function, by a breakpoint.
#[derive(Clone, Copy)]
pub(crate) struct Kprobe {
    name: &'static str,
    at: &'static str,
}

/// A program at functions of user space.
#[derive(Clone, Copy)]
pub(crate) struct Uprobe {
    name: &'static str,
}

programs! {
    Tracepoint {
        /// The default hook.
        SCHED_SWITCH = "sched_switch" at "sched_switch",
        /// At the exit of the scheduler. Linux 6.18 has the tracepoint, 6.12 does not.
        SCHED_EXIT = "sched_exit" at "sched_exit_tp",
        CGROUP_MKDIR = "cgroup_mkdir" at "cgroup_mkdir",
        CGROUP_RMDIR = "cgroup_rmdir" at "cgroup_rmdir",
        CGROUP_ATTACH = "cgroup_attach" at "cgroup_attach_task",
        CPU_HOTPLUG = "cpu_hotplug" at "cpuhp_enter",
        WAIT_MIGRATE = "wait_migrate" at "sched_migrate_task",
        PROCESS_EXIT = "process_exit" at "sched_process_exit",
        FOLLOW_FORK = "follow_fork" at "sched_process_fork",
        FOLLOW_FREE = "follow_free" at "sched_process_free",
        MARKER_FORK = "marker_fork" at "sched_process_fork",
        MARKER_EXEC = "marker_exec" at "sched_process_exec",
        MARKER_EXIT = "marker_exit" at "sched_process_exit",
        SPE_FORK = "spe_fork" at "sched_process_fork",
        SPE_EXIT = "spe_exit" at "sched_process_exit",
        SPE_EXEC = "spe_exec" at "sched_process_exec",
        SPE_ATTACH = "spe_attach" at "cgroup_attach_task",
        SPE_SWITCH = "spe_switch" at "sched_switch",
    }
    OnDemand {
        /// Closes the open slice of a CPU.
        FLUSH = "flush",
        /// Reads one counter, and returns the nanoseconds that this took.
        READ_COST = "read_cost",
        /// Reads the programs' clock into `maps.clock`.
        CLOCK = "clock",
        /// Prepares a CPU for sampled events.
        SAMPLE_PREPARE = "sample_prepare",
        /// Lets the next period of a sampled event begin at a count.
        SAMPLE_COUNT_FROM = "sample_count_from",
        /// Prepares a CPU for SPE sampling.
        SPE_PREALLOCATE_ROWS = "spe_preallocate_rows",
    }
    Walker {
        /// Walks over all processes, with parameters and results in `maps.walk`.
        WALK = "walk",
        /// Walks over all cgroups, with results in `maps.tree`.
        CGROUPS = "cgroups",
    }
    EventProgram {
        /// The hook cgroup-switches.
        CGROUP_SWITCH = "cgroup_switch",
    }
    OverflowProgram {
        /// Adds a sample to its owner's row.
        EVENT_SAMPLE = "event_sample",
    }
    Fentry {
        /// At the end of a chunk of AUX data.
        SPE_CHUNK = "spe_chunk" at "perf_aux_output_end",
    }
    Kprobe {
        /// At the end of a chunk of AUX data, if fentry does not attach.
        SPE_CHUNK_KPROBE = "spe_chunk_kprobe" at "perf_aux_output_end",
    }
    Uprobe {
        /// At calls of marker functions.
        MARKER = "marker",
    }
}

/// The kernel's iterator to which walkers attach. They ignore the objects that it iterates over.
const ITERATED_TYPE: &str = "bpf_map";

/// The kernel's types to which programs attach: kind and name.
pub(super) fn attach_targets() -> impl Iterator<Item = (u32, String)> {
    let targets = ATTACH_TARGETS.iter().filter_map(|(kind, at)| match *kind {
        "Tracepoint" => Some((KIND_TYPEDEF, tracepoint::type_name(at))),
        "Fentry" => Some((KIND_FUNCTION, (*at).to_owned())),
        _ => None,
    });
    targets.chain([(KIND_FUNCTION, format!("bpf_iter_{ITERATED_TYPE}"))])
}

impl Walker {
    /// The error of a walk that could not reach the end of the kernel's list or tree.
    pub(crate) fn incomplete(self, what: &str, visited: u64) -> SessionError {
        SessionError::Bpf {
            what: label(self.name),
            reason: format!("the kernel's {what} could not be read behind the first {visited}"),
        }
    }
}

/// The programs, and the kernel's types to which they attach.
pub(crate) struct EbpfPrograms {
    ebpf: Ebpf,
    types: AttachTypes,
    pins: Option<PinnedPrograms>,
}

impl EbpfPrograms {
    pub(super) fn new(ebpf: Ebpf, types: AttachTypes, pins: Option<&SessionPins>) -> Self {
        Self {
            ebpf,
            types,
            pins: pins.map(PinnedPrograms::new),
        }
    }

    /// Frees the kernel's types. They are read again if a program is attached or walks later.
    pub(crate) fn release_types(&mut self) {
        self.types.release();
    }

    /// Loads a program for [`Self::run`].
    pub(crate) fn load(&mut self, program: OnDemand) -> Result<(), SessionError> {
        let loaded: &mut RawTracePoint = find(&mut self.ebpf, program.name)?;
        attempts::load(|| loaded.load()).map_err(|error| refused(label(program.name), &error))
    }

    /// Runs a loaded program with these arguments on this CPU. Returns its return value; None if
    /// the CPU is offline.
    pub(crate) fn run(
        &mut self,
        program: OnDemand,
        cpu: Option<u32>,
        arguments: &[u64],
    ) -> Result<Option<u32>, SessionError> {
        let loaded: &mut RawTracePoint = find(&mut self.ebpf, program.name)?;
        let mut options = RawTracePointRunOptions::new();
        options.args[..arguments.len()].copy_from_slice(arguments);
        options.cpu = cpu;
        match loaded.test_run(options) {
            Ok(ran) => Ok(Some(ran.return_value)),
            Err(ProgramError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(libc::ENXIO) =>
            {
                Ok(None)
            }
            Err(error) => {
                let on = cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
                let what = format!("a run of {}{on}", label(program.name));
                Err(refused(what, &error))
            }
        }
    }

    /// Runs a walker. Its parameters and results are in its maps.
    pub(crate) fn walk(&mut self, program: Walker) -> Result<(), SessionError> {
        let failed = |error: &dyn std::error::Error| refused(label(program.name), error);
        let loaded: &mut Iter = find(&mut self.ebpf, program.name)?;
        if loaded.fd().is_err() {
            let types = self.types.get();
            attempts::load(|| loaded.load(ITERATED_TYPE, types)).map_err(|error| failed(&error))?;
        }
        let link_id = loaded.attach().map_err(|error| failed(&error))?;
        let link = loaded.take_link(link_id).map_err(|error| failed(&error))?;
        let mut file = link.into_file().map_err(|error| failed(&error))?;
        // Reading the file runs the program, which prints nothing.
        file.read_to_end(&mut Vec::new())
            .map_err(|error| failed(&error))?;
        Ok(())
    }

    /// Loads and attaches a program. If it cannot be attached, it is unloaded again.
    pub(crate) fn attach_fentry(&mut self, program: Fentry) -> Result<(), SessionError> {
        let refused = |error| refused(label(program.name), &error);
        let loaded: &mut FEntry = find(&mut self.ebpf, program.name)?;
        let types = self.types.get();
        attempts::load(|| loaded.load(program.at, types)).map_err(refused)?;
        let attached = loaded.attach().map(drop).map_err(refused);
        if attached.is_err() {
            let _ = loaded.unload();
        }
        attached
    }

    /// Loads and attaches a program.
    pub(crate) fn attach_kprobe(&mut self, program: Kprobe) -> Result<(), SessionError> {
        let refused = |error| refused(label(program.name), &error);
        let loaded: &mut KProbe = find(&mut self.ebpf, program.name)?;
        attempts::load(|| loaded.load()).map_err(refused)?;
        loaded.attach(program.at, 0).map(drop).map_err(refused)
    }

    /// Number of runs of loaded programs that the kernel skipped, because the program was already
    /// running on the CPU. From Linux 7.0 on, another task may preempt a program at a tracepoint.
    pub(crate) fn skipped_runs(&self) -> u64 {
        let fds = self.ebpf.programs().filter_map(|(_, it)| it.fd().ok());
        let skipped = fds.filter_map(|fd| bpf::skipped_runs(fd.as_fd()).ok());
        skipped.sum()
    }

    /// Number and total duration of the chunk programs' runs while the kernel measured them
    /// (`kernel.bpf_stats_enabled`); None if no chunk program is loaded.
    pub(crate) fn chunk_stats(&self) -> Option<(u64, Duration)> {
        let names = [SPE_CHUNK.name, SPE_CHUNK_KPROBE.name];
        let info = names
            .into_iter()
            .find_map(|name| self.ebpf.program(name)?.info().ok())?;
        Some((info.run_count(), info.run_time()))
    }
}

/// The name of a program in messages.
fn label(name: &str) -> String {
    format!("program {name}")
}

/// The program with this name, as a program of type `T`.
fn find<'a, T>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut T, SessionError>
where
    &'a mut T: TryFrom<&'a mut Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or_else(|| missing(label(name)))
}
