//! The columns of the file: name, type, unit, and how to get the value from a [`WindowRow`].
//! docs/recordings.md documents them; a test compares the two.

use std::{
    io,
    sync::{Arc, LazyLock},
};

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

use super::row::WindowRow;
use crate::{
    derive::{LABELS, LabelFill, LabelReach, MetricKind, ValueMethod, mem_level_name},
    record::parts::{Layout, ParquetWriter, into_io_error},
};

/// How a column gets its value; None is null.
#[derive(Clone, Copy)]
pub(super) enum WindowFill {
    Long(fn(&WindowRow<'_>) -> Option<u64>),
    Int(fn(&WindowRow<'_>) -> Option<u32>),
    Double(fn(&WindowRow<'_>) -> Option<f64>),
    Text(fn(&WindowRow<'_>) -> Option<String>),
    Bytes(for<'a> fn(&WindowRow<'a>) -> Option<&'a [u8]>),
    Label(LabelFill),
}

/// A column.
#[derive(Clone, Copy)]
pub(super) struct WindowColumn {
    pub(super) name: &'static str,
    /// Unit or kind of its values, for the file's metadata.
    pub(super) unit: &'static str,
    fill: WindowFill,
}

const fn column(name: &'static str, unit: &'static str, fill: WindowFill) -> WindowColumn {
    WindowColumn { name, unit, fill }
}

/// Name of the column that a replay reads.
pub(super) const SNAPSHOT: &str = "snapshot";

/// All columns, in their order.
pub(super) static COLUMNS: LazyLock<Vec<WindowColumn>> =
    LazyLock::new(|| [WINDOW_COLUMNS, label_columns().as_slice(), VALUE_COLUMNS].concat());

const WINDOW_COLUMNS: &[WindowColumn] = &[
    column("window", "number", WindowFill::Int(|row| Some(row.window))),
    column(
        "start_ns",
        "ns of CLOCK_MONOTONIC",
        WindowFill::Long(|row| Some(row.time.0)),
    ),
    column(
        "end_ns",
        "ns of CLOCK_MONOTONIC",
        WindowFill::Long(|row| Some(row.time.1)),
    ),
    column(
        "part",
        "name",
        WindowFill::Text(|row| Some(row.part().to_owned())),
    ),
];

/// The columns of labels: those of reports first.
fn label_columns() -> Vec<WindowColumn> {
    let of_reach = |reach: LabelReach| LABELS.iter().filter(move |label| label.reach == reach);
    of_reach(LabelReach::Reports)
        .chain(of_reach(LabelReach::Recordings))
        .map(|label| column(label.name, label.unit, WindowFill::Label(label.fill)))
        .collect()
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method is one of rows of a single lifetime"
)]
const VALUE_COLUMNS: &[WindowColumn] = &[
    column(
        "metric",
        "name",
        WindowFill::Text(|row| Some(row.metric()?.name.clone())),
    ),
    column(
        "metric_kind",
        "name",
        WindowFill::Text(|row| Some(kind(row.metric()?.kind).to_owned())),
    ),
    column(
        "unit",
        "unit",
        WindowFill::Text(|row| Some(row.metric()?.unit.clone())),
    ),
    column(
        "value",
        "column unit",
        WindowFill::Double(|row| Some(row.estimate()?.value)),
    ),
    column(
        "low",
        "column unit",
        WindowFill::Double(|row| Some(row.estimate()?.sampled_interval()?.0)),
    ),
    column(
        "high",
        "column unit",
        WindowFill::Double(|row| Some(row.estimate()?.sampled_interval()?.1)),
    ),
    column(
        "error",
        "column unit",
        WindowFill::Double(|row| row.estimate()?.error()),
    ),
    column(
        "live",
        "part of the time",
        WindowFill::Double(|row| Some(row.estimate()?.running_ratio)),
    ),
    column(
        "raw",
        "events or samples",
        WindowFill::Long(|row| Some(row.counter()?.raw)),
    ),
    column(
        "enabled_ns",
        "ns",
        WindowFill::Long(|row| Some(row.counter()?.time?.enabled)),
    ),
    column(
        "running_ns",
        "ns",
        WindowFill::Long(|row| Some(row.counter()?.time?.running)),
    ),
    column("reason", "text", WindowFill::Text(|row| row.reason())),
    column("method", "name", WindowFill::Text(method)),
    column(
        "socket",
        "socket",
        WindowFill::Int(|row| row.attributes()?.socket),
    ),
    column(
        "device",
        "name",
        WindowFill::Text(|row| row.attributes()?.device.clone()),
    ),
    column(
        "group",
        "counter group",
        WindowFill::Int(|row| row.attributes()?.group),
    ),
    column(
        "operation",
        "name",
        WindowFill::Text(|row| Some(row.attributes()?.operation?.name().to_owned())),
    ),
    column(
        "source",
        "name",
        WindowFill::Text(|row| row.attributes()?.source.map(mem_level_name)),
    ),
    column("histogram", "JSON", WindowFill::Text(|row| row.histogram())),
    column(
        SNAPSHOT,
        "gzip of JSON",
        WindowFill::Bytes(|row| row.snapshot()),
    ),
];

const fn kind(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
        MetricKind::Info => "info",
        MetricKind::State => "state",
    }
}

fn method(row: &WindowRow<'_>) -> Option<String> {
    match &row.attributes()?.method {
        ValueMethod::Counted => None,
        method => Some(method.to_string()),
    }
}

/// Buffered values, with a definition level for each row: 1 with a value, 0 without.
struct NullableValues<T> {
    values: Vec<T>,
    levels: Vec<i16>,
}

impl<T> NullableValues<T> {
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

impl<T> Default for NullableValues<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            levels: Vec::new(),
        }
    }
}

enum WindowValues {
    Long(NullableValues<i64>),
    Int(NullableValues<i32>),
    Double(NullableValues<f64>),
    Bytes(NullableValues<ByteArray>),
}

/// Buffered rows of a part.
pub(super) struct WindowRows(Vec<WindowValues>);

impl WindowRows {
    pub(super) fn new() -> Self {
        let columns = COLUMNS.iter().map(|column| match column.fill {
            WindowFill::Long(_) => WindowValues::Long(NullableValues::default()),
            WindowFill::Int(_) | WindowFill::Label(LabelFill::Number(_)) => {
                WindowValues::Int(NullableValues::default())
            }
            WindowFill::Double(_) => WindowValues::Double(NullableValues::default()),
            WindowFill::Text(_) | WindowFill::Label(LabelFill::Text(_)) | WindowFill::Bytes(_) => {
                WindowValues::Bytes(NullableValues::default())
            }
        });
        Self(columns.collect())
    }

    pub(super) fn push(&mut self, row: &WindowRow<'_>) {
        for (column, values) in COLUMNS.iter().zip(&mut self.0) {
            match (column.fill, values) {
                (WindowFill::Long(get), WindowValues::Long(to)) => {
                    to.push(get(row).map(u64::cast_signed));
                }
                (WindowFill::Int(get), WindowValues::Int(to)) => {
                    to.push(get(row).map(u32::cast_signed));
                }
                (WindowFill::Double(get), WindowValues::Double(to)) => to.push(get(row)),
                (WindowFill::Text(get), WindowValues::Bytes(to)) => {
                    to.push(get(row).map(|text| text.into_bytes().into()));
                }
                (WindowFill::Bytes(get), WindowValues::Bytes(to)) => {
                    to.push(get(row).map(ByteArray::from));
                }
                (WindowFill::Label(LabelFill::Number(get)), WindowValues::Int(to)) => {
                    to.push(row.labels().and_then(get).map(u32::cast_signed));
                }
                (WindowFill::Label(LabelFill::Text(get)), WindowValues::Bytes(to)) => {
                    to.push(row.labels().and_then(get).map(ByteArray::from));
                }
                _ => unreachable!("the values are made for the same columns"),
            }
        }
    }

    /// Writes them as one row group, and keeps them.
    pub(super) fn write(&self, file: &mut ParquetWriter) -> io::Result<()> {
        self.write_columns(file).map_err(into_io_error)
    }

    fn write_columns(&self, file: &mut ParquetWriter) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        for values in &self.0 {
            match values {
                WindowValues::Long(values) => values.write::<Int64Type>(&mut group)?,
                WindowValues::Int(values) => values.write::<Int32Type>(&mut group)?,
                WindowValues::Double(values) => values.write::<DoubleType>(&mut group)?,
                WindowValues::Bytes(values) => values.write::<ByteArrayType>(&mut group)?,
            }
        }
        group.close().map(drop)
    }
}

/// Schema and properties of every file. Columns are dictionary-encoded, except snapshots, which are
/// already compressed.
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
        schema: schema().map_err(into_io_error)?,
        properties: Arc::new(properties),
    })
}

fn schema() -> Result<Arc<Type>, ParquetError> {
    let integer = |bits| Some(LogicalType::integer(bits, false));
    let fields = COLUMNS.iter().map(|column| {
        let (physical, logical) = match column.fill {
            WindowFill::Long(_) => (Physical::INT64, integer(64)),
            WindowFill::Int(_) | WindowFill::Label(LabelFill::Number(_)) => {
                (Physical::INT32, integer(32))
            }
            WindowFill::Double(_) => (Physical::DOUBLE, None),
            WindowFill::Text(_) | WindowFill::Label(LabelFill::Text(_)) => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String))
            }
            WindowFill::Bytes(_) => (Physical::BYTE_ARRAY, None),
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
