//! Records about tasks are handled in order of time, whichever ring they are in and in whichever
//! round they are read: a child's records never come before its fork.

use std::{io, path::Path, sync::Mutex};

use proptest::prelude::*;

use super::{
    super::{
        RecordCounts, RecordTarget, Sample, Sink,
        cpu_buffer::{CpuBuffer, task_records},
        process_tree::ProcessTree,
    },
    Rounds,
    accesses::{LOAD, access_sample, fork, test_buffer},
};
use crate::sys::{ring::fake::RingWriter, samples::build};

/// A sink that writes forks into the rings of CPUs in place of the kernel: each fork after a given
/// number of rings was read.
struct WritesDuringRound {
    rings: Vec<RingWriter>,
    /// Number of rings read so far, in all rounds.
    rings_read: Mutex<usize>,
    /// Number of rings read before the kernel writes the fork, its CPU, and the record.
    forks: Mutex<Vec<(usize, usize, Vec<u8>)>>,
    /// The processes of the samples.
    pids: Mutex<Vec<Option<u32>>>,
}

impl WritesDuringRound {
    fn new(cpu_buffers: &[CpuBuffer], forks: Vec<(usize, usize, Vec<u8>)>) -> Self {
        Self {
            rings: { cpu_buffers.iter() }
                .map(|it| it.buffer.ring.writer())
                .collect(),
            rings_read: Mutex::new(0),
            forks: Mutex::new(forks),
            pids: Mutex::default(),
        }
    }
}

impl Sink for WritesDuringRound {
    fn ring(&self, _records: &[u8]) -> io::Result<()> {
        let mut rings_read = self.rings_read.lock().unwrap();
        *rings_read += 1;
        let mut forks = self.forks.lock().unwrap();
        for (_, cpu, record) in forks.extract_if(.., |(after, ..)| *after <= *rings_read) {
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

/// The kernel writes two forks at any point of the two passes over two rings. Where the second fork
/// is read before the first, the records are sorted, or the second fork is deferred.
#[test]
fn a_chain_of_forks_over_two_cpus_is_followed() {
    for rings_read in 1..=4 {
        let mut cpu_buffers = [test_buffer(0), test_buffer(1)];
        let forks = vec![
            (rings_read, 0, fork(7, 8, 20)),
            (rings_read, 1, fork(8, 9, 30)),
        ];
        let writes = WritesDuringRound::new(&cpu_buffers, forks);
        let mut rounds = Rounds::new(true);
        rounds.process_tree =
            ProcessTree::for_target(&RecordTarget::Process(7), Path::new("/nonexistent"));
        rounds.round(&mut cpu_buffers, &writes, false);
        for sample in [access_sample(8, 25, LOAD), access_sample(9, 35, LOAD)] {
            assert!(cpu_buffers[0].buffer.ring.push_aux(&build::sample(&sample)));
        }
        rounds.round(&mut cpu_buffers, &writes, false);
        assert_eq!(
            *writes.pids.lock().unwrap(),
            [Some(8), Some(9)],
            "after {rings_read} rings"
        );
    }
}

proptest! {
    /// All records come once and in order, whenever and into whichever ring they are written.
    #[test]
    fn records_come_in_order_from_round_to_round(
        rings in 1..5_usize,
        steps in prop::collection::vec((0..3_usize, 0..5_usize), 1..60),
    ) {
        let mut cpu_buffers: Vec<CpuBuffer> = (0..4).take(rings).map(test_buffer).collect();
        let (mut forks, mut rings_read, mut times) = (Vec::new(), 0, Vec::new());
        for (time, (later, cpu)) in (10..).zip(steps) {
            rings_read += later;
            forks.push((rings_read, cpu % rings, fork(1, 2, time)));
            times.push(time);
        }
        let writes = WritesDuringRound::new(&cpu_buffers, forks);
        let (mut counts, mut found) = (RecordCounts::default(), Vec::new());
        for round in 0.. {
            let last = writes.forks.lock().unwrap().is_empty() && round > 0;
            let events = task_records(&mut cpu_buffers, &mut counts, &writes, last).unwrap();
            found.extend(events.iter().map(|(stamp, _)| stamp.time));
            if last {
                break;
            }
        }
        prop_assert_eq!(found, times);
    }
}
