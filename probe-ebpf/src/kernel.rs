//! Fields of kernel structures, at the offsets in the running kernel's BTF.
//!
//! rustc emits no CO-RE relocations, so user space looks the offsets up and sets them as read-only
//! globals before loading. Their map is frozen, so the verifier knows the values and admits direct
//! loads through BTF pointers, without probe reads.

mod run_queue;

use aya_ebpf::{
    Global,
    helpers::{bpf_ktime_get_ns, bpf_probe_read_kernel},
};
use probe_common::CgroupId;

pub(crate) use self::run_queue::RunQueue;

macro_rules! offsets {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* #[unsafe(no_mangle)] pub(crate) static $name: Global<u64> = Global::new(0);)*
    };
}
pub(crate) use offsets;

offsets! {
    /// `task_struct.pid`
    TASK_PID;
    /// `task_struct.tgid`
    TASK_TGID;
    /// `task_struct.cgroups`
    TASK_CGROUPS;
    /// `task_struct.comm`
    TASK_COMM;
    /// `task_struct.tasks`
    TASK_TASKS;
    /// `task_struct.group_leader`
    TASK_GROUP_LEADER;
    /// `task_struct.thread_node`
    TASK_THREAD_NODE;
    /// `task_struct.thread_pid`
    TASK_THREAD_PID;
    /// `task_struct.exit_state`
    TASK_EXIT_STATE;
    /// `task_struct.signal`
    TASK_SIGNAL;
    /// `signal_struct.thread_head`
    SIGNAL_THREAD_HEAD;
    /// `signal_struct.live`
    SIGNAL_LIVE;
    /// `signal_struct.nr_threads`
    SIGNAL_NR_THREADS;
    /// `pid.level`
    PID_LEVEL;
    /// `pid.numbers`
    PID_NUMBERS;
    /// `upid.nr`
    UPID_NR;
    /// `upid.ns`
    UPID_NS;
    /// `task_struct.se`
    TASK_SE;
    /// `sched_entity.sum_exec_runtime`
    SCHED_ENTITY_SUM_EXEC_RUNTIME;
    /// `sched_entity.prev_sum_exec_runtime`
    SCHED_ENTITY_PREV_SUM_EXEC_RUNTIME;
    /// `task_struct.sched_info`
    TASK_SCHED_INFO;
    /// `sched_info.last_arrival`; all ones where the kernel is built without scheduler information
    SCHED_INFO_LAST_ARRIVAL;
    /// `sched_info.run_delay`; all ones as above
    SCHED_INFO_RUN_DELAY;
    /// `sched_info.last_queued`; all ones as above
    SCHED_INFO_LAST_QUEUED;
    /// `sched_info.pcount`; all ones as above
    SCHED_INFO_PCOUNT;
    /// `sched_entity.exec_start`
    SCHED_ENTITY_EXEC_START;
    /// `sched_entity.cfs_rq`; all ones where the kernel is built without group scheduling
    SCHED_ENTITY_CFS_RQ;
    /// `cfs_rq.rq`; all ones as above
    CFS_RQ_RQ;
    /// `rq.cpu`; all ones on a kernel for one CPU
    RQ_CPU;
    /// `task_struct.on_rq`
    TASK_ON_RQ;
    /// `rq.clock`
    RQ_CLOCK;
    /// `rq.clock_task`
    RQ_CLOCK_TASK;
    /// `css_set.dfl_cgrp`
    CSS_SET_DFL_CGRP;
    /// `cgroup.kn`
    CGROUP_KN;
    /// `cgroup.root`
    CGROUP_ROOT;
    /// `cgroup_root.hierarchy_id`
    CGROUP_ROOT_HIERARCHY_ID;
    /// `cgroup_root.cgrp`
    CGROUP_ROOT_CGRP;
    /// `cgroup.self`
    CGROUP_SELF;
    /// `cgroup_subsys_state.sibling`
    CSS_SIBLING;
    /// `cgroup_subsys_state.children`
    CSS_CHILDREN;
    /// `cgroup_subsys_state.flags`
    CSS_FLAGS;
    /// `cgroup_subsys_state.parent`
    CSS_PARENT;
    /// `kernfs_node.id`
    KERNFS_NODE_ID;
}

/// A `struct task_struct` of the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Task(*const u8);

/// A `struct cgroup` of the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Cgroup(*const u8);

/// Loads a field.
///
/// # Safety
///
/// The verifier knows the type of `base`, and `offset` is the offset of a `T` in it.
#[inline(always)]
unsafe fn field<T: Copy>(base: *const u8, offset: &Global<u64>) -> T {
    // SAFETY: the caller's promise; the verifier checks it at load, and a fault reads as 0.
    unsafe { base.add(offset.load() as usize).cast::<T>().read_volatile() }
}

/// Reads kernel memory; None for an invalid address.
#[inline(always)]
pub(crate) fn read<T>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address; T is plain data.
    unsafe { bpf_probe_read_kernel(address as *const T) }.ok()
}

/// A `struct task_struct` at an address from a kernel list. Every load is a probe read.
#[derive(Clone, Copy)]
pub(crate) struct UntypedTask(pub(crate) u64);

impl UntypedTask {
    /// Address of its `css_set`, like [`Task::cgroup_set`]; 0 where it cannot be read.
    #[inline(always)]
    pub(crate) fn cgroup_set(self) -> u64 {
        self.field(&TASK_CGROUPS).unwrap_or(0)
    }

    #[inline(always)]
    pub(crate) fn field<T>(self, offset: &Global<u64>) -> Option<T> {
        read(self.0.wrapping_add(offset.load()))
    }

    /// Its cgroup in the default hierarchy.
    #[inline(always)]
    pub(crate) fn cgroup(self) -> Option<CgroupId> {
        let cgroup = self.cgroup_address()?;
        let node: u64 = read(cgroup.wrapping_add(CGROUP_KN.load()))?;
        read(node.wrapping_add(KERNFS_NODE_ID.load())).map(CgroupId)
    }

    /// Address of its `struct cgroup` in the default hierarchy.
    #[inline(always)]
    pub(crate) fn cgroup_address(self) -> Option<u64> {
        read(self.cgroup_set().wrapping_add(CSS_SET_DFL_CGRP.load()))
    }

    /// Its id in the pid namespace with this address and depth; None where it has no id.
    #[inline(always)]
    pub(crate) fn id_in(self, wanted: u64, depth: u64) -> Option<u32> {
        let (nr, namespace) = self.upid(depth)?;
        (namespace == wanted).then_some(nr)
    }

    /// Address and depth of its own pid namespace.
    #[inline(always)]
    pub(crate) fn namespace(self) -> Option<(u64, u64)> {
        let pid: u64 = self.field(&TASK_THREAD_PID)?;
        let depth: u32 = read(pid.wrapping_add(PID_LEVEL.load()))?;
        let (_, namespace) = self.upid(u64::from(depth))?;
        Some((namespace, u64::from(depth)))
    }

    /// Its id in the pid namespace at `depth`, and the address of this namespace.
    #[inline(always)]
    fn upid(self, depth: u64) -> Option<(u32, u64)> {
        /// Size of `struct upid`: an int and a pointer.
        const UPID_SIZE: u64 = 16;
        let pid: u64 = self.field(&TASK_THREAD_PID)?;
        let level: u32 = read(pid.wrapping_add(PID_LEVEL.load()))?;
        if u64::from(level) < depth {
            return None;
        }
        let upid = pid
            .wrapping_add(PID_NUMBERS.load())
            .wrapping_add(depth * UPID_SIZE);
        let nr = read(upid.wrapping_add(UPID_NR.load()))?;
        Some((nr, read(upid.wrapping_add(UPID_NS.load()))?))
    }
}

impl Task {
    /// # Safety
    ///
    /// `task` is an argument or helper result that the verifier knows as a `task_struct`.
    #[inline(always)]
    pub(crate) unsafe fn new(task: *const u8) -> Self {
        Self(task)
    }

    /// The running task.
    #[inline(always)]
    pub(crate) fn current() -> Self {
        // SAFETY: the helper has no preconditions and returns a task the verifier knows.
        Self(unsafe { aya_ebpf::helpers::generated::bpf_get_current_task_btf() } as *const u8)
    }

    #[inline(always)]
    pub(crate) fn pid(self) -> u32 {
        // SAFETY: TASK_PID is the offset of an int in task_struct.
        unsafe { field(self.0, &TASK_PID) }
    }

    #[inline(always)]
    pub(crate) fn tgid(self) -> u32 {
        // SAFETY: TASK_TGID is the offset of an int in task_struct.
        unsafe { field(self.0, &TASK_TGID) }
    }

    /// The first thread (group leader) of its process.
    #[inline(always)]
    pub(crate) fn leader(self) -> Self {
        // SAFETY: TASK_GROUP_LEADER is the offset of a pointer to a task_struct.
        Self(unsafe { field(self.0, &TASK_GROUP_LEADER) })
    }

    /// Threads of its process that have not begun to exit.
    #[inline(always)]
    pub(crate) fn live_threads(self) -> u32 {
        // SAFETY: the offsets lead to a pointer to the signal_struct, which a task has until its
        // release, and to an atomic_t in it.
        unsafe {
            let signal: *const u8 = field(self.0, &TASK_SIGNAL);
            field(signal, &SIGNAL_LIVE)
        }
    }

    /// The same task, read by probe reads. A pointer that is loaded through a kernel type takes
    /// long to verify: Linux 6.18 searches all types by name up to four times, 0.3 ms in all. So
    /// only code that every switch runs loads such pointers.
    #[inline(always)]
    pub(crate) fn untyped(self) -> UntypedTask {
        UntypedTask(self.address())
    }

    /// Its address, unique among existing tasks.
    #[inline(always)]
    pub(crate) fn address(self) -> u64 {
        self.0.addr() as u64
    }

    /// Address of the command name, for the helpers that read kernel memory.
    #[inline(always)]
    pub(crate) fn comm(self) -> *const u8 {
        self.0.wrapping_add(TASK_COMM.load() as usize)
    }

    /// Nanoseconds for which this outgoing task ran: since `last_arrival` if that is at most
    /// `limit`, else the scheduler's own count.
    ///
    /// The scheduler's own count restarts when a task changes its group's `cfs_rq`, also on one
    /// CPU: the kernel does that to each task that exits. `last_arrival` stays, but the kernel
    /// does not set it at each switch.
    #[inline(always)]
    pub(crate) fn ran(self, limit: u64) -> u64 {
        if SCHED_INFO_LAST_ARRIVAL.load() != u64::MAX
            && let Some(switched_out) = self.switched_out_at()
        {
            let ran = switched_out.wrapping_sub(self.sched_info().last_arrival());
            if ran <= limit {
                return ran;
            }
        }
        self.accounted()
    }

    /// Nanoseconds that the scheduler has counted for it since it was switched in or changed its
    /// `cfs_rq`. Too many for real-time tasks: the scheduler does not keep the start of their
    /// run.
    #[inline(always)]
    fn accounted(self) -> u64 {
        let entity = self.0.wrapping_add(TASK_SE.load() as usize);
        // SAFETY: the offsets lead to two 64-bit times in the scheduling entity.
        unsafe {
            let now: u64 = field(entity, &SCHED_ENTITY_SUM_EXEC_RUNTIME);
            let before: u64 = field(entity, &SCHED_ENTITY_PREV_SUM_EXEC_RUNTIME);
            now.wrapping_sub(before)
        }
    }

    /// Nanoseconds for which the task that was at `address` ran. An estimate, since the task may be
    /// gone or run elsewhere by now.
    #[inline(always)]
    pub(crate) fn ran_by_address(address: u64) -> Option<u64> {
        let entity = address + TASK_SE.load();
        let read = |offset: &Global<u64>| {
            let time = (entity + offset.load()) as *const u64;
            // SAFETY: the helper checks the address.
            unsafe { bpf_probe_read_kernel(time) }.ok()
        };
        let now = read(&SCHED_ENTITY_SUM_EXEC_RUNTIME)?;
        Some(now.wrapping_sub(read(&SCHED_ENTITY_PREV_SUM_EXEC_RUNTIME)?))
    }

    /// When this CPU's scheduler last accounted for this outgoing task; for the idle task, the time
    /// of the switch. The clock runs like that of perf's clock events, but starts at another time.
    /// None where the kernel's types lack the fields.
    #[inline(always)]
    pub(crate) fn switched_out_at(self) -> Option<u64> {
        if SCHED_ENTITY_CFS_RQ.load() == u64::MAX || CFS_RQ_RQ.load() == u64::MAX {
            return None;
        }
        let queue = self.run_queue();
        let clock = queue.clock();
        if self.pid() == 0 {
            return Some(clock);
        }
        let entity = self.0.wrapping_add(TASK_SE.load() as usize);
        // SAFETY: the offsets lead to a 64-bit time in the scheduling entity.
        let accounted: u64 = unsafe { field(entity, &SCHED_ENTITY_EXEC_START) };
        let since = queue.task_clock().wrapping_sub(accounted);
        Some(if since < clock { clock - since } else { clock })
    }

    /// When this CPU's scheduler switched in this running task; approximate for the idle task.
    /// `last_read` (`CLOCK_MONOTONIC`) is a time before that. Clock and None as for
    /// [`Self::switched_out_at`].
    #[inline(always)]
    pub(crate) fn switched_in_at(self, last_read: u64) -> Option<u64> {
        let accounted = self.switched_out_at()?;
        if self.pid() == 0 {
            return Some(accounted);
        }
        // The time that ticks have accounted since the switch. For a real-time task it may include
        // earlier times.
        let ran = self.accounted();
        // SAFETY: the helper has no preconditions.
        let limit = unsafe { bpf_ktime_get_ns() } - last_read;
        Some(if ran <= limit {
            accounted.wrapping_sub(ran)
        } else {
            accounted
        })
    }

    /// Address of its `css_set`, which has one cgroup per hierarchy. Tasks that share it are in the
    /// same cgroups.
    #[inline(always)]
    pub(crate) fn cgroup_set(self) -> u64 {
        // SAFETY: TASK_CGROUPS is the offset of a pointer in task_struct.
        let set: *const u8 = unsafe { field(self.0, &TASK_CGROUPS) };
        set.addr() as u64
    }

    /// Its cgroup in the default hierarchy; the new one if it was moved while it ran.
    #[inline(always)]
    pub(crate) fn cgroup(self) -> CgroupId {
        // SAFETY: the offsets lead over pointers to a 64-bit id; `cgroups` of a task that the
        // scheduler switches is never null.
        unsafe {
            let css_set: *const u8 = field(self.0, &TASK_CGROUPS);
            let cgroup: *const u8 = field(css_set, &CSS_SET_DFL_CGRP);
            let node: *const u8 = field(cgroup, &CGROUP_KN);
            CgroupId(field(node, &KERNFS_NODE_ID))
        }
    }
}

impl Cgroup {
    /// # Safety
    ///
    /// The verifier knows `cgroup` as a `struct cgroup`.
    #[inline(always)]
    pub(crate) unsafe fn new(cgroup: *const u8) -> Self {
        Self(cgroup)
    }

    #[inline(always)]
    pub(crate) fn id(self) -> CgroupId {
        let node = self.field(&CGROUP_KN);
        CgroupId(read(node.wrapping_add(KERNFS_NODE_ID.load())).unwrap_or(0))
    }

    /// 0 for the default hierarchy. Cgroup ids of v1 hierarchies collide with its ids.
    #[inline(always)]
    pub(crate) fn hierarchy(self) -> i32 {
        let root = self.field(&CGROUP_ROOT);
        read(root.wrapping_add(CGROUP_ROOT_HIERARCHY_ID.load())).unwrap_or(-1)
    }

    /// A pointer in it, by a probe read (see [`Task::untyped`]).
    #[inline(always)]
    fn field(self, offset: &Global<u64>) -> u64 {
        read((self.0.addr() as u64).wrapping_add(offset.load())).unwrap_or(0)
    }
}
