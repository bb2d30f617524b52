//! A session that samples with SPE, and the test PMU's account of its records.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    ops::Deref,
    path::Path,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use probe_common::{
    CgroupId,
    spe::{Class, SpeKey},
};
use probe_user::{
    machine::Pmus,
    plan::Plan,
    session::{
        Config, Session, SpeConfig,
        spe::{SpeEvents, Timeline, UPKEEP},
    },
    snapshot::{SampleCounts, SampleOrigin, SampledKey, SpeHook, SpeReading},
};
use test_harness::{Load, TestCgroup, this_machine};

use crate::testpmu::TestPmu;

const DEBUG: &str = "/sys/kernel/debug/testpmu";

/// Period of the tests. Emulated tasks execute 1,000,000 operations in a ms, and have about 240
/// samples in it.
pub(crate) const PERIOD: u64 = 4096;

/// A session that samples with SPE.
pub(crate) struct Sampling {
    pub(crate) session: Session,
    /// Rows that were freed so far.
    freed: Vec<(SpeKey, SampleCounts)>,
}

/// A reading of SPE.
pub(crate) struct SpePull {
    pub(crate) rows: HashMap<SpeKey, SampleCounts>,
    /// All rows that were freed so far.
    pub(crate) freed: Vec<(SpeKey, SampleCounts)>,
    spe: SpeReading,
}

impl Deref for SpePull {
    type Target = SpeReading;

    fn deref(&self) -> &SpeReading {
        &self.spe
    }
}

impl Sampling {
    /// Samples loads and stores. AUX buffers have eight pages. The time limit is long: emulation is
    /// slow.
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config();
        change(&mut config);
        let session = Session::start(config, &this_machine()).unwrap();
        Self {
            session,
            freed: Vec::new(),
        }
    }

    /// Stops the PMU; returns all that was written until then.
    pub(crate) fn end(&mut self, pmu: &TestPmu) -> SpePull {
        pmu.control("spe ops_per_ms 0");
        self.pull()
    }

    /// A reading with all rows that were freed so far.
    pub(crate) fn pull(&mut self) -> SpePull {
        let reading = self.session.pull().unwrap().samples.unwrap();
        let spe_row = |(key, counts): (SampledKey, SampleCounts)| {
            let SampledKey {
                cgroup,
                tgid,
                origin: SampleOrigin::Spe { cpu, access },
            } = key
            else {
                panic!("{key:?}");
            };
            let key = SpeKey {
                cgroup,
                tgid,
                cpu,
                access,
            };
            (key, counts)
        };
        self.freed.extend(reading.freed.into_iter().map(spe_row));
        SpePull {
            rows: reading.rows.into_iter().map(spe_row).collect(),
            freed: self.freed.clone(),
            spe: reading.spe.unwrap(),
        }
    }
}

pub(crate) fn config() -> Config {
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let filters = "load_filter=1,store_filter=1";
    Config {
        plan: Plan::new(&[]).unwrap(),
        spe: Some(SpeConfig {
            events: SpeEvents::resolve(&pmus, filters, PERIOD).unwrap(),
            irq_max: Duration::from_secs(10),
            aux_size: 8 * rustix::param::page_size(),
            budget: None,
            pages: 0,
            lines: 0,
            max_rows: None,
            timeline: Timeline::Auto,
        }),
        ..Config::default()
    }
}

/// A row of the test PMU's account: the records of one thread, class and data source on one CPU.
#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) tgid: u32,
    pub(crate) class: Class,
    pub(crate) source: Option<u64>,
    /// Samples, and sums of total, issue and translation latency.
    pub(crate) sums: [u64; 4],
}

/// The records that the PMU wrote since the last `spe reset`.
pub(crate) fn truth() -> Vec<Truth> {
    let text = fs::read_to_string(format!("{DEBUG}/spe_truth")).unwrap();
    let line = |line: &str| {
        let f: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| f[at].parse::<u64>().unwrap();
        let class = Class::ALL.into_iter().find(|class| class.name() == f[3]);
        let source = f[4].strip_prefix("0x");
        Truth {
            tgid: u32::try_from(number(2)).unwrap(),
            class: class.unwrap(),
            source: match f[4] {
                "-" => None,
                zero @ "0" => Some(zero.parse().unwrap()),
                _ => Some(u64::from_str_radix(source.unwrap(), 16).unwrap()),
            },
            sums: [number(5), number(6), number(7), number(8)],
        }
    };
    text.lines().skip(1).map(line).collect()
}

/// The sum of a column of `spe_stats` over CPUs.
pub(crate) fn stat(name: &str) -> u64 {
    let text = fs::read_to_string(format!("{DEBUG}/spe_stats")).unwrap();
    let mut lines = text.lines();
    let at = lines
        .next()
        .and_then(|heading| heading.split(' ').position(|column| column == name))
        .unwrap();
    lines
        .map(|line| line.split(' ').nth(at).unwrap().parse::<u64>().unwrap())
        .sum()
}

/// Sums by class and source.
pub(crate) type Sums = BTreeMap<(Class, Option<u64>), [u64; 4]>;

/// All rows of a reading, including freed ones.
fn rows(reading: &SpePull) -> impl Iterator<Item = (&SpeKey, &SampleCounts)> {
    let freed = reading.freed.iter().map(|(key, counts)| (key, counts));
    reading.rows.iter().chain(freed)
}

/// Counted sums of the rows that `owner` selects.
pub(crate) fn counted(reading: &SpePull, owner: impl Fn(&SpeKey) -> bool) -> Sums {
    let mut sums = Sums::new();
    for (key, counts) in rows(reading).filter(|(key, _)| owner(key)) {
        let sum = sums
            .entry((key.access.class(), key.access.source()))
            .or_default();
        // If nothing was skipped, every sample has the same weight.
        let raw = |weighted: f64| {
            let weight = counts.operations / counts.samples.max(1) as f64;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a sum of samples"
            )]
            let raw = (weighted / weight).round() as u64;
            if weight > 0.0 { raw } else { 0 }
        };
        let row = [
            counts.samples,
            raw(counts.cycles),
            raw(counts.issue),
            raw(counts.translation),
        ];
        sum.iter_mut().zip(row).for_each(|(sum, n)| *sum += n);
    }
    sums
}

/// Written sums of the rows that `owner` selects.
pub(crate) fn written(truth: &[Truth], owner: impl Fn(&Truth) -> bool) -> Sums {
    let mut sums = Sums::new();
    for row in truth.iter().filter(|row| owner(row)) {
        let sum = sums.entry((row.class, row.source)).or_default();
        sum.iter_mut().zip(row.sums).for_each(|(sum, n)| *sum += n);
    }
    sums
}

pub(crate) fn samples(sums: &Sums) -> u64 {
    sums.values().map(|[samples, ..]| samples).sum()
}

/// Asserts that a cgroup has exactly the records of these processes. The PMU must be stopped.
#[track_caller]
pub(crate) fn assert_exact(
    reading: &SpePull,
    truth: &[Truth],
    what: &str,
    cgroup: CgroupId,
    processes: &[u32],
) {
    let counted = counted(reading, |key| key.cgroup == cgroup);
    let written = written(truth, |row| processes.contains(&row.tgid));
    println!("{what}: {} samples", samples(&written));
    assert!(samples(&written) > 0, "{what} was not sampled");
    // With the kprobe a chunk may be lost, with unknown owners.
    let missing = reading.health.sum.missed_bytes / 64;
    if missing == 0 {
        assert_eq!(counted, written, "{what}");
    } else {
        assert_eq!(reading.health.hook, SpeHook::Kprobe);
        let (counted, written) = (samples(&counted), samples(&written));
        println!("{what}: counted {counted}, written {written}, missing {missing}");
        assert!(counted <= written && written <= counted + missing, "{what}");
    }
}

/// Bytes of decoded records. Each record fills its cell of 64 bytes, unless random bytes are a
/// valid record.
fn record_bytes(reading: &SpePull) -> u64 {
    let sum = &reading.health.sum;
    if stat("garbage") == 0 {
        sum.records * 64
    } else {
        sum.bytes - sum.padding - sum.undecoded - sum.skipped
    }
}

/// Asserts that every byte that the PMU wrote is in a row or in a counted loss.
#[track_caller]
pub(crate) fn assert_conserved(reading: &SpePull) {
    let sum = &reading.health.sum;
    println!("{:?}", reading.health);
    let sampled: u64 = rows(reading).map(|(_, counts)| counts.samples).sum();
    assert_eq!(stat("written") * 64, stat("bytes"), "the PMU's own account");
    assert_eq!(stat("bytes"), sum.written(), "bytes");
    if reading.health.hook == SpeHook::Fentry {
        assert_eq!((sum.missed_bytes, sum.late_bytes), (0, 0));
    }
    assert_eq!(
        sum.bytes,
        record_bytes(reading) + sum.padding + sum.undecoded + sum.skipped,
        "bytes by kind"
    );
    assert_eq!(sum.records, sampled + sum.invalid, "records");
    let unattributed: u64 = rows(reading)
        .filter(|(key, _)| key.cgroup == SpeKey::UNATTRIBUTED)
        .map(|(_, counts)| counts.samples)
        .sum();
    assert_eq!(
        unattributed,
        sum.unattributed.iter().sum::<u64>(),
        "unattributed"
    );
}

/// Runs loads to their end in a session. `start` starts the session while the loads wait in their
/// cgroups, so that all their records belong to these cgroups. Returns the process ids of each
/// load.
pub(crate) fn sample(
    pmu: &TestPmu,
    loads: &[(&TestCgroup, &str)],
    start: impl FnOnce() -> Sampling,
) -> (Sampling, Vec<Vec<u32>>) {
    let mut running: Vec<Load> = loads
        .iter()
        .map(|(cgroup, words)| cgroup.load(words))
        .collect();
    pmu.control("spe reset");
    let mut sampling = start();
    running.iter_mut().for_each(Load::go);
    // Pulls while they run.
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(50));
        sampling.pull();
    }
    let ends: Vec<JoinHandle<Vec<u32>>> = (running.into_iter())
        .map(|load| {
            thread::spawn(move || {
                let own = load.pid();
                let printed = load.finish();
                let children = printed.lines().map(|line| line.parse::<u32>().unwrap());
                children.chain([own]).collect()
            })
        })
        .collect();
    // Calls `upkeep` as pmuscope itself does: the log that reveals losses of the kprobe holds 2,048
    // chunks.
    let mut last_upkeep = Instant::now();
    while !ends.iter().all(JoinHandle::is_finished) {
        thread::sleep(Duration::from_millis(10));
        if last_upkeep.elapsed() >= UPKEEP {
            sampling.session.upkeep().unwrap();
            last_upkeep = Instant::now();
        }
    }
    let processes = ends.into_iter().map(|end| end.join().unwrap());
    (sampling, processes.collect())
}
