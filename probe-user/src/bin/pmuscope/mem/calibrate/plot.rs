//! The plots of a calibration for the terminal: accuracy and time overhead over the periods, the
//! buffers and the threads.

use std::fmt::Write as _;

use probe_user::{
    plot::Axis,
    samples::{Calibrated, Mean},
};

/// Character cells of a plot's line.
const WIDTH: u16 = 48;

/// Draws plots with one line for each setting: `*` is the mean, `-` its deviation.
pub(crate) fn text_plots(calibrated: &Calibrated) -> String {
    let mut text = String::new();
    for plot in calibrated.plots() {
        let left = format!("{:.1}%", plot.ends.0 * 100.0);
        let right = format!("{:.1}%", plot.ends.1 * 100.0);
        let _ = writeln!(
            text,
            "\n{} over {}\n{:>10}  {left:<24}{right:>24}",
            plot.value,
            plot.over.title(),
            ""
        );
        let axis = Axis::linear(plot.ends, Vec::new());
        for (name, mean) in &plot.means {
            let _ = writeln!(text, "{name:>10} |{}|", line(*mean, &axis));
        }
    }
    text.push('\n');
    text
}

fn line(Mean { mean, deviation }: Mean, axis: &Axis) -> String {
    let cell = |value: f64| usize::from(axis.cell(value, WIDTH - 1));
    let (from, at, to) = (cell(mean - deviation), cell(mean), cell(mean + deviation));
    let mut cells = vec![b' '; WIDTH.into()];
    cells[from..=to].fill(b'-');
    cells[at] = b'*';
    cells.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use probe_user::samples::{RecordCounts, Size};

    use super::*;
    use crate::mem::calibrate::study::{Study, Trial, points};

    fn two_periods() -> Calibrated {
        let mut study = Study::new(points(&[1024, 4096], &[Size(1 << 20)], &[]));
        study.baselines[0].times = vec![10.0, 10.0];
        study.baselines[0].accesses = vec![1_024_000.0];
        study.baselines[0].counted_times = vec![10.0];
        for (tested, samples) in study.points.iter_mut().zip([800, 250]) {
            let counts = RecordCounts {
                samples,
                ..RecordCounts::default()
            };
            let time = Duration::from_secs(11);
            tested.trials = vec![Trial { time, counts }];
        }
        study.calibrated("neoverse-v2".to_owned(), BTreeMap::new())
    }

    #[test]
    fn a_mean_is_drawn_at_its_value_on_the_axis() {
        let text = text_plots(&two_periods());
        // Two plots of two lines. The accuracies are 80% and 100%, the ends of their axis. Both
        // time overheads are 10%, the right end of the axis of overheads.
        let lines: Vec<&str> = text.lines().filter(|line| line.contains('|')).collect();
        let star = |line: &str| line.find('*').unwrap() - line.find('|').unwrap();
        let last = usize::from(WIDTH);
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!((star(lines[0]), star(lines[1])), (1, last), "{text}");
        assert_eq!((star(lines[2]), star(lines[3])), (last, last), "{text}");
        assert!(text.contains("80.0%") && text.contains("100.0%"), "{text}");
        assert!(
            !text.contains("buffer"),
            "one buffer size has no plot: {text}"
        );
    }

    #[test]
    fn deviations_are_bars() {
        let mean = Mean {
            mean: 0.5,
            deviation: 0.5,
        };
        let drawn = line(mean, &Axis::linear((0.0, 1.0), Vec::new()));
        assert_eq!(drawn.matches('-').count(), usize::from(WIDTH) - 1);
        assert_eq!(drawn.find('*'), Some(24));
    }
}
