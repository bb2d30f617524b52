//! The cost of a sample on one CPU: of the interrupt with an empty program, and of pmuscope's
//! program in three forms: with only rows of owners (`stat --sample`), with instructions, and with
//! instructions and data pages (`hot`). Events are cpu-clock, and page faults, which have a data
//! address.
//!
//! Each set-up runs a load on that CPU. The number of load iterations in a given CPU time shows the
//! time of interrupts; a sample's cost is the difference between two set-ups in one round. The
//! program's own cost is the kernel's run time of programs: they run with interrupts off, so other
//! load hardly disturbs it.
//!
//! There are two loads for cpu-clock. One is a small loop, with samples at few addresses. The other
//! has code and memory larger than the caches: nearly every sample has a different address, and
//! finds cold caches. The load for page faults touches new pages, so that each sample has a
//! different page; page faults cause no interrupts.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]
#![allow(
    clippy::cast_precision_loss,
    reason = "times of a benchmark are below 2^53 ns"
)]

use std::{
    hint::black_box,
    os::fd::{AsFd as _, FromRawFd as _, OwnedFd},
    ptr::{NonNull, null_mut},
};

use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_PERF_EVENT as AT_OVERFLOWS;
use perf_event_open_sys::{bindings::perf_event_attr, perf_event_open};
use probe_user::{event::sampling::sampled, session::SamplingConfig, sys::spin::spin};
use rustix::{
    mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect},
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use test_harness::{
    Counting,
    bpf::{EmptyProgram, RunTimeStats, time_per_run},
    online_cpus, plan, this_machine,
};

/// Rounds over all set-ups.
const REPEAT: usize = 9;

/// CPU time of a measurement, in nanoseconds.
const TIME: u64 = 600_000_000;

/// Nanoseconds from one sample to the next.
const PERIODS: [u64; 2] = [1_000_000, 100_000];

/// Page faults from one sample to the next.
const FAULTS: [u64; 2] = [1_000, 100];

/// A sampled event with its period.
#[derive(Clone, Copy)]
enum Event {
    Clock(u64),
    Faults(u64),
}

impl Event {
    /// The number of the `PERF_TYPE_SOFTWARE` event in `linux/perf_event.h`, and the period.
    const fn config(self) -> (u64, u64) {
        match self {
            // `PERF_COUNT_SW_CPU_CLOCK`
            Self::Clock(period) => (0, period),
            // `PERF_COUNT_SW_PAGE_FAULTS`
            Self::Faults(period) => (2, period),
        }
    }

    fn term(self) -> String {
        match self {
            Self::Clock(period) => format!("cpu-clock/period={period}/"),
            Self::Faults(period) => format!("page-faults/period={period}/"),
        }
    }
}

/// What is attached during a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SetUp {
    Nothing,
    Empty,
    Rows,
    Instructions,
    Pages,
}

const SET_UPS: [SetUp; 5] = [
    SetUp::Nothing,
    SetUp::Empty,
    SetUp::Rows,
    SetUp::Instructions,
    SetUp::Pages,
];

fn main() {
    let Some(_machine) = test_harness::machine() else {
        return;
    };
    // Uses the last CPU: others are busier on most machines.
    let cpu = *online_cpus().last().unwrap();
    let mut cpus = CpuSet::new();
    cpus.set(cpu as usize);
    sched_setaffinity(None, &cpus).unwrap();
    let (mut scattered, mut pages) = (Scattered::new(), NewPages::new());
    println!(
        "ns per sample: medians (quartiles) of {REPEAT} rounds. The program: by the kernel's\n\
         clock, less an empty program; with pages, and as a ratio of the same round without.\n\
         The interrupt: with an empty program. In all: with pmuscope's, with pages."
    );
    println!(
        "{:<28} {:<10} {:>22} {:>22} {:>22} {:>20} {:>26} {:>26}",
        "event",
        "addresses",
        "program, rows",
        "with instructions",
        "with pages too",
        "ratio",
        "interrupt",
        "in all"
    );
    for event in PERIODS.map(Event::Clock) {
        Row::measure(cpu, event, || spin(400)).print(event, "few");
        Row::measure(cpu, event, || scattered.round()).print(event, "many");
    }
    for event in FAULTS.map(Event::Faults) {
        Row::measure(cpu, event, || pages.touch()).print(event, "new pages");
    }
}

/// Results of each round, by set-up.
#[derive(Default)]
struct Row {
    /// Load iterations per nanosecond.
    speed: [Vec<f64>; SET_UPS.len()],
    /// ns per run of the program.
    program: [Vec<f64>; SET_UPS.len()],
}

impl Row {
    fn measure(cpu: u32, sampled: Event, mut round: impl FnMut()) -> Self {
        let mut row = Self::default();
        for at in 0..REPEAT {
            // Each round begins with a different set-up, so that none always follows the same one.
            for index in 0..SET_UPS.len() {
                let set_up = SET_UPS[(at + index) % SET_UPS.len()];
                let event = (set_up == SetUp::Empty).then(|| sampling_event(cpu, sampled));
                let _empty =
                    event.map(|event| (EmptyProgram::at_overflows(event.as_fd()).unwrap(), event));
                let _counting = matches!(set_up, SetUp::Rows | SetUp::Instructions | SetUp::Pages)
                    .then(|| counting(sampled, set_up));
                row.speed[set_up as usize].push(speed(TIME, &mut round));
                if set_up != SetUp::Nothing {
                    let _stats = RunTimeStats::enable().unwrap();
                    let work = || {
                        speed(TIME, &mut round);
                    };
                    let per_run = time_per_run(AT_OVERFLOWS, work).unwrap();
                    row.program[set_up as usize].push(per_run);
                }
            }
        }
        row
    }

    fn print(&self, event: Event, addresses: &str) {
        let program = |set_up| {
            let pairs =
                Self::rounds(&self.program, SetUp::Empty).zip(Self::rounds(&self.program, set_up));
            pairs.map(|(empty, it)| it - empty).collect::<Vec<_>>()
        };
        let [rows, without, with] = [SetUp::Rows, SetUp::Instructions, SetUp::Pages].map(program);
        let ratios: Vec<_> = with
            .iter()
            .zip(&without)
            .map(|(with, without)| with / without)
            .collect();
        // ns per sample: the share of time that the load lost, divided by samples per nanosecond.
        let interrupt = |set_up| {
            let Event::Clock(period) = event else {
                return "none".to_owned();
            };
            let pairs =
                Self::rounds(&self.speed, SetUp::Nothing).zip(Self::rounds(&self.speed, set_up));
            let times = pairs.map(|(alone, it)| (1.0 - it / alone) * period as f64);
            median_and_quartiles(times.collect(), 0)
        };
        println!(
            "{:<28} {addresses:<10} {:>22} {:>22} {:>22} {:>20} {:>26} {:>26}",
            event.term(),
            median_and_quartiles(rows, 0),
            median_and_quartiles(without, 0),
            median_and_quartiles(with, 0),
            median_and_quartiles(ratios, 2),
            interrupt(SetUp::Empty),
            interrupt(SetUp::Pages)
        );
    }

    fn rounds(
        values: &[Vec<f64>; SET_UPS.len()],
        set_up: SetUp,
    ) -> impl Iterator<Item = f64> + use<'_> {
        values[set_up as usize].iter().copied()
    }
}

/// Median and quartiles as text, with `digits` decimal digits.
fn median_and_quartiles(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_unstable_by(f64::total_cmp);
    let [low, middle, high] = [1, 2, 3].map(|quarter| values[values.len() * quarter / 4]);
    format!("{middle:.digits$} ({low:.digits$} to {high:.digits$})")
}

/// A session that samples.
fn counting(event: Event, set_up: SetUp) -> Counting {
    let machine = this_machine();
    let sampling = SamplingConfig {
        events: sampled(&event.term(), machine.pmus().unwrap(), None).unwrap(),
        addresses: set_up != SetUp::Rows,
        pages: set_up == SetUp::Pages,
        ..SamplingConfig::default()
    };
    Counting::plain(plan("dummy"), |config| config.sampling = Some(sampling))
}

/// Load iterations per nanosecond of CPU time, interrupts included.
fn speed(time: u64, round: &mut impl FnMut()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
    };
    let (began, mut rounds) = (now(), 0);
    loop {
        for _ in 0..100 {
            round();
        }
        rounds += 100;
        let took = now() - began;
        if took >= time {
            return f64::from(rounds) / took as f64;
        }
    }
}

/// Code and memory that are larger than caches.
struct Scattered {
    code: NonNull<u8>,
    memory: Vec<u64>,
    random: u64,
}

impl Scattered {
    /// Bytes of code.
    const CODE: usize = 16 << 20;
    /// Bytes of a function, which ends with a return.
    const FUNCTION: usize = 2048;
    /// Words of memory.
    const MEMORY: usize = 8 << 20;

    fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        const NOP_RETURN: [u8; 2] = [0x90, 0xc3];
        #[cfg(target_arch = "aarch64")]
        const NOP_RETURN: [u32; 2] = [0xd503_201f, 0xd65f_03c0];
        let [nop, ret] = NOP_RETURN;
        let mut function = vec![nop; Self::FUNCTION / size_of_val(&nop)];
        *function.last_mut().unwrap() = ret;
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new pages that only this structure uses.
        let code = unsafe { mmap_anonymous(null_mut(), Self::CODE, rw, MapFlags::PRIVATE) };
        let code = code.unwrap().cast::<u8>();
        for at in (0..Self::CODE).step_by(Self::FUNCTION) {
            // SAFETY: both have the size of a function; pages are aligned.
            unsafe {
                let to = code.add(at).cast();
                std::ptr::copy_nonoverlapping(function.as_ptr(), to, function.len());
            }
        }
        // SAFETY: the pages from above; the kernel makes instruction caches coherent.
        unsafe {
            mprotect(
                code.cast(),
                Self::CODE,
                MprotectFlags::READ | MprotectFlags::EXEC,
            )
        }
        .unwrap();
        Self {
            code: NonNull::new(code).unwrap(),
            memory: vec![1; Self::MEMORY],
            random: 1,
        }
    }

    /// Calls a random function, and reads random words.
    fn round(&mut self) {
        let mut next = || {
            // A linear congruential generator (Knuth's MMIX).
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.random >> 33).unwrap()
        };
        for _ in 0..8 {
            black_box(self.memory[next() % Self::MEMORY]);
        }
        let at = next() % (Self::CODE / Self::FUNCTION) * Self::FUNCTION;
        // SAFETY: at this address is a function that only returns.
        unsafe {
            let function: extern "C" fn() = std::mem::transmute(self.code.as_ptr().add(at));
            function();
        }
    }
}

/// Memory of new pages: each page is touched once; then all are freed and touched again.
struct NewPages {
    memory: NonNull<u8>,
    next: usize,
}

impl NewPages {
    const BYTES: usize = 64 << 20;

    fn new() -> Self {
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new pages that only this structure uses.
        let memory =
            unsafe { mmap_anonymous(null_mut(), Self::BYTES, rw, MapFlags::PRIVATE) }.unwrap();
        // SAFETY: these pages. With huge pages a fault would map many.
        unsafe { madvise(memory, Self::BYTES, Advice::LinuxNoHugepage) }.unwrap();
        Self {
            memory: NonNull::new(memory).unwrap().cast(),
            next: 0,
        }
    }

    fn touch(&mut self) {
        // SAFETY: a byte in these pages.
        unsafe { self.memory.add(self.next).write_volatile(1) };
        self.next += rustix::param::page_size();
        if self.next >= Self::BYTES {
            self.next = 0;
            // SAFETY: these pages; their content is not needed.
            unsafe {
                let memory = self.memory.as_ptr().cast();
                madvise(memory, Self::BYTES, Advice::LinuxDontNeed)
            }
            .unwrap();
        }
    }
}

/// Opens a sampling event on a CPU, to which a program can be attached.
fn sampling_event(cpu: u32, event: Event) -> OwnedFd {
    let (config, period) = event.config();
    let mut attr = perf_event_attr {
        // `PERF_TYPE_SOFTWARE`
        type_: 1,
        config,
        ..Default::default()
    };
    attr.size = u32::try_from(size_of_val(&attr)).unwrap();
    attr.__bindgen_anon_1.sample_period = period;
    // SAFETY: a valid structure of the size it states.
    #[expect(clippy::disallowed_methods, reason = "without pmuscope")]
    let fd = unsafe { perf_event_open(&mut attr, -1, cpu.cast_signed(), -1, 0) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
