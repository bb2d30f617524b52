//! Regions and phases of samples, from records to the sink.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use probe_common::{MarkerEvent, MarkerRecord};

use super::{
    super::{
        Sample, Sink, TickClock,
        clock::RecordClock,
        drain::{Attribution, AuxOwner, Drain, SampleFilter, SharedInputs},
        machine::DataSourceTables,
        regions::RegionIndex,
        tasks::Tasks,
        wire::Stamp,
    },
    cell,
};
use crate::sys::records::PerfRecord;

/// A sink that keeps the region and the phase of each sample.
#[derive(Default)]
struct CollectedRegions(Mutex<Vec<[Option<String>; 2]>>);
impl Sink for CollectedRegions {
    fn samples(&self, _thread: usize, samples: &[Sample]) -> io::Result<()> {
        let text = |name: &Option<Arc<str>>| name.as_deref().map(str::to_owned);
        let names = samples.iter().map(|it| [text(&it.region), text(&it.phase)]);
        self.0.lock().unwrap().extend(names);
        Ok(())
    }
}

/// Each sample has the region of its address, and the phase of its thread, at its own time.
#[test]
fn samples_have_the_regions_and_phases_of_their_times() {
    let mut region_index = RegionIndex::new(Path::new("/nonexistent"));
    let name = Some(&b"a"[..]);
    for (time, what) in [
        (10, MarkerEvent::Start { name }),
        (
            20,
            MarkerEvent::Tag {
                name,
                start: 100,
                end: 200,
            },
        ),
        (30, MarkerEvent::Stop),
    ] {
        let (tgid, tid) = (5, 5);
        region_index.mark(&MarkerRecord {
            time,
            tgid,
            tid,
            what,
        });
    }
    region_index.prepare_lookups();
    let mut tasks = Tasks::new(Path::new("/nonexistent"));
    let (pid, tid, exec) = (5, 5, false);
    let name = b"program";
    let comm = PerfRecord::Comm {
        pid,
        tid,
        name,
        exec,
    };
    tasks.on_record(&comm, Stamp::default());
    let sink = CollectedRegions::default();
    // A tick is a nanosecond.
    let ticks = TickClock {
        zero: 0,
        mult: 1,
        shift: 0,
    };
    let shared = SharedInputs {
        clock: Some(RecordClock::fixed(ticks)),
        attribution: Attribution {
            by_context: true,
            by_aux_record: false,
        },
        sources: &DataSourceTables::default(),
        filter: SampleFilter::default(),
        tasks: &Mutex::new(tasks),
        region_index: Some(&Mutex::new(region_index)),
        sink: &sink,
        is_last_round: true,
    };
    // Thread, address and time.
    let accesses = [
        (5, 150, 5),
        (5, 150, 15),
        (5, 150, 25),
        (5, 250, 25),
        (5, 199, 35),
        (6, 150, 25),
    ];
    let cells: Vec<u8> = accesses
        .iter()
        .flat_map(|(tid, address, ticks)| cell(Some(*tid), *address, *ticks))
        .collect();
    let mut drain = Drain::new(0);
    drain
        .decode(&cells, 0, AuxOwner::default(), &shared)
        .unwrap();
    drain.done(Vec::new(), &shared).unwrap();
    let a = || Some("a".to_owned());
    // The process of the last sample is unknown.
    let expected = [
        [None, None],
        [None, a()],
        [a(), a()],
        [None, a()],
        [a(), None],
        [None, None],
    ];
    assert_eq!(sink.0.into_inner().unwrap(), expected);
}
