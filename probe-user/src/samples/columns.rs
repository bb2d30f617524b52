//! The columns of the samples' Parquet file: name, type, unit, and how to get the value from a
//! [`Sample`]. docs/reference/mem-record.md documents the columns; a test compares it with this
//! list.

use std::sync::Arc;

use probe_common::spe::{Class, ExceptionLevel, LoadStoreKind, Operation};

use super::{
    Sample,
    column_buffers::{ColumnBuffer, NameLookup},
    sample::SampleData,
};

/// How a column gets the values of a batch of samples; None is null. Columns of numbers have a
/// function for a whole batch, which avoids a call per value.
#[derive(Clone, Copy)]
pub(super) enum SampleFill {
    /// Wall-clock time, in ns since 1970: the sum of a sample's time and the file's boot time.
    UnixTime,
    /// Unsigned, 64 bits.
    Long(fn(&[Sample], &mut ColumnBuffer<i64>)),
    /// Unsigned, 32 bits.
    Int(fn(&[Sample], &mut ColumnBuffer<i32>)),
    /// One of a few names.
    Name(NameLookup),
    /// Any text.
    Text(fn(&Sample) -> Option<&Arc<str>>),
}

/// A column.
#[derive(Clone, Copy)]
pub(super) struct SampleColumn {
    pub(super) name: &'static str,
    /// Unit or kind of the values, for the file's metadata.
    pub(super) unit: &'static str,
    pub(super) fill: SampleFill,
}

macro_rules! column {
    ($fill:expr, $name:literal, $unit:literal) => {
        SampleColumn {
            name: $name,
            unit: $unit,
            fill: $fill,
        }
    };
}

macro_rules! long {
    ($name:literal, $unit:literal, $get:expr) => {
        column!(
            SampleFill::Long(|samples, buffer| {
                let get: fn(&Sample) -> Option<u64> = $get;
                buffer.extend(samples, |sample| get(sample).map(u64::cast_signed));
            }),
            $name,
            $unit
        )
    };
}

macro_rules! int {
    ($name:literal, $unit:literal, $get:expr) => {
        column!(
            SampleFill::Int(|samples, buffer| {
                let get: fn(&Sample) -> Option<u32> = $get;
                buffer.extend(samples, |sample| get(sample).map(u32::cast_signed));
            }),
            $name,
            $unit
        )
    };
}

macro_rules! name {
    ($name:literal, $unit:literal, $key:expr, $get:expr) => {
        column!(
            SampleFill::Name(NameLookup {
                key: $key,
                name: $get
            }),
            $name,
            $unit
        )
    };
}

macro_rules! text {
    ($name:literal, $unit:literal, $get:expr) => {
        column!(SampleFill::Text($get), $name, $unit)
    };
}

/// All columns, in their order.
pub(super) const COLUMNS: &[SampleColumn] = &[
    long!("time_ns", "ns of CLOCK_MONOTONIC", |s| s.time),
    column!(SampleFill::UnixTime, "time", "ns since 1970, UTC"),
    long!("ticks", "ticks of the generic timer", |s| s
        .record()?
        .timestamp()),
    int!("cpu", "CPU", |s| s.cpu),
    int!("pid", "process", |s| Some(s.task.as_ref()?.pid)),
    int!("tid", "thread", |s| s.tid),
    text!("comm", "name", |s| Some(&s.task.as_ref()?.name)),
    text!("cgroup", "path", |s| s.cgroup.as_ref()),
    long!("pc", "address", |s| Some(match &s.data {
        SampleData::Record(record) => record.pc()?.address(),
        SampleData::Access(access) => access.pc,
    })),
    int!("pc_el", "exception level", |s| Some(level_number(
        s.record()?.pc()?.level()
    ))),
    long!("va", "address", Sample::address),
    int!("va_tag", "tag", |s| Some(
        s.record()?.virtual_address()?.tag().into()
    )),
    long!("pa", "address", |s| Some(
        s.record()?.physical_address()?.address()
    )),
    name!(
        "pa_space",
        "name",
        |s| Some(s.record()?.physical_address()?.space() as u16),
        |s| Some(s.record()?.physical_address()?.space().name())
    ),
    name!("op", "name", operation_key, |s| Some(match &s.data {
        SampleData::Record(record) => class_name(record.operation()?),
        SampleData::Access(_) => match s.class()? {
            Class::Store => "store",
            _ => "load",
        },
    })),
    name!("op_kind", "name", operation_key, |s| kind_name(
        s.record()?.operation()?
    )),
    int!("op_raw", "bits", |s| Some(
        payload(s.record()?.operation()?).into()
    )),
    long!("events", "bits", |s| Some(s.record()?.events()?.bits())),
    int!("total_latency", "cycles", Sample::cycles),
    int!("issue_latency", "cycles", |s| s
        .record()?
        .issue_latency()
        .map(u32::from)),
    int!(
        "alternate_issue_latency",
        "cycles of the unit's own clock",
        |s| { s.record()?.alternate_issue_latency().map(u32::from) }
    ),
    int!("translation_latency", "cycles", |s| {
        s.record()?.translation_latency().map(u32::from)
    }),
    long!("data_source", "number of the core", |s| match &s.data {
        SampleData::Record(record) => record.data_source(),
        SampleData::Access(access) => Some(access.word),
    }),
    name!("source", "name", |s| Some(s.source()? as u16), |s| {
        Some(s.source()?.name())
    }),
    int!("source_modified", "0 or 1", |s| s
        .is_modified()
        .map(u32::from)),
    long!("branch_target", "address", |s| {
        Some(s.record()?.branch_target()?.address())
    }),
    long!("previous_target", "address", |s| {
        Some(s.record()?.previous_target()?.address())
    }),
    int!("context_el1", "CONTEXTIDR_EL1", |s| s
        .record()?
        .context_el1()),
    int!("context_el2", "CONTEXTIDR_EL2", |s| s
        .record()?
        .context_el2()),
    int!("skipped_packets", "packets", |s| Some(
        s.record()?.skipped().into()
    )),
    text!("region", "name", |s| s.region.as_ref()),
    text!("phase", "names with a slash between", |s| s.phase.as_ref()),
];

const fn level_number(level: ExceptionLevel) -> u32 {
    match level {
        ExceptionLevel::El0 => 0,
        ExceptionLevel::El1 => 1,
        ExceptionLevel::El2 => 2,
        ExceptionLevel::El3 => 3,
    }
}

/// The key by which names of an operation are cached: its class and payload in one number.
fn operation_key(sample: &Sample) -> Option<u16> {
    let record = match &sample.data {
        SampleData::Record(record) => record,
        // Bit 15 distinguishes these keys from those of SPE, which are below 4 << 8.
        SampleData::Access(_) => return Some(1 << 15 | sample.class()? as u16),
    };
    let operation = record.operation()?;
    let class = match operation {
        Operation::Other(_) => 0,
        Operation::LoadStore(_) => 1,
        Operation::Branch(_) => 2,
        Operation::Reserved(_) => 3,
    };
    Some(class << u8::BITS | u16::from(payload(operation)))
}

const fn class_name(operation: Operation) -> &'static str {
    match operation {
        Operation::LoadStore(op) if op.is_store() => "store",
        Operation::LoadStore(_) => "load",
        Operation::Branch(_) => "branch",
        Operation::Other(_) => "other",
        Operation::Reserved(_) => "reserved",
    }
}

/// The kind of an access or a branch; None if the core does not report it.
fn kind_name(operation: Operation) -> Option<&'static str> {
    Some(match operation {
        Operation::LoadStore(op) => match op.kind() {
            LoadStoreKind::General => "general",
            LoadStoreKind::SimdFp => "simd_fp",
            LoadStoreKind::Unspecified => "unspecified",
            LoadStoreKind::SystemRegister => "system_register",
            LoadStoreKind::Tag => "tag",
            LoadStoreKind::Copy => "copy",
            LoadStoreKind::Set => "set",
            LoadStoreKind::Ordered { atomic: true, .. } => "atomic",
            LoadStoreKind::Ordered {
                exclusive: true, ..
            } => "exclusive",
            LoadStoreKind::Ordered {
                acquire_release: true,
                ..
            } => "acquire_release",
            LoadStoreKind::Sve {
                gather_scatter: true,
                ..
            } => "sve_gather_scatter",
            LoadStoreKind::Sve { .. } => "sve",
            LoadStoreKind::ControlStack { .. } => "control_stack",
            LoadStoreKind::Ordered { .. } | LoadStoreKind::Unknown => return None,
        },
        Operation::Branch(op) if op.is_call() => "call",
        Operation::Branch(op) if op.is_return() => "return",
        Operation::Branch(op) if op.is_conditional() => "conditional",
        Operation::Branch(op) if op.is_indirect() => "indirect",
        Operation::Other(op) if op.sve_bits().is_some() => "sve",
        Operation::Other(op) if op.sme_bits().is_some() => "sme",
        Operation::Other(op) if op.conditional() => "conditional",
        Operation::Branch(_) | Operation::Other(_) | Operation::Reserved(_) => return None,
    })
}

const fn payload(operation: Operation) -> u8 {
    match operation {
        Operation::LoadStore(op) => op.raw(),
        Operation::Branch(op) => op.raw(),
        Operation::Other(op) => op.raw(),
        Operation::Reserved(raw) => raw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_documented_once_and_in_order() {
        let text = include_str!("../../../docs/reference/mem-record.md");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        let columns: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        assert!(
            documented.starts_with(&columns),
            "docs/reference/mem-record.md lists {documented:?}, the file has {columns:?}"
        );
    }
}
