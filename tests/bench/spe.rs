//! How fast SPE records are decoded in user space, compared with perf on the same bytes.
//!
//! perf's times are wall times of whole processes, from the same run on the same machine: of
//! `perf script` that prints one sample per record, and of `perf script` that prints only remote
//! accesses. The records here have none, so the second one decodes and prints nothing.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::{
    hint::black_box,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use probe_common::spe::{
    Events, InstructionAddress, Operation, Record, Records, Stream, VirtualAddress, WindowContent,
};
use test_harness::perf;
use test_support::{Fields, Random};

const RECORDS: usize = 500_000;
const ROUNDS: usize = 15;

fn main() {
    let mut random = Random(1);
    let sets: [(&str, Vec<u8>); 4] = [
        (
            "Neoverse, loads",
            (0..RECORDS)
                .flat_map(|_| access(&mut random, false))
                .collect(),
        ),
        (
            "Neoverse, all operations",
            (0..RECORDS)
                .flat_map(|_| any_operation(&mut random))
                .collect(),
        ),
        (
            "random packets, 64 bytes",
            (0..RECORDS)
                .flat_map(|_| {
                    let mut fields = random.fields();
                    random.cell(&mut fields)
                })
                .collect(),
        ),
        (
            "random packets, any size",
            (0..RECORDS)
                .flat_map(|_| {
                    let fields = random.fields();
                    random.record(&fields)
                })
                .collect(),
        ),
    ];
    println!("{RECORDS} records, fastest of {ROUNDS} rounds, one core\n");
    println!(
        "{:<26}{:<34}{:>8}{:>10}{:>12}",
        "bytes", "decoder", "GB/s", "ns/record", "x Records"
    );
    for (name, bytes) in &sets {
        let ours = fastest(|| consume(bytes));
        row(name, "Records", bytes, ours, None);
        if bytes.len() == RECORDS * 64 {
            row(
                name,
                "Stream, as in the kernel",
                bytes,
                fastest(|| cells(bytes)),
                None,
            );
        }
        for (what, itrace) in [
            ("perf script, decoding only", "--itrace=a"),
            ("perf script, one line a record", "--itrace=i1i"),
        ] {
            match perf_time(bytes, itrace) {
                Ok(time) => row(name, what, bytes, time, Some(ours)),
                Err(reason) => println!("{name:<26}{what:<34} skipped: {reason}"),
            }
        }
    }
}

/// The fields that the records of all operations have.
fn common_fields(random: &mut Random) -> Fields {
    Fields {
        pc: Some(random.word() >> 16),
        context_el2: Some(random.single() & 0xf_ffff),
        issue_latency: Some(random.byte().into()),
        total_latency: Some(256 + u16::from(random.byte())),
        timestamp: Some(random.word() >> 8),
        ..Fields::default()
    }
}

/// A load or store with all options on, in the packet order of Neoverse cores.
fn access(random: &mut Random, store: bool) -> [u8; 64] {
    let source = [0, 8, 9, 0xb, 0xe][usize::from(random.byte() % 5)];
    Fields {
        operation: Some((1, store.into())),
        events: Some((1, 0x16)),
        virtual_address: Some(random.word() >> 16),
        translation_latency: Some((random.byte() & 7).into()),
        physical_address: Some(random.word() >> 20),
        data_source: (!store).then_some((0, source)),
        ..common_fields(random)
    }
    .neoverse()
}

/// A branch, in the packet order of Neoverse cores.
fn branch(random: &mut Random) -> [u8; 64] {
    Fields {
        operation: Some((2, random.byte() & 3)),
        events: Some((1, 0x02)),
        branch_target: Some(random.word() >> 16),
        ..common_fields(random)
    }
    .neoverse()
}

/// An operation that is neither an access nor a branch.
fn other(random: &mut Random) -> [u8; 64] {
    Fields {
        operation: Some((0, random.byte() & 1)),
        events: Some((1, 0x02)),
        ..common_fields(random)
    }
    .neoverse()
}

/// A third are loads, a sixth stores, a sixth branches, and a third other operations.
fn any_operation(random: &mut Random) -> [u8; 64] {
    match random.below(6) {
        0 | 1 => access(random, false),
        2 => access(random, true),
        3 => branch(random),
        _ => other(random),
    }
}

/// Reads the fields that a consumer of accesses needs, so that the compiler drops no decoding.
fn look(record: &Record) -> u64 {
    let store = match record.operation() {
        Some(Operation::LoadStore(op)) => u64::from(op.is_store()),
        _ => 2,
    };
    store
        ^ record.data_source().unwrap_or(0)
        ^ record.total_latency().map_or(0, u64::from)
        ^ record.thread().map_or(0, u64::from)
        ^ record.virtual_address().map_or(0, VirtualAddress::address)
        ^ record.timestamp().unwrap_or(0)
        ^ record.events().map_or(0, Events::bits)
        ^ record.pc().map_or(0, InstructionAddress::address)
}

fn consume(bytes: &[u8]) {
    let mut sum = 0u64;
    let mut count = 0;
    for record in Records::new(black_box(bytes)) {
        sum = sum.wrapping_add(look(&record.unwrap()));
        count += 1;
    }
    assert_eq!(count, RECORDS);
    black_box(sum);
}

/// Decodes the records from windows of 72 bytes, as in the kernel. The last record has no window,
/// since no bytes follow it.
fn cells(bytes: &[u8]) {
    let mut sum = 0u64;
    let mut record = Record::EMPTY;
    let mut stream = Stream::new(0, bytes.len() as u64);
    for window in black_box(bytes).windows(72).step_by(64) {
        let window: &[u8; 72] = window.try_into().unwrap();
        assert_eq!(stream.decode(window, &mut record), WindowContent::Record);
        sum = sum.wrapping_add(look(&record));
    }
    black_box(sum);
}

/// The fastest round, which other load on the machine disturbs least.
fn fastest(mut run: impl FnMut()) -> Duration {
    let time = |()| {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    [(); ROUNDS].map(time).into_iter().min().unwrap()
}

/// The wall time of `perf script` over the bytes, its output thrown away; the fastest of three.
fn perf_time(bytes: &[u8], itrace: &str) -> Result<Duration, String> {
    perf::version()?;
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    let path = directory.path().join("perf.data");
    perf::write_file(&path, bytes, 0x413f_d0c1).map_err(|e| e.to_string())?;
    let time = |mut command: Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status().map_err(|e| e.to_string())?;
        if status.success() {
            Ok(start.elapsed())
        } else {
            Err(format!("{command:?} ended with {status}"))
        }
    };
    let mut times = [Duration::MAX; 3];
    for slot in &mut times {
        *slot = time(perf::script(&path, itrace))?;
    }
    Ok(times.into_iter().min().unwrap())
}

fn row(set: &str, decoder: &str, bytes: &[u8], time: Duration, ours: Option<Duration>) {
    let seconds = time.as_secs_f64();
    let rate = bytes.len() as f64 / seconds / 1e9;
    let each = seconds * 1e9 / RECORDS as f64;
    let times = ours.map_or(String::new(), |ours| {
        format!("{:.0}", seconds / ours.as_secs_f64())
    });
    println!("{set:<26}{decoder:<34}{rate:>8.3}{each:>10.1}{times:>12}");
}
