//! Calibrations: what a machine's events count for its memory traffic, by pattern of access.
//! `pmuscope calibrate shares` measures that on this machine or on one of its type. This module
//! divides traffic by calibrations.
//!
//! A single weight cannot distinguish patterns: it gave 9.5 GB/s to a pointer chase of 2 GB/s, and
//! 10.5 GB/s to a stream of 18 GB/s. With patterns, the error of such a division is known.

mod estimate;
mod file;
mod fit;
mod mixtures;
mod solve;

use serde::{Deserialize, Serialize};

pub use self::{
    estimate::{EventCounts, NoEstimate, NoPart, OwnerCounts, OwnerPart, PartError},
    file::{CalibratedMachine, Calibration, CalibrationError, DIRECTORY},
};

/// A calibration as it is used on a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsedCalibration {
    /// Where it was made.
    pub made_on: MadeOn,
    /// What events count, by metric.
    pub traffics: Vec<CalibratedTraffic>,
}

impl UsedCalibration {
    /// Whether nothing is calibrated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.traffics.is_empty()
    }
}

/// Where a calibration was made.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum MadeOn {
    /// On this machine.
    ThisMachine,
    /// On a machine of this type, which may be this one.
    #[default]
    SameType,
}

/// What events count for the traffic of one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibratedTraffic {
    /// Name of the metric.
    pub metric: String,
    /// Names of the weights in the catalogue whose events were counted.
    pub events: Vec<String>,
    /// By event: the relative standard deviation of its counts over the runs.
    pub spreads: Vec<f64>,
    /// The patterns of access to the memory of the own socket.
    #[serde(rename = "pattern")]
    pub patterns: Vec<Pattern>,
    /// The patterns of access to the memory of the other socket, for the counts of events that
    /// count these accesses alone. Empty on machines with one socket.
    #[serde(
        default,
        rename = "remote_pattern",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub remote: Vec<Pattern>,
}

/// What events count while a known kernel moves memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// The kernel and its number of CPUs, such as `read-stream on 1`.
    pub name: String,
    /// By event: its counts for each count of the metric's traffic.
    pub counts: Vec<f64>,
}
