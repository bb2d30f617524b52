//! Records about tasks come in the order of their times, from whatever ring and in whatever round
//! they are taken: a child is not met before its parent's fork.

use std::{io, path::Path, sync::Mutex};

use proptest::prelude::*;

use super::{
    super::{
        Counts, Sample, Sink, Target,
        cpu_buffer::{CpuBuffer, task_records},
        kin::Kin,
    },
    Rounds,
    accesses::{LOAD, area, fork, taken},
};
use crate::sys::{ring::fake::Writer, samples::build};

/// What happens while a round goes on: forks, each in the ring of a CPU once so many rings were
/// taken.
struct Meanwhile {
    rings: Vec<Writer>,
    /// Rings that were taken, in all rounds.
    taken: Mutex<usize>,
    /// When, on which CPU, and the record.
    forks: Mutex<Vec<(usize, usize, Vec<u8>)>>,
    /// Processes with samples.
    pids: Mutex<Vec<Option<u32>>>,
}

impl Meanwhile {
    fn of(areas: &[CpuBuffer], forks: Vec<(usize, usize, Vec<u8>)>) -> Self {
        Self {
            rings: { areas.iter() }.map(|it| it.buffer.ring.writer()).collect(),
            taken: Mutex::new(0),
            forks: Mutex::new(forks),
            pids: Mutex::default(),
        }
    }
}

impl Sink for Meanwhile {
    fn ring(&self, _records: &[u8]) -> io::Result<()> {
        let mut taken = self.taken.lock().unwrap();
        *taken += 1;
        let mut forks = self.forks.lock().unwrap();
        for (_, cpu, record) in forks.extract_if(.., |(at, ..)| *at <= *taken) {
            assert!(self.rings[cpu].push(&record));
        }
        Ok(())
    }

    fn samples(&self, _thread: usize, samples: &[Sample]) -> io::Result<()> {
        let pids = samples.iter().map(|sample| sample.tid);
        self.pids.lock().unwrap().extend(pids);
        Ok(())
    }
}

/// Of a chain of forks the second one is taken first: in the same taking of all rings, or in the
/// last one of a round.
#[test]
fn a_chain_of_forks_over_two_cpus_is_wanted_whole() {
    for at in 1..=4 {
        let mut areas = [area(0), area(1)];
        let forks = vec![(at, 0, fork(7, 8, 20)), (at, 1, fork(8, 9, 30))];
        let meanwhile = Meanwhile::of(&areas, forks);
        let mut rounds = Rounds::new(true);
        rounds.kin = Kin::of(&Target::Process(7), Path::new("/nonexistent"));
        rounds.round(&mut areas, &meanwhile, false);
        for sample in [taken(8, 25, LOAD), taken(9, 35, LOAD)] {
            assert!(areas[0].buffer.ring.push_aux(&build::sample(&sample)));
        }
        rounds.round(&mut areas, &meanwhile, false);
        assert_eq!(
            *meanwhile.pids.lock().unwrap(),
            [Some(8), Some(9)],
            "after {at} rings"
        );
    }
}

proptest! {
    /// Whenever and wherever they are written, all come once and in order.
    #[test]
    fn records_come_in_order_from_round_to_round(
        rings in 1..5_usize,
        steps in prop::collection::vec((0..3_usize, 0..5_usize), 1..60),
    ) {
        let mut areas: Vec<CpuBuffer> = (0..4).take(rings).map(area).collect();
        let (mut forks, mut at, mut times) = (Vec::new(), 0, Vec::new());
        for (time, (later, cpu)) in (10..).zip(steps) {
            at += later;
            forks.push((at, cpu % rings, fork(1, 2, time)));
            times.push(time);
        }
        let meanwhile = Meanwhile::of(&areas, forks);
        let (mut counts, mut found) = (Counts::default(), Vec::new());
        for round in 0.. {
            let last = meanwhile.forks.lock().unwrap().is_empty() && round > 0;
            let events = task_records(&mut areas, &mut counts, &meanwhile, last).unwrap();
            found.extend(events.iter().map(|(stamp, _)| stamp.time));
            if last {
                break;
            }
        }
        prop_assert_eq!(found, times);
    }
}
