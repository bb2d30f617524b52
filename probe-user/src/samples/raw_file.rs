//! Writes a recording as a perf.data file: ring records and AUX bytes as the kernel wrote them.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter},
    sync::{Mutex, MutexGuard, PoisonError},
};

use perf_event_open_sys::bindings::perf_event_attr;

use super::{
    AuxPosition, EventDescription, LazyMetadata, Recorder, Sink,
    perf_data::{ATTR, FileEvent, FileHead, PerfData, SPE_SAMPLE, TimeConversion, feature},
    perf_features::{build_id, machine_sections},
    wire::StampedRecords,
};
use crate::{machine::Machine, symbols::notes, sys::records};

/// The file of `--raw`.
#[derive(Debug)]
pub struct RawFile(Mutex<RawFileState>);

#[derive(Debug)]
struct RawFileState {
    file: PerfData<BufWriter<File>>,
    /// Build ids of executable mappings, by path.
    build_ids: BTreeMap<String, Vec<u8>>,
    /// The kernel's build id, encoded as an entry of the build-id section.
    kernel: Vec<u8>,
    /// Whether some build ids are not in the file yet.
    ids_changed: bool,
}

/// What a file needs to know of its recording at the start.
#[derive(Debug)]
pub(super) struct RawHead<'a> {
    /// The PMU type of the SPE.
    pub(super) pmu_type: u32,
    pub(super) per_thread: bool,
    pub(super) time: Option<TimeConversion>,
    pub(super) events: Vec<(String, EventDescription)>,
    pub(super) command: &'a [String],
}

impl RawFile {
    /// Begins the file; `command` is the command line.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn begin(file: File, recorder: &Recorder, command: &[String]) -> io::Result<Self> {
        let time = recorder.ticks().map(|clock| TimeConversion {
            zero: clock.zero,
            mult: clock.mult,
            shift: clock.shift,
        });
        let raw = RawHead {
            pmu_type: recorder.counter().map_or(0, |counter| counter.type_),
            per_thread: recorder.config.per_thread,
            time,
            events: recorder
                .event_names()
                .into_iter()
                .zip(recorder.event_files())
                .collect(),
            command,
        };
        let file = Self::with_head(file, &recorder.machine, raw)?;
        file.ring(&recorder.synthesized_events())?;
        Ok(file)
    }

    pub(super) fn with_head(file: File, machine: &Machine, raw: RawHead<'_>) -> io::Result<Self> {
        let RawHead {
            pmu_type,
            per_thread,
            time,
            events,
            command,
        } = raw;
        let file_events: Vec<FileEvent> = events
            .iter()
            .map(|(_, description)| file_event(description, pmu_type))
            .collect();
        let named = events.iter().zip(&file_events);
        let attrs_by_name: Vec<_> = named
            .map(|((name, _), event)| (name.clone(), event.attr))
            .collect();
        let head = FileHead {
            pmu_type,
            per_cpu: !per_thread,
            time,
            events: file_events,
            features: machine_sections(machine, command, &attrs_by_name),
        };
        let kernel_id = notes::of_kernel(machine.sysfs());
        let kernel = kernel_id.map(|id| build_id("[kernel.kallsyms]", &id, true));
        Ok(Self(Mutex::new(RawFileState {
            file: PerfData::begin(BufWriter::new(file), head)?,
            build_ids: BTreeMap::new(),
            ids_changed: kernel.is_some(),
            kernel: kernel.unwrap_or_default(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, RawFileState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(self) -> io::Result<()> {
        let state = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.file.finish().map(drop)
    }
}

impl RawFileState {
    /// Collects the build ids of executable mappings from ring records.
    fn on_record(&mut self, records: &[u8]) {
        for (event, _) in StampedRecords::new(records) {
            let records::PerfRecord::Map(map) = event else {
                continue;
            };
            let path = std::str::from_utf8(map.name).unwrap_or_default();
            let Some(id) = map
                .build_id
                .filter(|_| map.executable && path.starts_with('/'))
            else {
                continue;
            };
            if self.build_ids.get(path).is_none_or(|known| known != id) {
                self.build_ids.insert(path.to_owned(), id.to_vec());
                self.ids_changed = true;
            }
        }
    }
}

impl Sink for RawFile {
    fn ring(&self, records: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.on_record(records);
        state.file.records(records)
    }

    fn aux(&self, position: AuxPosition, bytes: &[u8]) -> io::Result<()> {
        let AuxPosition {
            area,
            offset,
            cpu,
            tid,
        } = position;
        self.state().file.aux(area, offset, tid, cpu, bytes)
    }

    fn events(&self, events: Vec<EventDescription>) {
        let ids = events.into_iter().map(|event| event.ids);
        self.state().file.ids(ids.collect());
    }

    fn round(&self, _news: LazyMetadata<'_>) -> io::Result<()> {
        let mut state = self.state();
        if std::mem::take(&mut state.ids_changed) {
            let mut section = state.kernel.clone();
            let ids = state.build_ids.iter();
            section.extend(ids.flat_map(|(path, id)| build_id(path, id, false)));
            state.file.feature(feature::BUILD_ID, section);
        }
        state.file.round()
    }
}

/// An event as the file describes it; `spe_type` is the PMU type of the SPE.
fn file_event(event: &EventDescription, spe_type: u32) -> FileEvent {
    let mut attr = event.attr;
    if attr.type_ == spe_type {
        attr.sample_type |= SPE_SAMPLE;
    }
    attr.size = u32::try_from(ATTR).expect("128");
    // SAFETY: the structure has at least ATTR bytes, and the first ATTR are integers without
    // padding.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const attr).cast::<u8>(), ATTR) };
    const { assert!(size_of::<perf_event_attr>() >= ATTR) };
    let mut cut = [0; ATTR];
    cut.copy_from_slice(bytes);
    FileEvent {
        attr: cut,
        ids: event.ids.clone(),
    }
}
