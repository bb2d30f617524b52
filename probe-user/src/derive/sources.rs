//! What each source of `for_each_source` adds to a report: metrics, values of rows, and findings.

use super::Report;
use crate::{
    join::{Entity, MonitoredBytes, NoRows, SourceDelta, SourceRows},
    plan::Plan,
    snapshot::{SourceReading, for_each_source},
    window::Window,
};

/// The rows of a source in a report.
pub(super) trait ReportedRows {
    /// Indices of the metrics in the report, and what [`Self::add_findings`] needs. `()` if the
    /// source adds no values to rows.
    type Metrics;

    /// Adds the descriptions of the metrics to the report.
    fn metrics(&self, report: &mut Report) -> Self::Metrics;

    /// The entities that get a row even if nothing was counted or sampled.
    fn entities(&self) -> Vec<&Entity> {
        Vec::new()
    }

    /// Adds the values of an entity, or of the whole machine if None.
    fn add_row(&self, _: &mut Self::Metrics, _: &mut Report, _subject: u32, _: Option<&Entity>) {}

    /// Adds the findings about all rows. `machine`: the subject of the whole machine.
    fn add_findings(&self, _: Self::Metrics, _: &mut Report, _: &Plan, _: &Window, _machine: u32) {}
}

type RowsOf<Reading> = <<Reading as SourceReading>::Delta as SourceDelta>::Rows;

macro_rules! reported {
    ($($(#[$doc:meta])* $source:ident: $reader:ty => $reading:ty,)*) => {
        /// The rows and metrics, by source.
        pub(super) struct ReportedSources<'a> {$(
            $source: Option<(&'a RowsOf<$reading>, <RowsOf<$reading> as ReportedRows>::Metrics)>,
        )*}

        impl<'a> ReportedSources<'a> {
            pub(super) fn new(report: &mut Report, rows: &'a SourceRows) -> Self {
                Self {$(
                    $source: rows.$source.as_ref().map(|rows| (rows, rows.metrics(report))),
                )*}
            }

            /// The entities that get a row even if nothing was counted or sampled.
            pub(super) fn entities(&self) -> impl Iterator<Item = &'a Entity> + use<'a> {
                let lists = [$(self.$source.as_ref().map(|(rows, _)| rows.entities()),)*];
                lists.into_iter().flatten().flatten()
            }

            /// Adds the values of an entity, or of the whole machine if None.
            pub(super) fn add_row(
                &mut self,
                report: &mut Report,
                subject: u32,
                entity: Option<&Entity>,
            ) {
                $(if let Some((rows, metrics)) = &mut self.$source {
                    rows.add_row(metrics, report, subject, entity);
                })*
            }

            /// Adds the findings about all rows.
            pub(super) fn add_findings(
                self,
                report: &mut Report,
                plan: &Plan,
                window: &Window,
                machine: u32,
            ) {
                $(if let Some((rows, metrics)) = self.$source {
                    rows.add_findings(metrics, report, plan, window, machine);
                })*
            }
        }
    };
}

for_each_source!(reported);

impl ReportedRows for NoRows {
    type Metrics = ();

    fn metrics(&self, _: &mut Report) {}
}

/// [`super::shares`] adds these bytes, next to the shares.
impl ReportedRows for MonitoredBytes {
    type Metrics = ();

    fn metrics(&self, _: &mut Report) {}
}
