//! Recording of whole samples of memory accesses, from the kernel's buffers into files: of Arm's
//! SPE, or of the events that x86 has for them.
//!
//! The in-kernel programs only add samples up; this module keeps each one. A [`Recorder`] opens
//! what samples for a target, drains its buffers and passes what it finds to a [`Sink`]:
//! [`SampleFile`] writes samples as Parquet, [`RawFile`] keeps the bytes in the format of perf's
//! own files. [`Counts`] has every loss by name.

mod about;
mod baseline;
mod calibrated;
mod chunk;
mod clock;
mod columns;
mod cpu_buffer;
mod drain;
mod error;
mod follow;
mod hold;
mod kin;
mod losses;
mod machine;
mod method;
mod observer;
mod open;
mod options;
mod own;
pub(crate) mod parts;
pub mod perf_data;
mod perf_features;
mod present;
mod raw_file;
mod recorder;
pub mod regions;
mod replay;
mod ring;
mod rows;
mod sample;
mod sample_file;
mod spaces;
mod subtree;
mod target;
mod tasks;
#[cfg(test)]
mod tests;
mod time_namespace;
mod waiting;

use crate::{symbols::maps as mapping, sys::wire};

pub(crate) use self::about::RING_BYTES;
#[cfg(test)]
pub(crate) use self::about::of_each_method;
pub use self::{
    about::of_machine,
    baseline::AccessCounter,
    calibrated::{CALIBRATED_FORMAT, Calibrated, Mean, Over, Setting, Sweep, Unsampled},
    clock::TickClock,
    error::RecordError,
    losses::Counts,
    method::{AccessSampling, Method},
    observer::{Programs, metadata},
    options::{Buffers, Sampling, Size, SizeError},
    raw_file::RawFile,
    recorder::{Config, EventFile, Recorder},
    replay::{replay, replay_events},
    sample::{Access, AuxPlace, News, Sample, Seen, Sink, Who},
    sample_file::SampleFile,
    target::Target,
};
pub use crate::symbols::Mapping;
