//! The samples as a Parquet file, in row groups of a fixed number of rows: memory does not grow
//! with the recording.

use std::{fs::File, io, sync::Arc};

use parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical},
    column::writer::ColumnWriter,
    data_type::ByteArray,
    errors::ParquetError,
    file::{metadata::KeyValue, properties::WriterProperties, writer::SerializedFileWriter},
    schema::types::Type,
};

use super::{
    Sample, Sink,
    columns::{COLUMNS, Get},
};

/// Rows of a row group: some ten megabytes while they wait.
const ROWS: usize = 1 << 16;

/// Values of a column that wait for their row group; the levels say which rows have one.
enum Values {
    Long(Vec<i64>),
    Int(Vec<i32>),
    Text(Vec<ByteArray>),
}

struct Waiting {
    values: Values,
    levels: Vec<i16>,
}

/// The file of `--output`.
pub struct SampleFile {
    writer: SerializedFileWriter<File>,
    columns: Vec<Waiting>,
    rows: usize,
}

impl SampleFile {
    /// Begins the file.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn begin(file: File) -> io::Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("pmuscope {}", env!("CARGO_PKG_VERSION")))
            .build();
        let schema = Arc::new(schema().map_err(other)?);
        let writer =
            SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(other)?;
        let waiting = COLUMNS.iter().map(|column| Waiting {
            values: match column.get {
                Get::Long(_) => Values::Long(Vec::new()),
                Get::Int(_) => Values::Int(Vec::new()),
                Get::Text(_) => Values::Text(Vec::new()),
            },
            levels: Vec::with_capacity(ROWS),
        });
        Ok(Self {
            writer,
            columns: waiting.collect(),
            rows: 0,
        })
    }

    /// Ends it, with what is known of the recording as a whole: names and values.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn finish(mut self, about: &[(String, String)]) -> io::Result<()> {
        self.write_group()?;
        for (key, value) in about {
            let entry = KeyValue::new(format!("pmuscope.{key}"), value.clone());
            self.writer.append_key_value_metadata(entry);
        }
        self.writer.close().map(drop).map_err(other)
    }

    fn write_group(&mut self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(other)?;
        let mut columns = self.columns.iter_mut();
        while let Some(mut column) = group.next_column().map_err(other)? {
            let Some(Waiting { values, levels }) = columns.next() else {
                break;
            };
            let written = match (column.untyped(), values) {
                (ColumnWriter::Int64ColumnWriter(writer), Values::Long(values)) => {
                    let written = writer.write_batch(values, Some(levels), None);
                    values.clear();
                    written
                }
                (ColumnWriter::Int32ColumnWriter(writer), Values::Int(values)) => {
                    let written = writer.write_batch(values, Some(levels), None);
                    values.clear();
                    written
                }
                (ColumnWriter::ByteArrayColumnWriter(writer), Values::Text(values)) => {
                    let written = writer.write_batch(values, Some(levels), None);
                    values.clear();
                    written
                }
                _ => unreachable!("the schema is made of the same columns"),
            };
            written.map_err(other)?;
            levels.clear();
            column.close().map_err(other)?;
        }
        group.close().map_err(other)?;
        self.rows = 0;
        Ok(())
    }
}

impl Sink for SampleFile {
    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        for (column, waiting) in COLUMNS.iter().zip(&mut self.columns) {
            let there = match (column.get, &mut waiting.values) {
                (Get::Long(get), Values::Long(values)) => get(sample)
                    .map(|value| values.push(value.cast_signed()))
                    .is_some(),
                (Get::Int(get), Values::Int(values)) => get(sample)
                    .map(|value| values.push(value.cast_signed()))
                    .is_some(),
                (Get::Text(get), Values::Text(values)) => get(sample)
                    .map(|value| values.push(ByteArray::from(value)))
                    .is_some(),
                _ => unreachable!("the values are made for the same columns"),
            };
            waiting.levels.push(there.into());
        }
        self.rows += 1;
        if self.rows == ROWS {
            self.write_group()?;
        }
        Ok(())
    }
}

fn schema() -> Result<Type, ParquetError> {
    let integer = |bits| LogicalType::integer(bits, false);
    let fields = COLUMNS.iter().map(|column| {
        let (physical, logical) = match column.get {
            Get::Long(_) => (Physical::INT64, integer(64)),
            Get::Int(_) => (Physical::INT32, integer(32)),
            Get::Text(_) => (Physical::BYTE_ARRAY, LogicalType::String),
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(Some(logical))
            .build()?;
        Ok(Arc::new(field))
    });
    Type::group_type_builder("samples")
        .with_fields(fields.collect::<Result<_, ParquetError>>()?)
        .build()
}

/// An error of the file below it as it is.
fn other(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}
