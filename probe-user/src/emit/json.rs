//! A report as one line of JSON.

mod row;
mod value;

use std::{
    io::{self, Write},
    time::SystemTime,
};

use serde::{Serialize, Serializer, ser::SerializeMap};

use self::{
    row::{OfPlace, Row, who},
    value::{OfCell, Own},
};
use super::{Options, printable::PrintableJson};
use crate::{
    derive::{About, Cell, Finding, Group, Part, Report, Subject, Table},
    sys::clock::nanos,
};

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: Options) -> io::Result<()> {
    let mut json = serde_json::Serializer::with_formatter(&mut *out, PrintableJson);
    let line = Line { report, options };
    line.serialize(&mut json)?;
    out.write_all(b"\n")
}

/// A sequence that is made while it is written.
struct Sequence<F>(F);

impl<I, F> Serialize for Sequence<F>
where
    I: IntoIterator<Item: Serialize>,
    F: Fn() -> I,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// The same for an object.
struct Object<F>(F);

impl<K: Serialize, V: Serialize, I, F> Serialize for Object<F>
where
    I: IntoIterator<Item = (K, V)>,
    F: Fn() -> I,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map((self.0)())
    }
}

struct Line<'a> {
    report: &'a Report,
    options: Options,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { report, options } = self;
        let groups: Vec<Group<'_>> = report.groups().collect();
        let of = |part| groups.iter().filter(move |group| group.part == part);
        let rows = |part| {
            let row = |group| Row { report, group };
            Sequence(move || of(part).map(row))
        };
        let values = |part| {
            let series = move || {
                of(part).flat_map(|group| group.series.iter().map(|it| (group.subject, it)))
            };
            Sequence(move || {
                series().map(|(subject, series)| OfPlace {
                    report,
                    subject,
                    series,
                })
            })
        };
        let mut map = serializer.serialize_map(None)?;
        if options.with_time {
            let end = SystemTime::UNIX_EPOCH + report.time;
            map.serialize_entry("time", &Display(humantime::format_rfc3339_millis(end)))?;
        }
        map.serialize_entry("elapsed_ns", &nanos(report.elapsed()))?;
        map.serialize_entry("duration_ns", &nanos(report.length()))?;
        if let Some(period) = report.of(&Subject::Pmuscope, "spe_period").next() {
            map.serialize_entry("period", &Own(period))?;
        }
        map.serialize_entry("rows", &rows(Part::Rows))?;
        if of(Part::Processes).next().is_some() {
            map.serialize_entry("processes", &rows(Part::Processes))?;
        }
        map.serialize_entry("sockets", &rows(Part::Sockets))?;
        if let Some(group) = of(Part::Total).next() {
            map.serialize_entry("total", &Row { report, group })?;
        }
        map.serialize_entry("places", &values(Part::Places))?;
        map.serialize_entry("shares", &values(Part::Shares))?;
        let findings = || report.findings.iter().map(|it| OfFinding(report, it));
        map.serialize_entry("findings", &Sequence(findings))?;
        if !report.warnings.is_empty() {
            map.serialize_entry("warnings", &report.warnings)?;
        }
        let advice = || {
            let advice = report.advice.iter();
            advice.map(|advice| {
                Object(move || {
                    [
                        ("what", Text::One(advice.what)),
                        ("lowers", Text::Many(advice.lowers)),
                    ]
                })
            })
        };
        map.serialize_entry("advice", &Sequence(advice))?;
        let missing = || {
            let series = of(Part::Missing).flat_map(|group| group.series);
            series.filter_map(|series| {
                let reason = series.value.as_ref().err()?;
                Some((&report.metric(series).name, Display(reason)))
            })
        };
        map.serialize_entry("missing", &Object(missing))?;
        for table in &report.tables {
            map.serialize_entry(table.name, &OfTable(report, table))?;
            for (name, count) in &table.counts {
                map.serialize_entry(name, count)?;
            }
        }
        if options.with_self {
            let own = || {
                let series = of(Part::Own).flat_map(|group| group.series);
                series.map(|series| (&report.metric(series).name, Own(series)))
            };
            map.serialize_entry("self", &Object(own))?;
        }
        map.end()
    }
}

/// One text or several.
#[derive(Serialize)]
#[serde(untagged)]
enum Text<'a> {
    One(&'a str),
    Many(&'a [&'a str]),
}

/// What something displays, as a string.
struct Display<T>(T);

impl<T: std::fmt::Display> Serialize for Display<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

struct OfFinding<'a>(&'a Report, &'a Finding);

impl Serialize for OfFinding<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(report, Finding { about, text }) = self;
        let mut map = serializer.serialize_map(None)?;
        match about {
            About::Socket(socket) => map.serialize_entry("socket", socket)?,
            About::Subject(at) => who(&mut map, report, &report.subjects[*at as usize])?,
        }
        map.serialize_entry("text", text)?;
        map.end()
    }
}

struct OfTable<'a>(&'a Report, &'a Table);

impl<'a> Serialize for OfTable<'a> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(report, Table { columns, rows, .. }) = *self;
        let cells = |row: &'a [Cell]| row.iter().map(move |cell| OfCell(report, cell));
        let rows = rows.iter();
        serializer.collect_seq(rows.map(|row| Object(move || columns.iter().zip(cells(row)))))
    }
}
