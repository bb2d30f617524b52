//! The columns of the file: name, type, unit, and where in a [`Row`] the value is.
//! docs/recordings.md says what they mean; a test compares the two.

use std::{io, sync::Arc};

use parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical},
    data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedRowGroupWriter,
    },
    schema::types::{ColumnPath, Type},
};

use super::row::Row;
use crate::{
    derive::{Kind, Method, served_name},
    record::parts::{Layout, Writer, other},
};

/// How a column gets its value; None is null.
#[derive(Clone, Copy)]
pub(super) enum Fill {
    Long(fn(&Row<'_>) -> Option<u64>),
    Int(fn(&Row<'_>) -> Option<u32>),
    Double(fn(&Row<'_>) -> Option<f64>),
    Text(fn(&Row<'_>) -> Option<String>),
    Bytes(for<'a> fn(&Row<'a>) -> Option<&'a [u8]>),
}

/// A column.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// What its values are in or of, for the file's metadata.
    pub(super) unit: &'static str,
    fill: Fill,
}

const fn column(name: &'static str, unit: &'static str, fill: Fill) -> Column {
    Column { name, unit, fill }
}

/// The name of the column that a replay reads.
pub(super) const SNAPSHOT: &str = "snapshot";

/// All columns, in their order.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method is one of rows of a single lifetime"
)]
pub(super) const COLUMNS: &[Column] = &[
    column("window", "number", Fill::Int(|row| Some(row.window))),
    column(
        "start_ns",
        "ns of CLOCK_MONOTONIC",
        Fill::Long(|row| Some(row.time.0)),
    ),
    column(
        "end_ns",
        "ns of CLOCK_MONOTONIC",
        Fill::Long(|row| Some(row.time.1)),
    ),
    column(
        "part",
        "name",
        Fill::Text(|row| Some(row.part().to_owned())),
    ),
    column(
        "kind",
        "name",
        Fill::Text(|row| row.kind().map(str::to_owned)),
    ),
    column("name", "name", Fill::Text(|row| row.name())),
    column(
        "namespace",
        "name",
        Fill::Text(|row| row.called("namespace")),
    ),
    column("pod", "name", Fill::Text(|row| row.called("pod"))),
    column(
        "container",
        "name",
        Fill::Text(|row| row.called("container")),
    ),
    column("pod_uid", "uid", Fill::Text(|row| row.pod_uid())),
    column("pid", "process", Fill::Int(|row| row.pid())),
    column(
        "metric",
        "name",
        Fill::Text(|row| Some(row.metric()?.name.clone())),
    ),
    column(
        "metric_kind",
        "name",
        Fill::Text(|row| Some(kind(row.metric()?.kind).to_owned())),
    ),
    column(
        "unit",
        "unit",
        Fill::Text(|row| Some(row.metric()?.unit.clone())),
    ),
    column(
        "value",
        "column unit",
        Fill::Double(|row| Some(row.estimate()?.value)),
    ),
    column(
        "low",
        "column unit",
        Fill::Double(|row| Some(row.estimate()?.sampled_interval()?.0)),
    ),
    column(
        "high",
        "column unit",
        Fill::Double(|row| Some(row.estimate()?.sampled_interval()?.1)),
    ),
    column(
        "error",
        "column unit",
        Fill::Double(|row| row.estimate()?.error()),
    ),
    column(
        "live",
        "part of the time",
        Fill::Double(|row| Some(row.estimate()?.live)),
    ),
    column(
        "raw",
        "events or samples",
        Fill::Long(|row| Some(row.counter()?.raw)),
    ),
    column(
        "enabled_ns",
        "ns",
        Fill::Long(|row| Some(row.counter()?.time?.enabled)),
    ),
    column(
        "running_ns",
        "ns",
        Fill::Long(|row| Some(row.counter()?.time?.running)),
    ),
    column("reason", "text", Fill::Text(|row| row.reason())),
    column("method", "name", Fill::Text(method)),
    column(
        "socket",
        "socket",
        Fill::Int(|row| row.attributes()?.socket),
    ),
    column(
        "device",
        "name",
        Fill::Text(|row| row.attributes()?.device.clone()),
    ),
    column(
        "group",
        "counter group",
        Fill::Int(|row| row.attributes()?.group),
    ),
    column(
        "operation",
        "name",
        Fill::Text(|row| Some(row.attributes()?.operation?.name().to_owned())),
    ),
    column(
        "source",
        "name",
        Fill::Text(|row| row.attributes()?.source.map(served_name)),
    ),
    column("histogram", "JSON", Fill::Text(|row| row.histogram())),
    column(SNAPSHOT, "gzip of JSON", Fill::Bytes(|row| row.snapshot())),
];

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Info => "info",
        Kind::State => "state",
    }
}

fn method(row: &Row<'_>) -> Option<String> {
    match &row.attributes()?.method {
        Method::Counted => None,
        method => Some(method.to_string()),
    }
}

/// Values that wait, with 1 for each row that has one and 0 for each that has none.
struct Waiting<T> {
    values: Vec<T>,
    levels: Vec<i16>,
}

impl<T> Waiting<T> {
    fn push(&mut self, value: Option<T>) {
        self.levels.push(value.is_some().into());
        self.values.extend(value);
    }

    fn write<D: DataType<T = T>>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, std::fs::File>,
    ) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else {
            return Ok(());
        };
        let typed = column.typed::<D>();
        typed.write_batch(&self.values, Some(&self.levels), None)?;
        column.close()
    }
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            levels: Vec::new(),
        }
    }
}

enum Values {
    Long(Waiting<i64>),
    Int(Waiting<i32>),
    Double(Waiting<f64>),
    Bytes(Waiting<ByteArray>),
}

/// Rows that wait until their part is written.
pub(super) struct Rows(Vec<Values>);

impl Rows {
    pub(super) fn new() -> Self {
        let columns = COLUMNS.iter().map(|column| match column.fill {
            Fill::Long(_) => Values::Long(Waiting::default()),
            Fill::Int(_) => Values::Int(Waiting::default()),
            Fill::Double(_) => Values::Double(Waiting::default()),
            Fill::Text(_) | Fill::Bytes(_) => Values::Bytes(Waiting::default()),
        });
        Self(columns.collect())
    }

    pub(super) fn push(&mut self, row: &Row<'_>) {
        for (column, values) in COLUMNS.iter().zip(&mut self.0) {
            match (column.fill, values) {
                (Fill::Long(get), Values::Long(to)) => to.push(get(row).map(u64::cast_signed)),
                (Fill::Int(get), Values::Int(to)) => to.push(get(row).map(u32::cast_signed)),
                (Fill::Double(get), Values::Double(to)) => to.push(get(row)),
                (Fill::Text(get), Values::Bytes(to)) => {
                    to.push(get(row).map(|text| text.into_bytes().into()));
                }
                (Fill::Bytes(get), Values::Bytes(to)) => to.push(get(row).map(ByteArray::from)),
                _ => unreachable!("the values are made for the same columns"),
            }
        }
    }

    /// Writes them as one row group. They wait on.
    pub(super) fn write(&self, file: &mut Writer) -> io::Result<()> {
        self.write_columns(file).map_err(other)
    }

    fn write_columns(&self, file: &mut Writer) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        for values in &self.0 {
            match values {
                Values::Long(waiting) => waiting.write::<Int64Type>(&mut group)?,
                Values::Int(waiting) => waiting.write::<Int32Type>(&mut group)?,
                Values::Double(waiting) => waiting.write::<DoubleType>(&mut group)?,
                Values::Bytes(waiting) => waiting.write::<ByteArrayType>(&mut group)?,
            }
        }
        group.close().map(drop)
    }
}

/// What is the same in every file. Texts and numbers that are the same in many rows are in a
/// dictionary; snapshots are compressed as they are.
pub(super) fn layout() -> io::Result<Layout> {
    let snapshot = || ColumnPath::from(SNAPSHOT);
    let properties = WriterProperties::builder()
        .set_created_by(format!("pmuscope {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::SNAPPY)
        .set_column_compression(snapshot(), Compression::UNCOMPRESSED)
        .set_column_dictionary_enabled(snapshot(), false)
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_statistics_enabled(ColumnPath::from("end_ns"), EnabledStatistics::Chunk)
        .build();
    Ok(Layout {
        schema: schema().map_err(other)?,
        properties: Arc::new(properties),
    })
}

fn schema() -> Result<Arc<Type>, ParquetError> {
    let integer = |bits| Some(LogicalType::integer(bits, false));
    let fields = COLUMNS.iter().map(|column| {
        let (physical, logical) = match column.fill {
            Fill::Long(_) => (Physical::INT64, integer(64)),
            Fill::Int(_) => (Physical::INT32, integer(32)),
            Fill::Double(_) => (Physical::DOUBLE, None),
            Fill::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Fill::Bytes(_) => (Physical::BYTE_ARRAY, None),
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        Ok(Arc::new(field))
    });
    let schema = Type::group_type_builder("values")
        .with_fields(fields.collect::<Result<_, ParquetError>>()?)
        .build()?;
    Ok(Arc::new(schema))
}
