//! Draws a calibration: accuracy and overhead over periods, buffer sizes and threads.

use std::fmt::Write as _;

use super::{Calibrated, CalibratedSetting, Mean, Sweep};

/// Size of a panel, and its margins.
const PANEL: (f64, f64) = (420.0, 240.0);
const MARGIN: (f64, f64) = (60.0, 40.0);

impl Calibrated {
    /// One row of panels for each sweep: accuracy, and overhead.
    #[must_use]
    pub fn svg(&self) -> String {
        let all = self.sweeps();
        #[expect(clippy::cast_precision_loss, reason = "three rows at most")]
        let height = PANEL.1 * all.len().max(1) as f64;
        let width = 2.0 * PANEL.0;
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" \
             font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let mut top = 0.0;
        for Sweep { over, settings } in &all {
            let means = |pick: fn(&CalibratedSetting) -> Mean| {
                let of = settings
                    .iter()
                    .map(|at| &self.settings[*at])
                    .map(|setting| (over.value_of(setting), pick(setting)));
                of.collect::<Vec<_>>()
            };
            let titled = |what: &str| format!("{what}, % over {}", over.title());
            let (accuracy, overhead) = (means(|it| it.accuracy), means(|it| it.overhead));
            panel(&mut text, (0.0, top), &titled("accuracy"), 1.0, &accuracy);
            let place = (PANEL.0, top);
            panel(&mut text, place, &titled("time overhead"), 0.0, &overhead);
            top += PANEL.1;
        }
        text.push_str("</svg>\n");
        text
    }
}

/// Points with error bars, joined by a line.
fn panel(
    text: &mut String,
    (left, top): (f64, f64),
    title: &str,
    always: f64,
    points: &[(String, Mean)],
) {
    let means: Vec<Mean> = points.iter().map(|(_, mean)| *mean).collect();
    let (low, high) = Calibrated::range(&means, always);
    let (wide, tall) = (PANEL.0 - 2.0 * MARGIN.0, PANEL.1 - 2.0 * MARGIN.1);
    let y = |value: f64| top + MARGIN.1 + tall * (1.0 - (value - low) / (high - low));
    #[expect(clippy::cast_precision_loss, reason = "a handful of points")]
    let x = |at: usize| left + MARGIN.0 + wide * at as f64 / (points.len().max(2) - 1) as f64;
    let (x0, y0) = (left + MARGIN.0, top + MARGIN.1);
    let _ = writeln!(
        text,
        "<text x=\"{x0}\" y=\"{}\" font-size=\"13\">{title}</text>",
        y0 - 14.0
    );
    let _ = writeln!(
        text,
        "<rect x=\"{x0}\" y=\"{y0}\" width=\"{wide}\" height=\"{tall}\" fill=\"none\" \
         stroke=\"gray\"/>"
    );
    for value in [low, f64::midpoint(low, high), high] {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.2}</text>",
            x0 - 6.0,
            y(value) + 4.0,
            value * 100.0
        );
    }
    let mut path = String::new();
    for (at, (name, Mean { mean, deviation })) in points.iter().enumerate() {
        let (x, bottom) = (x(at), top + PANEL.1 - MARGIN.1 + 16.0);
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{bottom:.1}\" text-anchor=\"middle\">{name}</text>"
        );
        let (from, to) = (y(mean - deviation), y(mean + deviation));
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\" \
             stroke=\"steelblue\"/>"
        );
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"steelblue\"/>",
            y(*mean)
        );
        let _ = write!(path, "{x:.1},{:.1} ", y(*mean));
    }
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"steelblue\"/>",
        path.trim_end()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::CALIBRATED_FORMAT;

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
    fn a_sweep_has_the_settings_that_differ_in_one_thing_in_order() {
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
        assert_eq!(text.matches("<circle").count(), 10);
        assert_eq!(text.matches("<polyline").count(), 4);
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        for circle in text.split("<circle ").skip(1) {
            let value = |name: &str| -> f64 {
                let rest = circle.split_once(name).unwrap().1;
                rest.split('"').nth(1).unwrap().parse().unwrap()
            };
            assert!((0.0..=2.0 * PANEL.0).contains(&value("cx")));
            assert!((0.0..=2.0 * PANEL.1).contains(&value("cy")));
        }
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
