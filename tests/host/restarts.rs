//! Restarts: totals continue however and whenever a process ends.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use aya::programs::{ProgramInfo, loaded_programs};
use probe_user::{
    join::{By, Entity, Joined, View},
    session::{Config, Continuity, PinPath, Session, unpin},
    snapshot::Snapshot,
    state::{SavedState, boot_id},
    window::Window,
};
use rustix::mount::MountFlags;
use test_harness::{
    TestCgroup, assert_within, load_binary, machine, plan, shared_machine, this_machine,
    uncertain_time,
};

use crate::{
    bpffs::Bpffs,
    pins::{Truth, config},
};

/// A session with saved totals, as in a process that runs for months.
struct Saved {
    session: Session,
    boot: String,
    directory: PathBuf,
    snapshot: Snapshot,
    /// The last window. None before the second snapshot of a new session.
    last: Option<(Window, Joined)>,
}

impl Saved {
    fn start(config: Config, directory: &Path) -> Self {
        let machine = this_machine();
        let boot = boot_id(&machine);
        let saved = SavedState::load(directory, &boot).unwrap();
        let mut session = Session::start(config, &machine).unwrap();
        if let Some(saved) = &saved {
            session.restore(saved.names(), saved.owners());
        }
        let snapshot = session.pull().unwrap();
        let last = saved.map(|saved| {
            let generation = session.generation().unwrap();
            saved
                .resume(&snapshot, generation, session.plan(), &view())
                .unwrap()
        });
        Self {
            session,
            boot,
            directory: directory.to_owned(),
            snapshot,
            last,
        }
    }

    fn pull(&mut self) {
        let now = self.session.pull().unwrap();
        let plan = self.session.plan();
        let window = match &self.last {
            Some((before, _)) => before.next(&self.snapshot, &now, plan),
            None => Window::between(&self.snapshot, &now, plan),
        };
        let before = self.last.as_ref().map(|(_, joined)| joined);
        let joined = view().join(plan, &window, before);
        self.snapshot = now;
        self.last = Some((window, joined));
        self.save();
    }

    fn save(&self) {
        let Some((window, joined)) = &self.last else {
            return;
        };
        let generation = self.session.generation().unwrap();
        let plan = self.session.plan();
        let state = SavedState::new(&self.boot, generation, plan, &self.snapshot, window, joined);
        state.save(&self.directory).unwrap();
    }

    /// The total of a cgroup, and the time of its start.
    fn total(&self, path: &str) -> Option<(u64, Duration)> {
        let (_, joined) = self.last.as_ref()?;
        let gained = joined.of(&Entity::Cgroup(path.into()))?;
        let count = gained.total[0]
            .as_ref()
            .map_or(0, |counted| counted.counts[0]);
        Some((count, gained.since))
    }
}

fn view() -> View {
    View {
        by: By::Cgroup,
        ..View::default()
    }
}

const NAME: &str = "restarts::totals_never_decrease_whenever_a_process_is_killed";

/// The environment variable of the child process that runs this test: the path of the pins, the
/// path of the state, and the path of the cgroup whose totals it prints.
const CHILD_ARGUMENTS: &str = "PMUSCOPE_TEST_COUNT";

/// Counts until the process is killed.
fn count(words: &str) {
    let [place, directory, path]: [&str; 3] =
        words.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let place = PinPath(place.into());
    let mut saved = Saved::start(config(plan("task-clock"), place), Path::new(directory));
    let mut out = std::io::stdout();
    loop {
        if let Some((total, since)) = saved.total(path) {
            writeln!(out, "\ntotal {total} {}", since.as_nanos()).unwrap();
        } else {
            writeln!(out, "\ncounting").unwrap();
        }
        out.flush().unwrap();
        saved.pull();
    }
}

/// Starts a child process that runs [`count`] with these words.
fn spawn_counting(words: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--nocapture"]);
    command.env(CHILD_ARGUMENTS, words);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Reads lines up to the first one that starts with `begin`, and returns that one.
fn await_line(out: &mut impl BufRead, begin: &str) -> String {
    let lines = out.lines().map(Result::unwrap);
    let mut matching = lines.skip_while(|line| !line.starts_with(begin));
    matching.next().expect("the process has ended")
}

/// The ids of the programs of pinned links.
fn pinned(place: &PinPath) -> BTreeSet<u32> {
    let sessions = fs::read_dir(&place.0).unwrap();
    let files = sessions.flat_map(|session| fs::read_dir(session.unwrap().path()).unwrap());
    let links = files.filter_map(|file| {
        let path = file.unwrap().path().into_os_string().into_string().unwrap();
        path.strip_suffix("_link").map(str::to_owned)
    });
    let id = |program: String| ProgramInfo::from_pin(program).unwrap().id();
    links.map(id).collect()
}

#[test]
fn totals_never_decrease_whenever_a_process_is_killed() {
    const KILLS: u32 = 40;
    if let Ok(words) = std::env::var(CHILD_ARGUMENTS) {
        return count(&words);
    }
    let Some(_machine) = machine() else { return };
    let bpffs = Bpffs::mount();
    let directory = tempfile::tempdir().unwrap();
    let cgroup = TestCgroup::new("kills");
    let place = bpffs.place();
    let words = format!(
        "{} {} {}",
        place.0.display(),
        directory.path().display(),
        cgroup.path
    );
    let reference = Truth::open(&cgroup);
    let mut load = cgroup.load_with(&load_binary(), "burst 0 2000 1000 10000000");

    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut last, mut printed, mut programs) = ((0, None), 0, BTreeSet::new());
    // Duration of a start that takes over, in milliseconds.
    let mut start = 0;
    for kill in 0..KILLS {
        let began = Instant::now();
        let mut child = spawn_counting(&words);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        if kill == 0 {
            // Counting has begun. From here on, no count may be lost.
            await_line(&mut out, "counting");
            load.go();
            // Wait for the first saved state.
            while !directory.path().join("totals").exists() {
                std::thread::yield_now();
            }
        }
        let awaited = (kill == 1).then(|| await_line(&mut out, "total "));
        if awaited.is_some() {
            start = u64::try_from(began.elapsed().as_millis()).unwrap();
        }
        // Later kills come at a random time, also during the start and the handover.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if kill > 1 {
            std::thread::sleep(Duration::from_millis(random % (2 * start)));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let rest = out.lines().map_while(Result::ok);
        for line in awaited.into_iter().chain(rest) {
            let Some(numbers) = line.strip_prefix("total ") else {
                continue;
            };
            let Some((total, since)) = numbers.split_once(' ') else {
                continue;
            };
            let (total, since): (u64, u64) = (total.parse().unwrap(), since.parse().unwrap());
            assert!(total >= last.0, "kill {kill}: {total} after {}", last.0);
            assert_eq!(*last.1.get_or_insert(since), since, "kill {kill}");
            last.0 = total;
            printed += 1;
        }
        let sessions: Vec<_> = fs::read_dir(&place.0).unwrap().collect();
        assert_eq!(sessions.len(), 1, "kill {kill}: {sessions:?}");
        programs.extend(pinned(&place));
    }
    println!("{printed} totals printed, {} programs", programs.len());
    assert!(printed > u64::from(KILLS) / 10, "{printed}");
    // The programs of the first process continue to count. There is one more where hidden switches
    // are detected.
    assert!(matches!(programs.len(), 5 | 6), "{programs:?}");

    let mut saved = Saved::start(config(plan("task-clock"), place.clone()), directory.path());
    assert_eq!(saved.session.continuity(), Continuity::TakenOver);
    drop(load);
    saved.pull();
    let (total, since) = saved.total(&cgroup.path).unwrap();
    assert!(total >= last.0 && Some(u64::try_from(since.as_nanos()).unwrap()) == last.1);
    let over = saved.snapshot.health.handed_over.unwrap();
    println!("{over:?}, {total} of {}", reference.nanos());
    println!(
        "cpu.stat {} {:?}",
        cgroup.cpu_time(),
        saved.snapshot.health.sum
    );
    // Time that the hypervisor took may be missing from one of the two references, or from both.
    // Uncertain time and time lost in handovers are reported.
    let references = [cgroup.cpu_time(), reference.nanos()];
    let [least, most] =
        [references.into_iter().min(), references.into_iter().max()].map(Option::unwrap);
    let uncertain = uncertain_time(&saved.snapshot.health);
    let allowed = least.saturating_sub(over.gap + uncertain)..=most + uncertain;
    let nearest = total.clamp(*allowed.start(), *allowed.end());
    assert_within("over all kills", total, nearest, 1.0);
    assert_eq!(saved.snapshot.health.sum.rebased, 0);

    drop(saved);
    assert!(bpffs.is_empty());
    assert_eq!(unpin(&place).unwrap(), 0);
    // The kernel frees programs asynchronously after their last reference is gone.
    let loaded = || {
        let ids = loaded_programs().filter_map(|info| Some(info.ok()?.id()));
        ids.filter(|id| programs.contains(id)).count()
    };
    while loaded() > 0 {
        std::thread::yield_now();
    }
}

/// Without pins counting ends with the process, and totals continue anyway, also for a cgroup that
/// is idle during the restart.
#[test]
fn totals_continue_without_pins() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let config = || Config {
        resolver: None,
        pins: None,
        ..config(plan("task-clock"), PinPath::default())
    };
    let [asleep, gone, busy] = ["asleep", "gone", "busy"].map(TestCgroup::new);
    let mut saved = Saved::start(config(), directory.path());
    for cgroup in [&asleep, &gone, &busy] {
        cgroup.load("burn 0 50").finish();
    }
    saved.pull();
    let before = [&asleep, &gone, &busy].map(|cgroup| saved.total(&cgroup.path).unwrap());
    drop(saved);
    let path = gone.path.clone();
    drop(gone);
    busy.load("burn 0 50").finish();

    let mut saved = Saved::start(config(), directory.path());
    assert_eq!(saved.total(&asleep.path), Some(before[0]));
    busy.load("burn 0 50").finish();
    for _ in 0..4 {
        saved.pull();
        assert_eq!(saved.total(&asleep.path), Some(before[0]));
        // A removed cgroup has no row and no total.
        assert_eq!(saved.total(&path), None);
    }
    let (total, since) = saved.total(&busy.path).unwrap();
    assert_eq!(since, before[2].1);
    // Time without a process is not included.
    let gained = total - before[2].0;
    assert!((50_000_000..100_000_000).contains(&gained), "{gained}");
}

/// With pins, a cgroup that is created and removed while no process runs has its name and its
/// total.
#[test]
fn a_cgroup_created_and_removed_without_a_process_has_its_total() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let bpffs = Bpffs::mount();
    let directory = tempfile::tempdir().unwrap();
    let config = || config(plan("task-clock"), bpffs.place());
    let [old, new] = ["old", "new"];
    let old = TestCgroup::new(old);
    let mut saved = Saved::start(config(), directory.path());
    old.load("burn 0 50").finish();
    saved.pull();
    let (before, since) = saved.total(&old.path).unwrap();
    saved.session.keep_pins();
    drop(saved);
    let new = TestCgroup::new(new);
    new.load("burn 0 50").finish();
    old.load("burn 0 50").finish();
    let [old_path, new_path] = [&old, &new].map(|cgroup| cgroup.path.clone());
    drop((old, new));

    let mut saved = Saved::start(config(), directory.path());
    let (total, still) = saved.total(&old_path).unwrap();
    assert_eq!(since, still);
    assert!(total - before >= 50_000_000, "{before} {total}");
    let (total, _) = saved.total(&new_path).unwrap();
    assert!(total >= 50_000_000, "{total}");
    // The session frees the rows of removed cgroups that it took over.
    for _ in 0..4 {
        saved.pull();
    }
    assert_eq!(saved.total(&old_path), None);
    assert_eq!(saved.total(&new_path), None);
}

#[test]
fn a_full_or_read_only_disk_is_reported_in_a_sentence() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    // This makes a private mount namespace.
    let _bpffs = Bpffs::mount();
    let disk = tempfile::tempdir().unwrap();
    // The state includes other containers of this machine, so the disk is not too small.
    let size = c"size=1m";
    rustix::mount::mount("tmpfs", disk.path(), "tmpfs", MountFlags::empty(), size).unwrap();
    let directory = disk.path().join("state");
    let config = Config {
        pins: None,
        ..config(plan("task-clock"), PinPath::default())
    };
    let mut saved = Saved::start(config, &directory);
    saved.directory = tempfile::tempdir().unwrap().path().join("elsewhere");
    saved.pull();
    let (window, joined) = saved.last.as_ref().unwrap();
    let plan = saved.session.plan();
    let state = SavedState::new(&saved.boot, 1, plan, &saved.snapshot, window, joined);
    state.save(&directory).unwrap();
    let load = || {
        SavedState::load(&directory, &saved.boot)
            .unwrap()
            .unwrap()
            .at()
    };
    let at = load();
    // Fill the rest of the disk.
    let mut filler = fs::File::create(disk.path().join("filler")).unwrap();
    while filler.write_all(&[0; 512]).is_ok() {}
    let text = state.save(&directory).unwrap_err().to_string();
    assert!(text.contains("No space left on device"), "{text}");
    assert!(text.contains("Free space"), "{text}");
    assert_eq!(load(), at);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    drop(filler);
    rustix::mount::mount_remount(disk.path(), MountFlags::RDONLY, "").unwrap();
    let text = state.save(&directory).unwrap_err().to_string();
    assert!(text.contains("Read-only file system"), "{text}");
    assert_eq!(load(), at);
    let _ = rustix::mount::unmount(disk.path(), rustix::mount::UnmountFlags::DETACH);
}
