//! Pins: counting continues while no pmuscope process runs.

mod places;

use std::{
    fs,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    path::Path,
};

use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _, loaded_programs};
use probe_common::{FlushMode, NO_GROUP};
use probe_user::{
    plan::Plan,
    session::{Config, Continuity, PinError, PinPath, Session, SessionError, unpin},
    snapshot::Snapshot,
    window::{Owner, Window},
};
use test_harness::{
    Counting, TestCgroup, machine, online_cpus, plan, shared_machine, this_machine,
};

use crate::{bpffs::Bpffs, sampled};

pub(crate) fn config(plan: Plan, place: PinPath) -> Config {
    Config {
        plan,
        pins: Some(place),
        ..Config::default()
    }
}

fn start(events: &str, place: PinPath) -> Result<Session, SessionError> {
    Session::start(config(plan(events), place), &this_machine())
}

/// The error message of a start that must fail.
fn refusal(place: PinPath) -> String {
    match start("task-clock", place) {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

/// The kernel's task-clock counters of a cgroup, one for each CPU.
pub(crate) struct Truth(Vec<OwnedFd>);

impl Truth {
    pub(crate) fn open(cgroup: &TestCgroup) -> Self {
        use perf_event_open_sys::{bindings, perf_event_open};
        let directory = fs::File::open(&cgroup.directory).unwrap();
        let open = |cpu: u32| {
            let mut attr = bindings::perf_event_attr {
                type_: bindings::PERF_TYPE_SOFTWARE,
                config: bindings::PERF_COUNT_SW_TASK_CLOCK.into(),
                ..Default::default()
            };
            attr.size = u32::try_from(size_of_val(&attr)).unwrap();
            let flags = u64::from(bindings::PERF_FLAG_PID_CGROUP);
            let (target, cpu) = (directory.as_raw_fd(), cpu.cast_signed());
            // SAFETY: the structure is valid and has the size that it states.
            #[expect(clippy::disallowed_methods, reason = "without pmuscope")]
            let fd = unsafe { perf_event_open(&mut attr, target, cpu, -1, flags) };
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: the call returned a new descriptor, which nothing else owns.
            unsafe { OwnedFd::from_raw_fd(fd) }
        };
        Self(online_cpus().into_iter().map(open).collect())
    }

    pub(crate) fn nanos(&self) -> u64 {
        let read = |fd: &OwnedFd| {
            let mut bytes = [0; 8];
            assert_eq!(rustix::io::read(fd, &mut bytes).unwrap(), 8);
            u64::from_ne_bytes(bytes)
        };
        self.0.iter().map(read).sum()
    }
}

fn handed_over(snapshot: &Snapshot) -> probe_user::snapshot::HandedOver {
    snapshot.health.handed_over.unwrap()
}

#[test]
fn counting_continues_without_a_process() {
    let Some(_machine) = machine() else { return };
    let bpffs = Bpffs::mount();
    let config = config(plan("task-clock,page-faults"), bpffs.place());
    let cgroup = TestCgroup::new("pins");
    let kernel_clock = Truth::open(&cgroup);
    let counting = Counting::with_plan(config.plan.clone(), |start| *start = config.clone());
    assert_eq!(counting.session.continuity(), Continuity::New);
    let generation = counting.session.generation().unwrap();

    // The load runs from before the end of the first session to after the start of the second, with
    // many switches.
    let mut runs = cgroup.load("burst 0 3000 1000 400");
    runs.go();
    let mut counting = counting.restart(config, || {
        cgroup.load("burn 1 300").finish();
        let touched: u64 = cgroup.load("touch 5000").finish().trim().parse().unwrap();
        assert!(touched >= 5000);
    });
    assert_eq!(counting.session.continuity(), Continuity::TakenOver);
    assert_eq!(counting.session.generation().unwrap(), generation);
    runs.finish();

    let window = counting.window();
    let counted = counting.count(&window, "task-clock", cgroup.id).unwrap();
    let faults = counting.count(&window, "page-faults", cgroup.id).unwrap();
    assert!(faults >= 5000, "{faults}");
    let over = window.health.handed_over.unwrap();
    println!("{over:?}");
    assert_eq!(over.times, 1);
    // Each CPU is without counting for some microseconds, longer where this process has to wait for
    // a CPU.
    let cpus = online_cpus().len() as u64;
    assert!(
        over.gap > 0 && over.gap < cpus * over.unattended,
        "{over:?}"
    );
    assert!(over.unattended > 300_000_000, "{over:?}");
    counting.assert_cpu_time(&window, "cgroup by cpu.stat", counted, cgroup.cpu_time());
    counting.assert_cpu_time(
        &window,
        "cgroup by its own event",
        counted,
        kernel_clock.nanos(),
    );
    // The counters of the new session start at zero. The programs must not take this for counters
    // that went back.
    assert_eq!(window.health.sum.rebased, 0);

    drop(counting);
    assert!(bpffs.is_empty(), "{:?}", bpffs.sessions());
}

/// Multiplexed groups: the group that was running when its process ended continues to count, and
/// the next process starts with its own group. Counts of the other groups are unknown, not zero.
#[test]
fn the_running_group_counts_on_without_a_process() {
    let Some(_machine) = machine() else { return };
    let bpffs = Bpffs::mount();
    // The plan is made by hand, because all these groups fit at the same time.
    let mut plan = plan("{task-clock},{page-faults},{minor-faults}");
    plan.rotated = 2;
    let config = config(plan, bpffs.place());
    let cgroup = TestCgroup::new("turns");
    let mut counting = Counting::with_plan(config.plan.clone(), |start| *start = config.clone());
    let mut all_touched = 0;
    for _ in 0..5 {
        counting.session.rotate().unwrap();
        counting = counting.restart(config.clone(), || {
            let touched: u64 = cgroup.load("touch 5000").finish().trim().parse().unwrap();
            all_touched += touched;
        });
        assert_eq!(counting.session.continuity(), Continuity::TakenOver);
    }
    let window = counting.window();
    assert_eq!(window.health.sum.rebased, 0);
    assert_eq!(window.health.sum.read_errors, 0);
    let owner = Owner {
        cgroup: cgroup.id,
        tgid: 0,
    };
    let usage = &window.usage[&owner];
    let [page, minor] = [1, 2].map(|group| usage[group].as_ref().unwrap());
    // Only the group that was running on the CPU of a fault counts it.
    let counted = page.counts[0] + minor.counts[0];
    println!(
        "{counted} of {all_touched}: {} and {}",
        page.counts[0], minor.counts[0]
    );
    assert!(
        counted >= 25_000 && counted <= all_touched + all_touched / 100,
        "{counted} of {all_touched}"
    );
    assert!(page.running + minor.running <= page.enabled + page.enabled / 100);
    let charged = cgroup.cpu_time();
    let clock = usage[0].as_ref().unwrap().counts[0];
    counting.assert_cpu_time(&window, "task-clock", clock, charged);
}

/// All CPU time is charged exactly once: the sum over all owners is the elapsed time.
#[test]
fn no_time_is_lost_or_doubled_over_ten_handovers() {
    let Some(_machine) = machine() else { return };
    let bpffs = Bpffs::mount();
    let config = config(plan("task-clock"), bpffs.place());
    let mut counting = Counting::with_plan(config.plan.clone(), |start| *start = config.clone());
    let cgroup = TestCgroup::new("handovers");
    let mut load = cgroup.load("burst 0 2000 500 100000");
    load.go();
    let (mut last, mut sum) = (counting.first.clone(), 0);
    for turn in 1..=10 {
        counting = counting.restart(config.clone(), || {});
        let now = counting.session.pull().unwrap();
        let window = Window::between(&last, &now, counting.session.plan());
        sum += window.total.delta[0].as_ref().unwrap().counts[0];
        assert_eq!(handed_over(&now).times, turn);
        last = now;
    }
    let cpus = online_cpus().len() as u64;
    let passed = u64::try_from((last.at - counting.first.at).as_nanos()).unwrap() * cpus;
    let gap = handed_over(&last).gap;
    let skews = [&counting.first, &last].map(|pull| pull.health.skew.unwrap());
    println!("counted {sum} of {passed}, gap {gap}, skews {skews:?}");
    let slack = passed / 1000 + cpus * skews.iter().sum::<u64>();
    assert!(sum <= passed + slack, "counted twice");
    assert!(sum + gap + slack >= passed, "lost");
}

/// The flush program of this process's session.
fn flush_program() -> RawTracePoint {
    let files = fs::read_dir("/proc/self/fdinfo").unwrap();
    let ids: Vec<u32> = files
        .filter_map(|file| program_id(&file.ok()?.path()))
        .collect();
    let mut programs = loaded_programs().map(Result::unwrap);
    let flush = programs.find(|it| it.name() == b"flush" && ids.contains(&it.id()));
    RawTracePoint::from_program_info(flush.unwrap(), "flush".into()).unwrap()
}

/// The program id of a descriptor, from its file in fdinfo.
pub(crate) fn program_id(fdinfo: &Path) -> Option<u32> {
    let text = fs::read_to_string(fdinfo).ok()?;
    let id = text
        .lines()
        .find_map(|line| line.strip_prefix("prog_id:"))?;
    id.trim().parse().ok()
}

/// A start that is killed during the handover leaves a CPU that charges nothing. The time until the
/// next start is part of the gap.
#[test]
fn the_gap_contains_the_time_of_a_killed_handover() {
    let Some(_machine) = machine() else { return };
    let bpffs = Bpffs::mount();
    let config = config(plan("task-clock"), bpffs.place());
    let cgroup = TestCgroup::new("killed");
    let counting = Counting::with_plan(config.plan.clone(), |start| *start = config.clone());
    let flush = flush_program();
    let work = || drop(cgroup.load("burn 0 200").finish());
    work();
    let mut uncounted = 0;
    let mut counting = counting.restart(config, || {
        work();
        let mut stop = RawTracePointRunOptions::new();
        stop.cpu = Some(0);
        for mode in [FlushMode::Charge, FlushMode::Disarm] {
            stop.args[..2].copy_from_slice(&[mode as u64, NO_GROUP]);
            flush.test_run(RawTracePointRunOptions { ..stop }).unwrap();
        }
        let before = cgroup.cpu_time();
        work();
        uncounted = cgroup.cpu_time() - before;
    });
    assert_eq!(counting.session.continuity(), Continuity::TakenOver);
    work();
    let window = counting.window();
    let counted = counting.count(&window, "task-clock", cgroup.id).unwrap();
    let gap = window.health.handed_over.unwrap().gap;
    assert!(gap >= uncounted, "{gap} of {uncounted} ns");
    counting.assert_cpu_time(&window, "the rest", counted, cgroup.cpu_time() - uncounted);
}

#[test]
fn a_session_that_does_not_keep_its_pins_leaves_nothing() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let mut session = start("task-clock", bpffs.place()).unwrap();
    session.pull().unwrap();
    assert_eq!(bpffs.sessions().len(), 1);
    // Meanwhile another session and `unpin` are refused.
    let text = refusal(bpffs.place());
    assert!(text.contains("another pmuscope keeps its pins"), "{text}");
    assert!(matches!(unpin(&bpffs.place()), Err(PinError::InUse(_))));
    drop(session);
    assert!(bpffs.is_empty());
    assert_eq!(unpin(&bpffs.place()).unwrap(), 0);
}

#[test]
fn unpin_removes_all_pins() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let mut session = start("task-clock", bpffs.place()).unwrap();
    session.keep_pins();
    drop(session);
    let links = || {
        let files = fs::read_dir(&bpffs.sessions()[0]).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with("_link")).count()
    };
    assert!(links() >= 5, "{}", links());
    assert_eq!(unpin(&bpffs.place()).unwrap(), 1);
    assert!(bpffs.is_empty());
}

/// The events of a session determine the layout of its rows: other events need a new session.
#[test]
fn other_events_start_from_zero() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let mut session = start("task-clock", bpffs.place()).unwrap();
    let generation = session.generation().unwrap();
    session.keep_pins();
    drop(session);
    let before = bpffs.sessions();
    let session = start("task-clock,page-faults", bpffs.place()).unwrap();
    assert_eq!(session.continuity(), Continuity::New);
    assert_ne!(session.generation().unwrap(), generation);
    let now = bpffs.sessions();
    assert_eq!(now.len(), 1);
    assert_ne!(now, before);
}

/// Changes a part of the stamp, which is the name of a session's directory.
fn restamp(bpffs: &Bpffs, part: usize, text: &str) {
    let path = bpffs.sessions().remove(0);
    let name = path.file_name().unwrap().to_str().unwrap();
    let mut parts: Vec<&str> = name.split('-').collect();
    parts[part] = text;
    fs::rename(&path, path.with_file_name(parts.join("-"))).unwrap();
}

/// A new build with the same map layout replaces the programs of the old build and continues with
/// its rows.
#[test]
fn another_build_with_the_same_layout_continues() {
    let Some(_machine) = machine() else { return };
    let bpffs = Bpffs::mount();
    let config = config(plan("task-clock"), bpffs.place());
    let cgroup = TestCgroup::new("build");
    let kernel_clock = Truth::open(&cgroup);
    let counting = Counting::with_plan(config.plan.clone(), |start| *start = config.clone());
    let generation = counting.session.generation().unwrap();
    let mut runs = cgroup.load("burst 0 3000 1000 300");
    runs.go();
    let mut counting = counting.restart(config, || restamp(&bpffs, 2, "0123456789abcdef"));
    assert_eq!(counting.session.continuity(), Continuity::Replaced);
    assert_eq!(counting.session.generation().unwrap(), generation);
    runs.finish();
    let window = counting.window();
    let counted = counting.count(&window, "task-clock", cgroup.id).unwrap();
    let over = window.health.handed_over.unwrap();
    println!("{over:?}");
    assert!(over.times == 1 && over.gap > 0, "{over:?}");
    // The part of the gap that belongs to the cgroup is unknown.
    let kernel_nanos = kernel_clock.nanos();
    let most = kernel_nanos.max(cgroup.cpu_time()) + counting.taken();
    assert!(counted <= most + most / 100, "{counted} {most}");
    assert!(
        counted + over.gap + kernel_nanos / 100 >= kernel_nanos,
        "{counted} {kernel_nanos} {over:?}"
    );
    // The directory has the stamp of this build again.
    assert_eq!(bpffs.sessions().len(), 1);
    let counting = counting.restart(self::config(plan("task-clock"), bpffs.place()), || {});
    assert_eq!(counting.session.continuity(), Continuity::TakenOver);
}

/// After a partial handover, the programs of both builds may be attached.
#[test]
fn programs_are_replaced_after_a_partial_handover() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let mut session = start("task-clock", bpffs.place()).unwrap();
    session.pull().unwrap();
    session.keep_pins();
    drop(session);
    let old_build = "0123456789abcdef";
    restamp(&bpffs, 2, old_build);

    // Sampling starts after all programs are replaced. It fails because no PMU has this number.
    let mut sampling = sampled::config("page-faults/period=1000/");
    for event in &mut sampling.events {
        event.counter.type_ = i32::MAX.unsigned_abs();
    }
    let failing = Config {
        sampling: Some(sampling),
        ..config(plan("task-clock"), bpffs.place())
    };
    assert!(Session::start(failing, &this_machine()).is_err());
    let sessions = bpffs.sessions();
    let name = sessions[0].file_name().unwrap().to_str().unwrap();
    assert!(sessions.len() == 1 && !name.contains(old_build), "{name}");

    let mut session = start("task-clock", bpffs.place()).unwrap();
    assert_eq!(session.continuity(), Continuity::Replaced);
    assert_eq!(handed_over(&session.pull().unwrap()).times, 1);
    assert_eq!(bpffs.sessions().len(), 1);
    drop(session);
    assert!(bpffs.is_empty());
}
