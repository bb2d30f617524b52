//! What a sample costs: the interrupt with a program that does nothing, and pmuscope's program,
//! with rows of owners alone (`stat --sample`) and with addresses (`hot`). cpu-clock, on one CPU.
//!
//! A turn runs a load on that CPU. Its rounds in so much CPU time tell what interrupts took of it;
//! a sample's cost is the difference of two turns of one round. The program's own cost is by the
//! kernel's clock of programs: programs run with interrupts off, so other load hardly disturbs it.
//!
//! Two loads: one loop, so that samples are at few addresses; and code that is larger than the
//! caches, beside memory that is: there nearly each sample is at an address of its own, and meets
//! caches that have nothing of the program's.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]
#![allow(
    clippy::cast_precision_loss,
    reason = "times of a benchmark are below 2^53 ns"
)]

#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod bpf;
#[path = "../host/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
mod support;

use std::{
    hint::black_box,
    os::fd::{AsFd as _, FromRawFd as _, OwnedFd},
    ptr::{NonNull, null_mut},
};

use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_PERF_EVENT as AT_OVERFLOWS;
use bpf::{Clocked, Empty, busiest_program};
use perf_event_open_sys::{bindings::perf_event_attr, perf_event_open};
use probe_user::{event::sampling::sampled, session::SamplingConfig, sys::spin::spin};
use rustix::{
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect},
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use support::{Counting, online_cpus, plan, this_machine};

/// Rounds of turns.
const REPEAT: usize = 9;

/// CPU time of a turn, in nanoseconds.
const TIME: u64 = 600_000_000;

/// Nanoseconds from one sample to the next.
const PERIODS: [u64; 2] = [1_000_000, 100_000];

/// The set-up of a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Turn {
    Nothing,
    Empty,
    Rows,
    Addresses,
}

const TURNS: [Turn; 4] = [Turn::Nothing, Turn::Empty, Turn::Rows, Turn::Addresses];

fn main() {
    let Some(_machine) = support::machine() else {
        return;
    };
    // The last CPU: others are busier on most machines.
    let cpu = *online_cpus().last().unwrap();
    let mut cpus = CpuSet::new();
    cpus.set(cpu as usize);
    sched_setaffinity(None, &cpus).unwrap();
    let mut scattered = Scattered::new();
    println!(
        "ns per sample: medians (quartiles) of {REPEAT} rounds. The program: by the kernel's clock, \
         less\n\
         an empty program. The interrupt: with an empty program. In all: with pmuscope's."
    );
    println!(
        "{:>10} {:<10} {:>24} {:>24} {:>28} {:>28}",
        "samples/s",
        "addresses",
        "program, rows",
        "with addresses",
        "interrupt",
        "in all, with addresses"
    );
    for period in PERIODS {
        Row::measure(cpu, period, || spin(400)).print(period, "few");
        Row::measure(cpu, period, || scattered.round()).print(period, "many");
    }
}

/// What each round gave, by turn.
#[derive(Default)]
struct Row {
    /// Rounds of the load per nanosecond.
    speed: [Vec<f64>; TURNS.len()],
    /// ns per run of the program.
    program: [Vec<f64>; TURNS.len()],
}

impl Row {
    fn measure(cpu: u32, period: u64, mut round: impl FnMut()) -> Self {
        let mut row = Self::default();
        for at in 0..REPEAT {
            // Each round begins with another set-up, so that none always follows the same one.
            for turn in 0..TURNS.len() {
                let turn = TURNS[(at + turn) % TURNS.len()];
                let event = (turn == Turn::Empty).then(|| sampling_event(cpu, period));
                let _empty =
                    event.map(|event| (Empty::at_overflows(event.as_fd()).unwrap(), event));
                let _counting = matches!(turn, Turn::Rows | Turn::Addresses)
                    .then(|| counting(period, turn == Turn::Addresses));
                row.speed[turn as usize].push(speed(TIME, &mut round));
                if turn != Turn::Nothing {
                    let _clocked = Clocked::on().unwrap();
                    let (nanos, runs) = busiest_program(AT_OVERFLOWS).unwrap();
                    speed(TIME, &mut round);
                    let (nanos_after, runs_after) = busiest_program(AT_OVERFLOWS).unwrap();
                    let per_run = (nanos_after - nanos) as f64 / (runs_after - runs) as f64;
                    row.program[turn as usize].push(per_run);
                }
            }
        }
        row
    }

    fn print(&self, period: u64, addresses: &str) {
        let program = |turn| {
            let pairs = self
                .of(&self.program, Turn::Empty)
                .zip(self.of(&self.program, turn));
            told(pairs.map(|(empty, it)| it - empty).collect())
        };
        // The share of the time that the load did not have, by the samples of a nanosecond.
        let interrupt = |turn| {
            let pairs = self
                .of(&self.speed, Turn::Nothing)
                .zip(self.of(&self.speed, turn));
            told(
                pairs
                    .map(|(alone, it)| (1.0 - it / alone) * period as f64)
                    .collect(),
            )
        };
        println!(
            "{:>10} {addresses:<10} {:>24} {:>24} {:>28} {:>28}",
            1_000_000_000 / period,
            program(Turn::Rows),
            program(Turn::Addresses),
            interrupt(Turn::Empty),
            interrupt(Turn::Addresses)
        );
    }

    fn of<'a>(
        &self,
        values: &'a [Vec<f64>; TURNS.len()],
        turn: Turn,
    ) -> impl Iterator<Item = f64> + use<'a> {
        values[turn as usize].iter().copied()
    }
}

fn told(mut values: Vec<f64>) -> String {
    values.sort_unstable_by(f64::total_cmp);
    let [low, middle, high] = [1, 2, 3].map(|quarter| values[values.len() * quarter / 4]);
    format!("{middle:.0} ({low:.0} to {high:.0})")
}

/// A session that samples.
fn counting(period: u64, addresses: bool) -> Counting {
    let machine = this_machine();
    let events = format!("cpu-clock/period={period}/");
    let sampling = SamplingConfig {
        events: sampled(&events, machine.pmus().unwrap(), None).unwrap(),
        addresses,
        pages: addresses,
        ..SamplingConfig::default()
    };
    Counting::plain(plan("dummy"), |config| config.sampling = Some(sampling))
}

/// Rounds of the load per nanosecond of CPU time, interrupts included.
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
    /// Each ends with a return.
    const FUNCTION: usize = 2048;
    /// Words.
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
        // SAFETY: new pages, which this structure alone has.
        let code = unsafe { mmap_anonymous(null_mut(), Self::CODE, rw, MapFlags::PRIVATE) };
        let code = code.unwrap().cast::<u8>();
        for at in (0..Self::CODE).step_by(Self::FUNCTION) {
            // SAFETY: both have a function's size; pages are aligned.
            unsafe {
                let to = code.add(at).cast();
                std::ptr::copy_nonoverlapping(function.as_ptr(), to, function.len());
            }
        }
        // SAFETY: the pages of above; the kernel makes instruction caches see what was written.
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

    /// Calls some function, and reads some words.
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
        // SAFETY: a function begins there that touches nothing and returns.
        unsafe {
            let function: extern "C" fn() = std::mem::transmute(self.code.as_ptr().add(at));
            function();
        }
    }
}

/// cpu-clock on a CPU, for a program.
fn sampling_event(cpu: u32, period: u64) -> OwnedFd {
    let mut attr = perf_event_attr {
        // PERF_TYPE_SOFTWARE and PERF_COUNT_SW_CPU_CLOCK of linux/perf_event.h.
        type_: 1,
        config: 0,
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
