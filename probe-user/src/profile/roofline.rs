//! The peaks of `pmuscope roofline`, and where a recording's containers are below them.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Profile,
    text::number,
    verb_json::{VerbJsonError, versioned},
};

/// The version of the JSON that is read.
const FORMAT: u32 = 1;

/// The metric of floating-point operations by the second, and what the names of those by the byte
/// begin and end with.
const FLOPS: &str = "flops";
const BY_BYTE: (&str, &str) = ("flops_per_", "_byte");

/// Which CPUs something was measured on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct On {
    socket: Option<u32>,
    threads: usize,
    cpus: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Runs {
    best: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Bandwidth {
    #[serde(flatten)]
    on: On,
    level: String,
    bytes_per_second: Runs,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Roof {
    #[serde(flatten)]
    on: On,
    flops: f64,
    bytes_per_second: f64,
}

/// What `pmuscope roofline --format json` wrote.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Peaks {
    format: u32,
    platform: String,
    vectors: String,
    bandwidths: Vec<Bandwidth>,
    roofs: Vec<Roof>,
    #[serde(default)]
    notes: Vec<String>,
}

/// Why peaks cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PeaksError {
    /// Not what the verb writes, or of another version of it.
    #[error(transparent)]
    Json(#[from] VerbJsonError),
    /// Memory or the cores were not measured.
    #[error("it has no roof: measure without --sizes, so that memory is measured")]
    NoRoof,
}

/// A container below the roof.
#[derive(Clone, Debug, PartialEq)]
struct Placed {
    holder: usize,
    /// The metric of FLOPs by the byte.
    by_byte: usize,
    /// FLOPs per byte of all windows.
    intensity: f64,
    /// FLOPs per second in them.
    flops: f64,
    windows: usize,
}

/// Peaks, and what a recording has below them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Roofline {
    peaks: Peaks,
    placed: Vec<Placed>,
}

impl Peaks {
    /// Reads what `pmuscope roofline --format json` wrote.
    ///
    /// # Errors
    ///
    /// Where it is something else, or has no roof.
    pub fn parse(text: &str) -> Result<Self, PeaksError> {
        let peaks: Self = versioned(text, "roofline", FORMAT)?;
        if peaks.roofs.is_empty() {
            return Err(PeaksError::NoRoof);
        }
        Ok(peaks)
    }

    /// The platform that they were measured on, as the catalogue calls it.
    #[must_use]
    pub fn platform(&self) -> &str {
        &self.platform
    }
}

impl Roofline {
    /// The containers of a profile below these peaks.
    ///
    /// # Errors
    ///
    /// Why there is no roofline, in a sentence.
    pub(super) fn of(profile: &Profile, peaks: Option<&Peaks>) -> Result<Self, String> {
        let named = |name: &str| profile.metrics.iter().position(|it| it.name == name);
        let is_by_byte = |name: &str| {
            let (before, after) = BY_BYTE;
            name.starts_with(before) && name.ends_with(after)
        };
        let by_byte = profile.metrics.iter().position(|it| is_by_byte(&it.name));
        let counted = named(FLOPS).zip(by_byte);
        let (Some((flops, by_byte)), Some(peaks)) = (counted, peaks) else {
            return Err(match (counted, peaks) {
                (Some(_), _) => "no peaks of the machine were given: `pmuscope roofline --format \
                                 json > FILE` measures them there, and `report --roofline FILE` \
                                 draws them"
                    .to_owned(),
                (None, Some(_)) => "the recording has no FLOPS and no FLOPs per byte: record \
                                    with -M group:intensity where the machine counts them \
                                    (docs/roofline.md)"
                    .to_owned(),
                (None, None) => "it needs FLOPS and FLOPs per byte (record with -M \
                                 group:intensity) and the peaks of the machine (`report \
                                 --roofline FILE`)"
                    .to_owned(),
            });
        };
        let lines = |metric| profile.lines.iter().filter(move |it| it.metric == metric);
        let placed = lines(flops).filter_map(|line| {
            let part = profile.holders[line.holder].part;
            if !["row", "total"].contains(&part) {
                return None;
            }
            let ratio = lines(by_byte).find(|it| (it.holder, &it.of) == (line.holder, &line.of))?;
            let mut sums = (0, 0.0, 0.0, 0.0);
            for at in line.windows() {
                let (start, end) = profile.windows[at];
                let (value, ratio) = (line.value(at), ratio.value(at));
                // Where nothing came from memory there is no ratio.
                if value > 0.0 && ratio > 0.0 {
                    let done = value * (end - start);
                    sums.0 += 1;
                    sums.1 += end - start;
                    sums.2 += done;
                    sums.3 += done / ratio;
                }
            }
            let (windows, seconds, done, bytes) = sums;
            (windows > 0).then(|| Placed {
                holder: line.holder,
                by_byte,
                intensity: done / bytes,
                flops: done / seconds,
                windows,
            })
        });
        let placed: Vec<Placed> = placed.collect();
        if placed.is_empty() {
            return Err(
                "no row of the recording has FLOPS and FLOPs per byte in one window: \
                        nothing did floating-point work on data from memory"
                    .to_owned(),
            );
        }
        let peaks = peaks.clone();
        Ok(Self { peaks, placed })
    }

    pub(super) fn json(&self, profile: &Profile) -> Value {
        let roofs = self.peaks.roofs.iter().map(|roof| {
            let of = self.peaks.bandwidths.iter();
            let mut levels: Vec<(&str, f64)> = Vec::new();
            for bandwidth in of.filter(|it| it.on == roof.on) {
                let best = bandwidth.bytes_per_second.best;
                match levels.iter_mut().find(|(name, _)| *name == bandwidth.level) {
                    Some((_, known)) => *known = known.max(best),
                    None => levels.push((&bandwidth.level, best)),
                }
            }
            let levels = levels.iter();
            let levels = levels
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
        let points = self.placed.iter().map(|it| {
            let holder = &profile.holders[it.holder];
            json!({
                "label": holder.label,
                "name": holder.name,
                "part": holder.part,
                "intensity_metric": profile.metrics[it.by_byte].name,
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
