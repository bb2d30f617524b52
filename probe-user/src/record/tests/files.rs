//! The files of a recording: read back, and what perf says of them.

use std::{collections::BTreeMap, fs::File, io, process::Command};

use perf_event_open_sys::bindings;

use super::{
    super::{
        AuxPlace, Sample, Sink,
        perf_data::{ATTR, Event as FileEvent, PerfData, SPE_SAMPLE, Time},
        wire::{SAMPLE_TYPE, Stamp, build},
    },
    Kernel, Rounds, area, cell,
};

#[cfg(feature = "parquet")]
#[test]
fn samples_are_read_back_from_parquet() {
    use std::sync::Arc;

    use parquet::{
        file::reader::{FileReader as _, SerializedFileReader},
        record::Field,
    };
    use probe_common::spe::{Records, SourceTable};

    use super::super::SampleFile;

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
            // One CPU is idle for some rounds.
            if kernel.cpu == 1 && round % 8 > 1 {
                continue;
            }
            let tid = 50 + u32::try_from(round % 2).unwrap();
            let mut cells = Vec::new();
            for _ in 0..80 {
                ticks += 7;
                let address = 0xffff_0000_u64 + ticks * 8;
                cells.extend(cell(Some(tid), address, ticks));
                let nanos = 1_000_000_000 + ticks * 40;
                expected.push((nanos, tid, address));
            }
            // perf's clock at the end of the AUX bytes.
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
    assert_eq!(text.matches("PERF_RECORD_AUX ").count(), 50);
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
