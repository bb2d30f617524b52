use std::num::NonZeroUsize;

use probe_common::spe::Records;

use super::{reduce::*, *};
use crate::{
    samples::SampleRow,
    samples::{RING_BYTES, Sample, SampleData, SampleFile, Sink as _},
};

/// Each sample is as likely as any other, and none is drawn twice.
#[test]
fn points_are_drawn_evenly() {
    let mut chosen = PointSelection::default();
    let all = 20 * POINTS as u64;
    for number in 0..all {
        let row = SampleRow {
            time: Some(number),
            ..SampleRow::default()
        };
        chosen.add(number, 0, &row);
    }
    let mut times: Vec<u64> = chosen.0.iter().map(|it| it.time).collect();
    times.sort_unstable();
    times.dedup();
    assert_eq!(times.len(), POINTS);
    // Each tenth of the samples has a tenth of the points, within five standard deviations.
    for tenth in 0..10 {
        let range = all / 10 * tenth..all / 10 * (tenth + 1);
        let within = times.iter().filter(|time| range.contains(time)).count();
        let expected = POINTS / 10;
        assert!(
            within.abs_diff(expected) < 5 * expected.isqrt(),
            "{tenth}: {within}"
        );
    }
}

/// Threads beyond the limit are in the sums of their regions, and are counted.
#[test]
fn sums_have_a_limit_and_lose_no_sample() {
    let mut sums = PointSumsByGroup::default();
    let row = |thread: u32| SampleRow {
        tid: Some(thread),
        region: Some(thread % 3),
        latency: Some(2),
        ..SampleRow::default()
    };
    for thread in 0..20_000 {
        sums.add(&row(thread));
    }
    let samples: u64 = sums.list.iter().map(|(_, counts)| counts.samples).sum();
    let cycles: u64 = sums.list.iter().map(|(_, counts)| counts.cycles).sum();
    assert_eq!((samples, cycles), (20_000, 40_000));
    assert!(sums.list.len() == (1 << 14) + 3, "{}", sums.list.len());
    let by_thread = sums
        .list
        .iter()
        .filter(|(key, _)| key.tid.is_some())
        .count();
    assert_eq!(sums.merged, 20_000 - by_thread as u64);
    let at = sums.add(&row(19_999));
    assert_eq!(
        (sums.list[at].0.region, sums.list[at].0.tid),
        (Some(1), None)
    );
}

/// Programs may name as many regions as they like.
#[test]
fn texts_beyond_the_limit_are_left_out_and_counted() {
    const REGIONS: u64 = 70_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples.parquet");
    let about = vec![(RING_BYTES.to_owned(), "4096".to_owned())];
    let file = SampleFile::begin(&path, NonZeroUsize::MIN, about).unwrap();
    // A load and its time.
    let bytes = [&[0x49, 0x00, 0x71][..], &7_u64.to_le_bytes()].concat();
    let record = Records::new(&bytes).next().unwrap().unwrap();
    let sample = |number: u64| Sample {
        time: Some(number),
        cpu: Some(0),
        tid: Some(7),
        task: None,
        cgroup: None,
        origin: None,
        region: Some(format!("region {number}").into()),
        phase: None,
        data: SampleData::Record(record),
    };
    let samples: Vec<Sample> = (1..=REGIONS).map(sample).collect();
    file.samples(0, &samples).unwrap();
    file.finish(&[]).unwrap();
    let samples = SampleReader::open(&path).unwrap().unwrap();
    let scatter = Scatter::read("samples.parquet", samples).unwrap();
    assert_eq!(scatter.samples, REGIONS);
    // One of the known texts is `load`.
    assert_eq!(scatter.texts_left_out, REGIONS - (1 << 16) + 1);
    assert_eq!(scatter.json(None)["texts_left_out"], scatter.texts_left_out);
}

/// Samples and a recording share a clock only within one boot of one machine.
#[test]
fn samples_and_recording_must_be_of_one_boot() {
    let about = |host: &str, unix: u64, time: u64| {
        let anchor = json!({"unix_ns": unix.to_string(), "time_ns": time.to_string()});
        vec![
            ("host".to_owned(), host.to_owned()),
            ("wall_clock".to_owned(), anchor.to_string()),
        ]
    };
    let minute = 60_000_000_000;
    let scatter = Scatter {
        about: about("a", 1_000 * minute, 100 * minute),
        times: (5 * minute, 6 * minute),
        ..Scatter::default()
    };
    // The boot was at minute 900, and the first sample 5 minutes later.
    assert_eq!(scatter.began(), Some(905.0 * 60.0));
    assert_eq!(
        scatter.check_same_boot(&about("a", 1_001 * minute, 101 * minute)),
        Ok(())
    );
    let differs = scatter.check_same_boot(&about("a", 1_001 * minute, minute));
    assert!(differs.unwrap_err().contains("rebooted"));
    let differs = scatter.check_same_boot(&about("b", 1_001 * minute, 101 * minute));
    assert!(differs.unwrap_err().contains("another machine"));
}
