//! `walk`: the walk over all processes of the machine.
//!
//! It walks the kernel's own list. /proc and the kernel's iterator over tasks show only the
//! reader's pid namespace, with its ids. Programs see ids of the initial namespace, where the same
//! numbers belong to other processes.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    helpers::bpf_probe_read_kernel,
    macros::map,
    maps::{Array, HashMap},
};
use probe_common::{ProcessWalk, WalkedProcess};

use crate::{
    iterator::{self, walk_state},
    kernel::{
        SIGNAL_LIVE, SIGNAL_NR_THREADS, SIGNAL_THREAD_HEAD, TASK_COMM, TASK_EXIT_STATE, TASK_PID,
        TASK_SIGNAL, TASK_TASKS, TASK_TGID, TASK_THREAD_NODE, Task, UntypedTask, read,
    },
    spe::tasks,
    waits,
};

/// The state of the current walk.
#[map]
static WALK: Array<ProcessWalk> = Array::with_max_entries(1, 0);

/// Processes that user space asks for, by id in the initial pid namespace. User space sets the
/// size.
#[map]
static PROCESSES: HashMap<u64, WalkedProcess> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// One walk over all processes.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/bpf_map")]
fn walk(ctx: *mut c_void) -> i32 {
    // SAFETY: it is the context of an iterator.
    unsafe { iterator::walk(ctx, start, step) }
}

/// Starts at the calling process, which stays in the list while the program runs.
#[inline(always)]
fn start() -> Option<()> {
    let walk = walk_state(&WALK)?;
    let leader = UntypedTask(Task::current().leader().address());
    (walk.namespace, walk.level) = leader.namespace()?;
    walk.first = leader.0.wrapping_add(TASK_TASKS.load());
    walk.node = walk.first;
    (walk.head, walk.thread) = (0, 0);
    Some(())
}

/// Visits one thread or one process. Returns 1 after the last.
#[inline(never)]
extern "C" fn step(_: u32, _: *mut c_void) -> i64 {
    let Some(walk) = walk_state(&WALK) else {
        return 1;
    };
    let visited = if walk.thread != walk.head {
        visit_thread(walk)
    } else if walk.visited > 0 && walk.node == walk.first {
        walk.complete = 1;
        None
    } else {
        visit_process(walk)
    };
    i64::from(visited.is_none())
}

/// Visits a process. None if the list cannot be read. In PROCESSES a zombie does not count as
/// found.
#[inline(always)]
fn visit_process(walk: &mut ProcessWalk) -> Option<()> {
    let leader = UntypedTask(walk.node.wrapping_sub(TASK_TASKS.load()));
    walk.node = read(walk.node)?;
    walk.visited += 1;
    let tgid: u32 = leader.field(&TASK_TGID)?;
    let signal: u64 = leader.field(&TASK_SIGNAL)?;
    // The head of the list is the first idle task.
    if tgid == 0 {
        return Some(());
    }
    if let Some(process) = PROCESSES.get_ptr_mut(u64::from(tgid)) {
        let live: u32 = read(signal.wrapping_add(SIGNAL_LIVE.load())).unwrap_or(0);
        if live > 0 || is_exiting(leader, signal) {
            let comm = leader.0.wrapping_add(TASK_COMM.load()) as *const [u8; 16];
            // SAFETY: user space reads the value only after the walk; the helper checks the
            // address.
            unsafe {
                if let Ok(comm) = bpf_probe_read_kernel(comm) {
                    (*process).comm = comm;
                }
                (*process).live = u64::from(live);
                (*process).last_walk = walk.number;
            }
        }
    }
    if walk.wanted != 0
        && let Some(id) = leader.id_in(walk.namespace, walk.level)
        && u64::from(id) == walk.wanted
    {
        walk.found = u64::from(tgid);
    }
    if walk.thread_map != 0 {
        walk.head = signal.wrapping_add(SIGNAL_THREAD_HEAD.load());
        walk.thread = read(walk.head)?;
    }
    Some(())
}

/// Whether a process with only exiting threads still runs: since Linux 6.16 it frees its memory
/// after `sched_process_exit`. Only the first thread of a zombie is left, and has an exit state.
#[inline(always)]
fn is_exiting(leader: UntypedTask, signal: u64) -> bool {
    let threads: u32 = read(signal.wrapping_add(SIGNAL_NR_THREADS.load())).unwrap_or(0);
    let state: u32 = leader.field(&TASK_EXIT_STATE).unwrap_or(1);
    threads > 1 || state == 0
}

/// Visits a thread. None if the list cannot be read.
#[inline(always)]
fn visit_thread(walk: &mut ProcessWalk) -> Option<()> {
    let task = UntypedTask(walk.thread.wrapping_sub(TASK_THREAD_NODE.load()));
    walk.thread = read(walk.thread)?;
    if walk.thread_map == ProcessWalk::WAITS {
        if waits::is_on() {
            waits::add_existing(task);
        }
    } else if let Some(thread) = task.field(&TASK_PID)
        && let Some(tgid) = task.field(&TASK_TGID)
        && let Some(cgroup) = task.cgroup()
    {
        tasks::add_existing(thread, cgroup, tgid);
    }
    Some(())
}
