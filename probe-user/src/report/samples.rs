//! All samples of `mem record`: sums by region, phase and thread, and a random selection of points
//! to draw.

mod reduce;

use std::{collections::BTreeMap, mem};

use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use self::reduce::POINTS;
use self::reduce::{PointSelection, PointSumsByGroup};
use super::text::{metadata, number};
use crate::samples::{SampleReadError, SampleReader, TextIndex, boot_time};

/// Most phases in the list; the longest are kept.
const MAX_PHASES: usize = 2000;

/// Sums of a region's samples in a phase of a thread. None: unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleSum {
    /// A tag, or the kind of memory.
    pub region: Option<String>,
    /// The nested phases, joined by slashes.
    pub phase: Option<String>,
    /// Cgroup of the process.
    pub cgroup: Option<String>,
    /// Process id.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// The thread's name in its first sample.
    pub comm: Option<String>,
    /// All samples.
    pub samples: u64,
    /// Samples of loads.
    pub loads: u64,
    /// Samples of stores.
    pub stores: u64,
    /// Samples with a latency.
    pub timed: u64,
    /// Sum of their latencies, in cycles.
    pub cycles: u64,
    /// Load samples by data source.
    pub sources: BTreeMap<String, u64>,
}

/// A sample to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplePoint {
    /// ns of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Virtual address of the data.
    pub address: u64,
    /// Cycles from dispatch to completion.
    pub latency: Option<u32>,
    /// `load`, `store`, ...
    pub operation: Option<String>,
    /// Data source.
    pub source: Option<String>,
    /// Index into [`Scatter::sums`].
    pub sum: usize,
}

/// A phase of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SamplePhase {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The phase's name.
    pub name: String,
    /// Begin, in ns of `CLOCK_MONOTONIC`.
    #[serde(rename = "since_ns", deserialize_with = "nanos")]
    pub since: u64,
    /// End; None: open at the end of the recording.
    #[serde(rename = "until_ns", deserialize_with = "maybe_nanos")]
    pub until: Option<u64>,
}

/// All samples of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scatter {
    /// Name of the file.
    pub file: String,
    /// Metadata: keys and values.
    pub about: Vec<(String, String)>,
    /// First and last time of a sample, in ns of `CLOCK_MONOTONIC`.
    pub times: (u64, u64),
    /// Number of samples.
    pub samples: u64,
    /// Samples without a time or an address, which cannot be drawn.
    pub without_position: u64,
    /// Samples in sums by region alone, because of the limit of sums.
    pub merged: u64,
    /// Texts (regions, names) read as unknown, because of the limit of distinct texts.
    pub texts_left_out: u64,
    /// Points to draw, by time.
    pub points: Vec<SamplePoint>,
    /// Sums, largest first.
    pub sums: Vec<SampleSum>,
    /// Phases, by begin.
    pub phases: Vec<SamplePhase>,
    /// Number of phases left out, the shortest.
    pub phases_left_out: usize,
}

impl Scatter {
    /// Reads a whole file.
    ///
    /// # Errors
    ///
    /// If it is damaged.
    pub fn read(file: &str, mut samples: SampleReader) -> Result<Self, SampleReadError> {
        let mut chosen = PointSelection::default();
        let mut sums = PointSumsByGroup::default();
        let mut scatter = Self {
            file: file.to_owned(),
            times: (u64::MAX, 0),
            ..Self::default()
        };
        samples.read(|row| {
            let sum = sums.add(row);
            scatter.samples += 1;
            if let Some(time) = row.time.filter(|time| *time > 0) {
                let (first, last) = scatter.times;
                scatter.times = (first.min(time), last.max(time));
            }
            // No access has a time or an address of zero.
            match (row.time, row.address) {
                (Some(1..), Some(1..)) => chosen.add(scatter.samples, sum, row),
                _ => scatter.without_position += 1,
            }
        })?;
        if scatter.samples == 0 {
            return Err(SampleReadError::Empty(file.to_owned()));
        }
        scatter.times.0 = scatter.times.0.min(scatter.times.1);
        scatter.merged = sums.merged;
        scatter.texts_left_out = samples.texts_left_out;
        scatter.order(&samples.texts, chosen, sums);
        scatter.about = mem::take(&mut samples.about);
        let phases = listed_phases(&scatter.about);
        scatter.set_phases(phases);
        Ok(scatter)
    }

    /// Unix time of the first sample in seconds, if known.
    pub(super) fn began(&self) -> Option<f64> {
        let boot = boot_time(&self.about)?;
        #[expect(clippy::cast_precision_loss, reason = "a time in seconds, for people")]
        Some((boot + i128::from(self.times.0)) as f64 / 1e9)
    }

    /// Checks that these samples and the recording with this metadata are of the same boot of one
    /// machine, so that their clocks are the same.
    ///
    /// # Errors
    ///
    /// The difference, as part of a sentence.
    pub fn check_same_boot(&self, about: &[(String, String)]) -> Result<(), &'static str> {
        let host = |about: &[(String, String)]| {
            let host = about.iter().find(|(key, _)| key == "host");
            host.map(|(_, value)| value.clone())
        };
        if host(&self.about) != host(about) {
            return Err("they are of another machine");
        }
        let boots = boot_time(&self.about).zip(boot_time(about));
        // The wall clock may be set in between, by less than a reboot takes.
        match boots {
            Some((a, b)) if a.abs_diff(b) > 10_000_000_000 => {
                Err("the machine was rebooted, or its clock set, between them")
            }
            _ => Ok(()),
        }
    }

    /// Sets sums and points, with texts in place of text indices. Sorts sums by size and points by
    /// time.
    fn order(&mut self, texts: &[String], chosen: PointSelection, sums: PointSumsByGroup) {
        let name = |text: Option<TextIndex>| Some(texts.get(text? as usize)?.clone());
        let mut all: Vec<(usize, SampleSum)> = { sums.list.into_iter() }
            .enumerate()
            .map(|(at, (key, counts))| {
                let sources = counts
                    .sources
                    .into_iter()
                    .filter_map(|(source, count)| Some((name(source)?, count)));
                let mut operations = (0, 0);
                for (operation, count) in counts.operations {
                    match name(operation).as_deref() {
                        Some("load") => operations.0 += count,
                        Some("store") => operations.1 += count,
                        _ => {}
                    }
                }
                let sum = SampleSum {
                    region: name(key.region),
                    phase: name(key.phase),
                    cgroup: name(key.cgroup),
                    pid: key.pid,
                    tid: key.tid,
                    comm: name(counts.comm),
                    samples: counts.samples,
                    loads: operations.0,
                    stores: operations.1,
                    timed: counts.timed,
                    cycles: counts.cycles,
                    sources: sources.collect(),
                };
                (at, sum)
            })
            .collect();
        all.sort_by_key(|(at, sum)| (std::cmp::Reverse(sum.samples), *at));
        let mut ranks = vec![0; all.len()];
        for (rank, (at, _)) in all.iter().enumerate() {
            ranks[*at] = rank;
        }
        self.sums = all.into_iter().map(|(_, sum)| sum).collect();
        let points = chosen.0.into_iter().map(|it| SamplePoint {
            time: it.time,
            address: it.address,
            latency: it.latency,
            operation: name(it.operation),
            source: name(it.source),
            sum: ranks[it.sum],
        });
        self.points = points.collect();
        self.points
            .sort_by_key(|point| (point.time, point.address, point.sum));
    }

    fn set_phases(&mut self, mut phases: Vec<SamplePhase>) {
        let end = self.times.1;
        let length = |phase: &SamplePhase| phase.until.unwrap_or(end).saturating_sub(phase.since);
        phases.sort_by_key(|phase| std::cmp::Reverse(length(phase)));
        self.phases_left_out = phases.len().saturating_sub(MAX_PHASES);
        phases.truncate(MAX_PHASES);
        phases.sort_by_key(|phase| (phase.since, phase.pid, phase.tid));
        self.phases = phases;
    }

    /// Seconds since `began`, a time in ns.
    pub(super) fn seconds(began: u64, time: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53 ns")]
        let to_seconds = |nanos: u64| nanos as f64 / 1e9;
        match time.checked_sub(began) {
            Some(after) => to_seconds(after),
            None => -to_seconds(began - time),
        }
    }

    /// The samples as JSON. Times are in seconds since `began` (ns of `CLOCK_MONOTONIC`), or since
    /// the first sample. Points are in columns. Addresses are texts, since numbers of 64 bits are
    /// too large for some JSON readers.
    pub(super) fn json(&self, began: Option<u64>) -> Value {
        let began = began.unwrap_or(self.times.0);
        let seconds = |time| number(Self::seconds(began, time));
        let column = |value: &dyn Fn(&SamplePoint) -> Value| -> Value {
            self.points.iter().map(value).collect()
        };
        let sums = self.sums.iter().map(|sum| {
            #[expect(clippy::cast_precision_loss, reason = "cycles of samples, below 2^53")]
            let mean = || sum.cycles as f64 / sum.timed as f64;
            json!({
                "region": sum.region,
                "phase": sum.phase,
                "cgroup": sum.cgroup,
                "pid": sum.pid,
                "tid": sum.tid,
                "comm": sum.comm,
                "samples": sum.samples,
                "loads": sum.loads,
                "stores": sum.stores,
                "timed": sum.timed,
                "cycles": sum.cycles,
                "mean_latency_cycles": (sum.timed > 0).then(mean),
                "sources": sum.sources,
            })
        });
        let phases = self.phases.iter().map(|phase| {
            json!({
                "pid": phase.pid,
                "tid": phase.tid,
                "name": phase.name,
                "since_s": seconds(phase.since),
                "until_s": phase.until.map(seconds),
            })
        });
        let counts: Map<String, Value> = self
            .about
            .iter()
            .filter_map(|(key, value)| {
                let count = value.parse::<u64>().ok().filter(|count| *count > 0)?;
                Some((key.strip_prefix("count.")?.to_owned(), count.into()))
            })
            .collect();
        json!({
            "file": self.file,
            "about": metadata(&self.about),
            "counts": counts,
            "samples": self.samples,
            "drawn": self.points.len(),
            "without_time_or_address": self.without_position,
            "merged": self.merged,
            "texts_left_out": self.texts_left_out,
            "end_s": seconds(self.times.1),
            "points": {
                "seconds": column(&|it| seconds(it.time)),
                "address": column(&|it| format!("{:#x}", it.address).into()),
                "latency_cycles": column(&|it| it.latency.into()),
                "operation": column(&|it| it.operation.clone().into()),
                "source": column(&|it| it.source.clone().into()),
                "sum": column(&|it| it.sum.into()),
            },
            "sums": sums.collect::<Vec<_>>(),
            "phases": phases.collect::<Vec<_>>(),
            "phases_left_out": self.phases_left_out,
        })
    }
}

/// The phases in a file's metadata.
fn listed_phases(about: &[(String, String)]) -> Vec<SamplePhase> {
    let phases = about
        .iter()
        .find(|(key, _)| key == "phases")
        .and_then(|(_, text)| serde_json::from_str(text).ok());
    phases.unwrap_or_default()
}

fn nanos<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn maybe_nanos<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let nanos = text.map(|text| text.parse().map_err(serde::de::Error::custom));
    nanos.transpose()
}

#[cfg(test)]
mod tests;
