//! Writes samples as rows of a Parquet file. Columns are buffered until a row group is full, so
//! memory does not grow with the recording, and no memory is allocated per value.

use std::{fs::File, io, sync::Arc};

use parquet::{
    basic::{Encoding, LogicalType, Repetition, TimeUnit, Type as Physical},
    data_type::{DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedRowGroupWriter,
    },
    schema::types::{ColumnDescPtr, ColumnPath, Type, TypePtr},
};

use super::{
    Sample,
    chunk::{self, Dictionary, DictionaryNumber},
    column_buffers::{ColumnBuffer, Levels, NameBuffer, TextBuffer},
    columns::{COLUMNS, SampleFill},
    parts::{Layout, ParquetWriter, into_io_error},
};

/// Number of rows in a row group: some ten megabytes while buffered.
const ROW_GROUP: usize = 1 << 16;

/// Definition levels of rows that all have a value.
static PRESENT: [i16; 1024] = [1; 1024];

enum ColumnValues {
    Long(ColumnBuffer<i64>),
    Int(ColumnBuffer<i32>),
    Name(NameBuffer),
    Text(TextBuffer),
}

/// Buffered rows.
pub(super) struct SampleRows {
    columns: Vec<ColumnValues>,
    /// Number of buffered rows.
    count: usize,
    /// Unix time in ns at which the clock of samples was 0; None if unknown.
    boot_time: Option<i64>,
}

impl SampleRows {
    /// `boot_time` is the Unix time in ns at which the clock of samples was 0; None if unknown.
    pub(super) fn new(boot_time: Option<i64>) -> Self {
        let columns = COLUMNS.iter().map(|column| match column.fill {
            SampleFill::Long(_) | SampleFill::UnixTime => {
                ColumnValues::Long(ColumnBuffer::default())
            }
            SampleFill::Int(_) => ColumnValues::Int(ColumnBuffer::default()),
            SampleFill::Name(_) => ColumnValues::Name(NameBuffer::default()),
            SampleFill::Text(_) => ColumnValues::Text(TextBuffer::default()),
        });
        Self {
            columns: columns.collect(),
            count: 0,
            boot_time,
        }
    }

    /// Adds samples. Writes a row group whenever it is full.
    pub(super) fn add(
        &mut self,
        mut samples: &[Sample],
        file: &mut ParquetWriter,
    ) -> io::Result<()> {
        while !samples.is_empty() {
            let (batch, rest) = samples.split_at(samples.len().min(ROW_GROUP - self.count));
            for (column, values) in COLUMNS.iter().zip(&mut self.columns) {
                match (column.fill, values) {
                    (SampleFill::Long(fill), ColumnValues::Long(buffer)) => fill(batch, buffer),
                    (SampleFill::UnixTime, ColumnValues::Long(buffer)) => {
                        let boot_time = self.boot_time;
                        buffer.extend(batch, |sample| unix_time(sample, boot_time?));
                    }
                    (SampleFill::Int(fill), ColumnValues::Int(buffer)) => fill(batch, buffer),
                    (SampleFill::Name(lookup), ColumnValues::Name(names)) => {
                        names.extend(batch, lookup);
                    }
                    (SampleFill::Text(get), ColumnValues::Text(texts)) => texts.extend(batch, get),
                    _ => unreachable!("the values are made for the same columns"),
                }
            }
            self.count += batch.len();
            samples = rest;
            if self.count == ROW_GROUP {
                self.write(file)?;
            }
        }
        Ok(())
    }

    /// Writes the buffered rows as a row group.
    pub(super) fn write(&mut self, file: &mut ParquetWriter) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        self.count = 0;
        self.write_columns(file).map_err(|error| {
            // Drops the rows: only some of their columns were written, so the row group cannot be
            // completed.
            *self = Self::new(self.boot_time);
            into_io_error(error)
        })
    }

    fn write_columns(&mut self, file: &mut ParquetWriter) -> Result<(), ParquetError> {
        let schema = file.schema_descr().clone();
        let mut group = file.next_row_group()?;
        for (values, column) in self.columns.iter_mut().zip(schema.columns()) {
            match values {
                ColumnValues::Long(buffer) => {
                    write_numbers::<Int64Type>(&mut group, column, buffer)?;
                    buffer.clear();
                }
                ColumnValues::Int(buffer) => {
                    write_numbers::<Int32Type>(&mut group, column, buffer)?;
                    buffer.clear();
                }
                ColumnValues::Name(NameBuffer {
                    indices, distinct, ..
                }) => {
                    let names = Dictionary::from_texts(distinct.iter().copied());
                    let levels = indices.presence.levels();
                    chunk::append(&mut group, column, levels, &indices.values, names)?;
                    indices.clear();
                }
                ColumnValues::Text(texts) => {
                    let dictionary =
                        Dictionary::from_texts(texts.distinct.iter().map(|text| &**text));
                    let ColumnBuffer { values, presence } = &texts.indices;
                    chunk::append(&mut group, column, presence.levels(), values, dictionary)?;
                    texts.clear();
                }
            }
        }
        group.close().map(drop)
    }
}

/// Unix time of a sample in ns; None if the sample has no time, or the sum overflows.
fn unix_time(sample: &Sample, boot_time: i64) -> Option<i64> {
    i64::try_from(sample.time?).ok()?.checked_add(boot_time)
}

/// Writes a column of numbers: with a dictionary if that is smaller, else as [`properties`] say.
fn write_numbers<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    column: &ColumnDescPtr,
    buffer: &ColumnBuffer<T::T>,
) -> Result<(), ParquetError>
where
    T::T: Copy + DictionaryNumber,
{
    let levels = buffer.presence.levels();
    if let Levels::None(_) = levels {
        return chunk::append(group, column, levels, &[], Dictionary::default());
    }
    if let Some((dictionary, indices)) = chunk::dictionary_encoded::<T>(&buffer.values) {
        return chunk::append(group, column, levels, &indices, dictionary);
    }
    let Some(mut writer) = group.next_column()? else {
        return Ok(());
    };
    let typed = writer.typed::<T>();
    match levels {
        Levels::Some(each) => {
            typed.write_batch(&buffer.values, Some(each), None)?;
        }
        Levels::None(_) | Levels::All(_) => {
            for values in buffer.values.chunks(PRESENT.len()) {
                typed.write_batch(values, Some(&PRESENT[..values.len()]), None)?;
            }
        }
    }
    writer.close()
}

/// Begins a file of samples.
pub(super) fn begin(file: File) -> io::Result<ParquetWriter> {
    layout()?.begin(file)
}

/// Schema and properties of every file of samples.
pub(super) fn layout() -> io::Result<Layout> {
    Ok(Layout {
        schema: schema().map_err(into_io_error)?,
        properties: Arc::new(properties()),
    })
}

/// Numbers with many distinct values are delta-encoded; a dictionary or compression would hardly
/// shrink them further. [`chunk`] writes all other columns, with a dictionary. Statistics of
/// `time_ns` let readers skip row groups.
fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_created_by(format!("pmuscope {}", env!("CARGO_PKG_VERSION")))
        .set_encoding(Encoding::DELTA_BINARY_PACKED)
        .set_dictionary_enabled(false)
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_statistics_enabled(ColumnPath::from("time_ns"), EnabledStatistics::Chunk)
        .build()
}

pub(super) fn schema() -> Result<TypePtr, ParquetError> {
    let integer = |bits| LogicalType::integer(bits, false);
    let fields = COLUMNS.iter().map(|column| {
        let (physical, logical) = match column.fill {
            SampleFill::Long(_) => (Physical::INT64, integer(64)),
            SampleFill::UnixTime => (
                Physical::INT64,
                LogicalType::timestamp(true, TimeUnit::NANOS),
            ),
            SampleFill::Int(_) => (Physical::INT32, integer(32)),
            SampleFill::Name(_) | SampleFill::Text(_) => {
                (Physical::BYTE_ARRAY, LogicalType::String)
            }
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
