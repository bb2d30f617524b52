//! A synthetic run of fifty containers for an hour, with a value each second.

use probe_user::report::{LineMetric, LineSubject, Run, RunLine};

const CONTAINERS: usize = 50;
const METRICS: usize = 8;
const WINDOWS: u32 = 3600;

/// Number of values of the run.
pub const VALUES: usize = CONTAINERS * METRICS * WINDOWS as usize;

/// The container with this number.
pub fn container(at: usize) -> LineSubject {
    LineSubject {
        part: "row",
        label: format!("shop/web-{at}/app"),
        labels: [
            ("kind", "container".to_owned()),
            ("name", format!("{at:064x}")),
        ]
        .into(),
    }
}

/// The run. Its values are noise, since regular values would compress to nothing.
pub fn hour() -> Run {
    let metric = |at: usize| LineMetric {
        name: format!("metric_{at}"),
        help: "One of many".to_owned(),
        unit: "GB/s".to_owned(),
        is_counter: at.is_multiple_of(2),
        replaced_by_rates: false,
    };
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 24)
    };
    let mut run = Run {
        file: "hour.jsonl.gz".to_owned(),
        windows: (0..WINDOWS)
            .map(|at| (f64::from(at), f64::from(at + 1)))
            .collect(),
        subjects: (0..CONTAINERS).map(container).collect(),
        metrics: (0..METRICS).map(metric).collect(),
        ..Run::default()
    };
    for at in 0..CONTAINERS * METRICS {
        run.lines.push(RunLine {
            subject: at / METRICS,
            metric: at % METRICS,
            qualifier: String::new(),
            first: 0,
            values: (0..WINDOWS).map(|_| 100.0 * noise()).collect(),
            intervals: Vec::new(),
            reason: None,
        });
    }
    run
}
