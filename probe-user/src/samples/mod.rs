//! Records every sample of memory accesses into files: from Arm's SPE, or from x86's sampled events
//! for memory accesses.
//!
//! The BPF programs only aggregate samples; this module keeps each one. A [`Recorder`] opens the
//! sampling events of a target, drains their buffers and passes the contents to a [`Sink`]:
//! [`SampleFile`] writes samples as Parquet, [`RawFile`] keeps the raw bytes as a perf.data file.
//! [`RecordCounts`] counts every kind of loss by its name.

mod about;
mod address_spaces;
mod backend;
mod baseline;
mod calibrated;
mod chunk;
mod clock;
mod column_buffers;
mod columns;
mod cpu_buffer;
mod cpu_hotplug;
mod drain;
mod error;
mod losses;
mod machine;
mod marks;
mod observer;
mod open;
mod options;
mod part_files;
pub(crate) mod parts;
mod per_thread;
pub mod perf_data;
mod perf_features;
mod period_control;
mod process_tree;
mod raw_file;
mod recorder;
pub mod regions;
mod replay;
mod ring;
mod rows;
mod sample;
mod sample_file;
mod sample_reader;
mod subtree;
mod synthesized_events;
mod target;
mod tasks;
#[cfg(test)]
mod tests;
mod time_namespace;

use crate::{symbols::maps as mapping, sys::wire};

#[cfg(test)]
pub(crate) use self::about::metadata_of_each_method;
pub use self::{
    about::machine_metadata,
    backend::{AccessSampling, SamplingMethod},
    baseline::AccessCounter,
    calibrated::{
        CALIBRATED_FORMAT, Calibrated, CalibratedSetting, Mean, Sweep, SweepPlot, SweptOption,
        Unsampled,
    },
    clock::TickClock,
    error::RecordError,
    losses::RecordCounts,
    observer::{MarkerPrograms, metadata},
    options::{Buffers, Size, SizeError, SpeOptions},
    part_files::SampleReadError,
    raw_file::RawFile,
    recorder::{EventDescription, RecordConfig, Recorder},
    replay::{replay, replay_events},
    sample::{Access, AuxPosition, LazyMetadata, Sample, SampleData, Sink, TaskInfo},
    sample_file::SampleFile,
    sample_reader::{SampleReader, SampleRow, TextIndex},
    target::RecordTarget,
};
pub(crate) use self::{
    about::{RING_BYTES, boot_time},
    part_files::PARQUET_MAGIC,
};
pub use crate::symbols::Mapping;
