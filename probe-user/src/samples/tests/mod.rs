//! SPE samples that pass through rings in plain memory: attribution, losses and order.

mod accesses;
mod files;
mod order;
mod perf;
mod regions;
mod rounds;

use std::{io, sync::Mutex};

use perf_event_open_sys::bindings;
use proptest::prelude::*;

use self::rounds::{CollectedSamples, FakeKernel, Rounds, buffer_with_ring, cell, test_buffer};
use super::{RecordCounts, Sample, Sink, cpu_buffer::CpuBuffer, ring::BufferRings, wire::build};

/// A step of a test: the kernel writes, or a round reads.
#[derive(Clone, Debug)]
enum KernelStep {
    /// The kernel writes samples: their number, their thread, and whether a `PERF_RECORD_AUX`
    /// follows them.
    Samples(usize, u32, bool),
    /// The kernel writes padding: its number of 64-byte cells (one SPE record each).
    Skip(usize),
    /// A round reads all.
    Round,
    /// The kernel writes samples (their number, their thread) during a round: after the AUX head
    /// was read, and before the ring is read.
    Torn(usize, u32),
}

fn steps() -> impl Strategy<Value = Vec<KernelStep>> {
    let step = prop_oneof![
        4 => (1..20_usize, 1..5_u32, prop::bool::weighted(0.9))
            .prop_map(|(n, tid, announced)| KernelStep::Samples(n, tid, announced)),
        1 => (1..10_usize).prop_map(KernelStep::Skip),
        3 => Just(KernelStep::Round),
        1 => (1..9_usize, 1..5_u32).prop_map(|(n, tid)| KernelStep::Torn(n, tid)),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Every sample is read once, in order and with its thread. This holds when the ring and the
    /// AUX buffer wrap, when `PERF_RECORD_AUX` records are lost, and when samples arrive during a
    /// round. Without context packets, samples without a `PERF_RECORD_AUX` have no thread.
    #[test]
    fn every_sample_is_read_once(steps in steps(), by_context: bool) {
        let mut cpu_buffers = [test_buffer(3, 4096, 8192)];
        let mut kernel = FakeKernel { head: 0, cpu: 3 };
        let (mut rounds, collected) = (Rounds::new(by_context), CollectedSamples::default());
        let mut sent = Vec::new();
        let mut number = 0;
        let mut put = |kernel: &mut FakeKernel,
                       ring: &BufferRings,
                       count: usize,
                       tid: u32,
                       announce: bool,
                       sent: &mut Vec<_>| {
            let context = by_context.then_some(tid);
            let samples: Vec<(u64, Option<u32>)> = (0..count as u64)
                .map(|n| (number + n, (announce || by_context).then_some(tid)))
                .collect();
            let cells: Vec<u8> = samples.iter().flat_map(|(n, _)| cell(context, *n, 1)).collect();
            if kernel.samples(ring, &cells, tid, 0, announce) {
                number += count as u64;
                sent.extend(samples);
            }
        };
        // Free space until the next round: bytes of the AUX area, and records of the ring.
        let (mut capacity, mut records) = (8192, 60);
        for step in steps {
            let size = match &step {
                KernelStep::Samples(count, ..) | KernelStep::Torn(count, _) => 64 * count,
                KernelStep::Skip(cells) => 64 * cells,
                KernelStep::Round => 0,
            };
            if size > capacity || records == 0 {
                rounds.round(&mut cpu_buffers, &collected, false);
                rounds.round(&mut cpu_buffers, &collected, false);
                (capacity, records) = (8192, 60);
            }
            capacity -= size;
            records -= 1;
            match step {
                KernelStep::Samples(count, tid, announce) => {
                    put(&mut kernel, &cpu_buffers[0].buffer.ring, count, tid, announce, &mut sent);
                }
                KernelStep::Skip(cells) => {
                    cpu_buffers[0].buffer.ring.push_aux(&vec![0; 64 * cells]);
                    kernel.head += 64 * cells as u64;
                }
                KernelStep::Round => {
                    rounds.round(&mut cpu_buffers, &collected, false);
                }
                KernelStep::Torn(count, tid) => {
                    cpu_buffers[0].mark();
                    put(&mut kernel, &cpu_buffers[0].buffer.ring, count, tid, true, &mut sent);
                    rounds.after_mark(&mut cpu_buffers, &collected, false);
                }
            }
        }
        rounds.round(&mut cpu_buffers, &collected, true);
        prop_assert_eq!(collected.take(), sent);
        prop_assert_eq!(rounds.counts.bad.total(), 0);
        prop_assert_eq!(rounds.counts.aux_bytes, kernel.head);
        prop_assert_eq!(rounds.counts.samples, number);
        // The first sample is invalid, since its address is 0.
        prop_assert_eq!(rounds.counts.invalid, number.min(1));
    }
}

#[test]
fn flags_are_counted_and_truncation_or_lost_records_stop_the_buffer() {
    let mut cpu_buffers = [test_buffer(0, 4096, 8192)];
    let mut kernel = FakeKernel { head: 0, cpu: 0 };
    let (mut rounds, collected) = (Rounds::new(true), CollectedSamples::default());
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
        kernel.samples(&cpu_buffers[0].buffer.ring, &sample, 9, flags, true);
        rounds.round(&mut cpu_buffers, &collected, false);
        assert_eq!(cpu_buffers[0].stopped, stopped, "{flags:#x}");
        cpu_buffers[0].stopped = false;
    }
    let lost = build::record(
        bindings::PERF_RECORD_LOST,
        &build::words(&[7, 12]),
        kernel.stamp(9),
    );
    assert!(cpu_buffers[0].buffer.ring.push(&lost));
    rounds.round(&mut cpu_buffers, &collected, true);
    assert!(cpu_buffers[0].stopped);
    let RecordCounts {
        truncated,
        partial,
        collided,
        overwritten,
        lost_ring_records,
        aux_records,
        samples,
        ..
    } = rounds.counts;
    assert_eq!((truncated, partial, collided, overwritten), (2, 1, 1, 1));
    assert_eq!((lost_ring_records, aux_records, samples), (12, 5, 5));
    assert!(
        rounds
            .counts
            .losses()
            .starts_with("2 truncated buffers, 1 partial buffers")
    );
}

/// Invalid samples are recorded, but do not count as accesses.
#[test]
fn samples_with_an_address_or_time_of_zero_are_counted_as_invalid() {
    let mut cpu_buffers = [test_buffer(0, 4096, 8192)];
    let mut kernel = FakeKernel { head: 0, cpu: 0 };
    let (mut rounds, collected) = (Rounds::new(true), CollectedSamples::default());
    let mut branch = cell(Some(9), 0, 0);
    branch[19] = 0x4a;
    let cells = [
        cell(Some(9), 1, 1),
        cell(Some(9), 0, 1),
        cell(Some(9), 2, 0),
        cell(Some(9), 0, 0),
        // A branch accesses no data, so an address of zero is valid.
        branch,
    ];
    kernel.samples(&cpu_buffers[0].buffer.ring, &cells.concat(), 9, 0, true);
    rounds.round(&mut cpu_buffers, &collected, true);
    let counts = rounds.counts;
    assert_eq!(collected.take().len(), 5);
    assert_eq!((counts.samples, counts.invalid, counts.valid()), (5, 3, 2));
    assert!(counts.named().contains(&("invalid_samples".to_owned(), 3)));
    let losses = counts.losses();
    assert!(
        losses.contains("3 invalid samples (address or time zero)"),
        "{losses}"
    );
}

/// A process that gets its name on one CPU and runs on another one has the name there too,
/// whichever ring is read first.
#[test]
fn names_of_all_rings_are_read_before_samples() {
    let mut cpu_buffers = [test_buffer(0, 4096, 8192), test_buffer(1, 4096, 8192)];
    let mut kernel = FakeKernel { head: 0, cpu: 0 };
    kernel.samples(
        &cpu_buffers[0].buffer.ring,
        &cell(Some(20), 1, 1),
        20,
        0,
        true,
    );
    let mut body = build::words32(&[20, 20]);
    body.extend(b"made\0\0\0\0");
    let comm = build::record(bindings::PERF_RECORD_COMM, &body, kernel.stamp(20));
    assert!(cpu_buffers[1].buffer.ring.push(&comm));
    #[derive(Default)]
    struct CollectedNames(Mutex<Vec<Option<String>>>);
    impl Sink for CollectedNames {
        fn samples(&self, _thread: usize, samples: &[Sample]) -> io::Result<()> {
            let name = |sample: &Sample| Some(sample.task.as_ref()?.name.to_string());
            self.0.lock().unwrap().extend(samples.iter().map(name));
            Ok(())
        }
    }
    let (mut rounds, names) = (Rounds::new(true), CollectedNames::default());
    rounds.round(&mut cpu_buffers, &names, true);
    assert_eq!(*names.0.lock().unwrap(), [Some("made".to_owned())]);
}

/// Each buffer is drained once, by any of the threads.
#[test]
fn threads_share_the_buffers() {
    let mut cpu_buffers: Vec<CpuBuffer> = (0..8).map(|cpu| test_buffer(cpu, 4096, 65536)).collect();
    let cells = |cpu: u64| -> Vec<u8> {
        let numbered = |n| cell(Some(9), cpu * 1000 + n + 1, 1);
        (0..500).flat_map(numbered).collect()
    };
    for (cpu, cpu_buffer) in (0..).zip(&cpu_buffers) {
        let mut kernel = FakeKernel { head: 0, cpu };
        assert!(kernel.samples(&cpu_buffer.buffer.ring, &cells(cpu.into()), 9, 0, true));
    }
    #[derive(Default)]
    struct Threads(
        Mutex<std::collections::BTreeMap<usize, usize>>,
        CollectedSamples,
    );
    impl Sink for Threads {
        fn samples(&self, thread: usize, samples: &[Sample]) -> io::Result<()> {
            *self.0.lock().unwrap().entry(thread).or_default() += samples.len();
            self.1.samples(thread, samples)
        }
    }
    let (mut rounds, threads) = (Rounds::new(true), Threads::default());
    rounds.round(&mut cpu_buffers, &threads, true);
    let Threads(by_thread, collected) = threads;
    let by_thread = by_thread.into_inner().unwrap();
    assert_eq!(by_thread.values().sum::<usize>(), 4000);
    assert!(by_thread.keys().all(|thread| *thread < 3));
    let mut collected: Vec<u64> = collected
        .take()
        .into_iter()
        .map(|(address, _)| address)
        .collect();
    collected.sort_unstable();
    let expected = (0..8).flat_map(|cpu| (1..=500).map(move |n| cpu * 1000 + n));
    assert_eq!(collected, expected.collect::<Vec<_>>());
    assert_eq!(rounds.counts.samples, 4000);
}
