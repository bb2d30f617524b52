//! Loads for the tests: processes that use a known amount of something.
//!
//! Every load first waits for the end of its standard input, so that a test can start it after
//! counting has begun. Exceptions are `neighbours`, and the helpers `pong` and `sink`.

use std::{
    env,
    error::Error,
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use churn::churn;
use probe_user::sys::spin::spin;
use rustix::{
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous},
    net::sockopt,
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

mod churn;
mod clocks;
mod marks;
mod neighbours;
mod orphans;
mod processes;
mod tenants;

const USAGE: &str = "\
    load burn CPU MS | burst CPU ON_US OFF_US MS [fifo] | bursts CPU ON_US OFF_US COUNT | \
    naps CPU ON_US OFF_US COUNT | longcalls CPU MS | \
    touch PAGES | forks COUNT MS [ids] | orphans COUNT US | execs COUNT | \
    threads COUNT MS | crowd CPU COUNT MS | maps MS | \
    successor PID | longexit FILE | twice CPU MS FILE | leaderless CPU MS FILE | \
    threadexec CPU MS FILE | \
    wakes CPU MS CGROUP | mark CALL... | churn DIRECTORY CPU COUNT US | \
    stay DIRECTORY ON_US OFF_MS | visit DIRECTORY RATE ON_US FILE | \
    neighbours CONTAINERS PROCESSES | vfork MS";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let number =
        |at: usize| -> Result<u64, Box<dyn Error>> { Ok(words.get(at).ok_or(USAGE)?.parse()?) };
    if words
        .first()
        .is_some_and(|word| !["neighbours", "pong", "sink"].contains(&word.as_str()))
    {
        io::stdin().read_to_end(&mut Vec::new())?;
    }
    match words.first().map(String::as_str) {
        Some("burn") => {
            pin(number(1)?)?;
            burn(Duration::from_millis(number(2)?));
        }
        Some("burst") => {
            let (on, off) = (
                Duration::from_micros(number(2)?),
                Duration::from_micros(number(3)?),
            );
            // Gets its priority before it is pinned: another real-time task may occupy that CPU.
            if words.get(5).is_some_and(|word| word == "fifo") {
                real_time();
            }
            pin(number(1)?)?;
            let end = Instant::now() + Duration::from_millis(number(4)?);
            while Instant::now() < end {
                burn(on);
                std::thread::sleep(off);
            }
        }
        // The number of bursts does not depend on the machine's load: the CPU time is known.
        Some("bursts") => {
            pin(number(1)?)?;
            for _ in 0..number(4)? {
                burn(Duration::from_micros(number(2)?));
                std::thread::sleep(Duration::from_micros(number(3)?));
            }
        }
        Some("naps") => {
            pin(number(1)?)?;
            let [run, sleep] = [number(2)?, number(3)?].map(Duration::from_micros);
            clocks::naps(number(4)?, run, sleep)?;
        }
        Some("longcalls") => {
            pin(number(1)?)?;
            clocks::long_calls(Duration::from_millis(number(2)?))?;
        }
        Some("threads") => {
            let time = Duration::from_millis(number(2)?);
            let threads = (0..number(1)?).map(|_| std::thread::spawn(move || burn(time)));
            for thread in threads.collect::<Vec<_>>() {
                thread.join().map_err(|_| "a thread has panicked")?;
            }
        }
        // As `threads` on one CPU, but no thread ends.
        Some("crowd") => {
            pin(number(1)?)?;
            let time = Duration::from_millis(number(3)?);
            let stay = move || {
                burn(time);
                loop {
                    std::thread::park();
                }
            };
            let threads = (0..number(2)?).map(|_| std::thread::spawn(stay));
            for thread in threads.collect::<Vec<std::thread::JoinHandle<()>>>() {
                thread.join().map_err(|_| "a thread has panicked")?;
            }
        }
        Some("successor") => processes::successor(number(1)?)?,
        Some("longexit") => processes::long_exit(Path::new(words.get(1).ok_or(USAGE)?))?,
        Some("twice") => twice(&words)?,
        Some("leaderless") => leaderless(words),
        Some("threadexec") => {
            let mut command = Command::new(env::current_exe()?);
            command.arg("twice").args(&words[1..]);
            exec_in_a_thread(command)?;
        }
        Some("touch") => touch(usize::try_from(number(1)?)?)?,
        Some("forks") => {
            for _ in 0..number(1)? {
                let mut child = Command::new(env::current_exe()?)
                    .args(["burn", "0", &words[2]])
                    .stdin(Stdio::null())
                    .spawn()?;
                if words.get(3).is_some_and(|word| word == "ids") {
                    println!("{}", child.id());
                }
                child.wait()?;
            }
        }
        Some("orphans") => orphans::orphans(number(1)?, Duration::from_micros(number(2)?))?,
        Some("execs") => execs(number(1)?)?,
        Some("pingpong") => {
            pin(number(1)?)?;
            pingpong(number(2)?, words.get(3).ok_or(USAGE)?)?;
        }
        Some("wakes") => {
            pin(number(1)?)?;
            wakes(
                Duration::from_millis(number(2)?),
                words.get(3).ok_or(USAGE)?,
            )?;
        }
        Some("sink") => sink()?,
        Some("churn") => {
            pin(number(2)?)?;
            let each = Duration::from_micros(number(4)?);
            churn(words.get(1).ok_or(USAGE)?, number(3)?, each)?;
        }
        Some("stay") => {
            let work = Duration::from_micros(number(2)?);
            let sleep = Duration::from_millis(number(3)?);
            tenants::stay(words.get(1).ok_or(USAGE)?, work, sleep)?;
        }
        Some("visit") => {
            let (rate, work) = (
                u32::try_from(number(2)?)?,
                Duration::from_micros(number(3)?),
            );
            let (directory, file) = words.get(1).zip(words.get(4)).ok_or(USAGE)?;
            tenants::visit(directory, rate, work, file)?;
        }
        Some("neighbours") => {
            let [containers, others] = [number(1)?, number(2)?].map(usize::try_from);
            neighbours::neighbours(containers?, others?)?;
        }
        Some("hop") => hop(words.get(1).ok_or(USAGE)?, number(2)?)?,
        Some("vfork") => vfork(Duration::from_millis(number(1)?))?,
        // Repeats the loop, and makes a system call after each round.
        Some("count") => {
            let times = words.get(2).map_or(Ok(1), |_| number(2))?;
            for _ in 0..times {
                spin(number(1)?);
                let _parent = rustix::process::getppid();
            }
        }
        Some("mark") => marks::mark(&words[1..])?,
        Some("pong") => {
            let (mut from, mut to) = (io::stdin(), io::stdout());
            let mut byte = [0];
            while from.read(&mut byte)? == 1 {
                to.write_all(&byte)?;
                to.flush()?;
            }
        }
        Some("maps") => maps(Duration::from_millis(number(1)?))?,
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

/// Executes this program again `count` times, each time from a thread that is not the first. The
/// executing thread takes over the first thread's id.
fn execs(count: u64) -> Result<(), Box<dyn Error>> {
    let Some(remaining) = count.checked_sub(1) else {
        return Ok(());
    };
    let mut command = Command::new(env::current_exe()?);
    command.args(["execs", &remaining.to_string()]);
    exec_in_a_thread(command)
}

fn exec_in_a_thread(mut command: Command) -> Result<(), Box<dyn Error>> {
    let failed = std::thread::spawn(move || command.exec()).join();
    Err(failed.map_or_else(|_| "the thread panicked".into(), Into::into))
}

/// Uses CPU time, waits until a file is removed, and uses as much again.
fn twice(words: &[String]) -> Result<(), Box<dyn Error>> {
    let word = |at: usize| words.get(at).ok_or(USAGE);
    pin(word(1)?.parse()?)?;
    let time = Duration::from_millis(word(2)?.parse()?);
    let file = Path::new(word(3)?);
    burn(time);
    while file.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    burn(time);
    Ok(())
}

/// The first thread exits, and another runs [`twice`].
fn leaderless(words: Vec<String>) -> ! {
    std::thread::spawn(move || {
        let done = twice(&words).is_ok();
        std::process::exit(i32::from(!done));
    });
    // SAFETY: ends only this thread; its stack stays mapped.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("this thread has ended")
}

fn pin(cpu: u64) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(usize::try_from(cpu).unwrap_or(usize::MAX));
    Ok(sched_setaffinity(None, &set)?)
}

/// Enters the cgroups 0, 1, ... below a directory, and runs for a moment in each.
fn hop(directory: &str, count: u64) -> io::Result<()> {
    for at in 0..count {
        std::fs::write(format!("{directory}/{at}/cgroup.procs"), "0")?;
        // The task belongs to the new cgroup after its next switch. A sleep may end without one.
        let before = switches();
        while switches() == before {
            std::thread::sleep(Duration::from_micros(50));
        }
        burn(Duration::from_micros(20));
    }
    std::fs::write(format!("{directory}/cgroup.procs"), "0")
}

/// Number of voluntary switches of this thread.
fn switches() -> i64 {
    usage(libc::RUSAGE_THREAD).ru_nvcsw
}

pub(crate) fn usage(who: libc::c_int) -> libc::rusage {
    // SAFETY: rusage is plain integers, filled by the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    }
}

/// Exchanges a byte with a child in `cgroup`, on one CPU: every transfer is a switch. Prints
/// nanoseconds per switch.
fn pingpong(rounds: u64, cgroup: &str) -> io::Result<()> {
    let mut child = Command::new(env::current_exe()?)
        .arg("pong")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    std::fs::write(format!("{cgroup}/cgroup.procs"), child.id().to_string())?;
    let (Some(mut to), Some(mut from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut round = || -> io::Result<()> {
        to.write_all(b"x")?;
        from.read_exact(&mut [0])
    };
    for _ in 0..1000 {
        round()?;
    }
    let began = Instant::now();
    for _ in 0..rounds {
        round()?;
    }
    println!("{}", began.elapsed().as_nanos() / u128::from(2 * rounds));
    drop(to);
    child.wait()?;
    Ok(())
}

/// Sends to a real-time process in `cgroup`, on the same CPU. The receiver wakes at the first page.
/// On a kernel that is not preemptible it runs after the last page; the scheduler's clock at that
/// switch is as old as the wake-up.
fn wakes(time: Duration, cgroup: &str) -> io::Result<()> {
    const LENGTH: usize = 4 << 20;
    let (mut to, from) = UnixStream::pair()?;
    // If this is refused, sends are shorter.
    let _ = sockopt::set_socket_send_buffer_size_force(&to, 4 * LENGTH);
    let mut child = Command::new(env::current_exe()?)
        .arg("sink")
        .stdin(OwnedFd::from(from))
        .spawn()?;
    std::fs::write(format!("{cgroup}/cgroup.procs"), child.id().to_string())?;
    let bytes = vec![0; LENGTH];
    let end = Instant::now() + time;
    while Instant::now() < end {
        to.write_all(&bytes)?;
    }
    drop(to);
    child.wait()?;
    Ok(())
}

/// Gives this thread real-time priority if the kernel allows it.
fn real_time() {
    // The kernel's `struct sched_param`. musl's struct differs, and musl refuses the call.
    let priority: i32 = 1;
    // SAFETY: a valid structure; the thread is this one.
    unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_FIFO,
            &raw const priority,
        )
    };
}

/// Waits for the end of a child as after vfork(2), and prints the length of the wait in ns.
fn vfork(time: Duration) -> io::Result<()> {
    let began = Instant::now();
    let flags = (libc::CLONE_VFORK | libc::SIGCHLD) as libc::c_ulong;
    // SAFETY: this process has one thread, and the child has a copy of its memory.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match child {
        0 => {
            std::thread::sleep(time);
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) }
        }
        1.. => {
            println!("{}", began.elapsed().as_nanos());
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads its standard input to the end, at real-time priority.
fn sink() -> io::Result<()> {
    real_time();
    let mut bytes = vec![0; 1 << 20];
    while io::stdin().read(&mut bytes)? > 0 {}
    Ok(())
}

/// Uses `time` of CPU time.
pub(crate) fn burn(time: Duration) {
    /// Rounds between two reads of the clock, which are slow under emulation: 32 us if an
    /// instruction takes 8 ns.
    const ROUNDS: u64 = 2_000;
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let end = used() + time;
    while used() < end {
        spin(ROUNDS);
    }
}

/// Writes one byte into each of `pages` fresh pages; prints all minor faults of the process.
fn touch(pages: usize) -> io::Result<()> {
    let size = rustix::param::page_size();
    // SAFETY: a fresh private mapping of this process, kept to its end.
    let memory = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            pages * size,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )?
    };
    // Makes one fault per page; a kernel without huge pages refuses the advice.
    // SAFETY: the mapping from above, whose content does not change.
    let _ = unsafe { madvise(memory, pages * size, Advice::LinuxNoHugepage) };
    for page in 0..pages {
        // SAFETY: inside the mapping.
        unsafe { memory.cast::<u8>().add(page * size).write_volatile(1) };
    }
    println!("{}", usage(libc::RUSAGE_SELF).ru_minflt);
    Ok(())
}

/// Only looks up a large value in a BPF map. While the kernel copies the value, it runs no
/// `perf_event` program on this CPU. The copy is long enough for a tick to preempt it.
fn maps(time: Duration) -> Result<(), Box<dyn Error>> {
    use aya::maps::{Array, MapData};
    let map = Array::<MapData, [u8; 1 << 18]>::create(1, 0)?;
    let end = Instant::now() + time;
    while Instant::now() < end {
        map.get(&0, 0)?;
    }
    Ok(())
}
