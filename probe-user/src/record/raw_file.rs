//! The recording as a perf.data file: ring records and AUX bytes as the kernel gave them.

use std::{
    fs::File,
    io::{self, BufWriter},
};

use perf_event_open_sys::bindings::perf_event_attr;

use super::{
    AuxPlace, EventFile, Recorder, Sink,
    perf_data::{ATTR, Event, PerfData, SPE_SAMPLE, Time},
};
use crate::machine::Machine;

/// The file of `--raw`.
#[derive(Debug)]
pub struct RawFile(PerfData<BufWriter<File>>);

impl RawFile {
    /// Begins the file. `per_thread`: buffers are of threads, not of CPUs.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn begin(file: File, recorder: &Recorder, per_thread: bool) -> io::Result<Self> {
        let time = recorder.ticks().map(|clock| Time {
            zero: clock.zero,
            mult: clock.mult,
            shift: clock.shift,
        });
        let pmu = recorder.counter().type_;
        let mut file = PerfData::begin(BufWriter::new(file), pmu, !per_thread, time)?;
        file.records(&recorder.present())?;
        Ok(Self(file))
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn finish(self, recorder: &Recorder) -> io::Result<()> {
        let pmu = recorder.counter().type_;
        let events = recorder.event_files();
        let events: Vec<Event> = events.iter().map(|file| event(file, pmu)).collect();
        self.0
            .finish(&events, std::env::consts::ARCH, &cpuid(&recorder.machine))
            .map(drop)
    }
}

impl Sink for RawFile {
    fn ring(&mut self, records: &[u8]) -> io::Result<()> {
        self.0.records(records)
    }

    fn aux(&mut self, place: AuxPlace, bytes: &[u8]) -> io::Result<()> {
        let AuxPlace {
            area,
            offset,
            cpu,
            tid,
        } = place;
        self.0.aux(area, offset, tid, cpu, bytes)
    }

    fn round(&mut self) -> io::Result<()> {
        self.0.round()
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

/// `MIDR_EL1` of the first CPU, from which perf knows the meaning of data sources.
fn cpuid(machine: &Machine) -> String {
    machine
        .midr(0)
        .map_or(String::new(), |midr| format!("{midr:#018x}"))
}
