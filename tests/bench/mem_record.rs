//! What a sample costs `pmuscope mem record`: from the bytes of SPE records to rows of a Parquet
//! file, beside decoding alone, on the same bytes in one run.
//!
//! The records are loads and stores as a Neoverse core writes them, with all fields that are there
//! without `pa_enable`: a program of some hundred instructions that walks over arrays and reads at
//! random, in turns of two threads. Times are of the CPU, the shortest of a few runs. The files are
//! in memory, if /dev/shm is there.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]
#![allow(
    clippy::cast_precision_loss,
    reason = "a benchmark's numbers are below 2^53"
)]

#[path = "../../probe-common/tests/support/fields.rs"]
mod fields;

use std::{
    fs,
    hint::black_box,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use fields::Fields;
use probe_common::spe::Records;
use probe_user::{
    machine::{Machine, Roots},
    record::{SampleFile, TickClock, replay},
};

const RECORDS: usize = 1 << 20;
const RUNS: usize = 7;
/// Records of one thread before the other runs.
const TURN: usize = 5_000;

/// 1 GHz, as on Neoverse V2.
const TICKS: TickClock = TickClock {
    zero: 1_000,
    mult: 1 << 20,
    shift: 20,
};

fn main() {
    let machine = machine();
    let bytes = records();
    let directory = tempfile::tempdir_in(memory()).unwrap();
    let path = directory.path().join("samples.parquet");
    let decoded = fastest(|| decode(&bytes));
    let samples = fastest(|| {
        replay(&bytes, 0, TICKS, &machine, 0, &()).unwrap();
    });
    let written = fastest(|| write(&bytes, &machine, &path));
    let size = fs::metadata(&path).unwrap().len() as f64 / RECORDS as f64;
    let each = |time: Duration| time.as_secs_f64() * 1e9 / RECORDS as f64;
    println!("{RECORDS} samples, the fastest of {RUNS} runs, CPU time of one thread\n");
    println!("{:<44}{:>10}{:>14}", "", "ns/sample", "bytes/sample");
    println!("{:<44}{:>10.1}", "decoded", each(decoded));
    println!(
        "{:<44}{:>10.1}",
        "and with time, thread and names",
        each(samples)
    );
    println!(
        "{:<44}{:>10.1}{size:>14.1}",
        "and written and merged",
        each(written)
    );
    println!(
        "\nwritten : decoded = {:.1}; one thread takes {:.2} million samples a second",
        written.as_secs_f64() / decoded.as_secs_f64(),
        1e3 / each(written)
    );
}

/// Neoverse V1, by its MIDR, with the processes of this machine.
fn machine() -> Machine {
    let sys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/sysfs/neoverse-v1");
    assert!(sys.join("devices").exists(), "{}", sys.display());
    Machine::at(Roots {
        sys,
        ..Roots::default()
    })
}

/// A directory that is no disk.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    }
}

/// A buffer of one CPU.
fn records() -> Vec<u8> {
    let mut random = 1_u64;
    let mut random = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % below
    };
    let own = std::process::id();
    let threads = [
        own,
        rustix::process::getppid().map_or(own, |it| it.as_raw_nonzero().get().cast_unsigned()),
    ];
    let (mut ticks, mut place) = (10_u64.pow(15), 0);
    let mut bytes = Vec::with_capacity(RECORDS * 64);
    for at in 0..RECORDS {
        // A sample each 10 us.
        ticks += 9_000 + random(2_000);
        place += 8 * (1 + random(512));
        let instruction = random(300);
        let store = instruction % 3 == 0;
        let walks = instruction % 2 == 0;
        let heap = 0xffff_a000_0000;
        let address = heap + if walks { place } else { random(1 << 30) & !7 };
        let (source, events, latency) = match random(100) {
            _ if store => (None, 0x06, 10 + random(8)),
            0..80 => (Some(0), 0x06, 4 + random(12)),
            80..90 => (Some(8), 0x0e, 20 + random(20)),
            90..94 => (Some(0xb), 0x0e, 90 + random(100)),
            94..95 => (Some(9), 0x0e, 120 + random(60)),
            _ => (Some(0xe), 0x30e, 300 + random(700)),
        };
        let small = |number: u64| Some(u16::try_from(number).unwrap());
        let fields = Fields {
            pc: Some((0x0040_1000 + 4 * instruction) | 1 << 63),
            context_el2: Some(threads[at / TURN % threads.len()]),
            operation: Some((
                1,
                u8::from(store) | if instruction % 5 == 0 { 4 } else { 0 },
            )),
            events: Some((1, events)),
            issue_latency: small(2 + random(30)),
            total_latency: small(latency),
            translation_latency: small(if random(20) == 0 { random(60) } else { 1 }),
            virtual_address: Some(address),
            data_source: source.map(|source| (0, source)),
            timestamp: Some(ticks),
            ..Fields::default()
        };
        bytes.extend(fields.neoverse());
    }
    bytes
}

fn decode(bytes: &[u8]) {
    let records = Records::new(black_box(bytes));
    let sum = records.map(|record| record.unwrap().timestamp().unwrap_or(0));
    black_box(sum.fold(0, u64::wrapping_add));
}

fn write(bytes: &[u8], machine: &Machine, path: &Path) {
    let file = SampleFile::begin(path, NonZeroUsize::MIN, Vec::new()).unwrap();
    let counts = replay(bytes, 0, TICKS, machine, 0, &file).unwrap();
    assert_eq!(counts.samples, RECORDS as u64);
    file.finish(&[]).unwrap();
}

fn fastest(mut run: impl FnMut()) -> Duration {
    let mut timed = || {
        let begin = cpu_time();
        run();
        cpu_time().saturating_sub(begin)
    };
    (0..RUNS).map(|_| timed()).min().unwrap()
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}
