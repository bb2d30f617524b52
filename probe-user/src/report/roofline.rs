//! Roofline of a recording: its containers below the peaks that `pmuscope roofline` measured.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Run,
    text::number,
    verb_json::{VerbJsonError, versioned},
};

/// Format version of the JSON that is read.
const FORMAT: u32 = 1;

/// The metric of floating-point operations per second, and prefix and suffix of metrics of FLOPs
/// per byte.
const FLOPS: &str = "flops";
const PER_BYTE: (&str, &str) = ("flops_per_", "_byte");

/// The CPUs of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct PeakCpus {
    socket: Option<u32>,
    threads: usize,
    cpus: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct BestOfRuns {
    best: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct PeakBandwidth {
    #[serde(flatten)]
    on: PeakCpus,
    level: String,
    bytes_per_second: BestOfRuns,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct PeakRoof {
    #[serde(flatten)]
    on: PeakCpus,
    flops: f64,
    bytes_per_second: f64,
}

/// Output of `pmuscope roofline --format json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Peaks {
    format: u32,
    platform: String,
    vectors: String,
    bandwidths: Vec<PeakBandwidth>,
    roofs: Vec<PeakRoof>,
    #[serde(default)]
    notes: Vec<String>,
}

/// Why peaks cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PeaksError {
    /// Not output of the verb, or of another format version.
    #[error(transparent)]
    Json(#[from] VerbJsonError),
    /// Memory or cores were not measured.
    #[error("it has no roof: measure without --sizes, so that memory is measured")]
    NoRoof,
}

/// A container's point in the roofline.
#[derive(Clone, Debug, PartialEq)]
struct RooflinePoint {
    subject: usize,
    /// Index of the metric of FLOPs per byte.
    per_byte: usize,
    /// FLOPs per byte over the windows that have both values.
    intensity: f64,
    /// FLOPs per second over these windows.
    flops: f64,
    /// The number of these windows.
    windows: usize,
}

/// Peaks with a recording's points.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunRoofline {
    peaks: Peaks,
    points: Vec<RooflinePoint>,
}

impl Peaks {
    /// Reads the output of `pmuscope roofline --format json`.
    ///
    /// # Errors
    ///
    /// If it is something else, or has no roof.
    pub fn parse(text: &str) -> Result<Self, PeaksError> {
        let peaks: Self = versioned(text, "roofline", FORMAT)?;
        if peaks.roofs.is_empty() {
            return Err(PeaksError::NoRoof);
        }
        Ok(peaks)
    }

    /// Platform of the measured machine, as the catalogue calls it.
    #[must_use]
    pub fn platform(&self) -> &str {
        &self.platform
    }
}

impl RunRoofline {
    /// Roofline of a run with these peaks.
    ///
    /// # Errors
    ///
    /// The reason if there is no roofline, as a sentence.
    pub(super) fn for_run(run: &Run, peaks: Option<&Peaks>) -> Result<Self, String> {
        let named = |name: &str| run.metrics.iter().position(|it| it.name == name);
        let is_per_byte = |name: &str| {
            let (before, after) = PER_BYTE;
            name.starts_with(before) && name.ends_with(after)
        };
        let per_byte = run.metrics.iter().position(|it| is_per_byte(&it.name));
        let counted = named(FLOPS).zip(per_byte);
        let (Some((flops, per_byte)), Some(peaks)) = (counted, peaks) else {
            return Err(match (counted, peaks) {
                (Some(_), _) => "no peaks of the machine were given: `pmuscope roofline --format \
                                 json > FILE` measures them there, and `report --roofline FILE` \
                                 draws them"
                    .to_owned(),
                (None, Some(_)) => "the recording has no FLOPS and no FLOPs per byte: record \
                                    with -M group:intensity where the machine counts them \
                                    (docs/reference/roofline.md)"
                    .to_owned(),
                (None, None) => "it needs FLOPS and FLOPs per byte (record with -M \
                                 group:intensity) and the peaks of the machine (`report \
                                 --roofline FILE`)"
                    .to_owned(),
            });
        };
        let lines = |metric| run.lines.iter().filter(move |it| it.metric == metric);
        let points: Vec<RooflinePoint> = { lines(flops) }
            .filter_map(|line| {
                let part = run.subjects[line.subject].part;
                if !["row", "total"].contains(&part) {
                    return None;
                }
                let ratio = lines(per_byte)
                    .find(|it| (it.subject, &it.qualifier) == (line.subject, &line.qualifier))?;
                let mut sums = (0, 0.0, 0.0, 0.0);
                for at in line.windows() {
                    let (start, end) = run.windows[at];
                    let (value, ratio) = (line.value(at), ratio.value(at));
                    // There is no ratio if nothing came from memory.
                    if value > 0.0 && ratio > 0.0 {
                        let operations = value * (end - start);
                        sums.0 += 1;
                        sums.1 += end - start;
                        sums.2 += operations;
                        sums.3 += operations / ratio;
                    }
                }
                let (windows, seconds, operations, bytes) = sums;
                (windows > 0).then(|| RooflinePoint {
                    subject: line.subject,
                    per_byte,
                    intensity: operations / bytes,
                    flops: operations / seconds,
                    windows,
                })
            })
            .collect();
        if points.is_empty() {
            return Err(
                "no row of the recording has FLOPS and FLOPs per byte in one window: \
                        nothing did floating-point work on data from memory"
                    .to_owned(),
            );
        }
        let peaks = peaks.clone();
        Ok(Self { peaks, points })
    }

    pub(super) fn json(&self, run: &Run) -> Value {
        let roofs = self.peaks.roofs.iter().map(|roof| {
            let bandwidths = self.peaks.bandwidths.iter();
            let mut levels: Vec<(&str, f64)> = Vec::new();
            for bandwidth in bandwidths.filter(|it| it.on == roof.on) {
                let best = bandwidth.bytes_per_second.best;
                match levels.iter_mut().find(|(name, _)| *name == bandwidth.level) {
                    Some((_, known)) => *known = known.max(best),
                    None => levels.push((&bandwidth.level, best)),
                }
            }
            let levels = levels
                .iter()
                .map(|(name, best)| json!({"level": name, "bytes_per_second": number(*best)}));
            json!({
                "socket": roof.on.socket,
                "threads": roof.on.threads,
                "cpus": roof.on.cpus,
                "flops": number(roof.flops),
                "bytes_per_second": number(roof.bytes_per_second),
                "levels": levels.collect::<Vec<_>>(),
            })
        });
        let points = self.points.iter().map(|it| {
            let subject = &run.subjects[it.subject];
            json!({
                "label": subject.label,
                "name": subject.name(),
                "part": subject.part,
                "intensity_metric": run.metrics[it.per_byte].name,
                "flops_per_byte": number(it.intensity),
                "flops": number(it.flops),
                "windows": it.windows,
            })
        });
        json!({
            "platform": self.peaks.platform,
            "vectors": self.peaks.vectors,
            "notes": self.peaks.notes,
            "roofs": roofs.collect::<Vec<_>>(),
            "points": points.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests;
