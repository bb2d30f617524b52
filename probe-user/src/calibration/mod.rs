//! Calibrations: what a machine's events count for its memory traffic, by pattern of access,
//! measured on this machine (`pmuscope calibrate shares`); and the division of traffic by them.
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
    estimate::{NoEstimate, NoPart, OwnerCounts, OwnerPart},
    file::{CalibratedMachine, Calibration, CalibrationError, DIRECTORY},
};

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
