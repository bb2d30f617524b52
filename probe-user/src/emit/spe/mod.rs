//! A [`SpeReport`] as text: names of metrics, and one writer per format.

mod csv;
mod json;
mod table;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use super::Format;
use crate::derive::{
    spe::{Accesses, Latency, Page, ServedBy, SpeReport},
    statistics::Estimate,
};

/// Writes reports of one session in one format.
pub struct SpeEmitter<W> {
    out: W,
    format: Format,
    /// The programs' account of themselves too.
    with_self: bool,
    first: bool,
}

impl<W: Write> SpeEmitter<W> {
    /// Writes to `out`.
    pub fn new(out: W, format: Format, with_self: bool) -> Self {
        Self {
            out,
            format,
            with_self,
            first: true,
        }
    }

    /// Writes one window.
    ///
    /// # Errors
    ///
    /// Where the writer fails.
    pub fn write(&mut self, report: &SpeReport) -> io::Result<()> {
        match self.format {
            Format::Table => table::write(&mut self.out, report, self.with_self)?,
            Format::Json => json::write(&mut self.out, report, self.with_self)?,
            Format::Csv => csv::write(&mut self.out, report, self.with_self, self.first)?,
        }
        self.first = false;
        self.out.flush()
    }
}

/// A value of a metric: one that could not be had is none.
type Metric = (&'static str, Option<Estimate>);

fn latency(latency: &Latency) -> [Metric; 4] {
    [
        ("spe_latency_mean_cycles", latency.mean),
        ("spe_latency_p50_cycles", latency.p50),
        ("spe_latency_p90_cycles", latency.p90),
        ("spe_latency_p99_cycles", latency.p99),
    ]
}

/// The metrics of a class of operations.
fn of_class(class: &Accesses) -> Vec<Metric> {
    let mut metrics = vec![("spe_operations", Some(class.operations))];
    metrics.extend(latency(&class.latency));
    metrics.extend([
        ("spe_issue_latency_mean_cycles", class.issue),
        ("spe_translation_latency_mean_cycles", class.translation),
        ("spe_tlb_walk_share", class.walks),
        ("spe_remote_share", class.remote),
    ]);
    metrics
}

/// The metrics of a page.
fn of_page(page: &Page) -> [Metric; 1] {
    [("spe_latency_mean_cycles", page.mean)]
}

/// The metrics of a place that served operations.
fn of_source(source: &ServedBy) -> Vec<Metric> {
    let mut metrics = vec![
        ("spe_operations", Some(source.operations)),
        ("spe_source_share", source.share),
    ];
    metrics.extend(latency(&source.latency));
    metrics
}
