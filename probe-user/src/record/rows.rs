//! Samples as rows of a Parquet file: they wait in columns until a row group is full, so that
//! memory does not grow with the recording, and nothing is allocated for a value.

use std::{fs::File, io, sync::Arc};

use parquet::{
    basic::{Encoding, LogicalType, Repetition, Type as Physical},
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
    chunk::{self, Bits, Dictionary},
    columns::{COLUMNS, Fill},
    parts::{Layout, Writer, other},
    waiting::{Levels, Names, Texts, Waiting},
};

/// Rows of a row group: some ten megabytes while they wait.
const ROWS: usize = 1 << 16;

/// Levels of rows that all have a value.
static PRESENT: [i16; 1024] = [1; 1024];

enum Values {
    Long(Waiting<i64>),
    Int(Waiting<i32>),
    Name(Names),
    Text(Texts),
}

/// Rows that wait.
pub(super) struct Rows {
    columns: Vec<Values>,
    count: usize,
}

impl Rows {
    pub(super) fn new() -> Self {
        let columns = COLUMNS.iter().map(|column| match column.fill {
            Fill::Long(_) => Values::Long(Waiting::default()),
            Fill::Int(_) => Values::Int(Waiting::default()),
            Fill::Name(_) => Values::Name(Names::default()),
            Fill::Text(_) => Values::Text(Texts::default()),
        });
        Self {
            columns: columns.collect(),
            count: 0,
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
                    (Fill::Name(naming), Values::Name(names)) => names.extend(now, naming),
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
        let schema = file.schema_descr().clone();
        let mut group = file.next_row_group()?;
        for (values, column) in self.columns.iter_mut().zip(schema.columns()) {
            match values {
                Values::Long(waiting) => {
                    write_numbers::<Int64Type>(&mut group, column, waiting)?;
                    waiting.clear();
                }
                Values::Int(waiting) => {
                    write_numbers::<Int32Type>(&mut group, column, waiting)?;
                    waiting.clear();
                }
                Values::Name(Names { numbers, held, .. }) => {
                    let names = Dictionary::of_texts(held.iter().copied());
                    let levels = numbers.presence.levels();
                    chunk::append(&mut group, column, levels, &numbers.values, names)?;
                    numbers.clear();
                }
                Values::Text(texts) => {
                    let held = Dictionary::of_texts(texts.held.iter().map(|text| &**text));
                    let Waiting { values, presence } = &texts.numbers;
                    chunk::append(&mut group, column, presence.levels(), values, held)?;
                    texts.clear();
                }
            }
        }
        group.close().map(drop)
    }
}

fn write_numbers<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    column: &ColumnDescPtr,
    waiting: &Waiting<T::T>,
) -> Result<(), ParquetError>
where
    T::T: Copy + Bits,
{
    let levels = waiting.presence.levels();
    if let Levels::None(_) = levels {
        return chunk::append(group, column, levels, &[], Dictionary::default());
    }
    if let Some((dictionary, numbers)) = chunk::numbered::<T>(&waiting.values) {
        return chunk::append(group, column, levels, &numbers, dictionary);
    }
    let Some(mut writer) = group.next_column()? else {
        return Ok(());
    };
    let typed = writer.typed::<T>();
    match levels {
        Levels::Some(each) => {
            typed.write_batch(&waiting.values, Some(each), None)?;
        }
        Levels::None(_) | Levels::All(_) => {
            for values in waiting.values.chunks(PRESENT.len()) {
                typed.write_batch(values, Some(&PRESENT[..values.len()]), None)?;
            }
        }
    }
    writer.close()
}

/// Begins a file of samples.
pub(super) fn begin(file: File) -> io::Result<Writer> {
    layout()?.begin(file)
}

/// What is the same in every file of samples.
pub(super) fn layout() -> io::Result<Layout> {
    Ok(Layout {
        schema: schema().map_err(other)?,
        properties: Arc::new(properties()),
    })
}

/// Numbers as differences in as many bits as they need, which neither a dictionary nor compression
/// makes smaller by much. Readers pass over row groups by their times.
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
