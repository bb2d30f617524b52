//! Report: the one model of everything that is shown of a window. Every output format is a function
//! of it.

use std::{mem, sync::Arc, time::Duration};

use super::{Advice, Attributes, Counter, Estimate, Metric, Reason, Series, Subject, Value};
use crate::{join::Entity, names::Described};

/// Everything that is shown of a window. All times are of the kernel's `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// When the session began.
    pub began: Duration,
    /// When the window began.
    pub start: Duration,
    /// When the window ended.
    pub end: Duration,
    /// Unix time at which that clock was 0, as it was when counting began: the starts of totals are
    /// told by it, so that they stay the same however the wall's clock is set.
    pub boot_time: Duration,
    /// Unix time at the window's end.
    pub time: Duration,
    /// What runtimes call the containers and pods among the subjects.
    pub described: Arc<Described>,
    /// The subjects of series.
    pub subjects: Vec<Subject>,
    /// The metrics of series.
    pub metrics: Vec<Metric>,
    /// What tells series of one subject and metric apart. The first is empty.
    pub attributes: Vec<Attributes>,
    /// What counters counted before the window and in it.
    pub totals: Vec<Counter>,
    /// The values: those of one subject together, subjects in the order in which they are shown.
    pub series: Vec<Series>,
    /// Lists whose rows are too many, and too short-lived, to be series.
    pub tables: Vec<Table>,
    /// Findings about the values, in words.
    pub findings: Vec<Finding>,
    /// Warnings about what was measured, a sentence each.
    pub warnings: Vec<String>,
    /// Advice about these findings.
    pub advice: &'static [Advice],
}

/// Something that values say in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Whose values.
    pub about: About,
    /// A sentence.
    pub text: String,
}

/// Whom a [`Finding`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A socket, which the sentence names.
    Socket(u32),
    /// A subject, which the sentence does not name: index into [`Report::subjects`].
    Subject(u32),
}

/// A list with columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What its rows are.
    pub name: &'static str,
    /// Names of the columns.
    pub columns: Vec<&'static str>,
    /// A cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// What tells how much of everything the rows show, by name.
    pub counts: Vec<(&'static str, u64)>,
}

/// A cell of a [`Table`].
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A number that was counted, or an identifier.
    Number(u64),
    /// One of several numbers that were counted.
    Count(u64),
    /// A word, or a text that tells the row apart.
    Text(String),
    /// Whose the row is.
    Owner(Subject),
    /// An address in memory.
    Address(u64),
    /// A value; None where there is none.
    Estimate(Option<Estimate>),
}

/// Which part of a report a series belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Rows of the view.
    Rows,
    /// Processes beside these, whose counts are in theirs too.
    Processes,
    /// Events of sockets.
    Sockets,
    /// The whole machine.
    Total,
    /// Metrics that cannot be counted here.
    Missing,
    /// Metrics of sockets and devices.
    Places,
    /// The shares of owners in those.
    Shares,
    /// The self-counters.
    Own,
}

impl Part {
    /// As recordings and pages call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "row",
            Self::Processes => "process",
            Self::Sockets => "socket",
            Self::Total => "total",
            Self::Missing => "missing",
            Self::Places => "place",
            Self::Shares => "share",
            Self::Own => "self",
        }
    }
}

/// Series of one subject that stand together.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The part of the report.
    pub part: Part,
    /// The subject of the series.
    pub subject: &'a Subject,
    /// One at least.
    pub series: &'a [Series],
}

impl Report {
    /// One without series, for a window with these times. The memory of long lists is kept.
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

    /// What a series says.
    #[must_use]
    pub fn metric(&self, series: &Series) -> &Metric {
        &self.metrics[series.metric as usize]
    }

    /// What tells a series apart.
    #[must_use]
    pub fn attributes(&self, series: &Series) -> &Attributes {
        &self.attributes[series.attributes as usize]
    }

    /// What a counter counted since it began, where that is known.
    #[must_use]
    pub fn total(&self, series: &Series) -> Option<&Counter> {
        Some(&self.totals[series.total? as usize])
    }

    /// The series, those of one subject together, in their order.
    pub fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        self.groups_from(0)
    }

    /// The same, from one of the series on.
    pub(super) fn groups_from(&self, first: usize) -> impl Iterator<Item = Group<'_>> {
        let together =
            |a: &Series, b: &Series| a.subject == b.subject && self.part(a) == self.part(b);
        self.series[first..].chunk_by(together).map(|series| Group {
            part: self.part(&series[0]),
            subject: &self.subjects[series[0].subject as usize],
            series,
        })
    }

    /// The series of a metric about a subject.
    pub fn of<'a>(
        &'a self,
        subject: &'a Subject,
        metric: &'a str,
    ) -> impl Iterator<Item = &'a Series> {
        self.series.iter().filter(move |series| {
            self.subjects[series.subject as usize] == *subject && self.metric(series).name == metric
        })
    }

    fn part(&self, series: &Series) -> Part {
        match &self.subjects[series.subject as usize] {
            Subject::Io | Subject::Unattributed | Subject::Unknown => Part::Shares,
            Subject::Entity(_) if self.attributes(series).socket.is_some() => Part::Shares,
            Subject::Entity(Entity::ProcessOf { .. }) => Part::Processes,
            Subject::Entity(_) => Part::Rows,
            Subject::Socket(_) => Part::Sockets,
            Subject::Machine if matches!(series.value, Err(Reason::NotPlanned(_))) => Part::Missing,
            Subject::Machine => Part::Total,
            Subject::Place(..) => Part::Places,
            Subject::Pmuscope => Part::Own,
        }
    }

    /// Adds series to the rows whose subjects they name, in the order of the rows.
    pub(super) fn add_to_rows(&mut self, more: impl Iterator<Item = Series>) {
        let mut more = more.peekable();
        let mut all = Vec::with_capacity(self.series.len() + more.size_hint().0);
        for group in self.groups() {
            all.extend_from_slice(group.series);
            let subject = group.series[0].subject;
            all.extend(more.next_if(|next| group.part == Part::Rows && next.subject == subject));
        }
        self.series = all;
    }

    /// Adds series to the shares.
    pub(super) fn add_to_shares(&mut self, more: Vec<Series>) {
        let own = self.series.iter().position(|it| self.part(it) == Part::Own);
        let at = own.unwrap_or(self.series.len());
        self.series.splice(at..at, more);
    }

    /// Reserves memory for this many rows with these series each, and for what comes after them, so
    /// that the vectors are not copied while they grow.
    pub(super) fn reserve(&mut self, rows: usize, counters: usize, gauges: usize) {
        const OTHERS: usize = 256;
        let subjects = rows + 1;
        self.subjects.reserve(subjects + OTHERS);
        self.series.reserve(subjects * (counters + gauges) + OTHERS);
        self.totals.reserve(subjects * counters + OTHERS);
    }

    /// Adds a subject: its index.
    pub(crate) fn subject(&mut self, subject: Subject) -> u32 {
        self.subjects.push(subject);
        index(self.subjects.len() - 1)
    }

    /// Adds a metric, once: its index.
    pub(crate) fn add_metric(&mut self, metric: Metric) -> u32 {
        let known = self.metrics.iter().position(|known| *known == metric);
        index(known.unwrap_or_else(|| {
            self.metrics.push(metric);
            self.metrics.len() - 1
        }))
    }

    /// Adds attributes, once: their index.
    pub(crate) fn add_attributes(&mut self, attributes: Attributes) -> u32 {
        let mut all = self.attributes.iter();
        let known = all.position(|known| *known == attributes);
        index(known.unwrap_or_else(|| {
            self.attributes.push(attributes);
            self.attributes.len() - 1
        }))
    }

    /// Adds a series, of a counter with its total.
    pub(crate) fn push(
        &mut self,
        [subject, metric, attributes]: [u32; 3],
        value: Result<Value, Reason>,
        total: Option<Counter>,
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

/// A list without elements, in the memory of another.
fn emptied<T>(list: &mut Vec<T>) -> Vec<T> {
    list.clear();
    mem::take(list)
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than 2^32 subjects and metrics")
}
