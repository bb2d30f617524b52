//! The cost of a sample in `pmuscope mem record`, for the same accesses: from the bytes of SPE
//! records, and from event samples as the kernel writes them into a ring (x86), to rows of a
//! Parquet file.
//!
//! SPE records are loads and stores with all fields that a Neoverse core writes without
//! `pa_enable`. The simulated program has some hundred instructions, and two alternating threads
//! that walk over arrays and read at random. Times are CPU times, the shortest of a few runs. Files
//! are in memory, if there is /dev/shm.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]
#![allow(
    clippy::cast_precision_loss,
    reason = "a benchmark's numbers are below 2^53"
)]

use std::{
    fs,
    hint::black_box,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use probe_common::spe::Records;
use probe_user::{
    machine::{Machine, Roots},
    samples::{SampleFile, Sink, TickClock, replay, replay_events},
};
use test_support::Fields;

const RECORDS: usize = 1 << 20;
const RUNS: usize = 7;
/// Records of one thread before the other runs.
const RECORDS_PER_SLICE: usize = 5_000;

/// 1 GHz, as on Neoverse V2.
const TICKS: TickClock = TickClock {
    zero: 1_000,
    mult: 1 << 20,
    shift: 20,
};

/// Passes the accesses of one source to a sink; returns the number of samples.
type Replay<'a> = &'a dyn Fn(&dyn Sink) -> u64;

fn main() {
    let machine = machine();
    let all = accesses();
    let spe: Vec<u8> = all.iter().flat_map(Access::spe).collect();
    let ring: Vec<u8> = all.iter().flat_map(Access::ring).collect();
    drop(all);
    let directory = tempfile::tempdir_in(memory()).unwrap();
    let path = directory.path().join("samples.parquet");
    let replay_spe = |sink: &dyn Sink| {
        let counts = replay(&spe, 0, TICKS, &machine, 0, sink).unwrap();
        counts.samples
    };
    let replay_ring = |sink: &dyn Sink| {
        let counts = replay_events(&ring, &machine, 0, sink).unwrap();
        assert_eq!((counts.without_process, counts.damaged_ring_bytes), (0, 0));
        counts.samples
    };
    let each = |time: Duration| time.as_secs_f64() * 1e9 / RECORDS as f64;
    println!("{RECORDS} samples, the fastest of {RUNS} runs, CPU time of one thread\n");
    println!(
        "{:<44}{:>10}{:>14}",
        "Arm's SPE", "ns/sample", "bytes/sample"
    );
    let decoded = fastest(|| decode(&spe));
    println!("{:<44}{:>10.1}", "decoded", each(decoded));
    let mut written = Vec::new();
    for (head, replay) in [
        ("", &replay_spe as Replay<'_>),
        ("x86: samples in a ring", &replay_ring),
    ] {
        if !head.is_empty() {
            println!("\n{head}");
        }
        let samples = fastest(|| assert_eq!(replay(&()), RECORDS as u64));
        let whole = fastest(|| write(replay, &path));
        let size = fs::metadata(&path).unwrap().len() as f64 / RECORDS as f64;
        println!(
            "{:<44}{:>10.1}",
            "with time, thread and names",
            each(samples)
        );
        println!(
            "{:<44}{:>10.1}{size:>14.1}",
            "and written and merged",
            each(whole)
        );
        written.push((samples, whole));
    }
    let [(spe_samples, spe_whole), (ring_samples, ring_whole)] = written[..] else {
        unreachable!("there are two sources")
    };
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    println!(
        "\nx86 : SPE = {:.2} with names, {:.2} written; SPE's written : decoded = {:.1}",
        ratio(ring_samples, spe_samples),
        ratio(ring_whole, spe_whole),
        ratio(spe_whole, decoded),
    );
    println!(
        "one thread takes {:.2} million samples a second of SPE, {:.2} of x86",
        1e3 / each(spe_whole),
        1e3 / each(ring_whole)
    );
}

/// A Neoverse V1 machine, by its MIDR, with the processes of this machine.
fn machine() -> Machine {
    Machine::at(Roots {
        sys: test_support::sysfs("neoverse-v1"),
        ..Roots::default()
    })
}

/// A directory in memory, if there is one.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    }
}

/// The data source of an access.
#[derive(Clone, Copy)]
enum DataSource {
    L1,
    L2,
    L3,
    Peer,
    Memory,
}

/// An access, in a form for all machines.
struct Access {
    tid: u32,
    ticks: u64,
    pc: u64,
    address: u64,
    is_store: bool,
    from: DataSource,
    is_vector: bool,
    latency: u16,
    issue: u16,
    translation: u16,
}

impl Access {
    /// The SPE record of a Neoverse core.
    fn spe(&self) -> Vec<u8> {
        let (source, events) = match self.from {
            _ if self.is_store => (None, 0x06),
            DataSource::L1 => (Some(0), 0x06),
            DataSource::L2 => (Some(8), 0x0e),
            DataSource::L3 => (Some(0xb), 0x0e),
            DataSource::Peer => (Some(9), 0x0e),
            DataSource::Memory => (Some(0xe), 0x30e),
        };
        let fields = Fields {
            pc: Some(self.pc | 1 << 63),
            context_el2: Some(self.tid),
            operation: Some((
                1,
                u8::from(self.is_store) | if self.is_vector { 4 } else { 0 },
            )),
            events: Some((1, events)),
            issue_latency: Some(self.issue),
            total_latency: Some(self.latency),
            translation_latency: Some(self.translation),
            virtual_address: Some(self.address),
            data_source: source.map(|source| (0, source)),
            timestamp: Some(self.ticks),
            ..Fields::default()
        };
        fields.neoverse().to_vec()
    }

    /// The `PERF_RECORD_SAMPLE` that an x86 kernel writes for pmuscope's events, with identifier,
    /// ip, tid, time, addr, cpu, weight, data source and cgroup (`linux/perf_event.h`).
    fn ring(&self) -> Vec<u8> {
        const SAMPLE: u32 = 9;
        /// `PERF_MEM_LVL_HIT`. The numbers below are values of `mem_op`, `mem_lvl` and `mem_snoop`.
        const HIT: u64 = 0x02;
        let operation: u64 = if self.is_store { 0x04 } else { 0x02 };
        let level: u64 = match self.from {
            DataSource::L1 => 0x08,
            DataSource::L2 => 0x20,
            DataSource::L3 | DataSource::Peer => 0x40,
            DataSource::Memory => 0x80,
        };
        let snoop: u64 = if matches!(self.from, DataSource::Peer) {
            0x10
        } else {
            0x02
        };
        let data_source = operation | (level | HIT) << 5 | snoop << 19;
        let tasks = u64::from(self.tid) | u64::from(self.tid) << 32;
        let words = [
            7,
            self.pc,
            tasks,
            self.ticks,
            self.address,
            0,
            self.latency.into(),
            data_source,
            1,
        ];
        let size = u16::try_from(8 + 8 * words.len()).unwrap();
        let mut bytes = SAMPLE.to_ne_bytes().to_vec();
        bytes.extend(0_u16.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(words.into_iter().flat_map(u64::to_ne_bytes));
        bytes
    }
}

/// The accesses of one CPU.
fn accesses() -> Vec<Access> {
    let mut random = 1_u64;
    let mut random = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % below
    };
    let own = std::process::id();
    let parent =
        rustix::process::getppid().map_or(own, |pid| pid.as_raw_nonzero().get().cast_unsigned());
    let threads = [own, parent];
    let (mut ticks, mut offset) = (10_u64.pow(15), 0);
    let small = |number: u64| u16::try_from(number).unwrap();
    let access = |at: usize| {
        // A sample every 10 us.
        ticks += 9_000 + random(2_000);
        offset += 8 * (1 + random(512));
        let instruction = random(300);
        let is_store = instruction % 3 == 0;
        let walks = instruction % 2 == 0;
        let heap = 0xffff_a000_0000;
        let address = heap + if walks { offset } else { random(1 << 30) & !7 };
        let (from, latency) = match random(100) {
            _ if is_store => (DataSource::L1, 10 + random(8)),
            0..80 => (DataSource::L1, 4 + random(12)),
            80..90 => (DataSource::L2, 20 + random(20)),
            90..94 => (DataSource::L3, 90 + random(100)),
            94..95 => (DataSource::Peer, 120 + random(60)),
            _ => (DataSource::Memory, 300 + random(700)),
        };
        Access {
            tid: threads[at / RECORDS_PER_SLICE % threads.len()],
            ticks,
            pc: 0x0040_1000 + 4 * instruction,
            address,
            is_store,
            from,
            is_vector: instruction % 5 == 0,
            latency: small(latency),
            issue: small(2 + random(30)),
            translation: small(if random(20) == 0 { random(60) } else { 1 }),
        }
    };
    (0..RECORDS).map(access).collect()
}

fn decode(bytes: &[u8]) {
    let records = Records::new(black_box(bytes));
    let sum = records.map(|record| record.unwrap().timestamp().unwrap_or(0));
    black_box(sum.fold(0, u64::wrapping_add));
}

fn write(replay: Replay<'_>, path: &Path) {
    let file = SampleFile::begin(path, NonZeroUsize::MIN, Vec::new()).unwrap();
    assert_eq!(replay(&file), RECORDS as u64);
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
