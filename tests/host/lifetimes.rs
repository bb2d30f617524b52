//! Cgroups that are created and removed between two pulls.

use std::{
    collections::BTreeSet,
    fs,
    os::fd::{BorrowedFd, OwnedFd},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use probe_user::{
    join::{Entity, View},
    machine::{Machine, cgroup::Hierarchy},
    session::Session,
    window::Window,
};
use rustix::{buffer::spare_capacity, event::epoll, time::Timespec};
use test_harness::{
    Counting, Load, TestCgroup, flood_the_ring, hierarchy, load_binary, machine, online_cpus, plan,
    shared_machine,
};

#[test]
fn five_hundred_short_cgroups_have_counts_and_names() {
    let Some(_machine) = machine() else { return };
    let mut counting = Counting::start("task-clock");
    let mut created = BTreeSet::new();
    for wave in 0..10 {
        let mut loads: Vec<(TestCgroup, Load)> = (0..50)
            .map(|n| {
                let cgroup = TestCgroup::new(&format!("short-{wave}-{n}"));
                let load = cgroup.load("burst 0 500 500 20");
                created.insert((cgroup.id, cgroup.path.clone()));
                (cgroup, load)
            })
            .collect();
        loads.iter_mut().for_each(|(_, load)| load.go());
        for (cgroup, load) in loads {
            load.finish();
            drop(cgroup);
        }
    }
    let window = counting.window();
    for (id, path) in &created {
        assert_eq!(window.names.cgroups.get(id), Some(path));
        let counted = counting.count(&window, "task-clock", *id);
        assert!(
            counted.is_some_and(|nanos| nanos > 0),
            "{path}: {counted:?}"
        );
    }
    assert_eq!(window.health.sum.lost_events, 0);

    // The rows of the removed cgroups are freed one flush later.
    let rows = |window: &Window| {
        window
            .usage
            .keys()
            .filter(|owner| created.iter().any(|(id, _)| *id == owner.cgroup))
            .count()
    };
    counting.window();
    assert_eq!(rows(&counting.window()), 0);
}

/// Linux 7.0 preempts programs at tracepoints. The program at an exit may be interrupted by the
/// program at the creation of a cgroup or at another exit.
#[test]
fn records_are_whole_while_processes_end() {
    let all = std::env::var_os("PMUSCOPE_VM_ALL").is_some_and(|value| !value.is_empty());
    let cgroups = if all { 100_000 } else { 1_000 };
    let Some(_machine) = machine() else { return };
    let parent = TestCgroup::new("whole");
    let ends = parent.child("ends");
    let mut counting = Counting::with("task-clock", |config| config.by_process = true.into());
    let mut loads: Vec<Load> = { online_cpus().into_iter() }
        .map(|_| ends.load("forks 1000000 0"))
        .collect();
    loads.iter_mut().for_each(Load::go);
    let mut wrong = Vec::new();
    let (mut seen, mut processes) = (0, 0);
    let mut created = Vec::new();
    for number in 0.. {
        // Processes start slowly in an emulator.
        if number >= cgroups && processes > 100 {
            break;
        }
        // The lengths of names vary up to about the maximum.
        let child = parent.child(&format!("{number}-{}", "x".repeat(number % 200)));
        created.push((child.id, child.path.clone()));
        drop(child);
        if created.len() < 100 {
            counting.session.upkeep().unwrap();
            continue;
        }
        let snapshot = counting.session.pull().unwrap();
        for (id, path) in created.drain(..) {
            match snapshot.names.cgroups.get(&id) {
                Some(found) if *found != path => wrong.push((found.clone(), path)),
                found => seen += usize::from(found.is_some()),
            }
        }
        let rows = snapshot
            .rows
            .iter()
            .chain(snapshot.freed.iter().map(|(key, row)| (key, row)));
        let ours = rows.filter(|(key, _)| key.cgroup == ends.id && key.tgid != 0);
        for (key, _) in ours {
            let name = snapshot.names.processes.get(&key.tgid).map(String::as_str);
            processes += usize::from(name == Some("load"));
            // Until its exec a new process has the name of its parent, which is also `load` here.
            if name.is_some_and(|name| name != "load") {
                wrong.push((format!("{name:?}"), key.tgid.to_string()));
            }
        }
    }
    let health = counting.session.pull().unwrap().health;
    println!("{seen} cgroups and {processes} processes have their names; {health:?}");
    assert!(wrong.is_empty(), "{wrong:?}");
    // A lost record is counted. Its cgroup has no name, because it was removed before a walk could
    // find it.
    let lost = health.sum.lost_events + health.skipped_runs.unwrap();
    assert!(seen as u64 + lost >= cgroups as u64, "{seen}, {lost} lost");
}

#[test]
fn nested_cgroups_keep_their_own_counts() {
    let Some(_machine) = machine() else { return };
    let outer = TestCgroup::new("outer");
    let inner = outer.child("inner");
    let mut counting = Counting::start("task-clock");
    inner.load("burn 0 100").finish();
    let window = counting.window();
    // The test moves the load from its own cgroup to the inner one, so the outer one has no row.
    assert_eq!(counting.count(&window, "task-clock", outer.id), None);
    let counted = counting.count(&window, "task-clock", inner.id).unwrap();
    counting.assert_cpu_time(&window, "inner", counted, inner.cpu_time());
    assert_eq!(
        window.names.cgroups[&inner.id],
        format!("{}/inner", outer.path)
    );
}

#[test]
fn cgroup2_refuses_to_rename_a_cgroup() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    // A path never changes: the kernel refuses to rename cgroups of the default hierarchy.
    let cgroup = TestCgroup::new("name");
    let other = cgroup.directory.with_file_name("pmuscope-test-renamed");
    let error = fs::rename(&cgroup.directory, &other).unwrap_err();
    assert_eq!(
        error.kind(),
        std::io::ErrorKind::PermissionDenied,
        "{error}"
    );
}

/// A user with a delegated directory creates a cgroup there with the id of a container under an
/// unusual root. The paths alone do not show which cgroup is the container.
#[test]
fn a_container_under_an_unusual_root_keeps_its_id() {
    const NOBODY: u32 = 65_534;
    let Some(_machine) = machine() else { return };
    let [root, delegated] = ["unusual", "delegated"].map(TestCgroup::new);
    std::os::unix::fs::chown(&delegated.directory, Some(NOBODY), None).unwrap();
    // An id that no other container has, and none that an earlier run left.
    let id = format!("{:016x}", root.id.0).repeat(4);
    let container = root.child(&id);
    let mut counting = Counting::start("task-clock");
    // Only the foreign cgroup is created during counting.
    let foreign = delegated.child(&id);
    container.load("burn 0 20").finish();
    foreign.load("burn 0 30").finish();
    let window = counting.window();
    let joined = View::default().join(counting.session.plan(), &window, None);
    let entity = Entity::Container {
        id: id.into(),
        pod: None,
    };
    let usage = &joined.of(&entity).unwrap().delta;
    let counted = usage[0].as_ref().unwrap().counts[0];
    assert_eq!(
        Some(counted),
        counting.count(&window, "task-clock", container.id)
    );
    let other = Entity::Cgroup(foreign.path.as_str().into());
    assert!(joined.of(&other).is_some(), "{:?}", joined.rows);
}

#[test]
fn a_walk_makes_up_for_lost_records() {
    const CHILDREN: u32 = 50;
    let Some(_machine) = machine() else { return };
    let parent = TestCgroup::new("lost");
    let children: Vec<TestCgroup> = (0..CHILDREN)
        .map(|n| parent.child(&n.to_string()))
        .collect();
    let ids: Vec<_> = children.iter().map(|child| child.id).collect();
    let mut counting = Counting::start("task-clock");
    let directory = parent.directory.display();
    parent.load(&format!("hop {directory} {CHILDREN}")).finish();
    let window = counting.window();
    let rows = |counting: &Counting, window: &Window| {
        let row = |id: &&_| counting.count(window, "task-clock", **id).is_some();
        ids.iter().filter(row).count()
    };
    assert_eq!(rows(&counting, &window), ids.len());

    flood_the_ring();
    drop(children);
    let late = TestCgroup::new("late");
    late.load("burn 0 10").finish();
    let window = counting.window();
    assert!(window.health.sum.lost_events > 0);
    assert_eq!(window.names.cgroups.get(&late.id), Some(&late.path));
    counting.window();
    let window = counting.window();
    assert_eq!(rows(&counting, &window), 0);
    assert_eq!(window.names.cgroups.get(&late.id), Some(&late.path));
    assert!(counting.count(&window, "task-clock", late.id).is_some());
}

/// After lost records, rows are freed also where the mount shows none of the cgroups, as in a
/// container.
#[test]
fn rows_of_cgroups_that_the_mount_does_not_show_are_freed() {
    const CHILDREN: u32 = 50;
    let Some(_machine) = machine() else { return };
    let [view, parent] = ["view", "lost"].map(TestCgroup::new);
    let mut children: Vec<TestCgroup> = (0..CHILDREN)
        .map(|n| parent.child(&n.to_string()))
        .collect();
    let visible = Hierarchy {
        mount: view.directory.clone(),
        root: view.path.clone(),
    };
    let machine = Arc::new(Machine::this().with_hierarchy(visible));
    let mut counting = Counting::on(&machine, plan("task-clock"), |_| {});
    let directory = parent.directory.display();
    parent.load(&format!("hop {directory} {CHILDREN}")).finish();
    let living = children.pop().unwrap();
    let ids: Vec<_> = children.iter().map(|child| child.id).collect();
    let rows = |counting: &Counting, window: &Window| {
        let row = |id: &&_| counting.count(window, "task-clock", **id).is_some();
        ids.iter().filter(row).count()
    };
    let window = counting.window();
    assert_eq!(rows(&counting, &window), ids.len());

    flood_the_ring();
    drop(children);
    let window = counting.window();
    assert!(window.health.sum.lost_events > 0);
    counting.window();
    let window = counting.window();
    assert_eq!(rows(&counting, &window), 0);
    assert!(counting.count(&window, "task-clock", living.id).is_some());
}

/// Sets the flag on drop.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn cgroups_of_v1_hierarchies_are_ignored() {
    let Some(_machine) = machine() else { return };
    let v1 = std::path::Path::new("/sys/fs/cgroup/pids");
    if !v1.join("tasks").exists() {
        println!("skipped: no v1 hierarchy is mounted here");
        return;
    }
    let mut counting = Counting::start("task-clock");
    let a = TestCgroup::new("v2");
    let mut load = a.load("burn 0 200");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Cgroups of the v1 hierarchy are created and removed during the load.
        let created = scope.spawn(|| {
            let mut created = 0;
            while !done.load(Ordering::Relaxed) {
                let name = v1.join(format!("pmuscope-v1-{}-{created}", std::process::id()));
                fs::create_dir(&name).unwrap();
                fs::remove_dir(&name).unwrap();
                created += 1;
            }
            created
        });
        // The drop stops the thread also on a panic. Without that the scope would wait forever.
        let end = SetOnDrop(&done);
        load.go();
        load.finish();
        drop(end);
        let created: u32 = created.join().unwrap();
        println!("{created} cgroups of a v1 hierarchy");
        assert!(created > 0);
    });
    let window = counting.window();
    assert!(
        window
            .names
            .cgroups
            .values()
            .all(|path| !path.contains("pmuscope-v1-"))
    );
    assert_eq!(window.names.cgroups[&a.id], a.path);
    let counted = counting.count(&window, "task-clock", a.id).unwrap();
    counting.assert_cpu_time(&window, "v2", counted, a.cpu_time());
    // The walk finds the existing cgroup.
    assert!(
        hierarchy()
            .walk()
            .unwrap()
            .contains(&(a.id, a.path.clone()))
    );
}

/// Wake-ups by the ring of cgroup and process events. They are edge-triggered, as in the
/// subcommands.
struct WakeUps(OwnedFd);

impl WakeUps {
    fn for_session(session: &mut Session) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        // SAFETY: the session owns the descriptor and outlives this function.
        let fd = unsafe { BorrowedFd::borrow_raw(session.lifecycle_fd()) };
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, fd, epoll::EventData::new_u64(0), edges).unwrap();
        let mut wake_ups = Self(epoll);
        // Records from before this call are the first edge.
        wake_ups.any();
        session.drain().unwrap();
        wake_ups
    }

    /// Whether there was a wake-up since the last call.
    fn any(&mut self) -> bool {
        let mut events = Vec::with_capacity(1);
        let now = Timespec::default();
        epoll::wait(&self.0, spare_capacity(&mut events), Some(&now)).unwrap() > 0
    }
}

/// Runs `count` short processes.
fn run_short_processes(count: u32) {
    let script = format!("i=0; while [ $i -lt {count} ]; do (:); i=$((i + 1)); done");
    let status = Command::new("sh").args(["-c", &script]).status().unwrap();
    assert!(status.success());
}

#[test]
fn exits_wake_the_reader_in_batches() {
    let Some(_machine) = machine() else { return };
    let counting = &mut Counting::with("task-clock", |config| config.by_process = true.into());
    let mut wake_ups = WakeUps::for_session(&mut counting.session);
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("pmu-short");
    fs::copy(load_binary(), &program).unwrap();
    for _ in 0..100 {
        let mut short = Command::new(&program);
        let short = short.args(["burn", "0", "0"]).stdin(Stdio::null());
        assert!(short.status().unwrap().success());
    }
    assert!(!wake_ups.any(), "a hundred exits are no batch");
    let names = counting.session.pull().unwrap().names;
    // The test compares names, because it may run in a pid namespace with other ids.
    let named = names.processes.values().filter(|name| *name == "pmu-short");
    assert_eq!(named.count(), 100);

    // A quarter of the ring is 64 KiB, and a record of "sh" has 32 bytes.
    run_short_processes(2500);
    assert!(wake_ups.any(), "the ring fills without a wake-up");
    let health = counting.session.pull().unwrap().health;
    assert_eq!(health.sum.lost_events, 0);
}
