//! The decoder of Arm SPE records: one function for the kernel and for user space.
//!
//! The Statistical Profiling Extension writes one record per sampled operation into a buffer:
//! packets of a header and a little-endian payload, in an order that the core chooses, ended by a
//! timestamp or an end packet. [`Stream`] walks over them through a window of [`WINDOW`] bytes, as
//! the eBPF program needs it; [`Records`] runs the same functions over a whole buffer. A [`Record`]
//! keeps the raw payloads and interprets them on request, so that decoding costs no more than
//! copying.
//!
//! ```
//! use probe_common::spe::{BadCounts, Records};
//!
//! // A load (operation packet, total latency 11, end), then a byte that begins no packet.
//! let aux = [0x49, 0x00, 0x98, 0x0b, 0x00, 0x01, 0xff];
//! let (mut cycles, mut bad) = (0, BadCounts::default());
//! for record in Records::new(&aux) {
//!     match record {
//!         Ok(record) => cycles += u64::from(record.total_latency().unwrap_or(0)),
//!         Err(damage) => bad.add(damage.kind),
//!     }
//! }
//! assert_eq!((cycles, bad.total()), (11, 1));
//! ```
//!
//! Packet formats, fields and data-source tables follow the Arm Architecture Reference Manual (DDI
//! 0487, chapter "Statistical Profiling Extension Sample Record Specification") as Linux's perf
//! tool reads them (tools/perf/util/arm-spe-decoder). A field that perf does not decode is
//! documented as such.

mod access;
mod account;
mod address;
mod bad;
mod decode;
mod events;
mod line;
mod operation;
mod owner;
mod record;
mod records;
mod source;
mod stream;

pub use access::{Class, SpeAccess};
pub use account::{
    LATENCY_BUCKETS, LatencySum, PageKey, PageRow, SpeCpu, SpeKey, SpeRow, SpeSetting, Unattributed,
};
pub use address::{
    ExceptionLevel, InstructionAddress, PhysicalAddress, SecurityState, VirtualAddress,
};
pub use bad::{BadCounts, BadKind, BadRecord};
pub use decode::{Bytes, Stop, WINDOW};
pub use events::Events;
pub use line::{LINE_SHIFT, LineKey, LineRow};
pub use operation::{Branch, LoadStore, LoadStoreKind, Operation, OtherOperation};
pub use owner::{SpeClock, SpeSwitch, SpeTask, TIMELINE};
pub use record::Record;
pub use records::Records;
pub use source::{Origin, Source, SourceTable};
pub use stream::{Stream, WindowContent};
