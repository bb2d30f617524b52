//! The numbers of a calibration: points, trials, means and deviations, and what they recommend.

use std::{collections::BTreeMap, fmt::Write as _};

use comfy_table::{CellAlignment, Table, presets};
use probe_user::record::{CALIBRATED_FORMAT, Calibrated, Counts, Mean, Setting, Size, Unsampled};

/// One setting of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) period: u64,
    pub(crate) aux: Size,
    /// The number that the command gets; None where it gets none.
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

/// Of at least one value.
fn mean_of(values: &[f64]) -> Mean {
    #[expect(clippy::cast_precision_loss, reason = "a handful of runs")]
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = if count > 1.0 {
        (squares / (count - 1.0)).sqrt()
    } else {
        0.0
    };
    Mean { mean, deviation }
}

fn percent(Mean { mean, deviation }: Mean) -> String {
    format!("{:.2}% ± {:.2}", mean * 100.0, deviation * 100.0)
}

/// A whole study.
#[derive(Clone, Debug)]
pub(crate) struct Study {
    /// Operations that jitter adds to each period, on average.
    pub(crate) jitter: f64,
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

/// Formula (1) of the NMO paper: `1 - |(counted - samples x period) / counted|`, with the mean
/// period.
pub(crate) fn accuracy(counted: f64, samples: u64, period: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    let estimated = samples as f64 * period;
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
            jitter: 0.0,
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
        let counted = mean_of(&self.base(tried).accesses).mean;
        #[expect(clippy::cast_precision_loss, reason = "a period is below 2^32")]
        let period = tried.point.period as f64 + self.jitter;
        let each = tried
            .trials
            .iter()
            .map(|trial| accuracy(counted, trial.counts.valid(), period));
        mean_of(&each.collect::<Vec<_>>())
    }

    /// The mean time, divided by that of the command without sampling, less one.
    pub(crate) fn overhead(&self, tried: &Tried) -> Mean {
        let base = mean_of(&self.base(tried).times).mean;
        let each = tried
            .trials
            .iter()
            .map(|trial| trial.time.as_secs_f64() / base - 1.0);
        mean_of(&each.collect::<Vec<_>>())
    }

    /// The largest overhead that may be noise: the deviation of the command's own time.
    fn noise(&self, tried: &Tried) -> f64 {
        let Mean { mean, deviation } = mean_of(&self.base(tried).times);
        deviation / mean
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for base in &self.bases {
            let time = mean_of(&base.times);
            let counted = mean_of(&base.accesses);
            let cost = mean_of(&base.counted_times).mean / time.mean - 1.0;
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
            let count = |of| tried.count(of).mean;
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
                percent(self.accuracy(tried)),
                percent(self.overhead(tried)),
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
            "means of all runs ± standard deviation; collisions and truncated are buffers, lost \
             are records;\n\
             invalid are the samples with an address or time of zero: as in NMO they are no part \
             of the accuracy\n",
        );
        text
    }

    /// The setting to use, and why: of the accurate and cheap ones the one with most samples, in
    /// the smallest buffer.
    pub(crate) fn recommendation(&self) -> (Point, String) {
        // Accurate: within a percentage point of the best, or within the two deviations.
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
             own time varies by {noise:.2}%); accuracy is within a point, or within the \
             deviations, of the best measured ({}); {cost}",
            percent(accuracy),
            percent(overhead),
            percent(best),
        );
        if best.mean < 0.9 {
            text.push_str(
                "\nbeware: no setting reached an accuracy of 90%; see the collisions and \
                 truncations above, or try larger periods and buffers",
            );
        }
        (chosen.point, text)
    }

    /// The study for other programs. `about` is what is known of the machine.
    pub(crate) fn calibrated(
        &self,
        platform: String,
        about: BTreeMap<String, String>,
    ) -> Calibrated {
        let (chosen, recommendation) = self.recommendation();
        let unsampled = self.bases.iter().map(|base| Unsampled {
            threads: base.threads,
            seconds: mean_of(&base.times),
            mem_access: mean_of(&base.accesses),
            counted_seconds: mean_of(&base.counted_times),
        });
        let settings = self.points.iter().map(|tried| Setting {
            period: tried.point.period,
            aux_bytes: tried.point.aux.0,
            threads: tried.point.threads,
            accuracy: self.accuracy(tried),
            overhead: self.overhead(tried),
            samples: tried.count(|c| c.samples),
            invalid: tried.count(|c| c.invalid),
            collisions: tried.count(|c| c.collided),
            truncated: tried.count(|c| c.truncated),
            lost: tried.count(|c| c.lost_ring_records + c.bad.total()),
        });
        let mut points = self.points.iter();
        Calibrated {
            format: CALIBRATED_FORMAT,
            platform,
            about,
            runs: self.points.first().map_or(0, |it| it.trials.len()),
            jitter: self.jitter,
            unsampled: unsampled.collect(),
            settings: settings.collect(),
            recommended: points
                .position(|tried| tried.point == chosen)
                .expect("it is one of them"),
            recommendation,
        }
    }
}

impl Tried {
    /// The mean of a count of its runs.
    fn count(&self, of: fn(&Counts) -> u64) -> Mean {
        #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
        let each = self.trials.iter().map(|trial| of(&trial.counts) as f64);
        mean_of(&each.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests;
