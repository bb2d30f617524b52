//! What the sources beside counters and samples add to a report.

use std::collections::BTreeMap;

use super::Report;
use crate::{
    join::{Entity, SourceDelta, SourceRows},
    plan::Plan,
    snapshot::{SourceReading, for_each_source},
    window::Window,
};

/// The rows of a source.
pub(super) trait SourceEntities {
    /// What it adds to a report. `()`: nothing by row.
    type Metrics<'a>: SourceMetrics
    where
        Self: 'a;

    /// The metrics of a report.
    fn metrics<'a>(&'a self, report: &mut Report) -> Self::Metrics<'a>;

    /// The entities that have a row in any case.
    fn entities(&self) -> Vec<&Entity> {
        Vec::new()
    }
}

/// The metrics of a source in a report.
pub(super) trait SourceMetrics: Sized {
    /// Adds the values of an entity; None: of the whole machine.
    fn add_row(&mut self, _: &mut Report, _subject: u32, _: Option<&Entity>) {}

    /// Adds the findings about all rows. `machine`: the subject of the whole machine.
    fn add_findings(self, _: &mut Report, _: &Plan, _: &Window, _machine: u32) {}
}

type Rows<Reading> = <<Reading as SourceReading>::Delta as SourceDelta>::Rows;

macro_rules! metrics {
    ($($(#[$doc:meta])* $source:ident: $reader:ty => $reading:ty,)*) => {
        /// The metrics of all sources in a report.
        pub(super) struct ReportedSources<'a> {$(
            $source: Option<<Rows<$reading> as SourceEntities>::Metrics<'a>>,
        )*}

        impl<'a> ReportedSources<'a> {
            pub(super) fn new(report: &mut Report, rows: &'a SourceRows) -> Self {
                Self {$(
                    $source: rows.$source.as_ref().map(|rows| rows.metrics(report)),
                )*}
            }

            /// Adds the values of an entity; None: of the whole machine.
            pub(super) fn add_row(
                &mut self,
                report: &mut Report,
                subject: u32,
                entity: Option<&Entity>,
            ) {
                $(if let Some(metrics) = &mut self.$source {
                    metrics.add_row(report, subject, entity);
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
                $(if let Some(metrics) = self.$source {
                    metrics.add_findings(report, plan, window, machine);
                })*
            }
        }

        /// The entities that have a row in any case.
        pub(super) fn entities(rows: &SourceRows) -> impl Iterator<Item = &Entity> {
            let lists = [$(rows.$source.as_ref().map_or_else(Vec::new, |rows| rows.entities()),)*];
            lists.into_iter().flatten()
        }
    };
}

for_each_source!(metrics);

impl SourceMetrics for () {}

impl SourceEntities for () {
    type Metrics<'a> = ();

    fn metrics(&self, _: &mut Report) {}
}

/// What resctrl counted stands beside the shares.
impl SourceEntities for BTreeMap<(Entity, u32), u64> {
    type Metrics<'a> = ();

    fn metrics(&self, _: &mut Report) {}
}
