//! bpf(2) for benchmarks: an empty program, a program that writes a record at each switch, the
//! kernel's run time of programs, and writes to a map.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use aya::{
    Btf,
    maps::{Map, MapData, RingBuf},
};
use aya_obj::{
    btf::BtfKind,
    generated::{
        __BindgenBitfieldUnit, bpf_attach_type, bpf_attr, bpf_cmd, bpf_insn, bpf_map_type,
        bpf_prog_type,
    },
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A program that does nothing: its cost is the kernel's cost of running any program at its hook.
/// Its two instructions are here, so that the product's eBPF object has no code only for
/// benchmarks.
pub struct EmptyProgram {
    _program: OwnedFd,
    _link: OwnedFd,
}

impl EmptyProgram {
    /// Loads it as `tp_btf/sched_switch` and attaches it, with the system calls that aya makes for
    /// pmuscope's own program.
    pub fn attach() -> io::Result<Self> {
        Self::at_switches(&NOTHING)
    }

    fn at_switches(instructions: &[bpf_insn]) -> io::Result<Self> {
        let btf = Btf::from_sys_fs().map_err(io::Error::other)?;
        let tracepoint = btf
            .id_by_type_name_kind("btf_trace_sched_switch", BtfKind::Typedef)
            .map_err(io::Error::other)?;
        let mut attr = zeroed();
        // SAFETY: writing plain integers to the union's fields.
        let load = unsafe { &mut attr.__bindgen_anon_3 };
        load.prog_type = bpf_prog_type::BPF_PROG_TYPE_TRACING as u32;
        load.expected_attach_type = bpf_attach_type::BPF_TRACE_RAW_TP as u32;
        load.attach_btf_id = tracepoint;
        let program = Self::load(&mut attr, instructions)?;
        let mut attr = zeroed();
        attr.raw_tracepoint.prog_fd = program.as_raw_fd().cast_unsigned();
        // SAFETY: no pointer is passed; the program's BTF id names its tracepoint.
        let link = unsafe { bpf(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attr) }?;
        Ok(Self {
            _program: program,
            _link: link,
        })
    }

    /// Loads it and attaches it to the overflows of a sampled event.
    pub fn at_overflows(event: BorrowedFd<'_>) -> io::Result<Self> {
        let mut attr = zeroed();
        // SAFETY: writing a plain integer to the union's field.
        let load = unsafe { &mut attr.__bindgen_anon_3 };
        load.prog_type = bpf_prog_type::BPF_PROG_TYPE_PERF_EVENT as u32;
        let program = Self::load(&mut attr, &NOTHING)?;
        let mut attr = zeroed();
        // SAFETY: writing plain integers to the union's fields.
        unsafe {
            let link = &mut attr.link_create;
            link.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
            link.__bindgen_anon_2.target_fd = event.as_raw_fd().cast_unsigned();
            link.attach_type = bpf_attach_type::BPF_PERF_EVENT as u32;
        }
        // SAFETY: no pointer is passed.
        let link = unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr) }?;
        Ok(Self {
            _program: program,
            _link: link,
        })
    }

    /// Loads instructions as a program of the type in `attr`.
    fn load(attr: &mut bpf_attr, instructions: &[bpf_insn]) -> io::Result<OwnedFd> {
        // SAFETY: writing plain integers to the union's fields.
        let load = unsafe { &mut attr.__bindgen_anon_3 };
        load.insns = instructions.as_ptr() as u64;
        load.insn_cnt = u32::try_from(instructions.len()).map_err(io::Error::other)?;
        load.license = c"Dual MIT/GPL".as_ptr() as u64;
        // SAFETY: instructions and licence outlive the call.
        unsafe { bpf(bpf_cmd::BPF_PROG_LOAD, attr) }
    }
}

/// r0 = 0, exit (linux/bpf.h: `BPF_ALU64 | BPF_MOV | BPF_K`, `BPF_JMP | BPF_EXIT`).
const NOTHING: [bpf_insn; 2] = [
    instruction(0xb7, [0, 0], 0, 0),
    instruction(0x95, [0, 0], 0, 0),
];

/// An instruction with its registers: destination and source.
const fn instruction(code: u8, [to, from]: [u8; 2], off: i16, imm: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        // The lower half is the destination, on every machine that this runs on.
        _bitfield_1: __BindgenBitfieldUnit::new([from << 4 | to]),
        off,
        imm,
    }
}

/// The work of a tracer: a program that writes a record of 24 bytes at each switch into a ring (the
/// time, the outgoing and the incoming task), and a thread that reads the records.
pub struct SwitchRecorder {
    program: Option<EmptyProgram>,
    should_stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<u64>>,
}

impl SwitchRecorder {
    /// Bytes of the ring.
    const RING: u32 = 1 << 20;

    /// Attaches it.
    pub fn attach() -> io::Result<Self> {
        let mut attr = zeroed();
        // SAFETY: writing plain integers to the union's fields.
        let map = unsafe { &mut attr.__bindgen_anon_1 };
        map.map_type = bpf_map_type::BPF_MAP_TYPE_RINGBUF as u32;
        map.max_entries = Self::RING;
        // SAFETY: no pointer is passed.
        let ring = unsafe { bpf(bpf_cmd::BPF_MAP_CREATE, &mut attr) }?;
        let program = EmptyProgram::at_switches(&Self::instructions(ring.as_raw_fd()))?;
        let data = MapData::from_fd(ring).map_err(io::Error::other)?;
        let mut ring = RingBuf::try_from(Map::RingBuf(data)).map_err(io::Error::other)?;
        let should_stop = Arc::new(AtomicBool::new(false));
        let reader_should_stop = Arc::clone(&should_stop);
        let reader = thread::spawn(move || {
            let mut records = 0;
            while !reader_should_stop.load(Relaxed) {
                let mut wait = [PollFd::new(&ring, PollFlags::IN)];
                let limit = Timespec {
                    tv_sec: 0,
                    tv_nsec: 50_000_000,
                };
                let _ = poll(&mut wait, Some(&limit));
                while ring.next().is_some() {
                    records += 1;
                }
            }
            records
        });
        Ok(Self {
            program: Some(program),
            should_stop,
            reader: Some(reader),
        })
    }

    /// The program. Codes of instructions and numbers of helpers are those of linux/bpf.h.
    const fn instructions(ring: RawFd) -> [bpf_insn; 16] {
        const SIZE: i32 = 24;
        [
            // r6 = context
            instruction(0xbf, [6, 1], 0, 0),
            // bpf_ktime_get_ns
            instruction(0x85, [0, 0], 0, 5),
            instruction(0x7b, [10, 0], -24, 0),
            // bpf_get_current_pid_tgid
            instruction(0x85, [0, 0], 0, 14),
            instruction(0x7b, [10, 0], -16, 0),
            // The third argument: the incoming task.
            instruction(0x79, [1, 6], 16, 0),
            instruction(0x7b, [10, 1], -8, 0),
            // bpf_ringbuf_output(ring, stack, 24, 0)
            instruction(0x18, [1, 1], 0, ring),
            instruction(0, [0, 0], 0, 0),
            instruction(0xbf, [2, 10], 0, 0),
            instruction(0x07, [2, 0], 0, -SIZE),
            instruction(0xb7, [3, 0], 0, SIZE),
            instruction(0xb7, [4, 0], 0, 0),
            instruction(0x85, [0, 0], 0, 130),
            NOTHING[0],
            NOTHING[1],
        ]
    }
}

impl Drop for SwitchRecorder {
    fn drop(&mut self) {
        self.program = None;
        self.should_stop.store(true, Relaxed);
        let read = self.reader.take().map(JoinHandle::join);
        assert!(matches!(read, Some(Ok(records)) if records > 0), "{read:?}");
    }
}

/// While this exists, the kernel measures the run time of every program (`BPF_ENABLE_STATS`, Linux
/// 5.8). It reads its clock twice for each run.
pub struct RunTimeStats(#[expect(dead_code, reason = "held open")] OwnedFd);

impl RunTimeStats {
    /// Switches the measurement on.
    pub fn enable() -> io::Result<Self> {
        // A zeroed attribute selects the run time.
        let mut attr = zeroed();
        // SAFETY: no pointer is passed.
        unsafe { bpf(bpf_cmd::BPF_ENABLE_STATS, &mut attr) }.map(Self)
    }
}

/// Nanoseconds per run of a program of this process during `work`. Of the programs of this type, it
/// is the one that runs most often.
pub fn time_per_run(kind: bpf_prog_type, work: impl FnOnce()) -> io::Result<f64> {
    let before = run_times(kind)?;
    work();
    let after = run_times(kind)?;
    let gained = after.iter().map(|(id, (nanos, runs))| {
        let (nanos_before, runs_before) = before.get(id).copied().unwrap_or_default();
        (runs - runs_before, nanos - nanos_before)
    });
    let (runs, nanos) = gained.max().ok_or(io::ErrorKind::NotFound)?;
    Ok(nanos as f64 / runs as f64)
}

/// This process's programs of this type, by id: nanoseconds in all runs so far, and the number of
/// runs (`proc(5)`, fdinfo).
fn run_times(kind: bpf_prog_type) -> io::Result<BTreeMap<u64, (u64, u64)>> {
    let mut programs = BTreeMap::new();
    for fd in fs::read_dir("/proc/self/fdinfo")? {
        // The descriptor of the directory itself is already closed.
        let text = fs::read_to_string(fd?.path()).unwrap_or_default();
        let field = |name: &str| -> Option<u64> {
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().parse().ok()
        };
        if field("prog_type:") == Some(kind as u64)
            && let (Some(id), Some(nanos), Some(runs)) =
                (field("prog_id:"), field("run_time_ns:"), field("run_cnt:"))
        {
            programs.insert(id, (nanos, runs));
        }
    }
    Ok(programs)
}

fn zeroed() -> bpf_attr {
    // SAFETY: bpf_attr is a union of plain integers; the kernel requires unused bytes to be zero.
    unsafe { std::mem::zeroed() }
}

/// Calls bpf(2).
///
/// # Safety
///
/// Every pointer in `attr` is valid for what `command` reads through it.
unsafe fn call(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    // SAFETY: guaranteed by the caller; the size is the union's.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            std::ptr::from_mut(attr),
            size_of::<bpf_attr>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Calls bpf(2) for a new descriptor.
///
/// # Safety
///
/// As for [`call`].
unsafe fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: guaranteed by the caller.
    let fd = unsafe { call(command, attr) }?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Descriptor of this process's hash map whose keys and values have the sizes of these types
/// (`proc(5)`, fdinfo).
pub fn hash_map<K, V>() -> io::Result<RawFd> {
    let wanted = [
        ("map_type:", bpf_map_type::BPF_MAP_TYPE_HASH as usize),
        ("key_size:", size_of::<K>()),
        ("value_size:", size_of::<V>()),
    ];
    for fd in fs::read_dir("/proc/self/fdinfo")? {
        let fd = fd?;
        let text = fs::read_to_string(fd.path()).unwrap_or_default();
        let matches = |(name, value): &(&str, usize)| {
            let found = text.lines().find_map(|line| line.strip_prefix(name));
            found.and_then(|found| found.trim().parse().ok()) == Some(*value)
        };
        if wanted.iter().all(matches) {
            let number = fd.file_name().into_string().unwrap_or_default();
            return number.parse().map_err(io::Error::other);
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

/// Puts a row into a map that [`hash_map`] returned.
pub fn put<K, V>(map: RawFd, key: &K, value: &V) -> io::Result<()> {
    let mut attr = zeroed();
    // SAFETY: writing plain integers to the union's fields.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.cast_unsigned();
    element.key = std::ptr::from_ref(key) as u64;
    element.__bindgen_anon_1.value = std::ptr::from_ref(value) as u64;
    // SAFETY: key and value are of the map's sizes and outlive the call.
    unsafe { call(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr) }.map(drop)
}
