//! A session for tests, and its counts.

use std::{fs, sync::Arc};

use probe_common::CgroupId;
use probe_user::{
    machine::{Machine, cpu_time::CpuTime},
    plan::{CountSource, Plan},
    session::{Config, Session},
    snapshot::{Health, Snapshot},
    window::{Owner, Window},
};

use crate::{assert_within, online_cpus, plan, this_machine};

/// A session with its first snapshot.
pub struct Counting {
    /// The session.
    pub session: Session,
    /// The snapshot at the start.
    pub first: Snapshot,
    taken: TakenTime,
}

/// Time that interrupts and the hypervisor have taken since a start.
enum TakenTime {
    /// Counted to the nanosecond, by a session of its own that began with this snapshot.
    Counted(Box<(Session, Snapshot)>),
    /// [`taken_time`] at the start. Its ticks do not show short bursts, so it is for machines whose
    /// hypervisor takes no time, and for kernels that cannot count that time.
    Ticks(u64),
}

impl TakenTime {
    /// Starts a session of its own if the hypervisor takes time and the kernel can count it.
    fn begin() -> Self {
        let config = Config {
            plan: plan("stolen-time"),
            ..Config::default()
        };
        let machine = this_machine();
        let is_stolen = CpuTime::now(&machine).is_some_and(|time| !time.stolen.is_zero());
        let session = is_stolen.then(|| Session::start(config, &machine).ok());
        let Some(mut session) = session.flatten() else {
            return Self::Ticks(taken_time());
        };
        let first = session.pull().unwrap();
        Self::Counted(Box::new((session, first)))
    }

    fn nanos(&mut self) -> u64 {
        match self {
            Self::Ticks(before) => taken_time() - *before,
            Self::Counted(counted) => {
                let (session, first) = &mut **counted;
                let now = session.pull().unwrap();
                let window = Window::between(first, &now, session.plan());
                let usage = window
                    .usage
                    .values()
                    .filter_map(|groups| groups[0].as_ref());
                usage.map(|group| group.counts[0]).sum()
            }
        }
    }
}

impl Counting {
    /// Counts these events on this machine.
    pub fn start(events: &str) -> Self {
        Self::with(events, |_| {})
    }

    /// As `start`, with changes of the configuration.
    pub fn with(events: &str, change: impl FnOnce(&mut Config)) -> Self {
        Self::with_plan(plan(events), change)
    }

    /// As `with`, for a plan.
    pub fn with_plan(plan: Plan, change: impl FnOnce(&mut Config)) -> Self {
        let mut counting = Self::plain(plan, change);
        // Some kernels hide switches of a task, such as init, from all programs.
        counting.session.watch_exits().unwrap();
        counting.taken = TakenTime::begin();
        counting.first = counting.session.pull().unwrap();
        counting
    }

    /// A session with the configuration of the subcommands.
    pub fn plain(plan: Plan, change: impl FnOnce(&mut Config)) -> Self {
        Self::on(&this_machine(), plan, change)
    }

    /// As `plain`, on another machine description, for example with another cgroup2 mount.
    pub fn on(machine: &Arc<Machine>, plan: Plan, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            plan,
            ..Config::default()
        };
        change(&mut config);
        // The library's log, which a failed test shows. Only the first session of a process sets it
        // up.
        let _ = tracing_subscriber::fmt()
            .without_time()
            .with_test_writer()
            .try_init();
        let mut session = Session::start(config, machine).unwrap();
        let first = session.pull().unwrap();
        Self {
            session,
            first,
            taken: TakenTime::Ticks(taken_time()),
        }
    }

    /// Starts a new session with the pins of this one. `meanwhile` runs between the two sessions.
    pub fn restart(mut self, config: Config, meanwhile: impl FnOnce()) -> Self {
        self.session.keep_pins();
        drop(self.session);
        meanwhile();
        let session = Session::start(config, &this_machine()).unwrap();
        Self { session, ..self }
    }

    /// The window since the start.
    pub fn window(&mut self) -> Window {
        let now = self.session.pull().unwrap();
        let window = Window::between(&self.first, &now, self.session.plan());
        println!("{:?}", window.health);
        window
    }

    /// Asserts that the task-clock `counted` in a window is within 1% of the kernel's accounting,
    /// `expected`; both are in ns. This is the project's promise: both count from switch to switch.
    /// The bounds allow for the time of interrupts and of the hypervisor, for [`uncertain_time`],
    /// and for the gap of handovers, all since the start.
    #[track_caller]
    pub fn assert_cpu_time(&mut self, window: &Window, what: &str, counted: u64, expected: u64) {
        let taken = self.taken();
        let since_start =
            |total: fn(&Health) -> u64| total(&window.health) - total(&self.first.health);
        let uncertain = since_start(uncertain_time);
        let gap = since_start(|health| health.handed_over.map_or(0, |handover| handover.gap));
        println!(
            "{what}: counted {counted}, expected {expected}, taken {taken}, uncertain {uncertain}, \
             gap {gap}"
        );
        let allowed = expected.saturating_sub(uncertain + gap)..=expected + taken + uncertain;
        let nearest = counted.clamp(*allowed.start(), *allowed.end());
        assert_within(what, counted, nearest, 1.0);
    }

    /// Asserts that the sum of the task-clocks of all owners is the elapsed time on all CPUs. Time
    /// during the two pulls may be inside or outside of the window.
    #[track_caller]
    pub fn assert_whole_time(&self, window: &Window, counted: u64, percent: f64) {
        let cpus = online_cpus().len() as u64;
        let expected = u64::try_from(window.length.as_nanos()).unwrap() * cpus;
        let skews = [&self.first.health, &window.health].map(|health| health.skew.unwrap());
        println!("all CPUs: counted {counted}, expected {expected}, skews {skews:?}");
        let skew = cpus * skews.iter().sum::<u64>();
        let nearest = counted.clamp(expected.saturating_sub(skew), expected + skew);
        assert_within("all CPUs", counted, nearest, percent);
    }

    /// CPU time in ns on all CPUs of interrupts and of the hypervisor since the start.
    pub fn taken(&mut self) -> u64 {
        self.taken.nanos()
    }

    /// The count of an event for a cgroup in a window. None without a row.
    pub fn count(&self, window: &Window, event: &str, cgroup: CgroupId) -> Option<u64> {
        self.process_count(window, event, cgroup, 0)
    }

    /// The count of an event for a process in a window. None without a row.
    pub fn process_count(
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

/// CPU time in ns on all CPUs that interrupts and the hypervisor have taken so far. The kernel's
/// accounting excludes it from a task's time, and the task-clock includes it.
pub fn taken_time() -> u64 {
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

/// CPU time in ns that the scheduler may have charged to another task than pmuscope's clocks did:
/// slices with a missed switch, and switches with a stale time stamp.
pub fn uncertain_time(health: &Health) -> u64 {
    health.sum.missed_nanos + health.sum.stale_clock_nanos
}
