//! Samples as rows of a Parquet file: they wait in columns until a row group is full, so that
//! memory does not grow with the recording, and nothing is allocated for a value.

use std::{fs::File, io, sync::Arc};

use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical},
    column::writer::{ColumnWriter, ColumnWriterImpl},
    data_type::{ByteArray, ByteArrayType},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::types::{ColumnPath, Type, TypePtr},
};

use super::{
    Sample,
    columns::{COLUMNS, Fill, Texts, Waiting},
};

/// Rows of a row group: some ten megabytes while they wait.
const ROWS: usize = 1 << 16;

/// Rows of a column of texts that are handed on at one time.
const TEXTS: usize = 4096;

enum Values {
    Long(Waiting<i64>),
    Int(Waiting<i32>),
    Name(Waiting<&'static str>),
    Text(Texts),
}

/// A file of samples that is being written.
pub(super) type Writer = SerializedFileWriter<File>;

/// Rows that wait.
pub(super) struct Rows {
    columns: Vec<Values>,
    count: usize,
    /// Texts on their way into the file.
    texts: Vec<ByteArray>,
}

impl Rows {
    pub(super) fn new() -> Self {
        let columns = COLUMNS.iter().map(|column| match column.fill {
            Fill::Long(_) => Values::Long(Waiting::default()),
            Fill::Int(_) => Values::Int(Waiting::default()),
            Fill::Name(_) => Values::Name(Waiting::default()),
            Fill::Text(_) => Values::Text(Texts::default()),
        });
        Self {
            columns: columns.collect(),
            count: 0,
            texts: Vec::with_capacity(TEXTS),
        }
    }

    /// Adds samples; full row groups go into the file.
    pub(super) fn add(&mut self, mut samples: &[Sample], file: &mut Writer) -> io::Result<()> {
        while !samples.is_empty() {
            let (now, rest) = samples.split_at(samples.len().min(ROWS - self.count));
            for (column, values) in COLUMNS.iter().zip(&mut self.columns) {
                match (column.fill, values) {
                    (Fill::Long(fill), Values::Long(waiting)) => fill(now, waiting),
                    (Fill::Int(fill), Values::Int(waiting)) => fill(now, waiting),
                    (Fill::Name(fill), Values::Name(waiting)) => fill(now, waiting),
                    (Fill::Text(get), Values::Text(texts)) => texts.extend(now, get),
                    _ => unreachable!("the values are made for the same columns"),
                }
            }
            self.count += now.len();
            samples = rest;
            if self.count == ROWS {
                self.write(file)?;
            }
        }
        Ok(())
    }

    /// Writes what waits as a row group.
    pub(super) fn write(&mut self, file: &mut Writer) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        self.count = 0;
        self.write_columns(file).map_err(|error| {
            // Some columns are written, others wait.
            *self = Self::new();
            other(error)
        })
    }

    fn write_columns(&mut self, file: &mut Writer) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        let texts = &mut self.texts;
        let mut columns = self.columns.iter_mut();
        while let Some(mut column) = group.next_column()? {
            let Some(values) = columns.next() else {
                break;
            };
            match (column.untyped(), values) {
                (ColumnWriter::Int64ColumnWriter(writer), Values::Long(waiting)) => {
                    writer.write_batch(&waiting.values, Some(&waiting.levels), None)?;
                    waiting.clear();
                }
                (ColumnWriter::Int32ColumnWriter(writer), Values::Int(waiting)) => {
                    writer.write_batch(&waiting.values, Some(&waiting.levels), None)?;
                    waiting.clear();
                }
                (ColumnWriter::ByteArrayColumnWriter(writer), Values::Name(waiting)) => {
                    let bytes = |name: &&'static str| Bytes::from_static(name.as_bytes());
                    write_texts(writer, waiting, texts, |name| bytes(name).into())?;
                    waiting.clear();
                }
                (ColumnWriter::ByteArrayColumnWriter(writer), Values::Text(held)) => {
                    let known: Vec<ByteArray> =
                        held.held.iter().map(|text| (&**text).into()).collect();
                    let text = |number: &u32| known[*number as usize].clone();
                    write_texts(writer, &held.numbers, texts, text)?;
                    held.clear();
                }
                _ => unreachable!("the schema is made of the same columns"),
            }
            column.close()?;
        }
        group.close().map(drop)
    }
}

fn write_texts<T>(
    writer: &mut ColumnWriterImpl<'_, ByteArrayType>,
    waiting: &Waiting<T>,
    texts: &mut Vec<ByteArray>,
    text: impl Fn(&T) -> ByteArray,
) -> Result<(), ParquetError> {
    let mut values = &waiting.values[..];
    for levels in waiting.levels.chunks(TEXTS) {
        let there = levels.iter().filter(|level| **level > 0).count();
        let (now, rest) = values.split_at(there);
        texts.clear();
        texts.extend(now.iter().map(&text));
        writer.write_batch(texts, Some(levels), None)?;
        values = rest;
    }
    texts.clear();
    Ok(())
}

/// Begins a file of samples.
pub(super) fn begin(file: File) -> io::Result<Writer> {
    let schema = schema().map_err(other)?;
    SerializedFileWriter::new(file, schema, Arc::new(properties())).map_err(other)
}

/// Ends it, with what is known of the recording: names and values.
pub(super) fn end(mut file: Writer, about: &[(String, String)]) -> io::Result<()> {
    for (key, value) in about {
        let entry = KeyValue::new(format!("pmuscope.{key}"), value.clone());
        file.append_key_value_metadata(entry);
    }
    file.close().map(drop).map_err(other)
}

/// Numbers as differences in as many bits as they need, which neither a dictionary nor compression
/// makes smaller by much; texts by a dictionary.
fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("pmuscope {}", env!("CARGO_PKG_VERSION")))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false);
    for column in COLUMNS {
        let path = ColumnPath::from(column.name);
        properties = match column.fill {
            Fill::Long(_) | Fill::Int(_) => properties
                .set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
                .set_column_statistics_enabled(path, EnabledStatistics::Chunk),
            Fill::Name(_) | Fill::Text(_) => properties
                .set_column_dictionary_enabled(path.clone(), true)
                .set_column_compression(path, Compression::SNAPPY),
        };
    }
    properties.build()
}

pub(super) fn schema() -> Result<TypePtr, ParquetError> {
    let integer = |bits| LogicalType::integer(bits, false);
    let fields = COLUMNS.iter().map(|column| {
        let (physical, logical) = match column.fill {
            Fill::Long(_) => (Physical::INT64, integer(64)),
            Fill::Int(_) => (Physical::INT32, integer(32)),
            Fill::Name(_) | Fill::Text(_) => (Physical::BYTE_ARRAY, LogicalType::String),
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(Some(logical))
            .build()?;
        Ok(Arc::new(field))
    });
    let schema = Type::group_type_builder("samples")
        .with_fields(fields.collect::<Result<_, ParquetError>>()?)
        .build()?;
    Ok(Arc::new(schema))
}

/// An error of the file below it as it is.
pub(super) fn other(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}
