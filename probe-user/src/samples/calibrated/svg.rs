//! Draws a calibration: accuracy and overhead over periods, buffer sizes and threads.

use super::{Calibrated, Mean, SweepPlot};
use crate::plot::{Axis, Look, Plane, PlotSeries};

impl Calibrated {
    /// One row of panels for each sweep: accuracy, and overhead.
    #[must_use]
    pub fn svg(&self) -> String {
        let panels: Vec<Plane> = self.plots().iter().map(panel).collect();
        Plane::panels(&panels)
    }
}

/// Draws one plot: points with error bars, joined by a line.
fn panel(plot: &SweepPlot) -> Plane {
    let numbered = || (0_u32..).map(f64::from).zip(&plot.means);
    let labels = numbered().map(|(at, (name, _))| (at, name.clone()));
    let points = numbered().map(|(at, (_, it))| (at, it.mean));
    let bars = numbered()
        .map(|(at, (_, Mean { mean, deviation }))| (at, mean - deviation, mean + deviation));
    let last = numbered().map(|(at, _)| at).fold(1.0, f64::max);
    let series = PlotSeries {
        bars: bars.collect(),
        ..PlotSeries::new(String::new(), Look::Means, vec![points.collect()])
    };
    Plane {
        title: format!("{}, % over {}", plot.value, plot.over.title()),
        x: Axis::linear((0.0, last), labels.collect()),
        y: Axis::divided(plot.ends, 2, |value| format!("{:.2}", value * 100.0)),
        drawn: vec![series],
        ..Plane::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{CALIBRATED_FORMAT, CalibratedSetting};

    fn calibrated() -> Calibrated {
        let mean = |mean| Mean {
            mean,
            deviation: 0.0,
        };
        let setting = |period, aux_bytes, accuracy| CalibratedSetting {
            period,
            aux_bytes,
            threads: None,
            accuracy: mean(accuracy),
            overhead: mean(0.1),
            samples: mean(800.0),
            invalid: mean(0.0),
            collisions: mean(0.0),
            truncated: mean(0.0),
            lost: mean(0.0),
        };
        Calibrated {
            format: CALIBRATED_FORMAT,
            platform: "neoverse-v2".to_owned(),
            about: std::collections::BTreeMap::new(),
            runs: 1,
            jitter: 0.0,
            unsampled: Vec::new(),
            settings: vec![
                setting(1024, 1 << 20, 0.8),
                setting(16384, 1 << 20, 0.9),
                setting(4096, 1 << 20, 1.0),
                setting(4096, 1 << 18, 1.0),
            ],
            recommended: 2,
            recommendation: String::new(),
        }
    }

    #[test]
    fn the_settings_of_a_sweep_differ_in_one_option_and_are_in_its_order() {
        let calibrated = calibrated();
        let sweeps = calibrated.sweeps();
        let titles: Vec<_> = sweeps.iter().map(|it| it.over.title()).collect();
        assert_eq!(titles, ["period", "samples' buffer"]);
        assert_eq!(sweeps[0].settings, [0, 2, 1]);
        assert_eq!(sweeps[1].settings, [3, 2]);
        let name = |at: usize| sweeps[1].over.value_of(&calibrated.settings[at]);
        assert_eq!((name(3), name(2)), ("256K".to_owned(), "1M".to_owned()));
    }

    #[test]
    fn the_picture_has_a_point_for_each_mean_inside_its_frame() {
        let calibrated = calibrated();
        let text = calibrated.svg();
        // Sweeps of 3 periods and 2 sizes, each with a plot of accuracy and one of overhead.
        assert_eq!(text.matches("<circle").count(), 10);
        assert_eq!(text.matches("<polyline").count(), 4);
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        for circle in text.split("<circle ").skip(1) {
            let value = |name: &str| -> f64 {
                let after = circle.split_once(name).unwrap().1;
                after.split('"').nth(1).unwrap().parse().unwrap()
            };
            assert!((0.0..=840.0).contains(&value("cx")));
            assert!((0.0..=480.0).contains(&value("cy")));
        }
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
