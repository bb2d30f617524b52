//! The programs of the object, by how they come to run.

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

pub(crate) use self::event::Links;
use self::tracepoint::PinnedPrograms;
use super::{missing, refused, types::Types};
use crate::{
    machine::btf::{KIND_FUNCTION, KIND_TYPEDEF},
    session::{SessionError, pins::Pins},
    sys::{bpf, signals::uninterrupted},
};

macro_rules! programs {
    ($($kind:ident {
        $($(#[$meta:meta])* $constant:ident = $name:literal $(at $at:literal)?,)*
    })*) => {
        $($($(#[$meta])*
        pub(crate) const $constant: $kind = $kind { name: $name, $(at: $at)? };)*)*

        pub(super) const ALL: &[&str] = &[$($($name,)*)*];

        /// The kinds of programs and what they attach to, where they say so.
        const PLACES: &[(&str, &str)] = &[$($($((stringify!($kind), $at),)?)*)*];
    };
}

/// A program at a tracepoint, which finds the kernel's structures by their types (`tp_btf`).
#[derive(Clone, Copy)]
pub(crate) struct Tracepoint {
    name: &'static str,
    at: &'static str,
}

/// A program that is never attached: user space runs it (`BPF_PROG_TEST_RUN`, kernel 5.10).
#[derive(Clone, Copy)]
pub(crate) struct OnDemand {
    name: &'static str,
}

/// A program of an iterator, which does all at its first call.
#[derive(Clone, Copy)]
pub(crate) struct Walker {
    name: &'static str,
}

/// A program at the software event cgroup-switches.
#[derive(Clone, Copy)]
pub(crate) struct AtEvent {
    name: &'static str,
}

/// A program at the overflows of events that user space opens.
#[derive(Clone, Copy)]
pub(crate) struct AtOverflow {
    name: &'static str,
}

/// A program at the start of a function of the kernel, by its trampoline.
#[derive(Clone, Copy)]
pub(crate) struct Fentry {
    name: &'static str,
    at: &'static str,
}

/// The same by a breakpoint.
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
        /// The way out of the scheduler: Linux 6.18 has it, 6.12 has not.
        SCHED_EXIT = "sched_exit" at "sched_exit_tp",
        CGROUP_MKDIR = "cgroup_mkdir" at "cgroup_mkdir",
        CGROUP_RMDIR = "cgroup_rmdir" at "cgroup_rmdir",
        CGROUP_ATTACH = "cgroup_attach" at "cgroup_attach_task",
        CPU_HOTPLUG = "cpu_hotplug" at "cpuhp_enter",
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
        /// Reads one counter, and returns the nanoseconds.
        READ_COST = "read_cost",
        /// Reads the programs' clock into `maps.clock`.
        CLOCK = "clock",
        /// Makes a CPU ready to have events sampled.
        SAMPLE_PREALLOCATE_ROWS = "sample_preallocate_rows",
        /// Makes a CPU ready to sample.
        SPE_PREALLOCATE_ROWS = "spe_preallocate_rows",
    }
    Walker {
        /// Over all processes, as `maps.walk` says.
        WALK = "walk",
        /// Over all cgroups, into `maps.tree`.
        CGROUPS = "cgroups",
    }
    AtEvent {
        /// The hook cgroup-switches.
        CGROUP_SWITCH = "cgroup_switch",
    }
    AtOverflow {
        /// Adds a sample.
        EVENT_SAMPLE = "event_sample",
    }
    Fentry {
        /// The end of a chunk of AUX data.
        SPE_CHUNK = "spe_chunk" at "perf_aux_output_end",
    }
    Kprobe {
        /// The same.
        SPE_CHUNK_KPROBE = "spe_chunk_kprobe" at "perf_aux_output_end",
    }
    Uprobe {
        /// A program calls a marker function.
        MARKER = "marker",
    }
}

/// What walkers iterate over. It does not matter.
const WALKED: &str = "bpf_map";

/// The kernel's types that programs attach to.
pub(super) fn attached_to() -> impl Iterator<Item = (u32, String)> {
    let places = PLACES.iter().filter_map(|(kind, at)| match *kind {
        "Tracepoint" => Some((KIND_TYPEDEF, tracepoint::type_name(at))),
        "Fentry" => Some((KIND_FUNCTION, (*at).to_owned())),
        _ => None,
    });
    places.chain([(KIND_FUNCTION, format!("bpf_iter_{WALKED}"))])
}

impl Walker {
    /// What the walk was over could not be read to the end.
    pub(crate) fn incomplete(self, what: &str, visited: u64) -> SessionError {
        SessionError::Bpf {
            what: of(self.name),
            reason: format!("the kernel's {what} could not be read behind the first {visited}"),
        }
    }
}

/// The programs, and the kernel's types for those that need them.
pub(crate) struct Programs {
    ebpf: Ebpf,
    types: Types,
    pins: Option<PinnedPrograms>,
}

impl Programs {
    pub(super) fn new(ebpf: Ebpf, types: Types, pins: Option<&Pins>) -> Self {
        Self {
            ebpf,
            types,
            pins: pins.map(PinnedPrograms::of),
        }
    }

    /// No program will be attached or walk for now.
    pub(crate) fn settle(&mut self) {
        self.types.forget();
    }

    /// Loads a program that will be run.
    pub(crate) fn load(&mut self, program: OnDemand) -> Result<(), SessionError> {
        let loaded: &mut RawTracePoint = find(&mut self.ebpf, program.name)?;
        uninterrupted(|| loaded.load()).map_err(|error| refused(of(program.name), &error))
    }

    /// Runs a loaded program with these arguments on this CPU. Returns what it returned; None where
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
                let what = format!("a run of {}{on}", of(program.name));
                Err(refused(what, &error))
            }
        }
    }

    /// Runs a walker; its maps say what over, and what it found.
    pub(crate) fn walk(&mut self, program: Walker) -> Result<(), SessionError> {
        let failed = |error: &dyn std::error::Error| refused(of(program.name), error);
        let loaded: &mut Iter = find(&mut self.ebpf, program.name)?;
        if loaded.fd().is_err() {
            let types = self.types.get();
            uninterrupted(|| loaded.load(WALKED, types)).map_err(|error| failed(&error))?;
        }
        let link = loaded.attach().map_err(|error| failed(&error))?;
        let link = loaded.take_link(link).map_err(|error| failed(&error))?;
        let mut file = link.into_file().map_err(|error| failed(&error))?;
        // The program prints nothing; reading is what runs it.
        file.read_to_end(&mut Vec::new())
            .map_err(|error| failed(&error))?;
        Ok(())
    }

    /// Loads and attaches a program; where it cannot be attached it is not loaded either.
    pub(crate) fn attach_fentry(&mut self, program: Fentry) -> Result<(), SessionError> {
        let refused = |error| refused(of(program.name), &error);
        let loaded: &mut FEntry = find(&mut self.ebpf, program.name)?;
        let types = self.types.get();
        uninterrupted(|| loaded.load(program.at, types)).map_err(refused)?;
        let attached = loaded.attach().map(drop).map_err(refused);
        if attached.is_err() {
            let _ = loaded.unload();
        }
        attached
    }

    /// Loads and attaches a program.
    pub(crate) fn attach_kprobe(&mut self, program: Kprobe) -> Result<(), SessionError> {
        let refused = |error| refused(of(program.name), &error);
        let loaded: &mut KProbe = find(&mut self.ebpf, program.name)?;
        uninterrupted(|| loaded.load()).map_err(refused)?;
        loaded.attach(program.at, 0).map(drop).map_err(refused)
    }

    /// Runs of all loaded programs that the kernel left out, since that program ran on the CPU
    /// already: from Linux 7.0 on one at a tracepoint may be preempted by another task.
    pub(crate) fn skipped_runs(&self) -> u64 {
        let fds = self.ebpf.programs().filter_map(|(_, it)| it.fd().ok());
        let skipped = fds.filter_map(|fd| bpf::skipped_runs(fd.as_fd()).ok());
        skipped.sum()
    }

    /// Runs of the chunks' programs, and the time that they took, as far as the kernel has measured
    /// (`kernel.bpf_stats_enabled`); None where neither is loaded.
    pub(crate) fn chunk_stats(&self) -> Option<(u64, Duration)> {
        let names = [SPE_CHUNK.name, SPE_CHUNK_KPROBE.name];
        let info = |name| self.ebpf.program(name)?.info().ok();
        let info = names.into_iter().find_map(info)?;
        Some((info.run_count(), info.run_time()))
    }
}

fn of(name: &str) -> String {
    format!("program {name}")
}

/// A program by name and type.
fn find<'a, T>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut T, SessionError>
where
    &'a mut T: TryFrom<&'a mut Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or_else(|| missing(of(name)))
}
