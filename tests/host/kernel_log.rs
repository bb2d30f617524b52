//! The kernel log: messages of the BPF programs about rare events, if they are configured.

use std::{
    fs,
    os::fd::AsFd as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use aya::maps::MapData;
use probe_common::LogKind;
use probe_user::snapshot::Health;
use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    param::page_size,
    time::{ClockId, clock_gettime},
};
use test_harness::{
    Counting, Messages, TestCgroup,
    agent::{Agent, AgentOptions},
    flood_the_ring, machine, on_cpu, online_cpus, plan, pmuscope,
};

use crate::{bpffs::Bpffs, pins};

/// Start of the message about a row that could not be created.
const REFUSED: &str = "no row for cgroup ";

/// Log of `stat` with a map of one row.
fn stat(flags: &[&str], log: Option<&str>) -> String {
    let mut command = pmuscope();
    command
        .args(["stat", "-e", "task-clock", "--max-rows", "1"])
        .args(flags)
        .args(["--", "true"]);
    if let Some(log) = log {
        command.env("PMUSCOPE_LOG", log);
    }
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    println!("{flags:?} {log:?}:\n{stderr}");
    assert!(output.status.success());
    stderr
}

#[test]
fn a_refused_row_is_logged_on_request() {
    let Some(_machine) = machine() else { return };
    let asked: [(&[&str], Option<&str>); 3] = [
        (&["--kernel-log"], None),
        (&[], Some("info,kernel=debug")),
        (&["--kernel-log"], Some("kernel=off")),
    ];
    for (flags, log) in asked {
        let stderr = stat(flags, log);
        let mut lines = stderr.lines().filter(|line| line.contains(REFUSED));
        let first = lines.next().expect("a message");
        assert!(first.starts_with("DEBUG kernel, CPU "), "{first}");
        // -7 is -E2BIG, of a full map.
        assert!(first.contains(": error -7; "), "{first}");
    }
    for log in [None, Some("info,kernel=info")] {
        assert!(!stat(&[], log).contains("kernel, CPU"));
    }
}

/// Each refusal is logged, or counted as a suppressed message.
#[test]
fn no_more_messages_than_the_limit_are_sent() {
    let Some(_machine) = machine() else { return };
    let messages = Messages::with_kernel_log();
    let mut counting = Counting::plain(plan("task-clock"), |config| config.max_rows = Some(1));
    let now = || Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
    let began = now();
    // The pull delivers all earlier messages, and `take` discards them.
    let before = counting.session.pull().unwrap().health;
    messages.take("");
    let [a, b] = ["a", "b"].map(TestCgroup::new);
    // Longer than a second, because the current second's limit may be used up.
    while now() - began < Duration::from_millis(1500) {
        a.load(&format!("pingpong 0 20000 {}", b.directory.display()))
            .finish();
    }
    let health = counting.session.pull().unwrap().health;
    let seconds = (now() - began).as_secs() + 2;
    let shown = messages.take(REFUSED);
    let refused = |it: &Health| it.sum.full + it.sum.no_memory + it.sum.contended;
    let log = |it: &Health| it.log.unwrap();
    let suppressed = log(&health).suppressed - log(&before).suppressed;
    assert_eq!(log(&health).dropped, 0);
    assert!(!shown.is_empty() && suppressed > 0, "{suppressed}");
    let limit = LogKind::MAX_PER_SECOND * seconds * online_cpus().len() as u64;
    assert!(shown.len() as u64 <= limit, "{}", shown.len());
    // Programs that run with interrupts enabled send no messages. Suppressed messages may be of any
    // kind, so the bound includes all reasons.
    let all = shown.len() as u64 + suppressed;
    // A pull reads the message counters after the event counters, so a later pull gives the upper
    // bound.
    let later = counting.session.pull().unwrap().health;
    let reasons =
        |it: &Health| refused(it) + it.sum.missed_switches + it.sum.rebased + it.sum.lost_events;
    assert!(all <= reasons(&later) - reasons(&before), "{all}");
}

/// Whether the second value in a message about a counter is lower than the first.
fn went_back(message: &str) -> bool {
    let (_, values) = message.split_once(" went back from ").unwrap();
    let (from, to) = values.split_once(" to ").unwrap();
    let to = to.split_once(';').unwrap().0;
    to.parse::<u64>().unwrap() < from.parse().unwrap()
}

#[test]
fn a_counter_that_goes_back_is_logged_with_its_values() {
    let Some(_machine) = machine() else { return };
    let messages = Messages::with_kernel_log();
    let mut counting = Counting::plain(plan("page-faults"), |_| {});
    let cgroup = TestCgroup::new("back");
    // More faults than each CPU counts after the reset.
    for cpu in online_cpus() {
        on_cpu(cpu, || cgroup.load("touch 1000").finish());
    }
    counting.session.pull().unwrap();
    // The first read of a counter is accepted whatever its value.
    assert_eq!(messages.take("went back"), [""; 0]);
    reset_counters();
    for cpu in online_cpus() {
        cgroup.load(&format!("burn {cpu} 10")).finish();
    }
    let rebased = counting.session.pull().unwrap().health.sum.rebased;
    let logged = messages.take("went back");
    assert!(rebased > 0 && !logged.is_empty(), "{rebased}, {logged:?}");
    assert!(logged.len() as u64 <= rebased);
    assert!(
        logged.iter().all(|message| went_back(message)),
        "{logged:?}"
    );
}

/// Resets every counter of this process.
fn reset_counters() {
    /// `PERF_EVENT_IOC_RESET` of `linux/perf_event.h`.
    const RESET: libc::Ioctl = 0x2403;
    let mut reset = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let path = entry.unwrap().path();
        let is_counter =
            fs::read_link(&path).is_ok_and(|to| to.ends_with("anon_inode:[perf_event]"));
        if is_counter {
            let fd = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            // SAFETY: the call takes no pointer and changes only the count of the event.
            assert_eq!(unsafe { libc::ioctl(fd, RESET, 0) }, 0);
            reset += 1;
        }
    }
    assert!(reset > 0);
}

#[test]
fn a_lost_record_is_logged() {
    let Some(_machine) = machine() else { return };
    let messages = Messages::with_kernel_log();
    let mut counting = Counting::plain(plan("task-clock"), |_| {});
    flood_the_ring();
    let lost = counting.session.pull().unwrap().health.sum.lost_events;
    let logged = messages.take(" was lost: error ");
    assert!(lost > 0 && !logged.is_empty(), "{lost}, {logged:?}");
}

/// Only some kernels hide switches.
#[test]
fn a_missed_switch_is_logged() {
    let Some(_machine) = machine() else { return };
    let messages = Messages::with_kernel_log();
    let mut counting = Counting::plain(plan("task-clock"), |_| {});
    let cgroup = TestCgroup::new("missed");
    cgroup.load("burst 0 1000 1000 2000").finish();
    let missed = counting.session.pull().unwrap().health.sum.missed_switches;
    let logged = messages.take(" was missed, from cgroup ");
    assert!(logged.len() as u64 <= missed, "{missed}, {logged:?}");
    // A missed switch that a task detects while it moves itself to another cgroup is counted but
    // not logged.
    if missed < 3 {
        println!("skipped: this kernel hid {missed} switches");
    } else {
        assert!(!logged.is_empty(), "{missed}");
    }
}

/// The next process reads the messages in the pinned ring. Messages that did not fit are counted as
/// dropped.
#[test]
fn without_a_reader_messages_are_kept_until_the_ring_is_full() {
    let Some(_machine) = machine() else { return };
    let messages = Messages::with_kernel_log();
    let bpffs = Bpffs::mount();
    let mut config = pins::config(plan("task-clock"), bpffs.place());
    config.max_rows = Some(1);
    let counting = Counting::plain(config.plan.clone(), |start| *start = config.clone());
    let dropped = |it: &Health| it.log.unwrap().dropped;
    assert_eq!(dropped(&counting.first.health), 0);
    let cgroup = TestCgroup::new("pinned");
    let mut counting = counting.restart(config.clone(), || {
        messages.take("");
        let [session] = bpffs.sessions().try_into().unwrap();
        let ring = PinnedRing::open(&session.join("AYA_LOGS"));
        ring.fill();
        // Each load runs longer than a second, so that the rate limit allows messages.
        cgroup.load("burst 0 1000 1000 1100").finish();
        ring.empty();
        cgroup.load("burst 0 1000 1000 1100").finish();
        assert_eq!(messages.take(REFUSED), [""; 0]);
    });
    let health = counting.session.pull().unwrap().health;
    assert!(dropped(&health) > 0);
    assert!(!messages.take(REFUSED).is_empty());
    // Another log level needs other programs.
    let before = health.sum.runs;
    let (without, _guard) = Messages::in_thread("info");
    let mut counting = counting.restart(config, || {});
    let health = counting.session.pull().unwrap().health;
    assert!(health.log.is_none() && health.sum.runs > before);
    assert_eq!(without.take(REFUSED), [""; 0]);
}

/// The consumer and producer positions of a pinned ring buffer.
struct PinnedRing {
    consumer: *const AtomicU64,
    producer: *const AtomicU64,
    mask: u64,
}

impl PinnedRing {
    fn open(pin: &Path) -> Self {
        let map = MapData::from_pin(pin).unwrap();
        let mask = u64::from(map.info().unwrap().max_entries()) - 1;
        let page = |at: usize, rights| {
            // SAFETY: this maps new memory, which is unmapped in the drop.
            let position = unsafe {
                mmap(
                    std::ptr::null_mut(),
                    page_size(),
                    rights,
                    MapFlags::SHARED,
                    map.fd().as_fd(),
                    (at * page_size()) as u64,
                )
            };
            position.unwrap().cast_const().cast()
        };
        Self {
            consumer: page(0, ProtFlags::READ | ProtFlags::WRITE),
            producer: page(1, ProtFlags::READ),
            mask,
        }
    }

    /// Moves the consumer position so that the ring has no room for a message.
    fn fill(&self) {
        self.set(self.produced().wrapping_sub(self.mask));
    }

    /// Moves the consumer position to the producer position.
    fn empty(&self) {
        self.set(self.produced());
    }

    fn produced(&self) -> u64 {
        // SAFETY: the page is mapped, and the kernel writes the word atomically.
        unsafe { (*self.producer).load(Ordering::Acquire) }
    }

    fn set(&self, position: u64) {
        // SAFETY: the page is mapped, and the kernel reads the word atomically.
        unsafe { (*self.consumer).store(position, Ordering::Release) }
    }
}

impl Drop for PinnedRing {
    fn drop(&mut self) {
        for page in [self.consumer, self.producer] {
            // SAFETY: the pages are not used after this.
            unsafe { munmap(page.cast_mut().cast(), page_size()) }.unwrap();
        }
    }
}

/// The configuration enables the kernel log, and a reload changes it.
#[test]
fn the_agent_logs_kernel_messages_if_configured() {
    let Some(_machine) = machine() else { return };
    let rest = "interval = \"100ms\"\n[count]\nevents = \"task-clock\"\nmax_rows = 1\n";
    let options = AgentOptions {
        config: rest,
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    agent.next_window();
    assert!(!agent.log().contains(REFUSED));
    agent.reload(&format!("kernel_log = true\n{rest}"));
    agent.next_window();
    let log = agent.log();
    assert!(log.contains(REFUSED), "{log}");
    agent.reload(rest);
    let before = agent.log().matches(REFUSED).count();
    agent.next_window();
    assert_eq!(agent.log().matches(REFUSED).count(), before);
}
