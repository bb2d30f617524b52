//! The numbers of a calibration: points, trials, means and deviations, and what they recommend.

use std::{collections::BTreeMap, fmt::Write as _};

use probe_user::{
    emit::table_lines,
    samples::{
        CALIBRATED_FORMAT, Calibrated, CalibratedSetting, Mean, RecordCounts, Size, Unsampled,
    },
};

/// One setting of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) period: u64,
    pub(crate) aux: Size,
    /// The number of threads passed to the command; None: none is passed.
    pub(crate) threads: Option<u32>,
}

/// One run of a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// From the command's start to its end.
    pub(crate) time: std::time::Duration,
    pub(crate) counts: RecordCounts,
}

/// A point with its runs.
#[derive(Clone, Debug)]
pub(crate) struct TestedPoint {
    pub(crate) point: Point,
    pub(crate) trials: Vec<Trial>,
}

/// The command without sampling, for one number of threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    pub(crate) threads: Option<u32>,
    /// Seconds of runs without counting.
    pub(crate) times: Vec<f64>,
    /// Loads and stores counted in each run.
    pub(crate) accesses: Vec<f64>,
    /// Seconds of runs with loads and stores counted.
    pub(crate) counted_times: Vec<f64>,
}

/// Mean and standard deviation of at least one value.
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
    pub(crate) baselines: Vec<Baseline>,
    pub(crate) points: Vec<TestedPoint>,
}

/// Every value of each list, combined with the middle values of the other lists, without repeats.
pub(crate) fn points(periods: &[u64], aux: &[Size], threads: &[u32]) -> Vec<Point> {
    let middle = |count: usize| count / 2;
    let baseline = Point {
        period: periods[middle(periods.len())],
        aux: aux[middle(aux.len())],
        threads: threads.get(middle(threads.len())).copied(),
    };
    let by_period = periods.iter().map(|period| Point {
        period: *period,
        ..baseline
    });
    let by_aux = aux.iter().map(|aux| Point {
        aux: *aux,
        ..baseline
    });
    let by_threads = threads.iter().map(|threads| Point {
        threads: Some(*threads),
        ..baseline
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
        let mut baselines: Vec<Baseline> = Vec::new();
        for Point { threads, .. } in &points {
            if !baselines
                .iter()
                .any(|baseline| baseline.threads == *threads)
            {
                baselines.push(Baseline {
                    threads: *threads,
                    ..Baseline::default()
                });
            }
        }
        let tested = |point| TestedPoint {
            point,
            trials: Vec::new(),
        };
        Self {
            jitter: 0.0,
            baselines,
            points: points.into_iter().map(tested).collect(),
        }
    }

    fn baseline(&self, tested: &TestedPoint) -> &Baseline {
        let threads = tested.point.threads;
        let mut baselines = self.baselines.iter();
        baselines
            .find(|baseline| baseline.threads == threads)
            .expect("`new` makes one for each number of threads")
    }

    pub(crate) fn accuracy(&self, tested: &TestedPoint) -> Mean {
        let counted = mean_of(&self.baseline(tested).accesses).mean;
        #[expect(clippy::cast_precision_loss, reason = "a period is below 2^32")]
        let period = tested.point.period as f64 + self.jitter;
        let each = tested
            .trials
            .iter()
            .map(|trial| accuracy(counted, trial.counts.valid(), period));
        mean_of(&each.collect::<Vec<_>>())
    }

    /// The command's time with sampling divided by its time without sampling, minus one.
    pub(crate) fn overhead(&self, tested: &TestedPoint) -> Mean {
        let baseline = mean_of(&self.baseline(tested).times).mean;
        let each = tested
            .trials
            .iter()
            .map(|trial| trial.time.as_secs_f64() / baseline - 1.0);
        mean_of(&each.collect::<Vec<_>>())
    }

    /// The largest overhead that may be noise: the relative deviation of the time without sampling.
    fn noise(&self, tested: &TestedPoint) -> f64 {
        let Mean { mean, deviation } = mean_of(&self.baseline(tested).times);
        deviation / mean
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for baseline in &self.baselines {
            let time = mean_of(&baseline.times);
            let counted = mean_of(&baseline.accesses);
            let cost = mean_of(&baseline.counted_times).mean / time.mean - 1.0;
            let threads = baseline
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
        let heads = [
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
        ];
        let rows = self.points.iter().map(|tested| {
            let count = |field| tested.count(field).mean;
            let Point {
                period,
                aux,
                threads,
            } = tested.point;
            vec![
                period.to_string(),
                aux.to_string(),
                threads.map_or("-".to_owned(), |n| n.to_string()),
                format!("{:.0}", count(|c| c.samples)),
                format!("{:.1}", count(|c| c.invalid)),
                percent(self.accuracy(tested)),
                percent(self.overhead(tested)),
                format!("{:.1}", count(|c| c.collided)),
                format!("{:.1}", count(|c| c.truncated)),
                format!("{:.1}", count(|c| c.lost_ring_records + c.bad.total())),
            ]
        });
        text.push_str(&table_lines(&heads, rows, |_| true).join("\n"));
        text.push_str(
            "\nmeans of all runs ± standard deviation; collisions and truncated are buffers, lost \
             are records;\n\
             invalid are the samples with an address or time of zero: as in NMO they are no part \
             of the accuracy\n",
        );
        text
    }

    /// The recommended setting, and the reason. Of the accurate and cheap settings it has the
    /// smallest period, so the most samples, and at that period the smallest buffer. If no accurate
    /// setting is cheap, it is the cheapest accurate one.
    pub(crate) fn recommendation(&self) -> (Point, String) {
        // Accurate: below the best by at most a percentage point, or by the sum of both deviations.
        let best = self
            .points
            .iter()
            .map(|tested| self.accuracy(tested))
            .max_by(|a, b| a.mean.total_cmp(&b.mean))
            .expect("a study has points");
        let accurate: Vec<&TestedPoint> = self
            .points
            .iter()
            .filter(|tested| {
                let accuracy = self.accuracy(tested);
                let slack = (accuracy.deviation + best.deviation).max(0.01);
                accuracy.mean + slack >= best.mean
            })
            .collect();
        // Cheap: an overhead of at most 1%, or of at most the noise.
        let cheap =
            |tested: &&&TestedPoint| self.overhead(tested).mean <= self.noise(tested).max(0.01);
        let mut candidates: Vec<&TestedPoint> = accurate.iter().filter(cheap).copied().collect();
        let none_is_cheap = candidates.is_empty();
        if none_is_cheap {
            let overhead = |tested: &&&TestedPoint| self.overhead(tested).mean;
            let cheapest = accurate
                .iter()
                .min_by(|a, b| overhead(a).total_cmp(&overhead(b)));
            candidates.extend(cheapest);
        }
        let chosen = candidates
            .into_iter()
            .min_by_key(|tested| (tested.point.period, tested.point.aux))
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

    /// The study's results in the form that is written as JSON. `about` describes the machine.
    pub(crate) fn calibrated(
        &self,
        platform: String,
        about: BTreeMap<String, String>,
    ) -> Calibrated {
        let (chosen, recommendation) = self.recommendation();
        let unsampled = self.baselines.iter().map(|baseline| Unsampled {
            threads: baseline.threads,
            seconds: mean_of(&baseline.times),
            mem_access: mean_of(&baseline.accesses),
            counted_seconds: mean_of(&baseline.counted_times),
        });
        let settings = self.points.iter().map(|tested| CalibratedSetting {
            period: tested.point.period,
            aux_bytes: tested.point.aux.0,
            threads: tested.point.threads,
            accuracy: self.accuracy(tested),
            overhead: self.overhead(tested),
            samples: tested.count(|c| c.samples),
            invalid: tested.count(|c| c.invalid),
            collisions: tested.count(|c| c.collided),
            truncated: tested.count(|c| c.truncated),
            lost: tested.count(|c| c.lost_ring_records + c.bad.total()),
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
                .position(|tested| tested.point == chosen)
                .expect("it is one of them"),
            recommendation,
        }
    }
}

impl TestedPoint {
    /// The mean of a count over the runs.
    fn count(&self, field: fn(&RecordCounts) -> u64) -> Mean {
        #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
        let each = self.trials.iter().map(|trial| field(&trial.counts) as f64);
        mean_of(&each.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests;
