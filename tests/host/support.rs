//! Cgroups, loads in them, and what pmuscope counted for them.

use std::{
    fs::{self, File},
    os::{
        fd::{FromRawFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use probe_common::CgroupId;
use probe_user::{
    event::{self},
    machine::{Machine, cgroup::Hierarchy, cpus::CpuList},
    plan::{CountSource, Plan},
    session::{Config, Session},
    snapshot::Snapshot,
    sys::descriptors,
    window::{Owner, Window},
};
use rustix::process::{Resource, Rlimit, setrlimit};

/// The machine, for one test at a time: loads and programs of another test would disturb this one.
/// None, with a reason, where this process may not load programs and make cgroups.
pub(crate) fn machine() -> Option<File> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to load eBPF programs and to make cgroups");
        return None;
    }
    // Loads by the thousand have two pipes each: take what the hard limit gives.
    descriptors::allow_most();
    let lock = File::create(std::env::temp_dir().join("pmuscope-host-tests.lock")).unwrap();
    lock.lock().unwrap();
    Some(lock)
}

/// A cgroup of the test's own, with what runs in it.
pub(crate) struct TestCgroup {
    pub(crate) directory: PathBuf,
    pub(crate) path: String,
    pub(crate) id: CgroupId,
}

impl TestCgroup {
    /// A fresh cgroup below the root.
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "pmuscope-test-{}-{}-{name}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        Self::at(&format!("/{unique}"))
    }

    /// A cgroup below this one.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self::at(&format!("{}/{name}", self.path))
    }

    fn at(path: &str) -> Self {
        let directory = hierarchy().directory(path).unwrap();
        fs::create_dir(&directory).unwrap();
        let id = CgroupId(fs::metadata(&directory).unwrap().ino());
        Self {
            directory,
            path: path.to_owned(),
            id,
        }
    }

    /// Starts a load and moves it here while it waits for [`Load::go`]: a task that another one
    /// moves while it runs would belong to its old cgroup until it is switched in again.
    pub(crate) fn load(&self, words: &str) -> Load {
        self.load_of(&load_binary(), words)
    }

    /// A load by a copy of its binary.
    pub(crate) fn load_of(&self, binary: &Path, words: &str) -> Load {
        let load = Load::waiting(binary, words);
        self.adopt(load.pid());
        load
    }

    /// Moves a process here.
    pub(crate) fn adopt(&self, pid: u32) {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// CPU time in ns that the kernel itself charged to this cgroup and those below it.
    pub(crate) fn cpu_time(&self) -> u64 {
        let stat = fs::read_to_string(self.directory.join("cpu.stat")).unwrap();
        let usage = stat
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))
            .unwrap();
        usage.parse::<u64>().unwrap() * 1000
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // A process that was waited for may leave its cgroup a moment later.
        while let Err(error) = fs::remove_dir(&self.directory) {
            if error.kind() != std::io::ErrorKind::ResourceBusy || std::thread::panicking() {
                break;
            }
            std::thread::yield_now();
        }
    }
}

/// Cgroups that come and go, more than the ring of such records holds.
pub(crate) fn flood_the_ring() {
    for _ in 0..5000 {
        drop(TestCgroup::new("flood"));
    }
}

/// A load, killed at the end of the test where it still runs.
pub(crate) struct Load(Child);

impl Load {
    /// One that waits for [`Self::go`], in the cgroup of the test.
    pub(crate) fn waiting(binary: &Path, words: &str) -> Self {
        let mut command = Command::new(binary);
        command
            .args(words.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let load = Self(command.spawn().unwrap());
        load.wait_until_it_sleeps();
        load
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// It reads its standard input once it is loaded.
    fn wait_until_it_sleeps(&self) {
        let reading = || {
            let path = format!("/proc/{}/syscall", self.pid());
            // "0" is read(2) on x86-64, "63" on arm64; descriptor 0.
            let text = fs::read_to_string(path).unwrap();
            text.starts_with("0 0x0 ") || text.starts_with("63 0x0 ")
        };
        while !reading() {
            std::thread::yield_now();
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Lets it start.
    pub(crate) fn go(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Waits for its end and returns what it printed.
    pub(crate) fn finish(mut self) -> String {
        self.go();
        let mut text = String::new();
        std::io::Read::read_to_string(self.0.stdout.as_mut().unwrap(), &mut text).unwrap();
        assert!(self.0.wait().unwrap().success());
        text
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `load`, built as an example beside the tests.
pub(crate) fn load_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("PMUSCOPE_LOAD") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("examples/load");
    assert!(
        built.exists(),
        "{} is not built: run `cargo xtask test`",
        built.display()
    );
    built
}

pub(crate) fn hierarchy() -> Hierarchy {
    this_machine().hierarchy().unwrap().clone()
}

/// The running machine, read anew.
pub(crate) fn this_machine() -> Arc<Machine> {
    Arc::new(Machine::this())
}

pub(crate) fn online_cpus() -> Vec<u32> {
    online().iter().collect()
}

pub(crate) fn online() -> CpuList {
    this_machine().online().unwrap()
}

/// A session with the snapshots that a test takes.
pub(crate) struct Counting {
    pub(crate) session: Session,
    pub(crate) first: Snapshot,
    /// [`taken_time`] at the start.
    taken: u64,
}

impl Counting {
    pub(crate) fn start(events: &str) -> Self {
        Self::with(events, |_| {})
    }

    pub(crate) fn with(events: &str, change: impl FnOnce(&mut Config)) -> Self {
        Self::with_plan(plan(events), change)
    }

    pub(crate) fn with_plan(plan: Plan, change: impl FnOnce(&mut Config)) -> Self {
        let mut counting = Self::plain(plan, change);
        // Some kernels hide from all programs that a task, such as init, leaves.
        counting.session.watch_exits().unwrap();
        counting.first = counting.session.pull().unwrap();
        counting
    }

    /// A session as the commands make it.
    pub(crate) fn plain(plan: Plan, change: impl FnOnce(&mut Config)) -> Self {
        Self::on(&this_machine(), plan, change)
    }

    /// The same where the cgroup2 mount may show something else.
    pub(crate) fn on(machine: &Arc<Machine>, plan: Plan, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            plan,
            ..Config::default()
        };
        change(&mut config);
        // What the library says, shown with a failure. Only the first session of a process sets it
        // up.
        let _ = tracing_subscriber::fmt()
            .without_time()
            .with_test_writer()
            .try_init();
        let mut session = Session::start(config, machine).unwrap();
        let first = session.pull().unwrap();
        let taken = taken_time();
        Self {
            session,
            first,
            taken,
        }
    }

    /// Another session goes on with the pins of this one; `meanwhile` is when there is none.
    pub(crate) fn restart(mut self, config: Config, meanwhile: impl FnOnce()) -> Self {
        self.session.keep_pins();
        drop(self.session);
        meanwhile();
        let session = Session::start(config, &this_machine()).unwrap();
        Self { session, ..self }
    }

    /// What was counted since the start.
    pub(crate) fn window(&mut self) -> Window {
        let now = self.session.pull().unwrap();
        let window = Window::between(&self.first, &now, self.session.plan());
        println!("{:?}", window.health);
        window
    }

    /// Asserts that a task-clock of a window is what the kernel's own accounting says, within 1%
    /// (the project's promise): pmuscope counts from switch to switch as the kernel does. The bound
    /// adds what was measured since the start: time of interrupts and of the hypervisor, and slices
    /// in which a switch was missed, whose owners are estimated.
    #[track_caller]
    pub(crate) fn assert_cpu_time(&self, window: &Window, what: &str, counted: u64, truth: u64) {
        let taken = self.taken();
        let estimated = window.health.sum.missed_nanos - self.first.health.sum.missed_nanos;
        let allowed = truth.saturating_sub(estimated)..=truth + taken + estimated;
        let nearest = counted.clamp(*allowed.start(), *allowed.end());
        assert_within(what, counted, nearest, 1.0);
    }

    /// CPU time in ns that interrupts and the hypervisor took since the start, on all CPUs.
    pub(crate) fn taken(&self) -> u64 {
        taken_time() - self.taken
    }

    /// The count of one event of a window for one owner; None where it has no row.
    pub(crate) fn count(&self, window: &Window, event: &str, cgroup: CgroupId) -> Option<u64> {
        self.process_count(window, event, cgroup, 0)
    }

    pub(crate) fn process_count(
        &self,
        window: &Window,
        event: &str,
        cgroup: CgroupId,
        tgid: u32,
    ) -> Option<u64> {
        let column = self
            .session
            .plan()
            .columns
            .iter()
            .find(|column| column.name == event)
            .unwrap();
        let CountSource::Core { group, at } = column.place else {
            panic!("{event} is not counted on CPUs")
        };
        Some(
            window.usage.get(&Owner { cgroup, tgid })?[group]
                .as_ref()?
                .counts[at],
        )
    }
}

/// How events are counted on this machine.
pub(crate) fn plan(events: &str) -> Plan {
    let machine = this_machine();
    let pmus = machine.pmus().unwrap();
    Plan::new(&event::parse(events, pmus).unwrap()).unwrap()
}

/// CPU time in ns on all CPUs that the kernel spent in interrupts or that the hypervisor took, so
/// far. The kernel's accounting leaves it out of a task's time; a clock that runs while the task is
/// on a CPU does not.
pub(crate) fn taken_time() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    // cpu user nice system idle iowait irq softirq steal ..., in ticks.
    let ticks: u64 = stat
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .skip(6)
        .take(3)
        .map(|n| n.parse::<u64>().unwrap())
        .sum();
    ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second()
}

/// Asserts that `counted` is within `percent` of `truth`.
#[track_caller]
pub(crate) fn assert_within(what: &str, counted: u64, truth: u64, percent: f64) {
    let error = (counted as f64 / truth as f64 - 1.0) * 100.0;
    println!("{what}: counted {counted}, truth {truth}, error {error:+.3}%");
    assert!(
        error.abs() <= percent,
        "{what}: counted {counted}, truth {truth}: {error:+.3}% is beyond {percent}%"
    );
}

/// The binary.
pub(crate) fn pmuscope() -> Command {
    Command::new(std::env::var_os("PMUSCOPE_BIN").unwrap_or_else(|| {
        option_env!("CARGO_BIN_EXE_pmuscope")
            .unwrap_or("pmuscope")
            .into()
    }))
}

/// Sets the soft and hard limits of open files with which a command starts.
pub(crate) fn limit_files(command: &mut Command, current: u64, maximum: u64) {
    use std::os::unix::process::CommandExt as _;

    let (current, maximum) = (Some(current), Some(maximum));
    let limit = move || Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?);
    // SAFETY: between fork and exec it makes one system call.
    unsafe {
        command.pre_exec(limit);
    }
}

/// An event that counts all tasks of a CPU, opened without pmuscope.
pub(crate) fn open_event(cpu: u32, type_: u32, config: u64) -> OwnedFd {
    use perf_event_open_sys::{bindings::perf_event_attr, perf_event_open};
    let mut attr = perf_event_attr {
        type_,
        config,
        ..Default::default()
    };
    attr.size = u32::try_from(size_of_val(&attr)).unwrap();
    // SAFETY: a valid structure of the size it states.
    #[expect(clippy::disallowed_methods, reason = "without pmuscope")]
    let fd = unsafe { perf_event_open(&mut attr, -1, cpu.cast_signed(), -1, 0) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
