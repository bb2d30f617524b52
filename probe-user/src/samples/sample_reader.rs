//! Reads the samples of a [`SampleFile`](super::SampleFile) one by one.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    path::{Path, PathBuf},
};

use parquet::{
    column::reader::ColumnReaderImpl,
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::reader::{FileReader as _, RowGroupReader, SerializedFileReader},
};

use super::{
    RING_BYTES,
    marks::Marks,
    part_files::{SampleReadError, is_parquet, metadata, open, parts_of},
};

/// Maximum number of rows in memory at a time.
const BATCH: usize = 8192;

/// Maximum number of distinct texts; further texts are read as None. A recording has at most some
/// thousands.
const MAX_TEXTS: usize = 1 << 16;

/// Index of a text in [`SampleReader::texts`].
pub type TextIndex = u32;

/// The columns of a sample that a report needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRow {
    /// ns of `CLOCK_MONOTONIC`.
    pub time: Option<u64>,
    /// Virtual address of the data.
    pub address: Option<u64>,
    /// Process id.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// Cycles from dispatch to completion.
    pub latency: Option<u32>,
    /// The thread's name.
    pub comm: Option<TextIndex>,
    /// Path of the process's cgroup in the cgroup2 hierarchy.
    pub cgroup: Option<TextIndex>,
    /// `load`, `store` or another class.
    pub operation: Option<TextIndex>,
    /// Data source of a load.
    pub source: Option<TextIndex>,
    /// The tag of the address, or the kind of memory.
    pub region: Option<TextIndex>,
    /// The phase of the thread.
    pub phase: Option<TextIndex>,
}

/// Accessor of a number, or of a text's index, in a row.
type NumberField = fn(&mut SampleRow) -> &mut Option<u32>;

/// A file of samples.
pub struct SampleReader {
    /// The file's name, for messages.
    pub file: String,
    /// All metadata; keys have no prefix.
    pub about: Vec<(String, String)>,
    /// The distinct texts of rows.
    pub texts: Vec<String>,
    /// Number of values read as None because there were too many distinct texts.
    pub texts_left_out: u64,
    by_text: HashMap<String, TextIndex>,
    /// The files that are not read yet.
    parts: VecDeque<PathBuf>,
    rows_read: usize,
}

impl SampleReader {
    /// Opens a file; None if it is not a file of samples. Reads the parts of an unfinished
    /// recording; `path` may also be their directory.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is a damaged Parquet file.
    pub fn open(path: &Path) -> Result<Option<Self>, SampleReadError> {
        let parts = VecDeque::from(parts_of(path)?);
        let about = match parts.front() {
            Some(first) if is_parquet(first)? => metadata(&open(first)?),
            _ => return Ok(None),
        };
        let is_samples = about.iter().any(|(key, _)| key == RING_BYTES);
        Ok(is_samples.then(|| Self {
            file: path.display().to_string(),
            about,
            texts: Vec::new(),
            texts_left_out: 0,
            by_text: HashMap::new(),
            parts,
            rows_read: 0,
        }))
    }

    /// The metadata value of a key.
    #[must_use]
    pub fn about(&self, key: &str) -> Option<&str> {
        let entry = self.about.iter().find(|(name, _)| name == key);
        entry.map(|(_, value)| value.as_str())
    }

    /// Passes all samples to `on_row` in file order. Afterwards [`Self::about`] has the tags and
    /// phases of all parts.
    ///
    /// # Errors
    ///
    /// If the file is damaged.
    pub fn read(&mut self, mut on_row: impl FnMut(&SampleRow)) -> Result<(), SampleReadError> {
        let mut marks = Marks::default();
        while let Some(part) = self.parts.pop_front() {
            let reader = open(&part)?;
            marks.add(&metadata(&reader));
            for group in 0..reader.num_row_groups() {
                self.read_group(&reader, group, &mut on_row)
                    .map_err(|error| SampleReadError::Damaged {
                        file: part.display().to_string(),
                        number: self.rows_read,
                        reason: error.to_string(),
                    })?;
            }
        }
        marks.replace_in(&mut self.about);
        Ok(())
    }

    fn read_group(
        &mut self,
        reader: &SerializedFileReader<File>,
        group: usize,
        on_row: &mut impl FnMut(&SampleRow),
    ) -> Result<(), ParquetError> {
        let group = reader.get_row_group(group)?;
        let mut remaining = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let mut time = SampleColumnReader::<Int64Type>::open(&*group, "time_ns")?;
        let mut address = SampleColumnReader::<Int64Type>::open(&*group, "va")?;
        let number = |name| SampleColumnReader::<Int32Type>::open(&*group, name);
        let mut numbers: [(_, NumberField); 3] = [
            (number("pid")?, |row| &mut row.pid),
            (number("tid")?, |row| &mut row.tid),
            (number("total_latency")?, |row| &mut row.latency),
        ];
        let text = |name| SampleColumnReader::<ByteArrayType>::open(&*group, name);
        let mut texts: [(_, NumberField); 6] = [
            (text("comm")?, |row| &mut row.comm),
            (text("cgroup")?, |row| &mut row.cgroup),
            (text("op")?, |row| &mut row.operation),
            (text("source")?, |row| &mut row.source),
            (text("region")?, |row| &mut row.region),
            (text("phase")?, |row| &mut row.phase),
        ];
        let mut rows = Vec::new();
        while remaining > 0 {
            let batch = remaining.min(BATCH);
            remaining -= batch;
            rows.clear();
            rows.resize(batch, SampleRow::default());
            time.fill(&mut rows, |row, value| {
                row.time = Some(value.cast_unsigned());
            })?;
            address.fill(&mut rows, |row, value| {
                row.address = Some(value.cast_unsigned());
            })?;
            for (column, field) in &mut numbers {
                column.fill(&mut rows, |row, value| {
                    *field(row) = Some(value.cast_unsigned());
                })?;
            }
            for (column, field) in &mut texts {
                column.fill(&mut rows, |row, value| *field(row) = self.text(value))?;
            }
            rows.iter().for_each(&mut *on_row);
            self.rows_read += batch;
        }
        Ok(())
    }

    /// Index of a text; None beyond [`MAX_TEXTS`].
    fn text(&mut self, bytes: &ByteArray) -> Option<TextIndex> {
        let text = String::from_utf8_lossy(bytes.data());
        if let Some(known) = self.by_text.get(&*text) {
            return Some(*known);
        }
        if self.texts.len() >= MAX_TEXTS {
            self.texts_left_out += 1;
            return None;
        }
        let number = TextIndex::try_from(self.texts.len()).ok()?;
        self.texts.push(text.clone().into_owned());
        self.by_text.insert(text.into_owned(), number);
        Some(number)
    }
}

/// Reads a column of a row group.
struct SampleColumnReader<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    levels: Vec<i16>,
}

impl<T: DataType> SampleColumnReader<T> {
    fn open(group: &dyn RowGroupReader, name: &str) -> Result<Self, ParquetError> {
        let wrong = |what| Err(ParquetError::General(format!("column {name} {what}")));
        let mut columns = group.metadata().columns().iter();
        let Some(at) = columns.position(|column| column.column_descr().name() == name) else {
            return wrong("is not there");
        };
        let descriptor = group.metadata().column(at).column_descr();
        if (descriptor.max_def_level(), descriptor.max_rep_level()) != (1, 0) {
            return wrong("is of another kind");
        }
        let Some(reader) = T::get_column_reader(group.get_column_reader(at)?) else {
            return wrong("is of another type");
        };
        Ok(Self {
            reader,
            values: Vec::new(),
            levels: Vec::new(),
        })
    }

    /// Reads the next value of each row, and passes those that are not null to `set`.
    fn fill(
        &mut self,
        rows: &mut [SampleRow],
        mut set: impl FnMut(&mut SampleRow, &T::T),
    ) -> Result<(), ParquetError> {
        self.values.clear();
        self.levels.clear();
        while self.levels.len() < rows.len() {
            let wanted = rows.len() - self.levels.len();
            let before = self.levels.len();
            let (levels, values) = (&mut self.levels, &mut self.values);
            self.reader
                .read_records(wanted, Some(levels), None, values)?;
            if self.levels.len() == before {
                return Err(ParquetError::EOF("a column ends early".to_owned()));
            }
        }
        let present = rows.iter_mut().zip(&self.levels).filter(|(_, it)| **it > 0);
        for ((row, _), value) in present.zip(&self.values) {
            set(row, value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use probe_common::spe::Records;

    use super::*;
    use crate::samples::{Sample, SampleData, SampleFile, Sink as _, metadata_of_each_method};

    /// Files are recognized by the metadata that the recorder itself writes.
    #[test]
    fn files_of_each_method_are_recognized() {
        let directory = tempfile::tempdir().unwrap();
        for about in metadata_of_each_method() {
            let path = directory.path().join("samples.parquet");
            let file = SampleFile::begin(&path, NonZeroUsize::MIN, about.clone()).unwrap();
            // An operation packet (a load) and a timestamp packet.
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
        }
    }
}
