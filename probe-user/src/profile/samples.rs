//! The samples of `mem record` at once: sums by region, phase and thread of all of them, and some
//! of them as points of a picture.

mod chosen;

use std::{collections::BTreeMap, mem};

use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use self::chosen::POINTS;
use self::chosen::{Chosen, Sums};
use super::text::{known, number};
use crate::recording::{ReadError, Samples, Text};

/// Phases that are listed, the longest ones.
const PHASES: usize = 2000;

/// The samples of a region, in a phase, of a thread. What is none is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    /// A tag, or what memory it is.
    pub region: Option<String>,
    /// The phases, with a slash between.
    pub phase: Option<String>,
    /// The cgroup of the process.
    pub cgroup: Option<String>,
    /// The process.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// The thread's name, as its first sample had it.
    pub comm: Option<String>,
    /// Samples of all kinds.
    pub samples: u64,
    /// Of loads.
    pub loads: u64,
    /// Of stores.
    pub stores: u64,
    /// Those with a latency.
    pub timed: u64,
    /// Their cycles from dispatch to completion.
    pub cycles: u64,
    /// Samples of loads by where their data came from.
    pub sources: BTreeMap<String, u64>,
}

/// A sample that is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// ns of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Virtual address of the data.
    pub address: u64,
    /// Cycles from dispatch to completion.
    pub latency: Option<u32>,
    /// `load`, `store`, ...
    pub operation: Option<String>,
    /// Where the data came from.
    pub source: Option<String>,
    /// Index into [`Scatter::sums`].
    pub sum: usize,
}

/// A phase of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Phase {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// When it began, in ns of `CLOCK_MONOTONIC`.
    #[serde(rename = "since_ns", deserialize_with = "nanos")]
    pub since: u64,
    /// When it ended; None: with the recording.
    #[serde(rename = "until_ns", deserialize_with = "maybe_nanos")]
    pub until: Option<u64>,
}

/// A file of samples at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scatter {
    /// Its file.
    pub file: String,
    /// What is known of it: names and values.
    pub about: Vec<(String, String)>,
    /// The first and the last time of a sample, in ns of `CLOCK_MONOTONIC`.
    pub times: (u64, u64),
    /// How many there are.
    pub samples: u64,
    /// Those without a time or without an address, which cannot be drawn.
    pub nowhere: u64,
    /// Samples whose sum is by region alone, since there are too many.
    pub merged: u64,
    /// Texts of samples (regions, names) that were read as unknown, since too many differ.
    pub texts_left_out: u64,
    /// By time.
    pub points: Vec<Point>,
    /// The largest first.
    pub sums: Vec<Sum>,
    /// By their beginnings.
    pub phases: Vec<Phase>,
    /// Phases that are not listed, the shortest.
    pub phases_left_out: usize,
}

impl Scatter {
    /// Reads a file to its end.
    ///
    /// # Errors
    ///
    /// Where it is damaged.
    pub fn read(file: &str, mut samples: Samples) -> Result<Self, ReadError> {
        let mut chosen = Chosen::default();
        let mut sums = Sums::default();
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
            // A time or an address of zero is none: no sample of an access has it.
            match (row.time, row.address) {
                (Some(1..), Some(1..)) => chosen.add(scatter.samples, sum, row),
                _ => scatter.nowhere += 1,
            }
        })?;
        if scatter.samples == 0 {
            return Err(ReadError::Empty(file.to_owned()));
        }
        scatter.times.0 = scatter.times.0.min(scatter.times.1);
        scatter.merged = sums.merged;
        scatter.texts_left_out = samples.texts_left_out;
        scatter.order(&samples.texts, chosen, sums);
        scatter.about = mem::take(&mut samples.about);
        let phases = samples_phases(&scatter.about);
        scatter.take_phases(phases);
        Ok(scatter)
    }

    /// Unix time in seconds at which the first sample was taken, where that is known.
    pub(super) fn began(&self) -> Option<f64> {
        let boot = boot_time(&self.about)?;
        #[expect(clippy::cast_precision_loss, reason = "a time in seconds, for people")]
        Some((boot + i128::from(self.times.0)) as f64 / 1e9)
    }

    /// Whether these samples and the recording with this metadata are of one machine, since it was
    /// booted: then their times are of one clock.
    ///
    /// # Errors
    ///
    /// What differs, for a sentence.
    pub fn is_beside(&self, about: &[(String, String)]) -> Result<(), &'static str> {
        let host = |about: &[(String, String)]| {
            let host = about.iter().find(|(key, _)| key == "host");
            host.map(|(_, value)| value.clone())
        };
        if host(&self.about) != host(about) {
            return Err("they are of another machine");
        }
        let boots = boot_time(&self.about).zip(boot_time(about));
        // The wall clock may be set meanwhile, by less than a reboot takes.
        match boots {
            Some((a, b)) if a.abs_diff(b) > 10_000_000_000 => {
                Err("the machine was rebooted, or its clock set, between them")
            }
            _ => Ok(()),
        }
    }

    /// Puts names for their numbers, the largest sums first, points by time.
    fn order(&mut self, texts: &[String], chosen: Chosen, sums: Sums) {
        let name = |text: Option<Text>| Some(texts.get(text? as usize)?.clone());
        let mut all: Vec<(usize, Sum)> = { sums.list.into_iter() }
            .enumerate()
            .map(|(at, (key, counts))| {
                let sources = counts.sources.into_iter();
                let sources = sources.filter_map(|(source, count)| Some((name(source)?, count)));
                let mut operations = (0, 0);
                for (operation, count) in counts.operations {
                    match name(operation).as_deref() {
                        Some("load") => operations.0 += count,
                        Some("store") => operations.1 += count,
                        _ => {}
                    }
                }
                let sum = Sum {
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
        let mut places = vec![0; all.len()];
        for (place, (at, _)) in all.iter().enumerate() {
            places[*at] = place;
        }
        self.sums = all.into_iter().map(|(_, sum)| sum).collect();
        let points = chosen.0.into_iter().map(|it| Point {
            time: it.time,
            address: it.address,
            latency: it.latency,
            operation: name(it.operation),
            source: name(it.source),
            sum: places[it.sum],
        });
        self.points = points.collect();
        self.points
            .sort_by_key(|point| (point.time, point.address, point.sum));
    }

    fn take_phases(&mut self, mut phases: Vec<Phase>) {
        let end = self.times.1;
        let length = |phase: &Phase| phase.until.unwrap_or(end).saturating_sub(phase.since);
        phases.sort_by_key(|phase| std::cmp::Reverse(length(phase)));
        self.phases_left_out = phases.len().saturating_sub(PHASES);
        phases.truncate(PHASES);
        phases.sort_by_key(|phase| (phase.since, phase.pid, phase.tid));
        self.phases = phases;
    }

    /// Seconds since `began`, a time in ns.
    pub(super) fn seconds(began: u64, time: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53 ns")]
        let of = |nanos: u64| nanos as f64 / 1e9;
        match time.checked_sub(began) {
            Some(after) => of(after),
            None => -of(began - time),
        }
    }

    /// As JSON. Times are in seconds since `began`, in ns of `CLOCK_MONOTONIC`, or since the first
    /// sample. Points are in columns; addresses are texts, since they are larger than numbers that
    /// every reader of JSON takes.
    pub(super) fn json(&self, began: Option<u64>) -> Value {
        let began = began.unwrap_or(self.times.0);
        let seconds = |time| number(Self::seconds(began, time));
        let column =
            |value: &dyn Fn(&Point) -> Value| -> Value { self.points.iter().map(value).collect() };
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
        let counts = self.about.iter().filter_map(|(key, value)| {
            let count = value.parse::<u64>().ok().filter(|count| *count > 0)?;
            Some((key.strip_prefix("count.")?.to_owned(), count.into()))
        });
        let counts: Map<String, Value> = counts.collect();
        json!({
            "file": self.file,
            "about": known(&self.about),
            "counts": counts,
            "samples": self.samples,
            "drawn": self.points.len(),
            "without_time_or_address": self.nowhere,
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

/// Unix time at which `CLOCK_MONOTONIC` was 0, in ns, by the metadata of a file.
fn boot_time(about: &[(String, String)]) -> Option<i128> {
    let (_, text) = about.iter().find(|(key, _)| key == "wall_clock")?;
    let anchor: Value = serde_json::from_str(text).ok()?;
    let of = |key: &str| anchor[key].as_str()?.parse::<i128>().ok();
    Some(of("unix_ns")? - of("time_ns")?)
}

/// The phases of a recording that came to its end.
fn samples_phases(about: &[(String, String)]) -> Vec<Phase> {
    let phases = about.iter().find(|(key, _)| key == "phases");
    let phases = phases.and_then(|(_, text)| serde_json::from_str(text).ok());
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
