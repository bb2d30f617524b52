//! Report: the single model of everything that a window shows. Every output format is a function of
//! it.

use std::{collections::BTreeSet, mem, sync::Arc, time::Duration};

use super::{
    Advice, Attributes, CounterSource, CounterValue, Estimate, MetricInfo, MetricKind, Reason,
    Series, Subject, Value,
};
use crate::{join::Entity, names::RuntimeNames};

/// Everything that a window shows. All times are of the kernel's `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// When the session began.
    pub began: Duration,
    /// When the window began.
    pub start: Duration,
    /// When the window ended.
    pub end: Duration,
    /// Unix time at which `CLOCK_MONOTONIC` was 0, as computed when counting began. Start times of
    /// totals use it, so that setting the wall clock does not move them.
    pub boot_time: Duration,
    /// Unix time at the window's end.
    pub time: Duration,
    /// Names that container runtimes gave to the containers and pods among the subjects.
    pub described: Arc<RuntimeNames>,
    /// The subjects of series.
    pub subjects: Vec<Subject>,
    /// The metrics of series.
    pub metrics: Vec<MetricInfo>,
    /// Attributes of series. The first is empty.
    pub attributes: Vec<Attributes>,
    /// Totals of counters, from their start to the end of the window.
    pub totals: Vec<CounterValue>,
    /// The values, grouped by subject, in output order.
    pub series: Vec<Series>,
    /// Lists whose rows are too many and too short-lived to be series.
    pub tables: Vec<ReportTable>,
    /// Findings about the values, as sentences.
    pub findings: Vec<ReportFinding>,
    /// Warnings about the measurement, a sentence each.
    pub warnings: Vec<String>,
    /// The DDIO paper's advice, if many requests of devices miss the cache.
    pub advice: &'static [Advice],
    /// Whether tables show metrics in place of events ([`Plan::rates_only`](crate::plan::Plan)).
    pub rates_only: bool,
}

/// A conclusion from values, as a sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportFinding {
    /// The kind of conclusion.
    pub kind: FindingKind,
    /// The subject of the values.
    pub about: FindingSubject,
    /// A sentence.
    pub text: String,
    /// The subject whose name ends the sentence; None if the text is complete.
    pub named: Option<Subject>,
}

impl ReportFinding {
    /// The sentence, with the name that `name_of` gives to the subject at its end.
    pub(crate) fn sentence(&self, name_of: impl FnOnce(&Subject) -> String) -> String {
        match &self.named {
            Some(subject) => format!("{} {}", self.text, name_of(subject)),
            None => self.text.clone(),
        }
    }
}

impl FindingSubject {
    /// The subject; None for a socket.
    pub(crate) fn subject(self, report: &Report) -> Option<&Subject> {
        match self {
            Self::Socket(_) => None,
            Self::Subject(at) => Some(&report.subjects[at as usize]),
        }
    }
}

/// The kind of a [`ReportFinding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// The peak of memory since the session began.
    MemoryPeak,
    /// Pages of a size that suits the memory better.
    PageSize,
    /// Throttling by a CPU quota.
    Throttling,
    /// Waits for a CPU.
    Waits {
        /// Whether they include throttling by a CPU quota.
        throttled: bool,
    },
    /// Waits without room in the kernel's map: the table of waits lacks what ran meanwhile.
    UnplacedWaits,
    /// Waits without room in the kernel's map of lengths: no percentile includes them.
    UnplacedLengths,
    /// Writes of devices that bypass the cache.
    InboundWrites,
    /// Slices of time that were divided between owners.
    DividedSlices,
    /// The cgroups of `system` where no container was found.
    SystemCgroups,
}

impl FindingKind {
    /// Whether such a finding is about the whole session, not about the window alone.
    #[must_use]
    pub fn is_of_session(self) -> bool {
        matches!(
            self,
            Self::MemoryPeak | Self::PageSize | Self::SystemCgroups
        )
    }

    /// Whether many rows may have a finding of this kind, so that only the first ones are shown.
    /// Sources add their most important findings first.
    pub(super) fn is_of_many(self) -> bool {
        matches!(
            self,
            Self::MemoryPeak | Self::PageSize | Self::Throttling | Self::Waits { .. }
        )
    }
}

/// The subject of a [`ReportFinding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingSubject {
    /// A socket, which the sentence names.
    Socket(u32),
    /// A subject, which the sentence does not name: index into [`Report::subjects`].
    Subject(u32),
}

/// Name of the table of waits ([`Report::waits`]).
pub(crate) const WAITS_TABLE: &str = "waits";

/// A list with columns, such as the hottest pages.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportTable {
    /// Name of the list, which says what its rows are.
    pub name: &'static str,
    /// Names of the columns.
    pub columns: Vec<&'static str>,
    /// A cell for each column.
    pub rows: Vec<Vec<TableCell>>,
    /// Indices of small rows, which only machine-readable formats show.
    pub small_rows: BTreeSet<usize>,
    /// Named counts that state how much of the measurement the rows cover.
    pub counts: Vec<(&'static str, u64)>,
}

impl ReportTable {
    /// Keeps only the wanted rows.
    pub(super) fn retain_rows(&mut self, is_wanted: impl Fn(&[TableCell]) -> bool) {
        let rows = mem::take(&mut self.rows).into_iter().enumerate();
        let small = mem::take(&mut self.small_rows);
        for (old_index, row) in rows.filter(|(_, row)| is_wanted(row)) {
            if small.contains(&old_index) {
                self.small_rows.insert(self.rows.len());
            }
            self.rows.push(row);
        }
    }
}

impl TableCell {
    /// The owner of the row, if this cell names it.
    pub(super) fn owner(&self) -> Option<&Subject> {
        match self {
            Self::Owner(owner) => Some(owner),
            _ => None,
        }
    }
}

/// A cell of a [`ReportTable`].
#[derive(Clone, Debug, PartialEq)]
pub enum TableCell {
    /// A number of samples, or an identifier.
    Number(u64),
    /// A number in a column of its own; a row may have several.
    Count(u64),
    /// A text.
    Text(String),
    /// The owner of the row.
    Owner(Subject),
    /// An address in memory.
    Address(u64),
    /// A value; None if there is none.
    Estimate(Option<Estimate>),
}

/// The section of a report that a series belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportSection {
    /// Rows of the view.
    Rows,
    /// Processes in addition to the rows. Their counts are in the rows too.
    Processes,
    /// Events of sockets.
    Sockets,
    /// The whole machine.
    Total,
    /// Metrics that this machine cannot count.
    Missing,
    /// Metrics of sockets and devices.
    Uncore,
    /// The shares of owners in metrics of sockets and devices.
    Shares,
    /// The self-counters.
    SelfCounters,
}

impl ReportSection {
    /// The name in recordings and pages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "row",
            Self::Processes => "process",
            Self::Sockets => "socket",
            Self::Total => "total",
            Self::Missing => "missing",
            Self::Uncore => "place",
            Self::Shares => "share",
            Self::SelfCounters => "self",
        }
    }
}

/// Adjacent series of one subject and section.
#[derive(Clone, Copy, Debug)]
pub struct SubjectSeries<'a> {
    /// The section of the report.
    pub section: ReportSection,
    /// The subject of the series.
    pub subject: &'a Subject,
    /// At least one series.
    pub series: &'a [Series],
}

impl Report {
    /// A report for the self-counters of an agent alone.
    #[must_use]
    pub fn for_agent() -> Self {
        let mut report = Self::default();
        report.clear(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        report
    }

    /// Removes all series and sets the times of a window. The memory of long lists is reused.
    pub(super) fn clear(&mut self, began: Duration, start: Duration, length: Duration) {
        *self = Self {
            began,
            start,
            end: start + length,
            attributes: vec![Attributes::default()],
            subjects: emptied(&mut self.subjects),
            totals: emptied(&mut self.totals),
            series: emptied(&mut self.series),
            ..Self::default()
        };
    }

    /// Length of the window.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }

    /// Time since the session began, at the window's end.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.end.saturating_sub(self.began)
    }

    /// The metric of a series.
    #[must_use]
    pub fn metric(&self, series: &Series) -> &MetricInfo {
        &self.metrics[series.metric as usize]
    }

    /// Whether tables show metrics in place of this count of an event ([`Report::rates_only`]).
    #[must_use]
    pub fn is_replaced_by_rates(&self, metric: &MetricInfo) -> bool {
        self.rates_only && matches!(metric.counting, CounterSource::Event(_))
    }

    /// The rows of the table of waits: the subject that waited, what ran meanwhile, and the
    /// nanoseconds. None if waits are not counted.
    #[must_use]
    pub fn waits(&self) -> Option<impl Iterator<Item = (&Subject, &TableCell, u64)>> {
        let table = self.tables.iter().find(|table| table.name == WAITS_TABLE)?;
        Some(table.rows.iter().filter_map(|row| match row.as_slice() {
            [
                TableCell::Owner(waiting),
                behind,
                TableCell::Count(nanos),
                ..,
            ] => Some((waiting, behind, *nanos)),
            _ => None,
        }))
    }

    /// Subjects that tables and findings name; some of them have no row.
    pub(crate) fn subjects_named(&self) -> impl Iterator<Item = &Subject> {
        let cells = self
            .tables
            .iter()
            .flat_map(|table| table.rows.iter().flatten());
        let owners = cells.filter_map(TableCell::owner);
        owners.chain(self.findings.iter().filter_map(|it| it.named.as_ref()))
    }

    /// Whether a series describes the window alone. Histograms, and the totals of waits by what
    /// ran, count since the session began.
    #[must_use]
    pub fn is_of_window(&self, series: &Series) -> bool {
        let is_wait_total = self.attributes(series).behind.is_some();
        self.metric(series).kind != MetricKind::Histogram && !is_wait_total
    }

    /// The attributes of a series.
    #[must_use]
    pub fn attributes(&self, series: &Series) -> &Attributes {
        &self.attributes[series.attributes as usize]
    }

    /// The total of a counter, if known.
    #[must_use]
    pub fn total(&self, series: &Series) -> Option<&CounterValue> {
        Some(&self.totals[series.total? as usize])
    }

    /// The series, grouped by subject and section, in output order.
    pub fn groups(&self) -> impl Iterator<Item = SubjectSeries<'_>> {
        self.groups_from(0)
    }

    /// The groups of the series from index `first` on.
    pub(super) fn groups_from(&self, first: usize) -> impl Iterator<Item = SubjectSeries<'_>> {
        let is_one_group =
            |a: &Series, b: &Series| a.subject == b.subject && self.section(a) == self.section(b);
        self.series[first..]
            .chunk_by(is_one_group)
            .map(|series| SubjectSeries {
                section: self.section(&series[0]),
                subject: &self.subjects[series[0].subject as usize],
                series,
            })
    }

    /// The series of a metric about a subject.
    pub fn find_series<'a>(
        &'a self,
        subject: &'a Subject,
        metric: &'a str,
    ) -> impl Iterator<Item = &'a Series> {
        self.series.iter().filter(move |series| {
            self.subjects[series.subject as usize] == *subject && self.metric(series).name == metric
        })
    }

    fn section(&self, series: &Series) -> ReportSection {
        match &self.subjects[series.subject as usize] {
            Subject::Io | Subject::Unattributed | Subject::Unknown => ReportSection::Shares,
            Subject::Entity(_) if self.attributes(series).socket.is_some() => ReportSection::Shares,
            Subject::Entity(Entity::ProcessOf { .. }) => ReportSection::Processes,
            Subject::Entity(_) => ReportSection::Rows,
            Subject::Socket(_) => ReportSection::Sockets,
            Subject::Machine if matches!(series.value, Err(Reason::NotPlanned(_))) => {
                ReportSection::Missing
            }
            Subject::Machine => ReportSection::Total,
            Subject::Place(..) => ReportSection::Uncore,
            Subject::Pmuscope => ReportSection::SelfCounters,
        }
    }

    /// Adds each series to the row of its subject. `added` is in the order of the rows.
    pub(crate) fn add_to_rows(&mut self, added: impl Iterator<Item = Series>) {
        let mut added = added.peekable();
        let mut merged = Vec::with_capacity(self.series.len() + added.size_hint().0);
        for group in self.groups() {
            merged.extend_from_slice(group.series);
            let subject = group.series[0].subject;
            while let Some(next) = added
                .next_if(|next| group.section == ReportSection::Rows && next.subject == subject)
            {
                merged.push(next);
            }
        }
        self.series = merged;
    }

    /// Adds series at the end of the shares.
    pub(super) fn add_to_shares(&mut self, added: Vec<Series>) {
        let self_counters = self
            .series
            .iter()
            .position(|it| self.section(it) == ReportSection::SelfCounters);
        let at = self_counters.unwrap_or(self.series.len());
        self.series.splice(at..at, added);
    }

    /// Reserves memory, so that the vectors do not reallocate: for this many rows with this many
    /// counters and gauges each, and for the series of other subjects.
    pub(super) fn reserve(&mut self, rows: usize, counters: usize, gauges: usize) {
        const OTHERS: usize = 256;
        let subjects = rows + 1;
        self.subjects.reserve(subjects + OTHERS);
        self.series.reserve(subjects * (counters + gauges) + OTHERS);
        self.totals.reserve(subjects * counters + OTHERS);
    }

    /// Adds a subject and returns its index.
    pub(crate) fn subject(&mut self, subject: Subject) -> u32 {
        self.subjects.push(subject);
        index(self.subjects.len() - 1)
    }

    /// Adds a metric unless the report has it already, and returns its index.
    pub(crate) fn add_metric(&mut self, metric: MetricInfo) -> u32 {
        let existing = self.metrics.iter().position(|existing| *existing == metric);
        index(existing.unwrap_or_else(|| {
            self.metrics.push(metric);
            self.metrics.len() - 1
        }))
    }

    /// Adds attributes unless the report has them already, and returns their index.
    pub(crate) fn add_attributes(&mut self, attributes: Attributes) -> u32 {
        let mut all = self.attributes.iter();
        let existing = all.position(|existing| *existing == attributes);
        index(existing.unwrap_or_else(|| {
            self.attributes.push(attributes);
            self.attributes.len() - 1
        }))
    }

    /// Adds a series, with its total if it is a counter.
    pub(crate) fn push(
        &mut self,
        [subject, metric, attributes]: [u32; 3],
        value: Result<Value, Reason>,
        total: Option<CounterValue>,
    ) {
        let total = total.map(|total| {
            self.totals.push(total);
            index(self.totals.len() - 1)
        });
        self.series.push(Series {
            subject,
            metric,
            attributes,
            value,
            total,
        });
    }
}

/// Takes a list, without its elements but with its memory.
fn emptied<T>(list: &mut Vec<T>) -> Vec<T> {
    list.clear();
    mem::take(list)
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than 2^32 subjects and metrics")
}
