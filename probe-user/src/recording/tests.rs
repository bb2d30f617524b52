//! The page names every column, and a snapshot is unpacked to its limit only.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};

use super::{columns::COLUMNS, read::unpacked};

#[test]
fn every_column_is_documented_once_and_in_order() {
    let text = include_str!("../../../docs/recordings.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
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
