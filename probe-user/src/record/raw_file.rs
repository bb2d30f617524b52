//! The recording as a perf.data file: ring records and AUX bytes as the kernel gave them.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter},
    sync::{Mutex, MutexGuard, PoisonError},
};

use perf_event_open_sys::bindings::perf_event_attr;

use super::{
    AuxPlace, EventFile, News, Recorder, Sink,
    perf_data::{ATTR, Beginning, Event, PerfData, SPE_SAMPLE, Time, feature},
    perf_features::{build_id, of_machine},
    wire::StampedEvents,
};
use crate::{machine::Machine, symbols::notes, sys::records};

/// The file of `--raw`.
#[derive(Debug)]
pub struct RawFile(Mutex<State>);

#[derive(Debug)]
struct State {
    file: PerfData<BufWriter<File>>,
    /// Build ids of the files that were mapped to execute, by path.
    build_ids: BTreeMap<String, Vec<u8>>,
    /// That of the kernel, as an entry of the file.
    kernel: Vec<u8>,
    /// Some are not in the file yet.
    new: bool,
}

/// What a file of a recording is begun with.
#[derive(Debug)]
pub(super) struct Raw<'a> {
    /// The PMU type of the SPE.
    pub(super) pmu_type: u32,
    pub(super) per_thread: bool,
    pub(super) time: Option<Time>,
    pub(super) events: Vec<(String, EventFile)>,
    pub(super) command: &'a [String],
}

impl RawFile {
    /// Begins the file; `command` is how this program was called.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn begin(file: File, recorder: &Recorder, command: &[String]) -> io::Result<Self> {
        let time = recorder.ticks().map(|clock| Time {
            zero: clock.zero,
            mult: clock.mult,
            shift: clock.shift,
        });
        let raw = Raw {
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
        let file = Self::of(file, &recorder.machine, raw)?;
        file.ring(&recorder.present())?;
        Ok(file)
    }

    pub(super) fn of(file: File, machine: &Machine, raw: Raw<'_>) -> io::Result<Self> {
        let Raw {
            pmu_type,
            per_thread,
            time,
            events,
            command,
        } = raw;
        let files = events.iter().map(|(_, file)| event(file, pmu_type));
        let files: Vec<Event> = files.collect();
        let names = events.iter().zip(&files);
        let named: Vec<_> = names
            .map(|((name, _), event)| (name.clone(), event.attr))
            .collect();
        let beginning = Beginning {
            pmu_type,
            per_cpu: !per_thread,
            time,
            events: files,
            features: of_machine(machine, command, &named),
        };
        let kernel = notes::of_kernel(machine.sysfs());
        let kernel = kernel.map(|id| build_id("[kernel.kallsyms]", &id, true));
        Ok(Self(Mutex::new(State {
            file: PerfData::begin(BufWriter::new(file), beginning)?,
            build_ids: BTreeMap::new(),
            new: kernel.is_some(),
            kernel: kernel.unwrap_or_default(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn finish(self) -> io::Result<()> {
        let state = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.file.finish().map(drop)
    }
}

impl State {
    /// Notes the build ids that the records have.
    fn learn(&mut self, records: &[u8]) {
        for (event, _) in StampedEvents::new(records) {
            let records::Event::Map(map) = event else {
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
                self.new = true;
            }
        }
    }
}

impl Sink for RawFile {
    fn ring(&self, records: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.learn(records);
        state.file.records(records)
    }

    fn aux(&self, place: AuxPlace, bytes: &[u8]) -> io::Result<()> {
        let AuxPlace {
            area,
            offset,
            cpu,
            tid,
        } = place;
        self.state().file.aux(area, offset, tid, cpu, bytes)
    }

    fn events(&self, events: Vec<EventFile>) {
        let ids = events.into_iter().map(|event| event.ids);
        self.state().file.ids(ids.collect());
    }

    fn round(&self, _news: News<'_>) -> io::Result<()> {
        let mut state = self.state();
        if std::mem::take(&mut state.new) {
            let mut section = state.kernel.clone();
            let ids = state.build_ids.iter();
            section.extend(ids.flat_map(|(path, id)| build_id(path, id, false)));
            state.file.feature(feature::BUILD_ID, section);
        }
        state.file.round()
    }
}

fn event(file: &EventFile, spe: u32) -> Event {
    let mut attr = file.attr;
    if attr.type_ == spe {
        attr.sample_type |= SPE_SAMPLE;
    }
    attr.size = u32::try_from(ATTR).expect("128");
    // SAFETY: the structure is plain integers without padding at its start, and larger than ATTR.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const attr).cast::<u8>(), ATTR) };
    const { assert!(size_of::<perf_event_attr>() >= ATTR) };
    let mut cut = [0; ATTR];
    cut.copy_from_slice(bytes);
    Event {
        attr: cut,
        ids: file.ids.clone(),
    }
}
