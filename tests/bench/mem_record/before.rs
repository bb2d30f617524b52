//! The writer of commit acdc385, to compare with: a text is allocated for each value, and every
//! column has a dictionary.

use std::{fs::File, io, sync::Arc};

use parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical},
    column::writer::ColumnWriter,
    data_type::ByteArray,
    errors::ParquetError,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::types::Type,
};

use probe_user::record::Sample;

use super::columns::{COLUMNS, Get};

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

/// A file of samples.
pub(super) struct Before {
    writer: SerializedFileWriter<File>,
    columns: Vec<Waiting>,
    rows: usize,
}

impl Before {
    pub(super) fn begin(file: File) -> io::Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
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

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.write_group()?;
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

impl Before {
    pub(super) fn sample(&mut self, sample: &Sample) -> io::Result<()> {
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
