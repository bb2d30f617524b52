//! The plots of a calibration: accuracy and time overhead over the periods, the buffers and the
//! threads, as text for the terminal and as SVG.

use std::fmt::Write as _;

use super::study::{Mean, Point, Study};

/// Accuracy and overhead over one of the settings.
struct Series {
    title: &'static str,
    /// Setting, accuracy, overhead; in the order of the study.
    points: Vec<(String, Mean, Mean)>,
}

/// The settings with several values in the study.
fn series(study: &Study) -> Vec<Series> {
    let over = |title, name: fn(&Point) -> String, others: fn(&Point, &Point) -> bool| {
        // The points that differ only in this setting: one such set has several.
        let sets = study.points.iter().map(|base| {
            let same = study
                .points
                .iter()
                .filter(|tried| others(&tried.point, &base.point));
            same.collect::<Vec<_>>()
        });
        let set = sets.max_by_key(Vec::len).unwrap_or_default();
        let points = set.into_iter().map(|tried| {
            let name = name(&tried.point);
            (name, study.accuracy(tried), study.overhead(tried))
        });
        Series {
            title,
            points: points.collect(),
        }
    };
    [
        over(
            "period",
            |p| p.period.to_string(),
            |a, b| (a.aux, a.threads) == (b.aux, b.threads),
        ),
        over(
            "samples' buffer",
            |p| p.aux.to_string(),
            |a, b| (a.period, a.threads) == (b.period, b.threads),
        ),
        over(
            "threads",
            |p| p.threads.map_or(String::new(), |n| n.to_string()),
            |a, b| (a.period, a.aux) == (b.period, b.aux),
        ),
    ]
    .into_iter()
    .filter(|series| series.points.len() > 1)
    .collect()
}

/// The range that holds all means with their deviations, and `always`.
fn range<'a>(means: impl Iterator<Item = &'a Mean>, always: f64) -> (f64, f64) {
    let (low, high) = means.fold((always, always), |(low, high), mean| {
        let Mean { mean, deviation } = *mean;
        (low.min(mean - deviation), high.max(mean + deviation))
    });
    if high - low < 1e-6 {
        (low - 0.005, high + 0.005)
    } else {
        (low, high)
    }
}

/// Cells of a line of the plot.
const WIDTH: usize = 48;

/// One line for each value: `*` is the mean, `-` its deviation.
pub(crate) fn text_plots(study: &Study) -> String {
    let mut text = String::new();
    for Series { title, points } in series(study) {
        for (what, always, pick) in [("accuracy", 1.0, 0), ("time overhead", 0.0, 1)] {
            let mean = |point: &(String, Mean, Mean)| if pick == 0 { point.1 } else { point.2 };
            let means: Vec<Mean> = points.iter().map(mean).collect();
            let (low, high) = range(means.iter(), always);
            let left = format!("{:.1}%", low * 100.0);
            let right = format!("{:.1}%", high * 100.0);
            let _ = writeln!(
                text,
                "\n{what} over {title}\n{:>10}  {left:<24}{right:>24}",
                ""
            );
            for ((name, ..), mean) in points.iter().zip(&means) {
                let _ = writeln!(text, "{name:>10} |{}|", line(*mean, low, high));
            }
        }
    }
    text.push('\n');
    text
}

fn line(Mean { mean, deviation }: Mean, low: f64, high: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a cell of the plot, clamped to its width"
    )]
    let cell = |value: f64| {
        let place = (value - low) / (high - low) * (WIDTH - 1) as f64;
        place.round().clamp(0.0, (WIDTH - 1) as f64) as usize
    };
    let (from, at, to) = (cell(mean - deviation), cell(mean), cell(mean + deviation));
    let mut cells = vec![b' '; WIDTH];
    cells[from..=to].fill(b'-');
    cells[at] = b'*';
    cells.into_iter().map(char::from).collect()
}

/// Size of a panel of the SVG, and its margins.
const PANEL: (f64, f64) = (420.0, 240.0);
const MARGIN: (f64, f64) = (60.0, 40.0);

/// A panel for accuracy and one for overhead beside it, a row for each setting.
pub(crate) fn svg(study: &Study) -> String {
    let all = series(study);
    #[expect(clippy::cast_precision_loss, reason = "three rows at most")]
    let height = PANEL.1 * all.len().max(1) as f64;
    let width = 2.0 * PANEL.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut top = 0.0;
    for Series { title, points } in &all {
        let accuracy = points.iter().map(|(name, mean, _)| (name.as_str(), *mean));
        panel(
            &mut text,
            0.0,
            top,
            &format!("accuracy, % over {title}"),
            1.0,
            &accuracy.collect::<Vec<_>>(),
        );
        let overhead = points.iter().map(|(name, _, mean)| (name.as_str(), *mean));
        panel(
            &mut text,
            PANEL.0,
            top,
            &format!("time overhead, % over {title}"),
            0.0,
            &overhead.collect::<Vec<_>>(),
        );
        top += PANEL.1;
    }
    text.push_str("</svg>\n");
    text
}

/// Points with bars for their deviations, joined by a line.
fn panel(
    text: &mut String,
    left: f64,
    top: f64,
    title: &str,
    always: f64,
    points: &[(&str, Mean)],
) {
    let (low, high) = range(points.iter().map(|(_, mean)| mean), always);
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
    for value in [low, (low + high) / 2.0, high] {
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
    use std::time::Duration;

    use probe_user::record::{Counts, Size};

    use super::*;
    use crate::mem::calibrate::study::{Trial, points};

    fn study() -> Study {
        let mut study = Study::new(points(&[1024, 4096], &[Size(1 << 20)], &[]));
        study.bases[0].times = vec![10.0, 10.0];
        study.bases[0].accesses = vec![1_024_000.0];
        for (tried, samples) in study.points.iter_mut().zip([800, 250]) {
            let counts = Counts {
                samples,
                ..Counts::default()
            };
            let time = Duration::from_secs(11);
            tried.trials = vec![Trial { time, counts }];
        }
        study
    }

    #[test]
    fn a_mean_is_drawn_where_it_lies() {
        let text = text_plots(&study());
        // 80% and 100% of the range from 80% to 100%; both cost 10%.
        let lines: Vec<&str> = text.lines().filter(|line| line.contains('|')).collect();
        let star = |line: &str| line.find('*').unwrap() - line.find('|').unwrap();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!((star(lines[0]), star(lines[1])), (1, WIDTH), "{text}");
        assert_eq!((star(lines[2]), star(lines[3])), (WIDTH, WIDTH), "{text}");
        assert!(text.contains("80.0%") && text.contains("100.0%"), "{text}");
        assert!(!text.contains("buffer"), "one size is no series: {text}");
    }

    #[test]
    fn deviations_are_bars() {
        let mean = Mean {
            mean: 0.5,
            deviation: 0.5,
        };
        let drawn = line(mean, 0.0, 1.0);
        assert_eq!(drawn.matches('-').count(), WIDTH - 1);
        assert_eq!(drawn.find('*'), Some(24));
    }

    #[test]
    fn the_svg_has_a_point_for_each_mean_inside_its_frame() {
        let text = svg(&study());
        assert_eq!(text.matches("<circle").count(), 4);
        assert_eq!(text.matches("<polyline").count(), 2);
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        for circle in text.split("<circle ").skip(1) {
            let value = |name: &str| -> f64 {
                let rest = circle.split_once(name).unwrap().1;
                rest.split('"').nth(1).unwrap().parse().unwrap()
            };
            assert!((0.0..=2.0 * PANEL.0).contains(&value("cx")));
            assert!((0.0..=PANEL.1).contains(&value("cy")));
        }
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
