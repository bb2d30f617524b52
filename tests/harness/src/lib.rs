//! Shared code of pmuscope's tests and benchmarks: exclusive access to the machine, cgroups, loads
//! and counts on a running kernel, and modules of other code that at least two of them use.
//!
//! Unit tests of probe-user cannot use this crate: it is linked with another copy of the library.
//! They use `test-support`.
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and by any error"
)]

pub mod agent;
pub mod bpf;
pub mod browser;
mod cgroup;
pub mod collector;
mod counting;
pub mod hour;
mod load;
mod messages;
pub mod perf;
mod texts;
pub mod waits;

use std::{
    env,
    fs::File,
    io,
    os::fd::{FromRawFd as _, OwnedFd},
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::Duration,
};

use probe_user::{
    event,
    machine::{Machine, cgroup::Hierarchy, cpus::CpuList},
    plan::Plan,
    sys::descriptors,
};
use rustix::{
    process::{Resource, Rlimit, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

pub use self::{
    cgroup::{TestCgroup, cpu_time, flood_the_ring},
    counting::{Counting, taken_time, uncertain_time},
    load::{Load, load_binary},
    messages::Messages,
    texts::texts,
};

/// Exclusive access to the machine, for tests whose measurement other tests would disturb. None,
/// with a printed reason, if this process may not load programs or create cgroups.
pub fn machine() -> Option<File> {
    let lock = locked(File::lock)?;
    cgroup::remove_leftovers();
    Some(lock)
}

/// Shared access to the machine, for tests whose result does not depend on what else runs.
pub fn shared_machine() -> Option<File> {
    locked(File::lock_shared)
}

fn locked(lock: fn(&File) -> io::Result<()>) -> Option<File> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to load eBPF programs and to make cgroups");
        return None;
    }
    // Thousands of loads need two pipes each, so the soft limit is raised to the hard limit.
    descriptors::allow_most();
    let file = File::create(env::temp_dir().join("pmuscope-host-tests.lock")).unwrap();
    lock(&file).unwrap();
    Some(file)
}

/// The mounted hierarchy of cgroups.
pub fn hierarchy() -> Hierarchy {
    this_machine().hierarchy().unwrap().clone()
}

/// The description of the running machine, read at each call.
pub fn this_machine() -> Arc<Machine> {
    Arc::new(Machine::this())
}

/// The numbers of the online CPUs.
pub fn online_cpus() -> Vec<u32> {
    online().iter().collect()
}

/// The online CPUs.
pub fn online() -> CpuList {
    this_machine().online().unwrap()
}

/// Runs a closure on one CPU. Processes that it starts are pinned there.
pub fn on_cpu<T>(cpu: u32, work: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None).unwrap();
    let mut only = CpuSet::new();
    only.set(usize::try_from(cpu).unwrap());
    sched_setaffinity(None, &only).unwrap();
    let result = work();
    sched_setaffinity(None, &before).unwrap();
    result
}

/// A counting plan for these events on this machine.
pub fn plan(events: &str) -> Plan {
    let machine = this_machine();
    let pmus = machine.pmus().unwrap();
    Plan::new(&event::parse(events, pmus).unwrap()).unwrap()
}

/// Asserts that `counted` is within `percent` of `expected`.
#[track_caller]
pub fn assert_within(what: &str, counted: u64, expected: u64, percent: f64) {
    let error = (counted as f64 / expected as f64 - 1.0) * 100.0;
    println!("{what}: counted {counted}, expected {expected}, error {error:+.3}%");
    assert!(
        error.abs() <= percent,
        "{what}: counted {counted}, expected {expected}: {error:+.3}% is beyond {percent}%"
    );
}

/// Whether this is a guest of CI. Tests repeat rare events there less often than on this machine
/// and in guests of `cargo xtask vm --all`.
pub fn is_guest_of_ci() -> bool {
    env::var_os("PMUSCOPE_VM_ALL").is_some_and(|all| all.is_empty())
}

/// A command of the pmuscope binary.
pub fn pmuscope() -> Command {
    Command::new(program("PMUSCOPE_BIN", "pmuscope"))
}

/// Path of a program that cargo builds beside the test. In guests, the path is in the environment
/// variable `variable`.
fn program(variable: &str, built: &str) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        return path.into();
    }
    let test = env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join(built);
    assert!(
        built.exists(),
        "{} is not built: run `cargo xtask test`",
        built.display()
    );
    built
}

/// Sets the soft and hard limits of open files for a command.
pub fn limit_files(command: &mut Command, current: u64, maximum: u64) {
    use std::os::unix::process::CommandExt as _;

    let (current, maximum) = (Some(current), Some(maximum));
    let limit = move || Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?);
    // SAFETY: between fork and exec the closure makes one system call.
    unsafe {
        command.pre_exec(limit);
    }
}

/// Opens a counter of all tasks of a CPU with the system call, without pmuscope.
pub fn open_event(cpu: u32, type_: u32, config: u64) -> OwnedFd {
    use perf_event_open_sys::{bindings::perf_event_attr, perf_event_open};
    let mut attr = perf_event_attr {
        type_,
        config,
        ..Default::default()
    };
    attr.size = u32::try_from(size_of_val(&attr)).unwrap();
    // SAFETY: the structure is valid and has the size that it states.
    #[expect(clippy::disallowed_methods, reason = "without pmuscope")]
    let fd = unsafe { perf_event_open(&mut attr, -1, cpu.cast_signed(), -1, 0) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the call returned a new descriptor, which nothing else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// CPU time of this thread.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}
