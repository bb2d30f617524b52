//! Parts of a recording become the one file that the user named: their row groups are copied as
//! they are.

use std::{fs::File, io, path::PathBuf};

use parquet::{
    column::writer::ColumnCloseResult,
    errors::ParquetError,
    file::reader::{FileReader as _, SerializedFileReader},
};

use super::rows::{self, Writer};

/// Writes the row groups of `parts` into `file` in order, then what is known of the recording.
pub(super) fn merge(file: File, parts: &[PathBuf], about: &[(String, String)]) -> io::Result<()> {
    let mut merged = rows::begin(file)?;
    for part in parts {
        append(&mut merged, File::open(part)?).map_err(rows::other)?;
    }
    rows::end(merged, about)
}

fn append(merged: &mut Writer, part: File) -> Result<(), ParquetError> {
    let bytes = part.try_clone()?;
    let part = SerializedFileReader::new(part)?;
    for from in part.metadata().row_groups() {
        let mut group = merged.next_row_group()?;
        for column in from.columns() {
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size().unsigned_abs(),
                rows_written: from.num_rows().unsigned_abs(),
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            group.append_column(&bytes, close)?;
        }
        group.close()?;
    }
    Ok(())
}
