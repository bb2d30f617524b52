//! Calibrations: what a machine's events count for its memory traffic, by pattern of access,
//! measured on this machine or one of its type (`pmuscope calibrate shares`); and the division of
//! traffic by calibrations.
//!
//! One weight alone takes every pattern for the same: a pointer chase at 2 GB/s beside a stream of
//! 18 GB/s came out as 9.5 and 10.5. With patterns the error of such a division is known.

mod estimate;
mod file;
mod fit;
mod mixtures;
mod solve;

use serde::{Deserialize, Serialize};

pub use self::{
    estimate::{NoEstimate, NoPart, OwnerCounts, OwnerPart, PartError},
    file::{CalibratedMachine, Calibration, CalibrationError, DIRECTORY},
};

/// A calibration as it is used on a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsedCalibration {
    /// Where it was made.
    pub made_on: MadeOn,
    /// What was calibrated.
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

/// What events count of the traffic of one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibratedTraffic {
    /// The metric.
    pub metric: String,
    /// Names of the weights in the catalogue whose events were counted.
    pub events: Vec<String>,
    /// By event: the relative standard deviation of its counts over the runs.
    pub spreads: Vec<f64>,
    /// The patterns of access.
    #[serde(rename = "pattern")]
    pub patterns: Vec<Pattern>,
}

/// What events count while a known kernel moves memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Its name.
    pub name: String,
    /// By event: its counts for each count of the metric's traffic.
    pub counts: Vec<f64>,
}
