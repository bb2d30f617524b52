//! Results of `mem calibrate`: accuracy and cost of sampling by setting. They are the verb's JSON,
//! from which pictures and the report's page are drawn.

mod svg;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Size;
use crate::plot::extent;

/// Version of the JSON: it rises when a field changes its meaning or is removed.
pub const CALIBRATED_FORMAT: u32 = 1;

/// A mean over runs, with its standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean of all runs.
    pub mean: f64,
    /// The standard deviation of the runs; 0 for one run.
    pub deviation: f64,
}

/// The command without sampling, for one thread count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unsampled {
    /// Thread count given to the command; None if none was.
    pub threads: Option<u32>,
    /// Run time of the command alone, in seconds.
    pub seconds: Mean,
    /// Loads and stores per run, counted by the event `mem_access`.
    pub mem_access: Mean,
    /// Run time of the command while `mem_access` was counted, in seconds.
    pub counted_seconds: Mean,
}

/// A setting with the results of its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibratedSetting {
    /// Operations from one sample to the next.
    pub period: u64,
    /// Bytes of the AUX buffer.
    pub aux_bytes: u64,
    /// Thread count given to the command; None if none was.
    pub threads: Option<u32>,
    /// 1 - |counted - samples x mean period| / counted (formula 1 of the NMO paper).
    pub accuracy: Mean,
    /// Time of the command divided by its mean time without sampling, minus one.
    pub overhead: Mean,
    /// Samples per run.
    pub samples: Mean,
    /// Samples per run with an address or time of zero.
    pub invalid: Mean,
    /// AUX buffers per run with sample collisions.
    pub collisions: Mean,
    /// AUX buffers per run that were full, or lost data.
    pub truncated: Mean,
    /// Records per run that were lost or damaged.
    pub lost: Mean,
}

/// All results of a `mem calibrate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    /// The version, which is [`CALIBRATED_FORMAT`].
    pub format: u32,
    /// The platform's name in the catalogue.
    pub platform: String,
    /// Metadata of the machine and the command line, as in the files of `mem record`.
    pub about: BTreeMap<String, String>,
    /// Number of runs of each setting.
    pub runs: usize,
    /// Mean number of operations that jitter adds to each period.
    pub jitter: f64,
    /// The command without sampling.
    pub unsampled: Vec<Unsampled>,
    /// All settings, in the order of the study.
    pub settings: Vec<CalibratedSetting>,
    /// Index of the recommended setting in `settings`.
    pub recommended: usize,
    /// The recommendation with its reason, as a sentence.
    pub recommendation: String,
}

/// Settings that differ in one option only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The option that varies.
    pub over: SweptOption,
    /// Indices into [`Calibrated::settings`], in the order of the option's values.
    pub settings: Vec<usize>,
}

/// The option that a sweep varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweptOption {
    /// Operations from one sample to the next.
    Period,
    /// Bytes of the AUX buffer.
    Aux,
    /// Threads of the command.
    Threads,
}

/// A plot of one result, such as the accuracy, over the settings of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepPlot {
    /// Name of the result.
    pub value: &'static str,
    /// The option that varies.
    pub over: SweptOption,
    /// Range of the result's axis.
    pub ends: (f64, f64),
    /// For each setting, in the order of the sweep: the value of its option, and the result.
    pub means: Vec<(String, Mean)>,
}

impl SweptOption {
    /// Name of the option in plots.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Period => "period",
            Self::Aux => "samples' buffer",
            Self::Threads => "threads",
        }
    }

    /// The option's value in a setting, as it is written on the command line.
    #[must_use]
    pub fn value_of(self, setting: &CalibratedSetting) -> String {
        match self {
            Self::Aux => Size(setting.aux_bytes).to_string(),
            Self::Period | Self::Threads => self.number(setting).to_string(),
        }
    }

    /// The option's value in a setting, as a number.
    fn number(self, setting: &CalibratedSetting) -> u64 {
        match self {
            Self::Period => setting.period,
            Self::Aux => setting.aux_bytes,
            Self::Threads => setting.threads.unwrap_or_default().into(),
        }
    }

    /// Whether two settings differ at most in this option.
    fn differ_only_in(self, a: &CalibratedSetting, b: &CalibratedSetting) -> bool {
        let others = |setting: &CalibratedSetting| match self {
            Self::Period => (0, setting.aux_bytes, setting.threads),
            Self::Aux => (setting.period, 0, setting.threads),
            Self::Threads => (setting.period, setting.aux_bytes, None),
        };
        others(a) == others(b)
    }
}

impl Calibrated {
    /// All sweeps with several settings.
    #[must_use]
    pub fn sweeps(&self) -> Vec<Sweep> {
        let sweep = |over: SweptOption| {
            // One set for each setting: itself, and those that differ from it in this option only.
            // The largest set is the sweep.
            let sets = self.settings.iter().map(|base| {
                let all = self.settings.iter().enumerate();
                let in_sweep = all.filter(|(_, setting)| over.differ_only_in(setting, base));
                in_sweep.map(|(index, _)| index).collect::<Vec<_>>()
            });
            let mut settings = sets.max_by_key(Vec::len).unwrap_or_default();
            settings.sort_by_key(|index| over.number(&self.settings[*index]));
            Sweep { over, settings }
        };
        let sweeps = [SweptOption::Period, SweptOption::Aux, SweptOption::Threads].map(sweep);
        sweeps
            .into_iter()
            .filter(|sweep| sweep.settings.len() > 1)
            .collect()
    }

    /// Two plots of each sweep: accuracy (its axis includes 1) and time overhead (its axis includes
    /// 0).
    #[must_use]
    pub fn plots(&self) -> Vec<SweepPlot> {
        type ResultField = fn(&CalibratedSetting) -> Mean;
        let plotted: [(_, _, ResultField); 2] = [
            ("accuracy", 1.0, |it| it.accuracy),
            ("time overhead", 0.0, |it| it.overhead),
        ];
        let mut plots = Vec::new();
        for Sweep { over, settings } in self.sweeps() {
            for (value, included, result) in plotted {
                let means: Vec<_> = { settings.iter() }
                    .map(|index| &self.settings[*index])
                    .map(|it| (over.value_of(it), result(it)))
                    .collect();
                plots.push(SweepPlot {
                    value,
                    over,
                    ends: range(&means, included),
                    means,
                });
            }
        }
        plots
    }
}

/// The smallest range that includes the means with their deviations, and `included`; widened if it
/// is empty.
fn range(means: &[(String, Mean)], included: f64) -> (f64, f64) {
    let ends =
        { means.iter() }.flat_map(|(_, it)| [it.mean - it.deviation, it.mean + it.deviation]);
    match extent(ends.chain([included])) {
        (low, high) if high - low < 1e-6 => (low - 0.005, high + 0.005),
        wide => wide,
    }
}
