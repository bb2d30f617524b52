//! The numbers of a calibration: points, trials, means and deviations, and what they recommend.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use probe_user::record::{Counts, Size};

/// One setting of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) period: u64,
    pub(crate) aux: Size,
    /// As the command is told; none where it is not.
    pub(crate) threads: Option<u32>,
}

/// One run of a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// From the command's start to its end.
    pub(crate) time: std::time::Duration,
    pub(crate) counts: Counts,
}

/// A point with its runs.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub(crate) point: Point,
    pub(crate) trials: Vec<Trial>,
}

/// The command without sampling, for one number of threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base {
    pub(crate) threads: Option<u32>,
    /// Seconds, as it is.
    pub(crate) times: Vec<f64>,
    /// Loads and stores.
    pub(crate) accesses: Vec<f64>,
    /// Seconds, with them counted.
    pub(crate) counted_times: Vec<f64>,
}

/// A mean with the standard deviation of its runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mean {
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

impl Mean {
    /// Of at least one value.
    pub(crate) fn of(values: &[f64]) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a handful of runs")]
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if count > 1.0 {
            (squares / (count - 1.0)).sqrt()
        } else {
            0.0
        };
        Self { mean, deviation }
    }

    fn percent(self) -> String {
        let Self { mean, deviation } = self;
        format!("{:.2}% ± {:.2}", mean * 100.0, deviation * 100.0)
    }
}

/// A whole study.
#[derive(Clone, Debug)]
pub(crate) struct Study {
    pub(crate) bases: Vec<Base>,
    pub(crate) points: Vec<Tried>,
}

/// Every value of each list with the middle ones of the others, without repeats.
pub(crate) fn points(periods: &[u64], aux: &[Size], threads: &[u32]) -> Vec<Point> {
    let middle = |count: usize| count / 2;
    let base = Point {
        period: periods[middle(periods.len())],
        aux: aux[middle(aux.len())],
        threads: threads.get(middle(threads.len())).copied(),
    };
    let by_period = periods.iter().map(|period| Point {
        period: *period,
        ..base
    });
    let by_aux = aux.iter().map(|aux| Point { aux: *aux, ..base });
    let by_threads = threads.iter().map(|threads| Point {
        threads: Some(*threads),
        ..base
    });
    let mut points: Vec<Point> = Vec::new();
    for point in by_period.chain(by_aux).chain(by_threads) {
        if !points.contains(&point) {
            points.push(point);
        }
    }
    points
}

/// Formula (1) of the NMO paper: `1 - |(counted - samples x period) / counted|`.
pub(crate) fn accuracy(counted: f64, samples: u64, period: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    let estimated = samples as f64 * period as f64;
    1.0 - ((counted - estimated) / counted).abs()
}

impl Study {
    pub(crate) fn new(points: Vec<Point>) -> Self {
        let mut bases: Vec<Base> = Vec::new();
        for Point { threads, .. } in &points {
            if !bases.iter().any(|base| base.threads == *threads) {
                bases.push(Base {
                    threads: *threads,
                    ..Base::default()
                });
            }
        }
        let tried = |point| Tried {
            point,
            trials: Vec::new(),
        };
        Self {
            bases,
            points: points.into_iter().map(tried).collect(),
        }
    }

    fn base(&self, tried: &Tried) -> &Base {
        let threads = tried.point.threads;
        let mut bases = self.bases.iter();
        bases
            .find(|base| base.threads == threads)
            .expect("`new` makes one for each number of threads")
    }

    pub(crate) fn accuracy(&self, tried: &Tried) -> Mean {
        let counted = Mean::of(&self.base(tried).accesses).mean;
        let period = tried.point.period;
        let each = tried
            .trials
            .iter()
            .map(|trial| accuracy(counted, trial.counts.valid(), period));
        Mean::of(&each.collect::<Vec<_>>())
    }

    /// Time over that of the command as it is, less one.
    pub(crate) fn overhead(&self, tried: &Tried) -> Mean {
        let base = Mean::of(&self.base(tried).times).mean;
        let each = tried
            .trials
            .iter()
            .map(|trial| trial.time.as_secs_f64() / base - 1.0);
        Mean::of(&each.collect::<Vec<_>>())
    }

    /// What cannot be told from zero: the deviation of the command's own time.
    fn noise(&self, tried: &Tried) -> f64 {
        let Mean { mean, deviation } = Mean::of(&self.base(tried).times);
        deviation / mean
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for base in &self.bases {
            let time = Mean::of(&base.times);
            let counted = Mean::of(&base.accesses);
            let cost = Mean::of(&base.counted_times).mean / time.mean - 1.0;
            let threads = base
                .threads
                .map_or(String::new(), |n| format!(" with {n} threads"));
            let _ = writeln!(
                text,
                "without sampling{threads}: {:.3} s ± {:.3}; mem_access {:.0} ± {:.0} (counting \
                 it costs {:+.2}%)",
                time.mean,
                time.deviation,
                counted.mean,
                counted.deviation,
                cost * 100.0
            );
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "period",
            "aux",
            "threads",
            "samples",
            "invalid",
            "accuracy",
            "overhead",
            "collisions",
            "truncated",
            "lost",
        ]);
        for tried in &self.points {
            let count = |of: fn(&Counts) -> u64| {
                #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
                let each = tried.trials.iter().map(|trial| of(&trial.counts) as f64);
                Mean::of(&each.collect::<Vec<_>>()).mean
            };
            let Point {
                period,
                aux,
                threads,
            } = tried.point;
            table.add_row([
                period.to_string(),
                aux.to_string(),
                threads.map_or("-".to_owned(), |n| n.to_string()),
                format!("{:.0}", count(|c| c.samples)),
                format!("{:.1}", count(|c| c.invalid)),
                self.accuracy(tried).percent(),
                self.overhead(tried).percent(),
                format!("{:.1}", count(|c| c.collided)),
                format!("{:.1}", count(|c| c.truncated)),
                format!("{:.1}", count(|c| c.lost_ring_records + c.bad.total())),
            ]);
        }
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let _ = writeln!(text, "{table}");
        text.push_str(
            "means of all runs ± standard deviation; collisions and truncated are buffers, lost are records;\n\
             invalid are the samples with an address or time of zero: as in NMO they are no part \
             of the accuracy\n",
        );
        text
    }

    /// The setting to use, and why: of those as accurate as the best, and as cheap, the one with
    /// most samples, in the smallest buffer.
    pub(crate) fn recommendation(&self) -> String {
        // As accurate as the best: within a point of it, or within the two deviations.
        let best = self
            .points
            .iter()
            .map(|tried| self.accuracy(tried))
            .max_by(|a, b| a.mean.total_cmp(&b.mean))
            .expect("a study has points");
        let accurate: Vec<&Tried> = self
            .points
            .iter()
            .filter(|tried| {
                let accuracy = self.accuracy(tried);
                let slack = (accuracy.deviation + best.deviation).max(0.01);
                accuracy.mean + slack >= best.mean
            })
            .collect();
        // Cheap: below a percent, or no more than the command's own time varies.
        let cheap = |tried: &&&Tried| self.overhead(tried).mean <= self.noise(tried).max(0.01);
        let mut chosen: Vec<&Tried> = accurate.iter().filter(cheap).copied().collect();
        let none_is_cheap = chosen.is_empty();
        if none_is_cheap {
            let cheapest = |tried: &&&Tried| self.overhead(tried).mean;
            let least = accurate
                .iter()
                .min_by(|a, b| cheapest(a).total_cmp(&cheapest(b)));
            chosen.extend(least);
        }
        let chosen = chosen
            .into_iter()
            .min_by_key(|tried| (tried.point.period, tried.point.aux))
            .expect("the best is as accurate as itself");
        let Point { period, aux, .. } = chosen.point;
        let (accuracy, overhead) = (self.accuracy(chosen), self.overhead(chosen));
        let noise = self.noise(chosen) * 100.0;
        let cost = if none_is_cheap {
            "no setting that accurate costs less than 1%, and this one costs least"
        } else {
            "the smallest period, so the most samples, whose cost is below 1% or below what the \
             command's time varies by"
        };
        let mut text = format!(
            "recommended: --period {period} --aux {aux}: accuracy {}, overhead {} (the command's \
             own time varies by {noise:.2}%); \
             accuracy is within a point, or within the deviations, of the best measured ({}); \
             {cost}",
            accuracy.percent(),
            overhead.percent(),
            best.percent(),
        );
        if best.mean < 0.9 {
            text.push_str(
                "\nbeware: no setting reached an accuracy of 90%; see the collisions and \
                 truncations above, or try larger periods and buffers",
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const M: Size = Size(1 << 20);

    fn trial(seconds: f64, samples: u64) -> Trial {
        Trial {
            time: Duration::from_secs_f64(seconds),
            counts: Counts {
                samples,
                ..Counts::default()
            },
        }
    }

    /// 100 million accesses in 10 s ± 0.01.
    fn study(points: &[(u64, Size, f64, u64)]) -> Study {
        Study {
            bases: vec![Base {
                threads: None,
                times: vec![9.99, 10.01],
                accesses: vec![99e6, 101e6],
                counted_times: vec![10.1, 10.1],
            }],
            points: points
                .iter()
                .map(|&(period, aux, seconds, samples)| Tried {
                    point: Point {
                        period,
                        aux,
                        threads: None,
                    },
                    trials: vec![trial(seconds, samples); 2],
                })
                .collect(),
        }
    }

    #[test]
    fn accuracy_is_the_papers_formula() {
        assert!((accuracy(1e6, 976, 1024) - 0.999_424).abs() < 1e-9);
        // Too many is as wrong as too few.
        assert!((accuracy(1000.0, 9, 100) - 0.9).abs() < 1e-9);
        assert!((accuracy(1000.0, 11, 100) - 0.9).abs() < 1e-9);
        assert!((accuracy(1000.0, 0, 100)).abs() < 1e-9);
        assert!(accuracy(1000.0, 30, 100) < 0.0);
    }

    #[test]
    fn invalid_samples_are_shown_and_no_part_of_the_accuracy() {
        let mut study = study(&[(8192, M, 10.0, 13_207)]);
        let without = study.accuracy(&study.points[0]);
        study.points[0].trials[0].counts.invalid = 1000;
        study.points[0].trials[1].counts.invalid = 1001;
        let accuracy = study.accuracy(&study.points[0]);
        assert!((without.mean - 0.918).abs() < 1e-3, "{without:?}");
        assert!((accuracy.mean - 1.0).abs() < 1e-3, "{accuracy:?}");
        let table = study.table();
        assert!(table.contains(" 1000.5 "), "{table}");
        assert!(table.contains("no part of the accuracy"), "{table}");
    }

    #[test]
    fn means_and_deviations() {
        let Mean { mean, deviation } = Mean::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert!((mean - 5.0).abs() < 1e-12);
        // Of a sample, so divided by n - 1.
        assert!((deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        let one = Mean::of(&[3.0]);
        assert!((one.mean, one.deviation) == (3.0, 0.0));
    }

    #[test]
    fn the_study_varies_one_thing_at_a_time() {
        let all = points(&[1, 2, 3], &[Size(10), M], &[1, 8]);
        let plain: Vec<_> = all
            .iter()
            .map(|p| (p.period, p.aux.0, p.threads.unwrap()))
            .collect();
        assert_eq!(
            plain,
            [
                (1, 1 << 20, 8),
                (2, 1 << 20, 8),
                (3, 1 << 20, 8),
                (2, 10, 8),
                (2, 1 << 20, 1)
            ]
        );
        let study = Study::new(all);
        let bases: Vec<_> = study.bases.iter().map(|base| base.threads).collect();
        assert_eq!(bases, [Some(8), Some(1)]);
        assert_eq!(points(&[5], &[M], &[]).len(), 1);
    }

    #[test]
    fn the_smallest_good_and_cheap_period_is_recommended() {
        let study = study(&[
            // Collides.
            (1024, M, 10.0, 60_000),
            // Good, dear.
            (4096, M, 10.5, 24_300),
            // Good and cheap.
            (8192, M, 10.05, 12_180),
            (8192, Size(4 << 20), 10.05, 12_200),
            (16384, M, 10.0, 6_100),
        ]);
        let text = study.recommendation();
        assert!(
            text.starts_with(
                "recommended: --period 8192 --aux 1M: accuracy 99.78% ± 0.00, overhead 0.50% ± 0.00"
            ),
            "{text}"
        );
        assert!(!text.contains("beware"), "{text}");
    }

    #[test]
    fn where_all_are_dear_the_cheapest_is_taken_and_said() {
        let study = study(&[(4096, M, 12.0, 20_000), (8192, M, 11.0, 10_000)]);
        let text = study.recommendation();
        assert!(text.starts_with("recommended: --period 8192"), "{text}");
        assert!(text.contains("costs least"), "{text}");
        assert!(text.contains("beware"), "{text}");
    }

    #[test]
    fn the_table_has_a_row_for_each_point() {
        let table = study(&[(4096, M, 10.5, 24_300), (8192, M, 10.05, 12_180)]).table();
        assert!(
            table.contains("mem_access 100000000 ± 1414214 (counting it costs +1.00%)"),
            "{table}"
        );
        assert!(table.contains("99.53% ± 0.00"), "{table}");
        assert!(table.contains("5.00% ± 0.00"), "{table}");
    }
}
