//! Derive: computes values from counts, and documented metrics from values. Each window has one
//! [`Report`].
//!
//! [`Report::new`] derives a single window; [`Stages`] derives one window after the other. The
//! module does no input or output.

mod accesses;
mod agent_health;
mod capacity;
mod counts;
mod ddio;
mod labels;
mod latency;
mod lines;
mod metrics;
mod monitored_row;
mod neighbours;
mod pages;
mod pressure;
mod report;
mod residuals;
mod sampled_events;
mod selected_rows;
mod self_counters;
mod self_report;
mod series;
mod shares;
mod sources;
mod spe;
mod spe_metrics;
mod stages;
pub mod statistics;
mod system_cgroups;
mod tlb;
mod value;
mod waits;

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::Arc,
};

use self::{
    accesses::AccessMetrics, counts::CountColumns, metrics::CoreMetrics,
    sampled_events::SampledEvents, sources::ReportedSources,
};
pub(crate) use self::{
    accesses::{ACCESSES, MEAN_LATENCY},
    labels::{LABELS, LabelReach},
    monitored_row::{MonitoredRow, ShareWidth},
    pages::SAMPLES,
    residuals::RESCTRL,
    shares::{lacking, memory_shares},
    waits::{LEAST_WAIT, waits_sentence},
};
pub use self::{
    accesses::{find_sample_counter, mem_level_name},
    agent_health::AgentHealth,
    ddio::{Advice, ddio_advice, ddio_finding},
    neighbours::{MemoryNeighbours, NeighbourEvidence, NeighbourVerdict, Neighbours},
    report::{
        FindingKind, FindingSubject, Report, ReportFinding, ReportSection, ReportTable,
        SubjectSeries, TableCell,
    },
    self_counters::self_counters_page,
    series::{Attributes, CounterSource, MetricInfo, MetricKind, Series, Subject},
    stages::Stages,
    value::{CounterValue, Estimate, Histogram, PowerBuckets, Reason, Spread, Value, ValueMethod},
};
pub use crate::window::RunningTime;
use crate::{
    join::{Entity, Hottest, Joined, Rows, View},
    plan::Plan,
    window::{Gained, SampleUsage, Usage, Window},
};

/// The most findings that are shown of one kind, if many rows may have such a finding.
pub(crate) const MAX_FINDINGS: usize = 3;

impl Report {
    /// Derives everything that a window shows: counts, metrics, samples, shares and the
    /// self-counters.
    #[must_use]
    pub fn new(plan: &Plan, window: &Window, joined: &Joined, view: &View) -> Self {
        let mut report = Self::default();
        report.renew(plan, window, joined, view);
        report
    }

    /// Derives another window in place of this report, and reuses its memory: fresh memory from the
    /// kernel costs as much as computing the values.
    pub fn renew(&mut self, plan: &Plan, window: &Window, joined: &Joined, view: &View) {
        self.clear(window.began, window.start, window.length);
        self.boot_time = window.boot_time;
        self.time = window.boot_time_at_end + self.end;
        self.described = Arc::clone(&window.names.described);
        let mut planned = plan.metrics.list.iter();
        self.rates_only = plan.rates_only && planned.any(|metric| metric.sources.is_ok());
        let columns = CountColumns::new(self, plan);
        let metrics = CoreMetrics::new(self, plan, window);
        let access_samples = window.access_samples();
        let accesses = (view.accesses).map(|_| AccessMetrics::new(self, access_samples));
        let mut sources = ReportedSources::new(self, &joined.sources);
        let sampled = window
            .event_samples()
            .map(|samples| SampledEvents::new(self, samples));
        let no_usage = Gained::first(vec![None; plan.groups.len()], window.start);
        let no_samples = Gained::<SampleUsage>::default();
        let samples = window.samples.as_ref();
        let machine_samples = samples.map_or(&no_samples.total, |samples| &samples.total.total);
        let source_entities: Vec<&Entity> = sources.entities().collect();
        let mut add = |report: &mut Self, subject, entity, row: &EntityRow<'_>| {
            let samples = row.samples.unwrap_or(&no_samples);
            metrics.add_row(
                report,
                subject,
                &row.usage.unwrap_or(&no_usage).delta,
                &samples.delta,
            );
            if let Some(accesses) = &accesses {
                accesses.add_row(report, subject, samples, machine_samples);
            }
            sources.add_row(report, subject, entity);
            if let Some(sampled) = &sampled {
                let usage = row
                    .usage
                    .iter()
                    .flat_map(|usage| usage.delta.iter().flatten());
                let ran = usage.map(|counted| counted.enabled).sum::<u64>() > 0;
                sampled.add_row(report, subject, samples, ran);
            }
        };
        let rows = rows(plan, joined, source_entities);
        self.reserve(rows.len(), columns.len(), metrics.len());
        let mut divided_slices = Vec::new();
        for (entity, row) in rows {
            let subject = self.subject(Subject::Entity(entity.clone()));
            let text = row
                .usage
                .and_then(|usage| counts::divided_slices(&usage.delta));
            let about = FindingSubject::Subject(subject);
            divided_slices.extend(text.map(|text| ReportFinding {
                kind: FindingKind::DividedSlices,
                about,
                text,
                named: None,
            }));
            columns.add_row(self, subject, row.usage.unwrap_or(&no_usage));
            columns.add_uncountable(self, subject);
            add(self, subject, Some(entity), &row);
        }
        for (process, usage) in top_processes(plan, joined, view) {
            let subject = self.subject(Subject::Entity(process.clone()));
            columns.add_row(self, subject, usage);
            metrics.add_row(self, subject, &usage.delta, &no_samples.delta);
        }
        columns.add_sockets(self, window);
        let machine = self.subject(Subject::Machine);
        columns.add_machine(self, machine, window);
        let total = EntityRow {
            usage: Some(&window.total),
            samples: samples.map(|samples| &samples.total),
        };
        add(self, machine, None, &total);
        columns.add_uncountable(self, machine);
        metrics::add_missing(self, machine, plan);
        let first_uncore = self.series.len();
        metrics::add_uncore(self, plan, window);
        self.findings = ddio::findings(self, first_uncore);
        self.findings.extend(divided_slices);
        sources.add_findings(self, plan, window, machine);
        self.advice = ddio::advice(self, first_uncore);
        shares::add(self, plan, window, joined);
        self_report::add(self, window);
        if let Some(samples) = window.event_samples().filter(|_| view.hot > 0) {
            self.tables
                .extend(sampled_events::hottest(samples, joined, view.hot));
        }
        self.warnings = samples.map_or_else(Vec::new, sampled_events::warnings);
        if let (Some(samples), Some(Hottest { pages, lines })) = (access_samples, view.accesses) {
            if pages > 0 {
                self.tables.push(pages::hottest(&samples.pages, pages));
            }
            if lines > 0 {
                self.tables
                    .push(lines::most_shared(&samples.lines, &joined.lines, lines));
            }
        }
        self.add_system_cgroups(window, joined, view);
        self.select_rows(&view.rows);
        self.limit_findings();
    }

    /// Keeps only the first [`MAX_FINDINGS`] findings about rows, of each kind that many rows may
    /// have.
    fn limit_findings(&mut self) {
        let mut counts = HashMap::new();
        self.findings.retain(|finding| {
            let count = counts.entry(mem::discriminant(&finding.kind)).or_insert(0);
            let is_of_row = match finding.about {
                FindingSubject::Subject(at) => {
                    matches!(self.subjects[at as usize], Subject::Entity(_))
                }
                FindingSubject::Socket(_) => false,
            };
            *count += usize::from(is_of_row);
            !is_of_row || !finding.kind.is_of_many() || *count <= MAX_FINDINGS
        });
    }
}

/// The counts and samples of an entity, or of the whole machine.
struct EntityRow<'a> {
    usage: Option<&'a Gained<Usage>>,
    samples: Option<&'a Gained<SampleUsage>>,
}

/// Every entity that was counted or sampled, or that a source lists, in output order: within a
/// kind, by the count of the first event, then by the number of accesses, largest first.
fn rows<'a>(
    plan: &Plan,
    joined: &'a Joined,
    source_entities: Vec<&'a Entity>,
) -> Vec<(&'a Entity, EntityRow<'a>)> {
    let samples = joined.samples.as_ref();
    let row = |(entity, usage)| {
        let row = EntityRow {
            usage,
            samples: samples.and_then(|samples| samples.of(entity)),
        };
        (entity, row)
    };
    let has_samples = |samples: &Gained<SampleUsage>| {
        let mut kinds = samples.total.iter();
        kinds.any(|(kind, counts)| kind.access.is_none() || counts.samples > 0)
    };
    let is_counted = |entity: &Entity| joined.of(entity).is_some();
    let is_sampled = |entity: &Entity| samples.is_some_and(|it| it.of(entity).is_some());
    let counted = joined
        .rows
        .iter()
        .map(|(entity, usage)| (entity, Some(usage)));
    // `unattributed` and owners without a row of counts have samples only.
    let sampled = samples.into_iter().flat_map(Rows::iter);
    let only_sampled = sampled
        .filter(|(entity, samples)| !is_counted(entity) && has_samples(samples))
        .map(|(entity, _)| (entity, None));
    // Listed entities without counts or samples were idle since the session began.
    let source_entities: BTreeSet<&Entity> = (source_entities.into_iter())
        .filter(|entity| !is_counted(entity) && !is_sampled(entity))
        .collect();
    let sort_key = |row: &EntityRow<'_>| -> f64 {
        let usage = row.usage.map(|usage| &usage.delta);
        usage
            .and_then(|usage| counts::sort_key(plan, usage))
            .unwrap_or(-1.0)
    };
    let accesses = |row: &EntityRow<'_>| -> f64 {
        let samples = row.samples.into_iter().flat_map(|samples| &samples.delta);
        let accesses = samples.filter(|(kind, _)| kind.access.is_some());
        accesses.map(|(_, counts)| counts.operations).sum()
    };
    let mut rows: Vec<_> = counted
        .chain(only_sampled)
        .chain(source_entities.into_iter().map(|entity| (entity, None)))
        .map(row)
        .map(|(entity, row)| (rank(entity), sort_key(&row), accesses(&row), (entity, row)))
        .collect();
    rows.sort_by(|a, b| {
        let by_count = || b.1.total_cmp(&a.1);
        a.0.cmp(&b.0)
            .then_with(by_count)
            .then_with(|| b.2.total_cmp(&a.2))
    });
    rows.into_iter().map(|(.., row)| row).collect()
}

/// The processes shown in addition to the rows: the first `view.processes`, and those that the user
/// chose. They are ordered by the count of the first event in the window, then by its total. If
/// CPUs do not count that event, processes keep the order of their ids.
fn top_processes<'a>(
    plan: &Plan,
    joined: &'a Joined,
    view: &View,
) -> Vec<(&'a Entity, &'a Gained<Usage>)> {
    let sort_key = |usage| counts::sort_key(plan, usage).unwrap_or(0.0);
    let mut all: Vec<_> = joined
        .processes
        .iter()
        .flat_map(Rows::iter)
        .map(|row @ (_, usage)| (sort_key(&usage.delta), sort_key(&usage.total), row))
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| b.1.total_cmp(&a.1)));
    let is_chosen = |entity: &Entity| match entity {
        Entity::ProcessOf { tgid, .. } => view.rows.pids.contains(tgid),
        _ => false,
    };
    let rows = all.into_iter().map(|(.., row)| row).enumerate();
    let shown = rows.filter(|(at, (entity, _))| *at < view.processes || is_chosen(entity));
    shown.map(|(_, row)| row).collect()
}

/// Position of the kinds of rows in the output, lowest first.
fn rank(entity: &Entity) -> u8 {
    match entity {
        Entity::Command(_) => 0,
        Entity::Pod(_) => 1,
        Entity::Container { .. } => 2,
        Entity::Cgroup(_) | Entity::Process { .. } | Entity::ProcessOf { .. } => 3,
        Entity::EndedProcesses | Entity::Unnamed(_) | Entity::Others => 4,
        Entity::System => 5,
        Entity::Overflow | Entity::Unattributed => 6,
        Entity::Idle | Entity::SystemAndIdle => 7,
    }
}

#[cfg(test)]
mod tests;
