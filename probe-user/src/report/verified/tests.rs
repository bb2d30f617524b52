use super::*;
use crate::{
    catalogue::MemoryTraffic,
    report::{LineSubject, tests::metric},
};

/// A run of two containers without values, in windows of a second. Its metrics are what resctrl
/// counted (0), and the shares in reads (1) and in writes (2).
fn run(windows: usize) -> Run {
    let subject = |label: &str| LineSubject {
        part: "share",
        label: label.to_owned(),
        labels: [("kind", "container".to_owned())].into(),
    };
    let [reads, writes] = ["read", "write"].map(|it| format!("cmem_{it}_bandwidth_apportioned"));
    #[expect(clippy::cast_precision_loss, reason = "a few windows")]
    let seconds = (0..windows).map(|at| (at as f64, at as f64 + 1.0));
    Run {
        file: "run.jsonl.gz".to_owned(),
        windows: seconds.collect(),
        subjects: vec![subject("api"), subject("db")],
        metrics: [RESCTRL, &reads, &writes]
            .map(|it| metric(it, "GB/s", false))
            .to_vec(),
        shared: vec![
            (reads, MemoryTraffic::Reads),
            (writes, MemoryTraffic::Writes),
        ],
        ..Run::default()
    }
}

impl Run {
    /// Adds shares in writes to both containers: they wrote nothing.
    fn without_writes(self, place: &str) -> Self {
        let nothing = vec![(0.0, 0.0); self.windows.len()];
        self.with(0, 2, place, &nothing).with(1, 2, place, &nothing)
    }

    /// Adds a line: values, each with the half width of its interval.
    fn with(mut self, subject: usize, metric: usize, place: &str, values: &[(f64, f64)]) -> Self {
        let mut line = RunLine::new(subject, metric, place.to_owned(), 0);
        line.values = values.iter().map(|(value, _)| *value).collect();
        line.intervals = (values.iter())
            .map(|(value, half)| (value - half, value + half))
            .collect();
        self.lines.push(line);
        self
    }
}

const NONE: f64 = f64::NAN;

/// Both memories' shares in reads and in writes are compared with both sockets' counts.
#[test]
fn shares_of_all_memories_are_one_number() {
    let run = run(3)
        .with(0, 0, "socket 0", &[(6.0, NONE), (6.0, NONE), (0.0, NONE)])
        .with(0, 0, "socket 1", &[(4.0, NONE), (4.0, NONE), (0.0, NONE)])
        .with(
            0,
            1,
            "socket 0 by calibrated",
            &[(5.0, 0.5), (5.0, 0.5), (1.0, 0.5)],
        )
        .with(
            0,
            1,
            "socket 1 by calibrated",
            &[(3.0, 0.5), (3.0, 0.5), (1.0, 0.5)],
        )
        .with(
            0,
            2,
            "socket 0 by calibrated",
            &[(1.0, 0.2), (3.5, 0.2), (0.0, 0.0)],
        );
    let verified = VerifiedShares::of_run(&run).unwrap();
    let [row] = &verified.rows[..] else {
        panic!("{verified:?}")
    };
    // Shares of 9 and 11.5, both +- 1.2, with counts of 10. In the third window nothing was
    // counted.
    assert_eq!((row.counted, row.shares), (10.0, 10.25));
    let Agreement {
        windows,
        without_share,
        with_interval,
        within,
        ..
    } = row.agreement;
    assert_eq!(
        (windows, without_share, with_interval, within),
        (2, 0, 2, 1)
    );
    assert!((row.agreement.median_error.unwrap() - 0.15).abs() < 1e-9);
    assert_eq!(verified.all, row.agreement);
    assert_eq!(verified.methods, ["calibrated"]);
}

#[test]
fn the_table_has_a_row_for_each_container_and_for_all() {
    let run = run(4)
        .with(0, 0, "socket 0", &[(2.0, NONE); 4])
        .with(1, 0, "socket 0", &[(18.0, NONE); 4])
        .with(0, 1, "socket 0 by llc_read_misses", &[(9.5, NONE); 4])
        .with(1, 1, "socket 0 by llc_read_misses", &[(10.5, NONE); 3])
        .without_writes("socket 0 by llc_read_misses");
    let text = VerifiedShares::of_run(&run).unwrap().table(Some(80));
    insta::assert_snapshot!(text, @r"
         windows  resctrl GB/s  share GB/s     off  stated  within
    db         3          18.0        10.5   41.7%       -       -
    api        4          2.00        9.50  375.0%       -       -
    all        7                            375.0%       -       -
    run.jsonl.gz: cmem_read_bandwidth_apportioned, cmem_write_bandwidth_apportioned
      by llc_read_misses, added up; off and stated are medians over windows
    no share has an interval: give --calibration when recording (`pmuscope
      calibrate shares` makes one)
    1 of 8 windows has a count and no share
    ");
    let run = run_with_intervals();
    let text = VerifiedShares::of_run(&run).unwrap().table(Some(80));
    insta::assert_snapshot!(text, @r"
         windows  resctrl GB/s  share GB/s   off  stated  within
    db         3          22.0        17.5  5.6%    5.7%   66.7%
    api        3          2.00        2.23  5.0%   14.3%   66.7%
    all        6                            5.6%   11.5%   66.7%
    run.jsonl.gz: cmem_read_bandwidth_apportioned, cmem_write_bandwidth_apportioned
      by calibrated, added up; off and stated are medians over windows
    1 of 7 windows has a count and no share
    ");
}

fn run_with_intervals() -> Run {
    run(4)
        .with(0, 0, "socket 0", &[(2.0, NONE); 4])
        .with(
            1,
            0,
            "socket 0",
            &[(18.0, NONE), (NONE, NONE), (18.0, NONE), (30.0, NONE)],
        )
        .with(
            0,
            1,
            "socket 0 by calibrated",
            &[(2.1, 0.3), (2.0, 0.3), (NONE, NONE), (2.6, 0.3)],
        )
        .with(
            1,
            1,
            "socket 0 by calibrated",
            &[(17.5, 1.0), (17.5, 1.0), (17.0, 1.5), (18.0, 1.0)],
        )
        .without_writes("socket 0 by calibrated")
}

/// The container has no share in writes in any window.
#[test]
fn reads_alone_are_not_compared_with_reads_and_writes() {
    let run = run(2).with(0, 0, "socket 0", &[(2.0, NONE); 2]).with(
        0,
        1,
        "socket 0 by calibrated",
        &[(1.5, 0.1); 2],
    );
    let error = VerifiedShares::of_run(&run).unwrap_err();
    assert_eq!(error, VerifyError::NothingToCompare(run.file));
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let error = |run: &Run| VerifiedShares::of_run(run).unwrap_err().to_string();
    assert!(error(&run(2)).starts_with("run.jsonl.gz has no counts of resctrl: mount it"));
    let mut reads = run(2).with(0, 0, "socket 0", &[(1.0, NONE); 2]);
    let nothing = error(&reads);
    assert!(
        nothing.starts_with("run.jsonl.gz has no window with both"),
        "{nothing}"
    );
    reads.shared.pop();
    let one_sided = error(&reads);
    assert!(one_sided.contains("has no shares of writes"), "{one_sided}");
}

/// The width of an interval is no part of a share of 0.
#[test]
fn a_share_of_0_has_no_relative_width() {
    for half in [0.0, 0.5] {
        let shares = [(0.0, half), (10.0, 1.0), (0.0, half)];
        let run = run(3)
            .with(0, 0, "socket 0", &[(10.0, NONE); 3])
            .with(0, 1, "socket 0 by calibrated", &shares)
            .without_writes("socket 0 by calibrated");
        let verified = VerifiedShares::of_run(&run).unwrap();
        let stated = verified.all.median_stated;
        assert_eq!((stated, verified.all.with_interval), (Some(0.1), 3));
    }
}
