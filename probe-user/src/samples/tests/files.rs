//! Reads files of samples back: the whole file, and its parts.

use std::{collections::BTreeMap, fs::File, sync::Arc};

use parquet::{
    file::reader::{FileReader as _, SerializedFileReader},
    record::Field,
};
use probe_common::spe::{Records, SourceTable};

use super::{
    super::{Sample, SampleData, SampleFile, Sink as _, TaskInfo},
    cell,
};

#[test]
fn samples_are_read_back_from_parquet() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples.parquet");
    let wall_clock = r#"{"time_ns": "1000", "unix_ns": "1800000000000001000"}"#;
    let about = [("period", "4096"), ("wall_clock", wall_clock)];
    let about = about.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let file = SampleFile::begin(&path, std::num::NonZeroUsize::MIN, about.into()).unwrap();
    // More than a row group holds.
    let count = 70_000_u32;
    for n in 0..count {
        let bytes = cell(Some(n), u64::MAX - u64::from(n), u64::from(n) * 2);
        let record = Records::new(&bytes).next().unwrap().unwrap();
        // Two of three samples have only what SPE itself reports.
        let is_attributed = n % 3 == 0;
        let sample = Sample {
            time: is_attributed.then_some(u64::from(n) + (1 << 40)),
            cpu: Some(n % 128),
            tid: Some(n),
            task: is_attributed.then(|| {
                Arc::new(TaskInfo {
                    pid: n,
                    name: format!("task{}", n % 5).into(),
                    cgroup: None,
                })
            }),
            cgroup: None,
            region: is_attributed.then(|| format!("region{}", n % 7).into()),
            phase: None,
            origin: is_attributed
                .then(|| SourceTable::Common.load(record.data_source().unwrap()))
                .flatten(),
            data: SampleData::Record(record),
        };
        file.samples(0, &[sample]).unwrap();
    }
    file.finish(&[]).unwrap();

    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.metadata().num_row_groups(), 2);
    let about = reader
        .metadata()
        .file_metadata()
        .key_value_metadata()
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
        let is_attributed = n % 3 == 0;
        let if_attributed = |field: Field| if is_attributed { field } else { Field::Null };
        let text = |text: &str| Field::Str(text.to_owned());
        assert_eq!(
            row["time_ns"],
            if_attributed(Field::ULong(u64::from(n) + (1 << 40)))
        );
        assert_eq!(
            row["time"].to_string(),
            if_attributed(Field::Long(
                1_800_000_000_000_000_000 + i64::from(n) + (1 << 40)
            ))
            .to_string()
        );
        assert_eq!(row["ticks"], Field::ULong(u64::from(n) * 2));
        assert_eq!(row["cpu"], Field::UInt(n % 128));
        assert_eq!(
            (&row["pid"], &row["tid"]),
            (&if_attributed(Field::UInt(n)), &Field::UInt(n))
        );
        assert_eq!(row["comm"], if_attributed(text(&format!("task{}", n % 5))));
        assert_eq!(row["cgroup"], Field::Null);
        assert_eq!(
            (&row["pc"], &row["pc_el"]),
            (&Field::ULong(0x40_1000), &Field::UInt(0))
        );
        // SPE records have 56 address bits; the top byte of a kernel address is filled in.
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
        assert_eq!(row["source"], if_attributed(text("dram")));
        assert_eq!(row["branch_target"], Field::Null);
        assert_eq!(row["context_el2"], Field::UInt(n));
        rows += 1;
    }
    assert_eq!(rows, count);
}

fn sample(time: u64) -> Sample {
    let record = Records::new(&cell(Some(7), 1, 1)).next().unwrap().unwrap();
    Sample {
        time: Some(time),
        cpu: Some(0),
        tid: Some(7),
        task: None,
        cgroup: None,
        origin: None,
        region: None,
        phase: None,
        data: SampleData::Record(record),
    }
}

/// A part has ten seconds. All whole parts are read, and the open one is skipped.
#[test]
fn parts_become_one_file_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples.parquet");
    let threads = std::num::NonZeroUsize::new(3).unwrap();
    let file = SampleFile::begin(&path, threads, Vec::new()).unwrap();
    // The third thread has nothing to write in this part.
    for (thread, n) in [(0, 1), (1, 2), (0, 3)] {
        file.samples(thread, &[sample(n)]).unwrap();
    }
    file.end_parts(&Vec::new).unwrap();
    for (thread, n) in [(2, 4), (1, 5)] {
        file.samples(thread, &[sample(n)]).unwrap();
    }
    let parts = directory.path().join("samples.parquet.parts");
    let names = |end: &str| {
        let entries = std::fs::read_dir(&parts).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(end))
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("parquet"), ["000000-00.parquet", "000000-01.parquet"]);
    assert_eq!(names("open"), [".000001-01.open", ".000001-02.open"]);
    assert_eq!(times(&parts.join("000000-00.parquet")), [1, 3]);
    let busy = SampleFile::begin(&path, threads, Vec::new()).err().unwrap();
    assert!(
        busy.to_string().contains("did not come to its end"),
        "{busy}"
    );
    file.finish(&[("count.samples".into(), "5".into())])
        .unwrap();
    assert_eq!(times(&path), [1, 3, 2, 5, 4]);
    assert!(!parts.exists());
}

/// The times of the samples in a file.
fn times(path: &std::path::Path) -> Vec<u64> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    let time = |row: parquet::record::Row| {
        let mut columns = row.into_columns().into_iter();
        match columns.find(|(name, _)| name == "time_ns") {
            Some((_, Field::ULong(time))) => time,
            other => panic!("{other:?}"),
        }
    };
    rows.map(|row| time(row.unwrap())).collect()
}
