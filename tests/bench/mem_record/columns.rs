//! The columns as they were.

use probe_common::spe::{ExceptionLevel, LoadStoreKind, Operation};

use probe_user::record::Sample;

/// How a column gets its value; none is null.
#[derive(Clone, Copy)]
pub(super) enum Get {
    /// 64 bits without a sign.
    Long(fn(&Sample) -> Option<u64>),
    /// 32 bits without a sign.
    Int(fn(&Sample) -> Option<u32>),
    /// A text.
    Text(fn(&Sample) -> Option<&str>),
}

/// A column.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) get: Get,
}

const fn long(name: &'static str, get: fn(&Sample) -> Option<u64>) -> Column {
    let get = Get::Long(get);
    Column { name, get }
}

const fn int(name: &'static str, get: fn(&Sample) -> Option<u32>) -> Column {
    let get = Get::Int(get);
    Column { name, get }
}

const fn text(name: &'static str, get: fn(&Sample) -> Option<&str>) -> Column {
    let get = Get::Text(get);
    Column { name, get }
}

/// All columns, in their order.
pub(super) const COLUMNS: &[Column] = &[
    long("time_ns", |s| s.time),
    long("ticks", |s| s.record.timestamp()),
    int("cpu", |s| s.cpu),
    int("pid", |s| Some(s.who.as_ref()?.pid)),
    int("tid", |s| s.tid),
    text("comm", |s| Some(&s.who.as_ref()?.name)),
    text("cgroup", |s| s.who.as_ref()?.cgroup.as_deref()),
    long("pc", |s| Some(s.record.pc()?.address())),
    int("pc_el", |s| Some(level(s.record.pc()?.level()))),
    long("va", |s| Some(s.record.virtual_address()?.address())),
    int("va_tag", |s| Some(s.record.virtual_address()?.tag().into())),
    long("pa", |s| Some(s.record.physical_address()?.address())),
    text("pa_space", |s| {
        Some(s.record.physical_address()?.space().name())
    }),
    text("op", |s| Some(class(s.record.operation()?))),
    text("op_kind", |s| kind(s.record.operation()?)),
    int("op_raw", |s| Some(payload(s.record.operation()?).into())),
    long("events", |s| Some(s.record.events()?.bits())),
    int("total_latency", |s| s.record.total_latency().map(u32::from)),
    int("issue_latency", |s| s.record.issue_latency().map(u32::from)),
    int("alternate_issue_latency", |s| {
        s.record.alternate_issue_latency().map(u32::from)
    }),
    int("translation_latency", |s| {
        s.record.translation_latency().map(u32::from)
    }),
    long("data_source", |s| s.record.data_source()),
    text("source", |s| Some(s.origin?.source.name())),
    int("source_modified", |s| Some(s.origin?.modified.into())),
    long("branch_target", |s| {
        Some(s.record.branch_target()?.address())
    }),
    long("previous_target", |s| {
        Some(s.record.previous_target()?.address())
    }),
    int("context_el1", |s| s.record.context_el1()),
    int("context_el2", |s| s.record.context_el2()),
    int("skipped_packets", |s| Some(s.record.skipped().into())),
];

const fn level(level: ExceptionLevel) -> u32 {
    match level {
        ExceptionLevel::El0 => 0,
        ExceptionLevel::El1 => 1,
        ExceptionLevel::El2 => 2,
        ExceptionLevel::El3 => 3,
    }
}

const fn class(operation: Operation) -> &'static str {
    match operation {
        Operation::LoadStore(op) if op.is_store() => "store",
        Operation::LoadStore(_) => "load",
        Operation::Branch(_) => "branch",
        Operation::Other(_) => "other",
        Operation::Reserved(_) => "reserved",
    }
}

/// What the operation works on, or what kind of branch it is, as far as the core tells.
fn kind(operation: Operation) -> Option<&'static str> {
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
