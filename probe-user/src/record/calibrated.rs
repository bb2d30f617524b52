//! What `mem calibrate` measured: its settings, each with the accuracy and the cost of sampling.
//! This is the JSON of the verb; pictures and the report's page are made of it.

mod svg;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Size;

/// The version of the JSON: it rises where a field gets another meaning or goes.
pub const CALIBRATED_FORMAT: u32 = 1;

/// A mean with the standard deviation of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean of all runs.
    pub mean: f64,
    /// Their standard deviation; 0 of one run.
    pub deviation: f64,
}

/// The command without sampling, for one number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unsampled {
    /// The number that the command got; None where it got none.
    pub threads: Option<u32>,
    /// Seconds of the command as it is.
    pub seconds: Mean,
    /// Loads and stores, as the event `mem_access` counted them.
    pub mem_access: Mean,
    /// Seconds of the command while they were counted.
    pub counted_seconds: Mean,
}

/// A setting with what its runs gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Operations from one sample to the next.
    pub period: u64,
    /// Bytes of the samples' buffer.
    pub aux_bytes: u64,
    /// The number that the command got; None where it got none.
    pub threads: Option<u32>,
    /// 1 - |counted - samples x mean period| / counted (formula 1 of the NMO paper).
    pub accuracy: Mean,
    /// The time, divided by the mean time without sampling, less one.
    pub overhead: Mean,
    /// Samples of a run.
    pub samples: Mean,
    /// Of these, samples with an address or time of zero.
    pub invalid: Mean,
    /// Buffers in which samples collided.
    pub collisions: Mean,
    /// Buffers that were full, or lost data.
    pub truncated: Mean,
    /// Records that were lost or damaged.
    pub lost: Mean,
}

/// A whole study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    /// [`CALIBRATED_FORMAT`].
    pub format: u32,
    /// The platform, as the catalogue calls it.
    pub platform: String,
    /// What is known of the machine and of how it was called, as in the files of `mem record`.
    pub about: BTreeMap<String, String>,
    /// Runs of each setting.
    pub runs: usize,
    /// Operations that jitter adds to each period, on average.
    pub jitter: f64,
    /// The command without sampling.
    pub unsampled: Vec<Unsampled>,
    /// All settings, in the order in which they were tried.
    pub settings: Vec<Setting>,
    /// The setting to use, as an index of `settings`.
    pub recommended: usize,
    /// The same as a sentence, and why.
    pub recommendation: String,
}

/// Settings that differ in one thing only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// What differs.
    pub over: Over,
    /// The settings, as indices, by what differs.
    pub settings: Vec<usize>,
}

/// What a sweep changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Operations from one sample to the next.
    Period,
    /// Bytes of the samples' buffer.
    Aux,
    /// Threads of the command.
    Threads,
}

impl Over {
    /// As plots call it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Period => "period",
            Self::Aux => "samples' buffer",
            Self::Threads => "threads",
        }
    }

    /// What a setting has of it, as its option takes it.
    #[must_use]
    pub fn of(self, setting: &Setting) -> String {
        match self {
            Self::Aux => Size(setting.aux_bytes).to_string(),
            Self::Period | Self::Threads => self.number(setting).to_string(),
        }
    }

    fn number(self, setting: &Setting) -> u64 {
        match self {
            Self::Period => setting.period,
            Self::Aux => setting.aux_bytes,
            Self::Threads => setting.threads.unwrap_or_default().into(),
        }
    }

    /// Whether two settings are the same in all else.
    fn alone(self, a: &Setting, b: &Setting) -> bool {
        let others = |of: &Setting| match self {
            Self::Period => (0, of.aux_bytes, of.threads),
            Self::Aux => (of.period, 0, of.threads),
            Self::Threads => (of.period, of.aux_bytes, None),
        };
        others(a) == others(b)
    }
}

impl Calibrated {
    /// The sweeps with several settings.
    #[must_use]
    pub fn sweeps(&self) -> Vec<Sweep> {
        let sweep = |over: Over| {
            // The settings that differ in this only: one such set has several.
            let sets = self.settings.iter().map(|base| {
                let all = self.settings.iter().enumerate();
                let same = all.filter(|(_, tried)| over.alone(tried, base));
                same.map(|(at, _)| at).collect::<Vec<_>>()
            });
            let mut settings = sets.max_by_key(Vec::len).unwrap_or_default();
            settings.sort_by_key(|at| over.number(&self.settings[*at]));
            Sweep { over, settings }
        };
        let all = [Over::Period, Over::Aux, Over::Threads].map(sweep);
        all.into_iter()
            .filter(|sweep| sweep.settings.len() > 1)
            .collect()
    }

    /// The range that holds the means of a sweep with their deviations, and `always`.
    #[must_use]
    pub fn range(means: &[Mean], always: f64) -> (f64, f64) {
        let around = means.iter().fold((always, always), |(low, high), it| {
            (
                low.min(it.mean - it.deviation),
                high.max(it.mean + it.deviation),
            )
        });
        match around {
            (low, high) if high - low < 1e-6 => (low - 0.005, high + 0.005),
            around => around,
        }
    }
}
