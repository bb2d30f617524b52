//! A report as one line of JSON.

mod row;
mod value;

use std::io::{self, Write};

use serde::{Serialize, Serializer, ser::SerializeMap};

use self::{
    row::{PlacedValue, RowObject, serialize_subject},
    value::{CellValue, SelfValue},
};
use super::{EmitOptions, names::label, printable::PrintableJson, wall_clock};
use crate::{
    derive::{
        FindingSubject, Report, ReportFinding, ReportSection, ReportTable, Subject, SubjectSeries,
        TableCell,
    },
    sys::clock::nanos,
};

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: EmitOptions) -> io::Result<()> {
    let mut json = serde_json::Serializer::with_formatter(&mut *out, PrintableJson);
    let line = WindowLine { report, options };
    line.serialize(&mut json)?;
    out.write_all(b"\n")
}

/// A sequence produced while it is serialized.
struct LazySequence<F>(F);

impl<I, F> Serialize for LazySequence<F>
where
    I: IntoIterator<Item: Serialize>,
    F: Fn() -> I,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// An object produced while it is serialized.
struct LazyObject<F>(F);

impl<K: Serialize, V: Serialize, I, F> Serialize for LazyObject<F>
where
    I: IntoIterator<Item = (K, V)>,
    F: Fn() -> I,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map((self.0)())
    }
}

struct WindowLine<'a> {
    report: &'a Report,
    options: EmitOptions,
}

impl Serialize for WindowLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { report, options } = self;
        let groups: Vec<SubjectSeries<'_>> = report.groups().collect();
        let in_section = |section| groups.iter().filter(move |group| group.section == section);
        let rows = |section| {
            let row = |group| RowObject { report, group };
            LazySequence(move || in_section(section).map(row))
        };
        let values = |section| {
            let series = move || {
                in_section(section)
                    .flat_map(|group| group.series.iter().map(|it| (group.subject, it)))
            };
            LazySequence(move || {
                series().map(|(subject, series)| PlacedValue {
                    report,
                    subject,
                    series,
                })
            })
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &DisplayString(wall_clock(report)))?;
        map.serialize_entry("elapsed_ns", &nanos(report.elapsed()))?;
        map.serialize_entry("duration_ns", &nanos(report.length()))?;
        if let Some(period) = report.find_series(&Subject::Pmuscope, "spe_period").next() {
            map.serialize_entry("period", &SelfValue(period))?;
        }
        map.serialize_entry("rows", &rows(ReportSection::Rows))?;
        if in_section(ReportSection::Processes).next().is_some() {
            map.serialize_entry("processes", &rows(ReportSection::Processes))?;
        }
        map.serialize_entry("sockets", &rows(ReportSection::Sockets))?;
        if let Some(group) = in_section(ReportSection::Total).next() {
            map.serialize_entry("total", &RowObject { report, group })?;
        }
        map.serialize_entry("places", &values(ReportSection::Uncore))?;
        map.serialize_entry("shares", &values(ReportSection::Shares))?;
        let findings = || report.findings.iter().map(|it| FindingObject(report, it));
        map.serialize_entry("findings", &LazySequence(findings))?;
        if !report.warnings.is_empty() {
            map.serialize_entry("warnings", &report.warnings)?;
        }
        let advice = || {
            let advice = report.advice.iter();
            advice.map(|advice| {
                LazyObject(move || {
                    [
                        ("what", OneOrMany::One(advice.what)),
                        ("lowers", OneOrMany::Many(advice.lowers)),
                    ]
                })
            })
        };
        map.serialize_entry("advice", &LazySequence(advice))?;
        let missing = || {
            let series = in_section(ReportSection::Missing).flat_map(|group| group.series);
            series.filter_map(|series| {
                let reason = series.value.as_ref().err()?;
                Some((&report.metric(series).name, DisplayString(reason)))
            })
        };
        map.serialize_entry("missing", &LazyObject(missing))?;
        for table in &report.tables {
            map.serialize_entry(table.name, &TableRows(report, table))?;
            for (name, count) in &table.counts {
                map.serialize_entry(name, count)?;
            }
        }
        if options.with_self {
            let self_counters = || {
                let series = in_section(ReportSection::SelfCounters).flat_map(|group| group.series);
                series.map(|series| (&report.metric(series).name, SelfValue(series)))
            };
            map.serialize_entry("self", &LazyObject(self_counters))?;
        }
        map.end()
    }
}

/// One text or several.
#[derive(Serialize)]
#[serde(untagged)]
enum OneOrMany<'a> {
    One(&'a str),
    Many(&'a [&'a str]),
}

/// A displayed value as a string.
struct DisplayString<T>(T);

impl<T: std::fmt::Display> Serialize for DisplayString<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

struct FindingObject<'a>(&'a Report, &'a ReportFinding);

impl Serialize for FindingObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(report, finding) = self;
        let mut map = serializer.serialize_map(None)?;
        match &finding.about {
            FindingSubject::Socket(socket) => map.serialize_entry("socket", socket)?,
            FindingSubject::Subject(at) => {
                serialize_subject(&mut map, report, &report.subjects[*at as usize])?;
            }
        }
        let text = finding.sentence(|subject| label(subject, &report.described));
        map.serialize_entry("text", &text)?;
        map.end()
    }
}

struct TableRows<'a>(&'a Report, &'a ReportTable);

impl<'a> Serialize for TableRows<'a> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(report, ReportTable { columns, rows, .. }) = *self;
        let cells = |row: &'a [TableCell]| row.iter().map(move |cell| CellValue(report, cell));
        let rows = rows.iter();
        serializer.collect_seq(rows.map(|row| LazyObject(move || columns.iter().zip(cells(row)))))
    }
}
