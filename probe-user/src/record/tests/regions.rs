//! Regions and phases of samples, from records to the sink.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use probe_common::{Marked, What};

use super::{
    super::{
        Sample, Sink, TickClock,
        clock::Clock,
        drain::{Attribution, Drain, Owner, Shared, Wanted},
        machine::Sources,
        regions::Book,
        tasks::Tasks,
        wire::Stamp,
    },
    cell,
};
use crate::sys::records::Event;

/// Keeps regions and phases.
#[derive(Default)]
struct Named(Mutex<Vec<[Option<String>; 2]>>);
impl Sink for Named {
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
    let mut book = Book::new(Path::new("/nonexistent"));
    let name = Some(&b"a"[..]);
    for (time, what) in [
        (10, What::Start { name }),
        (
            20,
            What::Tag {
                name,
                start: 100,
                end: 200,
            },
        ),
        (30, What::Stop),
    ] {
        let (tgid, tid) = (5, 5);
        book.mark(&Marked {
            time,
            tgid,
            tid,
            what,
        });
    }
    book.settle();
    let mut tasks = Tasks::new(Path::new("/nonexistent"));
    let (pid, tid, exec) = (5, 5, false);
    let name = b"program";
    let known = Event::Comm {
        pid,
        tid,
        name,
        exec,
    };
    tasks.learn(&known, Stamp::default());
    let sink = Named::default();
    // A tick is a nanosecond.
    let ticks = TickClock {
        zero: 0,
        mult: 1,
        shift: 0,
    };
    let shared = Shared {
        clock: Some(Clock::fixed(ticks)),
        attribution: Attribution {
            by_context: true,
            by_aux_record: false,
        },
        sources: &Sources::default(),
        wanted: Wanted::default(),
        tasks: &Mutex::new(tasks),
        book: Some(&Mutex::new(book)),
        sink: &sink,
        last: true,
    };
    let places = [
        (5, 150, 5),
        (5, 150, 15),
        (5, 150, 25),
        (5, 250, 25),
        (5, 199, 35),
        (6, 150, 25),
    ];
    let cells: Vec<u8> = places
        .iter()
        .flat_map(|(tid, address, ticks)| cell(Some(*tid), *address, *ticks))
        .collect();
    let mut drain = Drain::new(0);
    drain.decode(&cells, 0, Owner::default(), &shared).unwrap();
    drain.done(Vec::new(), &shared).unwrap();
    let a = || Some("a".to_owned());
    // Of the last one's process nothing is known.
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
