//! The way of a sample through rings in plain memory, to the files and to perf's opinion of them.

use std::{collections::BTreeMap, fs::File, io, path::Path, process::Command};

use perf_event_open_sys::bindings;
use proptest::prelude::*;

use super::{
    AuxPlace, Counts, Sample, Sink,
    area::{Area, Attribution, Shared},
    machine::Sources,
    open::Buffer,
    perf_data::{ATTR, Event as FileEvent, PerfData, SPE_SAMPLE, Time},
    ring::{Ring, fake},
    tasks::Tasks,
    wire::{SAMPLE_TYPE, Stamp, build},
};

/// A record as a Neoverse core lays it out: PC, context, load, events, latencies, address, source, time.
fn cell(tid: Option<u32>, address: u64, ticks: u64) -> [u8; 64] {
    let mut cell = [0; 64];
    let mut put = |at: usize, header: u8, payload: &[u8]| {
        cell[at] = header;
        cell[at + 1..=at + payload.len()].copy_from_slice(payload);
    };
    put(0, 0xb0, &(0x40_1000_u64 | 1 << 63).to_le_bytes());
    if let Some(tid) = tid {
        put(14, 0x65, &tid.to_le_bytes());
    }
    put(19, 0x49, &[0]);
    put(21, 0x52, &[0x16, 0]);
    put(24, 0x99, &[4, 0]);
    put(27, 0x98, &[11, 0]);
    put(30, 0xb2, &address.to_le_bytes());
    put(39, 0x9a, &[1, 0]);
    put(51, 0x43, &[0x0e]);
    put(55, 0x71, &ticks.to_le_bytes());
    cell
}

/// A CPU's buffer and the kernel's side of it.
struct Kernel {
    /// AUX bytes so far.
    head: u64,
    cpu: u32,
}

impl Kernel {
    /// Writes samples for a task; the record that announces them may not fit. False where the AUX area is full.
    fn samples(&mut self, ring: &Ring, cells: &[u8], tid: u32, flags: u64, announce: bool) -> bool {
        let announced = announce && {
            let body = build::words(&[self.head, cells.len() as u64, flags]);
            ring.push(&build::record(
                bindings::PERF_RECORD_AUX,
                &body,
                self.stamp(tid),
            ))
        };
        let there = ring.push_aux(cells);
        assert!(there || !announced, "the test leaves room");
        self.head += if there { cells.len() as u64 } else { 0 };
        there
    }

    fn stamp(&self, tid: u32) -> Stamp {
        Stamp {
            pid: tid,
            tid,
            time: self.head + 1,
            cpu: self.cpu,
        }
    }
}

fn area(cpu: u32, ring: usize, aux: usize) -> Area {
    let buffer = Buffer {
        ring: fake::ring(ring, aux),
        cpu: Some(cpu),
        tid: None,
        spe: Vec::new(),
        follow: Vec::new(),
    };
    Area::new(buffer, cpu)
}

/// All that a recorder does in a round but the system calls.
struct Rounds {
    tasks: Tasks,
    counts: Counts,
    attribution: Attribution,
    bytes: Vec<u8>,
}

impl Rounds {
    fn new(by_context: bool) -> Self {
        Self {
            tasks: Tasks::new(Path::new("/nonexistent")),
            counts: Counts::default(),
            attribution: Attribution {
                by_context,
                by_stretch: true,
            },
            bytes: Vec::new(),
        }
    }

    fn round(&mut self, areas: &mut [Area], sink: &mut dyn Sink, last: bool) {
        areas.iter_mut().for_each(Area::mark);
        self.after_mark(areas, sink, last);
    }

    fn after_mark(&mut self, areas: &mut [Area], sink: &mut dyn Sink, last: bool) {
        for area in areas.iter_mut() {
            area.take(sink).unwrap();
        }
        let mut events = Vec::new();
        for area in areas.iter_mut() {
            area.read(&mut self.counts, &mut events);
        }
        for (stamp, event) in &events {
            self.tasks.learn(event, *stamp);
        }
        let mut shared = Shared {
            clock: None,
            attribution: self.attribution,
            sources: &Sources::default(),
            tasks: &mut self.tasks,
            counts: &mut self.counts,
            sink,
            bytes: &mut self.bytes,
            last,
        };
        for area in areas {
            area.decode(&mut shared).unwrap();
        }
        sink.round().unwrap();
        self.tasks.round_ends();
    }
}

/// Keeps samples: address and thread.
#[derive(Default)]
struct Kept(Vec<(u64, Option<u32>)>);

impl Sink for Kept {
    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let address = sample.record.virtual_address().unwrap().address();
        self.0.push((address, sample.tid));
        Ok(())
    }
}

/// What the kernel does next.
#[derive(Clone, Debug)]
enum Step {
    /// So many samples for a thread; announced or not.
    Samples(usize, u32, bool),
    /// Padding.
    Skip(usize),
    Round,
    /// Samples between the look at the AUX area and the ring.
    Torn(usize, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..20_usize, 1..5_u32, prop::bool::weighted(0.9)).prop_map(|(n, tid, a)| Step::Samples(n, tid, a)),
        1 => (1..10_usize).prop_map(Step::Skip),
        3 => Just(Step::Round),
        1 => (1..9_usize, 1..5_u32).prop_map(|(n, tid)| Step::Torn(n, tid)),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Every sample comes out once, in order and with its thread, over wraps of both areas, with
    /// announcements that were lost and samples that come while a round goes on. Without context
    /// packets those that nobody announced have no thread.
    #[test]
    fn every_sample_comes_out_once(steps in steps(), by_context: bool) {
        let mut areas = [area(3, 4096, 8192)];
        let mut kernel = Kernel { head: 0, cpu: 3 };
        let (mut rounds, mut kept) = (Rounds::new(by_context), Kept::default());
        let mut sent = Vec::new();
        let mut number = 0;
        let mut put = |kernel: &mut Kernel, ring: &Ring, count: usize, tid: u32, announce: bool, sent: &mut Vec<_>| {
            let context = by_context.then_some(tid);
            let mine: Vec<(u64, Option<u32>)> = (0..count as u64)
                .map(|n| (number + n, (announce || by_context).then_some(tid)))
                .collect();
            let cells: Vec<u8> = mine.iter().flat_map(|(n, _)| cell(context, *n, 1)).collect();
            if kernel.samples(ring, &cells, tid, 0, announce) {
                number += count as u64;
                sent.extend(mine);
            }
        };
        // Room in both areas until the next round.
        let (mut room, mut records) = (8192, 60);
        for step in steps {
            let size = match &step {
                Step::Samples(count, ..) | Step::Torn(count, _) => 64 * count,
                Step::Skip(bytes) => 64 * bytes,
                Step::Round => 0,
            };
            if size > room || records == 0 {
                rounds.round(&mut areas, &mut kept, false);
                rounds.round(&mut areas, &mut kept, false);
                (room, records) = (8192, 60);
            }
            room -= size;
            records -= 1;
            match step {
                Step::Samples(count, tid, announce) => {
                    put(&mut kernel, &areas[0].buffer.ring, count, tid, announce, &mut sent);
                }
                Step::Skip(cells) => {
                    areas[0].buffer.ring.push_aux(&vec![0; 64 * cells]);
                    kernel.head += 64 * cells as u64;
                }
                Step::Round => {
                    rounds.round(&mut areas, &mut kept, false);
                }
                Step::Torn(count, tid) => {
                    areas[0].mark();
                    put(&mut kernel, &areas[0].buffer.ring, count, tid, true, &mut sent);
                    rounds.after_mark(&mut areas, &mut kept, false);
                }
            }
        }
        rounds.round(&mut areas, &mut kept, true);
        prop_assert_eq!(kept.0, sent);
        prop_assert_eq!(rounds.counts.bad.total(), 0);
        prop_assert_eq!(rounds.counts.aux_bytes, kernel.head);
        prop_assert_eq!(rounds.counts.samples, number);
    }
}

#[test]
fn flags_and_lost_records_are_counted_and_stop_the_buffer() {
    let mut areas = [area(0, 4096, 8192)];
    let mut kernel = Kernel { head: 0, cpu: 0 };
    let (mut rounds, mut kept) = (Rounds::new(true), Kept::default());
    let sample = cell(Some(9), 1, 1);
    let flag = u64::from;
    for (flags, stopped) in [
        (0, false),
        (flag(bindings::PERF_AUX_FLAG_COLLISION), false),
        (flag(bindings::PERF_AUX_FLAG_TRUNCATED), true),
        (
            flag(bindings::PERF_AUX_FLAG_TRUNCATED | bindings::PERF_AUX_FLAG_PARTIAL),
            true,
        ),
        (flag(bindings::PERF_AUX_FLAG_OVERWRITE), false),
    ] {
        kernel.samples(&areas[0].buffer.ring, &sample, 9, flags, true);
        rounds.round(&mut areas, &mut kept, false);
        assert_eq!(areas[0].stopped, stopped, "{flags:#x}");
        areas[0].stopped = false;
    }
    let lost = build::record(
        bindings::PERF_RECORD_LOST,
        &build::words(&[7, 12]),
        kernel.stamp(9),
    );
    assert!(areas[0].buffer.ring.push(&lost));
    rounds.round(&mut areas, &mut kept, true);
    assert!(areas[0].stopped);
    let Counts {
        truncated,
        partial,
        collided,
        overwritten,
        lost_ring_records,
        aux_buffers,
        samples,
        ..
    } = rounds.counts;
    assert_eq!((truncated, partial, collided, overwritten), (2, 1, 1, 1));
    assert_eq!((lost_ring_records, aux_buffers, samples), (12, 5, 5));
    assert!(
        rounds
            .counts
            .losses()
            .starts_with("2 truncated buffers, 1 partial buffers")
    );
}

/// A process that was made on one CPU and ran on another has its name there, whichever is read first.
#[test]
fn names_come_from_all_rings_before_the_samples_of_any() {
    let mut areas = [area(0, 4096, 8192), area(1, 4096, 8192)];
    let mut kernel = Kernel { head: 0, cpu: 0 };
    kernel.samples(&areas[0].buffer.ring, &cell(Some(20), 1, 1), 20, 0, true);
    let mut body = build::words32(&[20, 20]);
    body.extend(b"made\0\0\0\0");
    let comm = build::record(bindings::PERF_RECORD_COMM, &body, kernel.stamp(20));
    assert!(areas[1].buffer.ring.push(&comm));
    #[derive(Default)]
    struct Names(Vec<Option<String>>);
    impl Sink for Names {
        fn sample(&mut self, sample: &Sample) -> io::Result<()> {
            self.0.push(sample.name.as_ref().map(ToString::to_string));
            Ok(())
        }
    }
    let (mut rounds, mut names) = (Rounds::new(true), Names::default());
    rounds.round(&mut areas, &mut names, true);
    assert_eq!(names.0, [Some("made".to_owned())]);
}

#[cfg(feature = "parquet")]
#[test]
fn samples_are_read_back_from_parquet() {
    use std::sync::Arc;

    use parquet::{
        file::reader::{FileReader as _, SerializedFileReader},
        record::Field,
    };
    use probe_common::spe::{Records, SourceTable};

    use super::SampleFile;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples.parquet");
    let mut file = SampleFile::begin(File::create(&path).unwrap()).unwrap();
    // More than a row group holds.
    let count = 70_000_u32;
    for n in 0..count {
        let bytes = cell(Some(n), u64::MAX - u64::from(n), u64::from(n) * 2);
        let record = Records::new(&bytes).next().unwrap().unwrap();
        let known = n % 3 == 0;
        let sample = Sample {
            time: known.then_some(u64::from(n) + (1 << 40)),
            cpu: Some(n % 128),
            pid: known.then_some(n),
            tid: Some(n),
            name: known.then(|| Arc::from(format!("task{}", n % 5))),
            cgroup: None,
            origin: known
                .then(|| SourceTable::Common.load(record.data_source().unwrap()))
                .flatten(),
            record,
        };
        file.sample(&sample).unwrap();
    }
    file.finish(&[("period".into(), "4096".into())]).unwrap();

    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.metadata().num_row_groups(), 2);
    let about = reader.metadata().file_metadata().key_value_metadata();
    let about = about
        .unwrap()
        .iter()
        .map(|entry| (entry.key.as_str(), entry.value.as_deref()));
    assert!(
        about
            .into_iter()
            .any(|entry| entry == ("pmuscope.period", Some("4096")))
    );
    let mut rows = 0;
    for (n, row) in (0_u32..).zip(reader.get_row_iter(None).unwrap()) {
        let row: BTreeMap<String, Field> = row.unwrap().into_columns().into_iter().collect();
        let known = n % 3 == 0;
        let if_known = |field: Field| if known { field } else { Field::Null };
        let text = |text: &str| Field::Str(text.to_owned());
        assert_eq!(
            row["time_ns"],
            if_known(Field::ULong(u64::from(n) + (1 << 40)))
        );
        assert_eq!(row["ticks"], Field::ULong(u64::from(n) * 2));
        assert_eq!(row["cpu"], Field::UInt(n % 128));
        assert_eq!(
            (&row["pid"], &row["tid"]),
            (&if_known(Field::UInt(n)), &Field::UInt(n))
        );
        assert_eq!(row["comm"], if_known(text(&format!("task{}", n % 5))));
        assert_eq!(row["cgroup"], Field::Null);
        assert_eq!(
            (&row["pc"], &row["pc_el"]),
            (&Field::ULong(0x40_1000), &Field::UInt(0))
        );
        // A kernel address: the top byte is filled.
        assert_eq!(row["va"], Field::ULong(u64::MAX - u64::from(n)));
        assert_eq!(row["pa"], Field::Null);
        assert_eq!(
            (&row["op"], &row["op_kind"]),
            (&text("load"), &text("general"))
        );
        assert_eq!(row["events"], Field::ULong(0x16));
        assert_eq!(row["total_latency"], Field::UInt(11));
        assert_eq!(row["issue_latency"], Field::UInt(4));
        assert_eq!(row["translation_latency"], Field::UInt(1));
        assert_eq!(row["data_source"], Field::ULong(0xe));
        assert_eq!(row["source"], if_known(text("dram")));
        assert_eq!(row["branch_target"], Field::Null);
        assert_eq!(row["context_el2"], Field::UInt(n));
        rows += 1;
    }
    assert_eq!(rows, count);
}

/// The raw file, as `RawFile` writes it.
struct Raw(PerfData<File>);

impl Sink for Raw {
    fn ring(&mut self, records: &[u8]) -> io::Result<()> {
        self.0.records(records)
    }

    fn aux(&mut self, place: AuxPlace, bytes: &[u8]) -> io::Result<()> {
        self.0
            .aux(place.area, place.offset, place.tid, place.cpu, bytes)
    }

    fn round(&mut self) -> io::Result<()> {
        self.0.round()
    }
}

fn event(kind: u32, config: u64, ids: &[u64], flags: u64) -> FileEvent {
    let mut attr = build::words32(&[kind, 128]);
    let sample = if kind == 77 { SPE_SAMPLE } else { 0 };
    attr.extend(build::words(&[
        config,
        1024,
        SAMPLE_TYPE | sample,
        0,
        flags,
    ]));
    attr.resize(ATTR, 0);
    FileEvent {
        attr: attr.try_into().unwrap(),
        ids: ids.to_vec(),
    }
}

/// Debian's perf reads what two CPUs recorded over some rounds: every sample with its time, thread,
/// name and address.
#[test]
fn perf_reads_the_raw_file() {
    let version = Command::new("perf").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        println!("skipped: perf cannot be run; install linux-perf");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf.data");
    let file = File::create(&path).unwrap();
    // A tick is 40 ns.
    let time = Time {
        zero: 1_000_000_000,
        mult: 40 << 20,
        shift: 20,
    };
    let mut raw = Raw(PerfData::begin(file, 77, true, Some(time)).unwrap());
    let mut areas = [area(0, 16384, 65536), area(1, 16384, 65536)];
    let mut kernels = [Kernel { head: 0, cpu: 0 }, Kernel { head: 0, cpu: 1 }];
    let mut rounds = Rounds::new(true);
    for tid in [50, 51] {
        let mut body = build::words32(&[50, tid]);
        body.extend(format!("task{tid}\0\0").as_bytes());
        let stamp = Stamp {
            pid: 50,
            tid,
            time: 1_000_000_000,
            cpu: 0,
        };
        let comm = build::record(bindings::PERF_RECORD_COMM, &body, stamp);
        assert!(areas[0].buffer.ring.push(&comm));
    }
    let mut expected = Vec::new();
    let mut ticks = 25_000;
    // Over some wraps of the AUX area.
    for round in 0..40_u64 {
        for (area, kernel) in areas.iter().zip(&mut kernels) {
            let tid = 50 + u32::try_from(round % 2).unwrap();
            let mut cells = Vec::new();
            for _ in 0..80 {
                ticks += 7;
                let address = 0xffff_0000_u64 + ticks * 8;
                cells.extend(cell(Some(tid), address, ticks));
                let nanos = 1_000_000_000 + ticks * 40;
                expected.push((nanos, tid, address));
            }
            // perf's clock at the end of the stretch.
            let stamp = Stamp {
                pid: 50,
                tid,
                time: 1_000_000_000 + ticks * 40 + 1,
                cpu: kernel.cpu,
            };
            let body = build::words(&[kernel.head, cells.len() as u64, 0]);
            let record = build::record(bindings::PERF_RECORD_AUX, &body, stamp);
            assert!(area.buffer.ring.push(&record) && area.buffer.ring.push_aux(&cells));
            kernel.head += cells.len() as u64;
        }
        rounds.round(&mut areas, &mut raw, round == 39);
    }
    assert_eq!(rounds.counts.samples, expected.len() as u64);
    // Both events have sample_id_all; the other one follows tasks.
    let events = [
        event(77, 1 | 3 << 33, &[7], 1 | 1 << 18),
        event(1, 9, &[8], 1 << 9 | 1 << 13 | 1 << 18),
    ];
    drop(
        raw.0
            .finish(&events, "aarch64", "0x00000000413fd0c1")
            .unwrap(),
    );

    let mut perf = Command::new("perf");
    perf.args(["--no-pager", "script", "--force", "--itrace=i1i", "--ns"]);
    perf.args(["-F", "comm,tid,time,addr", "-i"]).arg(&path);
    let output = perf.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found: Vec<(u64, u32, u64)> = text.lines().filter_map(sample).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(
        found.len(),
        expected.len(),
        "{}",
        text.lines().take(5).collect::<Vec<_>>().join("\n")
    );
    assert_eq!(found, expected);

    let mut perf = Command::new("perf");
    let output = perf
        .args(["--no-pager", "report", "-D", "-i"])
        .arg(&path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("PERF_RECORD_AUX ").count(), 80);
    assert_eq!(text.matches("PERF_RECORD_FINISHED_ROUND").count(), 40);
}

/// `task50    50    1.001000280: ffff...`: time in ns, thread, address.
fn sample(line: &str) -> Option<(u64, u32, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [comm, tid, time, address] = words[..] else {
        return None;
    };
    let tid: u32 = tid.parse().ok()?;
    assert_eq!(comm, format!("task{tid}"));
    let (seconds, nanos) = time.trim_end_matches(':').split_once('.')?;
    let nanos: u64 = nanos.parse().ok()?;
    let address = u64::from_str_radix(address, 16).ok()?;
    Some((
        seconds.parse::<u64>().ok()? * 1_000_000_000 + nanos,
        tid,
        address,
    ))
}
