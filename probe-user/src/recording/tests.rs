//! docs/recordings.md names every column, a snapshot is unpacked to its limit only, and files of
//! samples are recognized.

use std::{io::Write as _, num::NonZeroUsize};

use flate2::{Compression, write::GzEncoder};
use probe_common::spe::Records;

use super::{Recording, SampleReader, columns::COLUMNS, read::unpacked};
use crate::record::{Sample, SampleData, SampleFile, Sink as _, metadata_of_each_method};

#[test]
fn every_column_is_documented_once_and_in_order() {
    let text = include_str!("../../../docs/recordings.md");
    // After the table of views.
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with("| `window`"));
    let rows = lines.filter_map(|line| line.strip_prefix("| `"));
    let documented: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let columns: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    assert!(
        documented.starts_with(&columns),
        "docs/recordings.md lists {documented:?}, the file has {columns:?}"
    );
}

#[test]
fn a_snapshot_that_becomes_too_large_is_refused() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&[b' '; 100_000]).unwrap();
    let bytes = gzip.finish().unwrap();
    assert!(bytes.len() < 1_000);
    assert_eq!(unpacked(&bytes, 100_001).unwrap(), [b' '; 100_000]);
    let said = unpacked(&bytes, 99_999).unwrap_err().to_string();
    assert_eq!(said, "it has 99999 bytes or more");
    assert!(unpacked(&bytes[..bytes.len() - 1], 100_001).is_err());
}

/// By the metadata that the recorder itself writes.
#[test]
fn a_file_of_each_method_is_known_as_one_of_samples() {
    let directory = tempfile::tempdir().unwrap();
    for about in metadata_of_each_method() {
        let path = directory.path().join("samples.parquet");
        let file = SampleFile::begin(&path, NonZeroUsize::MIN, about.clone()).unwrap();
        // A load and its time.
        let bytes = [&[0x49, 0x00, 0x71][..], &7_u64.to_le_bytes()].concat();
        let record = Records::new(&bytes).next().unwrap().unwrap();
        let sample = Sample {
            time: Some(5),
            cpu: Some(0),
            tid: Some(7),
            task: None,
            cgroup: None,
            origin: None,
            region: None,
            phase: None,
            data: SampleData::Record(record),
        };
        file.samples(0, &[sample]).unwrap();
        file.finish(&[]).unwrap();
        let mut samples = SampleReader::open(&path)
            .unwrap()
            .unwrap_or_else(|| panic!("no file of samples: {about:?}"));
        let mut times = Vec::new();
        samples.read(|row| times.push(row.time)).unwrap();
        assert_eq!(times, [Some(5)]);
        let said = Recording::open(&path).err().unwrap().to_string();
        assert!(
            said.contains("the samples of `pmuscope mem record`"),
            "{said}"
        );
    }
}
