//! Samples of events that pass through rings in plain memory: attribution, filters and losses.

use std::{os::unix::fs::MetadataExt as _, sync::Mutex};

use perf_event_open_sys::bindings;
use probe_common::spe::{Class, Source};
use test_support::Tree;

use super::{
    super::{
        RecordTarget, Sample, Sink,
        cpu_buffer::CpuBuffer,
        process_tree::ProcessTree,
        ring::fake,
        subtree::Subtree,
        tasks::Tasks,
        wire::{Stamp, build as wire},
    },
    Rounds, buffer_with_ring,
};
use crate::{
    machine::cgroup::Hierarchy,
    sys::samples::{AccessSample, build},
};

/// `perf_mem_data_src` of a load from local memory, as Intel's driver encodes it; the snoop hit a
/// modified line.
pub(super) const LOAD: u64 = 0x02 | (0x80 | 0x02) << 5 | 0x10 << 19;
/// `perf_mem_data_src` of a store.
const STORE: u64 = 0x04 | (0x08 | 0x02) << 5;
/// `perf_mem_data_src` of an operation that is neither a load nor a store.
const NEITHER: u64 = 0x01;

#[derive(Default)]
struct AllSamples(Mutex<Vec<Sample>>);

impl Sink for AllSamples {
    fn samples(&self, _thread: usize, samples: &[Sample]) -> std::io::Result<()> {
        self.0.lock().unwrap().extend_from_slice(samples);
        Ok(())
    }
}

pub(super) fn test_buffer(cpu: u32) -> CpuBuffer {
    buffer_with_ring(cpu, fake::pair(1 << 16))
}

pub(super) fn access_sample(pid: u32, time: u64, data_source: u64) -> AccessSample {
    AccessSample {
        pc: 0x40_1000,
        pid,
        tid: pid,
        time,
        address: 0x7f00 + time,
        cpu: 3,
        weight: 300,
        data_source,
        cgroup: 1,
    }
}

pub(super) fn fork(parent: u32, pid: u32, time: u64) -> Vec<u8> {
    let body = wire::words32(&[pid, parent, pid, parent, 0, 0]);
    let stamp = Stamp {
        pid: parent,
        tid: parent,
        time,
        cpu: 1,
    };
    wire::record(bindings::PERF_RECORD_FORK, &body, stamp)
}

/// A child belongs to the target from its fork on, whichever CPU reports the fork.
#[test]
fn only_samples_of_the_target_are_kept() {
    let proc = Tree::new();
    proc.write("7/status", "Tgid:\t7\n");
    proc.write("7/comm", "seven\n");
    let mut cpu_buffers = [test_buffer(0), test_buffer(1)];
    let mut rounds = Rounds::new(true);
    rounds.tasks = Mutex::new(Tasks::new(proc.path()));
    rounds.process_tree = ProcessTree::for_target(&RecordTarget::Process(7), proc.path());
    let all = AllSamples::default();
    let ring = &cpu_buffers[0].buffer.ring;
    for sample in [
        access_sample(7, 10, LOAD),
        access_sample(8, 21, STORE),
        access_sample(9, 21, LOAD),
        access_sample(8, 19, LOAD),
        access_sample(7, 22, NEITHER),
        AccessSample {
            weight: 19,
            ..access_sample(7, 23, LOAD)
        },
        // A sample of unknown latency is kept.
        AccessSample {
            weight: 0,
            address: 0,
            ..access_sample(7, 24, STORE)
        },
        access_sample(u32::MAX, 25, LOAD),
        // The thread has exited, and its process still runs.
        AccessSample {
            tid: u32::MAX,
            ..access_sample(7, 26, LOAD)
        },
    ] {
        assert!(ring.push_aux(&build::sample(&sample)));
    }
    // The fork is reported by another CPU, in a ring that is read later.
    assert!(cpu_buffers[1].buffer.ring.push(&fork(7, 8, 20)));
    rounds.round(&mut cpu_buffers, &all, false);
    let samples = all.0.into_inner().unwrap();
    let found: Vec<_> = { samples.iter() }
        .map(|it| (it.tid, it.time.unwrap(), it.class().unwrap()))
        .collect();
    let expected = [
        (Some(7), 10, Class::Load),
        (Some(8), 21, Class::Store),
        (Some(7), 24, Class::Store),
        (None, 26, Class::Load),
    ];
    assert_eq!(found, expected);
    let load = &samples[0];
    assert_eq!(
        (load.address(), load.cycles(), load.source(), load.cpu),
        (Some(0x7f0a), Some(300), Some(Source::Dram), Some(3))
    );
    let without_details = &samples[2];
    assert_eq!(
        (
            without_details.address(),
            without_details.cycles(),
            without_details.source()
        ),
        (None, None, None)
    );
    let modified = [0, 1, 2].map(|at| samples[at].is_modified());
    assert_eq!(modified, [Some(true), None, None]);
    let counts = rounds.counts;
    assert_eq!(
        (counts.samples, counts.left_out, counts.ended_task_samples),
        (4, 2, 1)
    );
    assert_eq!(samples[3].task.as_ref().unwrap().pid, 7);
    assert_eq!(counts.without_thread, 1);
    assert_eq!(counts.aux_bytes, 0);
}

/// Each sample carries its cgroup's id, even if nothing else is known of its task.
#[test]
fn samples_of_a_cgroup_have_its_path_even_from_exited_tasks() {
    let tree = Tree::new();
    let id = |path: &str| {
        tree.write(&format!("{path}/cgroup.procs"), "");
        tree.path().join(path).metadata().unwrap().ino()
    };
    let ids = ["pods/a", "pods/a/x", "other"].map(id);
    let mut rounds = Rounds::new(true);
    let hierarchy = Hierarchy {
        mount: tree.path().to_owned(),
        root: "/".to_owned(),
    };
    rounds.cgroups = Some((Mutex::new(Subtree::new("/pods/a".to_owned())), hierarchy));
    let (mut cpu_buffers, all) = ([test_buffer(0)], AllSamples::default());
    for (time, cgroup) in (1..).zip(ids.into_iter().chain([u64::MAX])) {
        let sample = AccessSample {
            cgroup,
            ..access_sample(u32::MAX, time, LOAD)
        };
        assert!(cpu_buffers[0].buffer.ring.push_aux(&build::sample(&sample)));
    }
    rounds.round(&mut cpu_buffers, &all, false);
    let samples = all.0.into_inner().unwrap();
    let paths: Vec<_> = samples.iter().map(|it| it.cgroup.as_deref()).collect();
    assert_eq!(paths, [Some("/pods/a"), Some("/pods/a/x")]);
    assert!(samples.iter().all(|it| (it.tid, &it.task) == (None, &None)));
    let counts = rounds.counts;
    assert_eq!(
        (counts.without_thread, counts.unknown_cgroup_samples),
        (2, 1)
    );
}

/// Samples that arrive during a round are read in the next round.
#[test]
fn samples_are_read_once_and_losses_are_counted() {
    let mut cpu_buffers = [test_buffer(0)];
    let mut rounds = Rounds::new(true);
    let all = AllSamples::default();
    let push =
        |cpu_buffers: &[CpuBuffer; 1], record: &[u8]| cpu_buffers[0].buffer.ring.push_aux(record);
    let mut sent = 0;
    for _ in 0..50 {
        for _ in 0..300 {
            sent += 1;
            assert!(push(
                &cpu_buffers,
                &build::sample(&access_sample(7, sent, LOAD))
            ));
        }
        cpu_buffers.iter_mut().for_each(CpuBuffer::mark);
        sent += 1;
        assert!(push(
            &cpu_buffers,
            &build::sample(&access_sample(7, sent, LOAD))
        ));
        rounds.after_mark(&mut cpu_buffers, &all, false);
        assert_eq!(rounds.counts.samples, sent - 1);
    }
    let lost = wire::words(&[1, 12, 0, 0, 0, 0]);
    push(
        &cpu_buffers,
        &build::record(bindings::PERF_RECORD_LOST, &lost),
    );
    let dropped = wire::words(&[5, 0, 0, 0, 0]);
    let kind = bindings::PERF_RECORD_LOST_SAMPLES;
    push(&cpu_buffers, &build::record(kind, &dropped));
    let throttle = wire::words(&[0; 7]);
    push(
        &cpu_buffers,
        &build::record(bindings::PERF_RECORD_THROTTLE, &throttle),
    );
    rounds.round(&mut cpu_buffers, &all, true);
    let samples = all.0.into_inner().unwrap().into_iter();
    let times: Vec<u64> = samples.map(|sample| sample.time.unwrap()).collect();
    assert_eq!(times, (1..=sent).collect::<Vec<_>>());
    let counts = rounds.counts;
    assert_eq!((counts.lost_samples, counts.throttled), (12, 1));
    assert_eq!(counts.dropped_samples, 5);
    assert!(
        counts.losses().contains("12 lost samples"),
        "{}",
        counts.losses()
    );
}
