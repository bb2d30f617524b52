//! The way of a sample through rings in plain memory: attribution, losses, order.

#[path = "../../../../probe-common/tests/support/fields.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the tests of the decoder use the rest of it"
)]
mod fields;
mod files;

use std::{io, path::Path};

use fields::Fields;
use perf_event_open_sys::bindings;
use proptest::prelude::*;

use super::{
    Counts, Sample, Sink,
    cpu_buffer::{Attribution, CpuBuffer, DrainContext},
    machine::Sources,
    open::Buffer,
    ring::{Ring, fake},
    tasks::Tasks,
    wire::{Stamp, build},
};

/// The record of a load on a Neoverse core.
fn cell(tid: Option<u32>, address: u64, ticks: u64) -> [u8; 64] {
    Fields {
        pc: Some(0x40_1000 | 1 << 63),
        context_el2: tid,
        operation: Some((1, 0)),
        events: Some((1, 0x16)),
        issue_latency: Some(4),
        total_latency: Some(11),
        translation_latency: Some(1),
        virtual_address: Some(address),
        data_source: Some((0, 0x0e)),
        timestamp: Some(ticks),
        ..Fields::default()
    }
    .neoverse()
}

/// A CPU's buffer and the kernel's side of it.
struct Kernel {
    /// AUX bytes so far.
    head: u64,
    cpu: u32,
}

impl Kernel {
    /// Writes samples for a task; the record that announces them may not fit. False where the AUX
    /// area is full.
    fn samples(&mut self, ring: &Ring, cells: &[u8], tid: u32, flags: u64, announce: bool) -> bool {
        let announced = announce && {
            let body = build::words(&[self.head, cells.len() as u64, flags]);
            ring.push(&build::record(
                bindings::PERF_RECORD_AUX,
                &body,
                self.stamp(tid),
            ))
        };
        let there = ring.push_aux(cells);
        assert!(there || !announced, "the test leaves capacity");
        self.head += if there { cells.len() as u64 } else { 0 };
        there
    }

    fn stamp(&self, tid: u32) -> Stamp {
        Stamp {
            pid: tid,
            tid,
            time: self.head + 1,
            cpu: self.cpu,
        }
    }
}

fn area(cpu: u32, ring: usize, aux: usize) -> CpuBuffer {
    let buffer = Buffer {
        ring: fake::ring(ring, aux),
        cpu: Some(cpu),
        tid: None,
        spe: Vec::new(),
        follow: Vec::new(),
    };
    CpuBuffer::new(buffer, cpu)
}

/// All that a recorder does in a round but the system calls.
struct Rounds {
    tasks: Tasks,
    counts: Counts,
    attribution: Attribution,
    bytes: Vec<u8>,
}

impl Rounds {
    fn new(by_context: bool) -> Self {
        Self {
            tasks: Tasks::new(Path::new("/nonexistent")),
            counts: Counts::default(),
            attribution: Attribution {
                by_context,
                by_aux_record: true,
            },
            bytes: Vec::new(),
        }
    }

    fn round(&mut self, areas: &mut [CpuBuffer], sink: &mut dyn Sink, last: bool) {
        areas.iter_mut().for_each(CpuBuffer::mark);
        self.after_mark(areas, sink, last);
    }

    fn after_mark(&mut self, areas: &mut [CpuBuffer], sink: &mut dyn Sink, last: bool) {
        for area in areas.iter_mut() {
            area.take(sink).unwrap();
        }
        let mut events = Vec::new();
        for area in areas.iter_mut() {
            area.read(&mut self.counts, &mut events);
        }
        for (stamp, event) in &events {
            self.tasks.learn(event, *stamp);
        }
        let mut shared = DrainContext {
            clock: None,
            attribution: self.attribution,
            sources: &Sources::default(),
            tasks: &mut self.tasks,
            counts: &mut self.counts,
            sink,
            bytes: &mut self.bytes,
            last,
        };
        for area in areas {
            area.decode(&mut shared).unwrap();
        }
        sink.round().unwrap();
        self.tasks.round_ends();
    }
}

/// Keeps samples: address and thread.
#[derive(Default)]
struct Kept(Vec<(u64, Option<u32>)>);

impl Sink for Kept {
    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let address = sample.record.virtual_address().unwrap().address();
        self.0.push((address, sample.tid));
        Ok(())
    }
}

/// What the kernel does next.
#[derive(Clone, Debug)]
enum Step {
    /// So many samples for a thread; announced or not.
    Samples(usize, u32, bool),
    /// Padding.
    Skip(usize),
    Round,
    /// Samples between the look at the AUX area and the ring.
    Torn(usize, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..20_usize, 1..5_u32, prop::bool::weighted(0.9)).prop_map(|(n, tid, a)| Step::Samples(n, tid, a)),
        1 => (1..10_usize).prop_map(Step::Skip),
        3 => Just(Step::Round),
        1 => (1..9_usize, 1..5_u32).prop_map(|(n, tid)| Step::Torn(n, tid)),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Every sample comes out once, in order and with its thread, over wraps of both areas, with
    /// announcements that were lost and samples that come while a round goes on. Without context
    /// packets those that nobody announced have no thread.
    #[test]
    fn every_sample_comes_out_once(steps in steps(), by_context: bool) {
        let mut areas = [area(3, 4096, 8192)];
        let mut kernel = Kernel { head: 0, cpu: 3 };
        let (mut rounds, mut kept) = (Rounds::new(by_context), Kept::default());
        let mut sent = Vec::new();
        let mut number = 0;
        let mut put = |kernel: &mut Kernel, ring: &Ring, count: usize, tid: u32, announce: bool, sent: &mut Vec<_>| {
            let context = by_context.then_some(tid);
            let mine: Vec<(u64, Option<u32>)> = (0..count as u64)
                .map(|n| (number + n, (announce || by_context).then_some(tid)))
                .collect();
            let cells: Vec<u8> = mine.iter().flat_map(|(n, _)| cell(context, *n, 1)).collect();
            if kernel.samples(ring, &cells, tid, 0, announce) {
                number += count as u64;
                sent.extend(mine);
            }
        };
        // Capacity in both areas until the next round.
        let (mut capacity, mut records) = (8192, 60);
        for step in steps {
            let size = match &step {
                Step::Samples(count, ..) | Step::Torn(count, _) => 64 * count,
                Step::Skip(bytes) => 64 * bytes,
                Step::Round => 0,
            };
            if size > capacity || records == 0 {
                rounds.round(&mut areas, &mut kept, false);
                rounds.round(&mut areas, &mut kept, false);
                (capacity, records) = (8192, 60);
            }
            capacity -= size;
            records -= 1;
            match step {
                Step::Samples(count, tid, announce) => {
                    put(&mut kernel, &areas[0].buffer.ring, count, tid, announce, &mut sent);
                }
                Step::Skip(cells) => {
                    areas[0].buffer.ring.push_aux(&vec![0; 64 * cells]);
                    kernel.head += 64 * cells as u64;
                }
                Step::Round => {
                    rounds.round(&mut areas, &mut kept, false);
                }
                Step::Torn(count, tid) => {
                    areas[0].mark();
                    put(&mut kernel, &areas[0].buffer.ring, count, tid, true, &mut sent);
                    rounds.after_mark(&mut areas, &mut kept, false);
                }
            }
        }
        rounds.round(&mut areas, &mut kept, true);
        prop_assert_eq!(kept.0, sent);
        prop_assert_eq!(rounds.counts.bad.total(), 0);
        prop_assert_eq!(rounds.counts.aux_bytes, kernel.head);
        prop_assert_eq!(rounds.counts.samples, number);
        // The first has the address 0.
        prop_assert_eq!(rounds.counts.invalid, number.min(1));
    }
}

#[test]
fn flags_and_lost_records_are_counted_and_stop_the_buffer() {
    let mut areas = [area(0, 4096, 8192)];
    let mut kernel = Kernel { head: 0, cpu: 0 };
    let (mut rounds, mut kept) = (Rounds::new(true), Kept::default());
    let sample = cell(Some(9), 1, 1);
    let flag = u64::from;
    for (flags, stopped) in [
        (0, false),
        (flag(bindings::PERF_AUX_FLAG_COLLISION), false),
        (flag(bindings::PERF_AUX_FLAG_TRUNCATED), true),
        (
            flag(bindings::PERF_AUX_FLAG_TRUNCATED | bindings::PERF_AUX_FLAG_PARTIAL),
            true,
        ),
        (flag(bindings::PERF_AUX_FLAG_OVERWRITE), false),
    ] {
        kernel.samples(&areas[0].buffer.ring, &sample, 9, flags, true);
        rounds.round(&mut areas, &mut kept, false);
        assert_eq!(areas[0].stopped, stopped, "{flags:#x}");
        areas[0].stopped = false;
    }
    let lost = build::record(
        bindings::PERF_RECORD_LOST,
        &build::words(&[7, 12]),
        kernel.stamp(9),
    );
    assert!(areas[0].buffer.ring.push(&lost));
    rounds.round(&mut areas, &mut kept, true);
    assert!(areas[0].stopped);
    let Counts {
        truncated,
        partial,
        collided,
        overwritten,
        lost_ring_records,
        aux_buffers,
        samples,
        ..
    } = rounds.counts;
    assert_eq!((truncated, partial, collided, overwritten), (2, 1, 1, 1));
    assert_eq!((lost_ring_records, aux_buffers, samples), (12, 5, 5));
    assert!(
        rounds
            .counts
            .losses()
            .starts_with("2 truncated buffers, 1 partial buffers")
    );
}

/// They are in the recording, but no samples of accesses.
#[test]
fn samples_with_an_address_or_time_of_zero_are_counted_as_invalid() {
    let mut areas = [area(0, 4096, 8192)];
    let mut kernel = Kernel { head: 0, cpu: 0 };
    let (mut rounds, mut kept) = (Rounds::new(true), Kept::default());
    let mut branch = cell(Some(9), 0, 0);
    branch[19] = 0x4a;
    let cells = [
        cell(Some(9), 1, 1),
        cell(Some(9), 0, 1),
        cell(Some(9), 2, 0),
        cell(Some(9), 0, 0),
        // Branches access nothing.
        branch,
    ];
    kernel.samples(&areas[0].buffer.ring, &cells.concat(), 9, 0, true);
    rounds.round(&mut areas, &mut kept, true);
    let counts = rounds.counts;
    assert_eq!(kept.0.len(), 5);
    assert_eq!((counts.samples, counts.invalid, counts.valid()), (5, 3, 2));
    assert!(counts.named().contains(&("invalid_samples".to_owned(), 3)));
    let losses = counts.losses();
    assert!(
        losses.contains("3 invalid samples (address or time zero)"),
        "{losses}"
    );
}

/// A process that was made on one CPU and ran on another has its name there, whichever is read
/// first.
#[test]
fn names_come_from_all_rings_before_the_samples_of_any() {
    let mut areas = [area(0, 4096, 8192), area(1, 4096, 8192)];
    let mut kernel = Kernel { head: 0, cpu: 0 };
    kernel.samples(&areas[0].buffer.ring, &cell(Some(20), 1, 1), 20, 0, true);
    let mut body = build::words32(&[20, 20]);
    body.extend(b"made\0\0\0\0");
    let comm = build::record(bindings::PERF_RECORD_COMM, &body, kernel.stamp(20));
    assert!(areas[1].buffer.ring.push(&comm));
    #[derive(Default)]
    struct Names(Vec<Option<String>>);
    impl Sink for Names {
        fn sample(&mut self, sample: &Sample) -> io::Result<()> {
            self.0.push(sample.name.as_ref().map(ToString::to_string));
            Ok(())
        }
    }
    let (mut rounds, mut names) = (Rounds::new(true), Names::default());
    rounds.round(&mut areas, &mut names, true);
    assert_eq!(names.0, [Some("made".to_owned())]);
}
