//! A report as one line of JSON.

use std::io::{self, Write};

use serde::{
    Serialize, Serializer,
    ser::{Error as _, SerializeMap},
};

use super::{
    Options,
    label::{label, pid, pod},
    printable::PrintableJson,
};
use crate::derive::{
    Cell, Estimate, Finding, Group, Kind, Part, Report, Series, Subject, Table, Value, served_name,
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
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
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
        map.serialize_entry("elapsed_ns", &nanos(report.elapsed()))?;
        map.serialize_entry("duration_ns", &nanos(report.length()))?;
        if let Some(period) = report.of(&Subject::Pmuscope, "spe_period").next() {
            map.serialize_entry("period", &Own(period))?;
        }
        map.serialize_entry("rows", &rows(Part::Rows))?;
        map.serialize_entry("sockets", &rows(Part::Sockets))?;
        if let Some(group) = of(Part::Total).next() {
            map.serialize_entry("total", &Row { report, group })?;
        }
        map.serialize_entry("places", &values(Part::Places))?;
        map.serialize_entry("shares", &values(Part::Shares))?;
        let findings = || report.findings.iter().map(OfFinding);
        map.serialize_entry("findings", &Sequence(findings))?;
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
            map.serialize_entry(table.name, &OfTable(table))?;
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

struct OfFinding<'a>(&'a Finding);

impl Serialize for OfFinding<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("socket", &self.0.socket)?;
        map.serialize_entry("text", &self.0.text)?;
        map.end()
    }
}

/// An entity, a socket or the whole machine, with all of its values.
struct Row<'a> {
    report: &'a Report,
    group: &'a Group<'a>,
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { report, group } = *self;
        let mut map = serializer.serialize_map(None)?;
        match group.subject {
            Subject::Machine => {}
            Subject::Socket(socket) => map.serialize_entry("socket", socket)?,
            subject => who(&mut map, subject)?,
        }
        let plain = |events: bool| {
            Object(move || {
                let series = group.series.iter();
                series.filter_map(move |series| {
                    let metric = report.metric(series);
                    let wanted = series.attributes == 0 && (metric.kind == Kind::Counter) == events;
                    wanted.then_some((&metric.name, Shown::of(report, series)))
                })
            })
        };
        map.serialize_entry("events", &plain(true))?;
        map.serialize_entry("metrics", &plain(false))?;
        let operation = |series: &Series| report.attributes(series).operation;
        if group
            .series
            .iter()
            .any(|series| operation(series).is_some())
        {
            let classes = || {
                let classes = group.series.chunk_by(|a, b| operation(a) == operation(b));
                classes.filter_map(|series| {
                    let name = operation(&series[0])?.name();
                    let was_sampled = series[0].counter()?.raw > 0;
                    was_sampled.then_some((name, Class { report, series }))
                })
            };
            map.serialize_entry("classes", &Object(classes))?;
        }
        map.end()
    }
}

/// Sampled accesses of one class: all of them, then by where they were served.
struct Class<'a> {
    report: &'a Report,
    series: &'a [Series],
}

impl Serialize for Class<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { report, series } = *self;
        let mut parts = series.chunk_by(|a, b| a.attributes == b.attributes);
        let mut map = serializer.serialize_map(None)?;
        for series in parts.next().unwrap_or_default() {
            access(&mut map, report, series)?;
        }
        let sources = || {
            parts.clone().filter_map(|series| {
                let served = report.attributes(&series[0]).source?;
                let was_sampled = series[0].counter()?.raw > 0;
                was_sampled.then_some((served_name(served), Served { report, series }))
            })
        };
        map.serialize_entry("sources", &Object(sources))?;
        map.end()
    }
}

struct Served<'a> {
    report: &'a Report,
    series: &'a [Series],
}

impl Serialize for Served<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for series in self.series {
            access(&mut map, self.report, series)?;
        }
        map.end()
    }
}

/// Histograms are since the session began: they are no part of a window.
fn access<M: SerializeMap>(map: &mut M, report: &Report, series: &Series) -> Result<(), M::Error> {
    match report.metric(series).kind {
        Kind::Histogram => Ok(()),
        _ => map.serialize_entry(&report.metric(series).name, &Shown::of(report, series)),
    }
}

/// A value of a socket or device, or of somebody's share in it.
struct OfPlace<'a> {
    report: &'a Report,
    subject: &'a Subject,
    series: &'a Series,
}

impl Serialize for OfPlace<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            report,
            subject,
            series,
        } = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("metric", &report.metric(series).name)?;
        who(&mut map, subject)?;
        if let Subject::Place(place, devices) = subject {
            map.serialize_entry("socket", &place.socket)?;
            map.serialize_entry("devices", devices)?;
        } else {
            let attributes = report.attributes(series);
            map.serialize_entry("socket", &attributes.socket)?;
            map.serialize_entry("device", &attributes.device)?;
            if let Some(method) = attributes.method {
                map.serialize_entry("method", &Display(method))?;
            }
        }
        Shown::of(report, series).fields(&mut map)?;
        map.end()
    }
}

fn who<M: SerializeMap>(map: &mut M, subject: &Subject) -> Result<(), M::Error> {
    let (kind, name) = label(subject);
    map.serialize_entry("kind", kind)?;
    map.serialize_entry("name", &name)?;
    if let Some(pod) = pod(subject) {
        map.serialize_entry("pod_uid", pod)?;
    }
    if let Some(pid) = pid(subject) {
        map.serialize_entry("pid", &pid)?;
    }
    Ok(())
}

/// The value of a series in its window. One that could not be had is null, with its reason.
struct Shown<'a> {
    series: &'a Series,
    unit: &'a str,
    /// Shares say too that they are exact, or that it is not known how exact.
    share: bool,
}

impl<'a> Shown<'a> {
    fn of(report: &'a Report, series: &'a Series) -> Self {
        Self {
            series,
            unit: &report.metric(series).unit,
            share: report.attributes(series).method.is_some(),
        }
    }

    fn fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let estimate = match &self.series.value {
            Ok(value) => value.estimate(),
            Err(reason) => {
                map.serialize_entry("value", &())?;
                unit(map, self.unit)?;
                return map.serialize_entry("reason", &Display(reason));
            }
        };
        let Some(estimate) = estimate else {
            return Err(M::Error::custom("a row has numbers only"));
        };
        map.serialize_entry("value", &estimate.value)?;
        if let Some(counter) = self.series.counter() {
            map.serialize_entry("raw", &counter.raw)?;
        }
        unit(map, self.unit)?;
        map.serialize_entry("running", &estimate.live)?;
        interval(map, estimate)?;
        match estimate.rel_error() {
            error if self.share => map.serialize_entry("rel_error", &error),
            Some(error) if error > 0.0 => map.serialize_entry("rel_error", &error),
            _ => Ok(()),
        }
    }
}

fn unit<M: SerializeMap>(map: &mut M, unit: &str) -> Result<(), M::Error> {
    match unit {
        "" => Ok(()),
        unit => map.serialize_entry("unit", unit),
    }
}

fn interval<M: SerializeMap>(map: &mut M, estimate: &Estimate) -> Result<(), M::Error> {
    if let Some((low, high)) = estimate.interval {
        map.serialize_entry("low", &low)?;
        map.serialize_entry("high", &high)?;
    }
    Ok(())
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.fields(&mut map)?;
        map.end()
    }
}

/// A value of this program's account of itself: a number or a text, null where it was not measured.
struct Own<'a>(&'a Series);

impl Serialize for Own<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.value {
            Ok(Value::Counter(counter)) => counter.raw.serialize(serializer),
            Ok(Value::Gauge(gauge)) => whole(gauge.value, serializer),
            Ok(Value::State(state, _)) => state.serialize(serializer),
            Ok(Value::Info(texts)) => serializer.collect_map(texts.iter().map(|(a, b)| (a, b))),
            Ok(Value::Histogram(_)) | Err(_) => serializer.serialize_none(),
        }
    }
}

/// Whole numbers are written as such.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is whole and below 2^53"
)]
fn whole<S: Serializer>(number: f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && (0.0..9e15).contains(&number) {
        (number as u64).serialize(serializer)
    } else {
        number.serialize(serializer)
    }
}

struct OfTable<'a>(&'a Table);

impl Serialize for OfTable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Table { columns, rows, .. } = self.0;
        let rows = rows.iter();
        serializer
            .collect_seq(rows.map(|row| Object(move || columns.iter().zip(row.iter().map(OfCell)))))
    }
}

struct OfCell<'a>(&'a Cell);

impl Serialize for OfCell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Cell::Number(number) => number.serialize(serializer),
            Cell::Address(address) => serializer.collect_str(&format_args!("{address:#x}")),
            Cell::Estimate(None) => serializer.serialize_none(),
            Cell::Estimate(Some(estimate)) => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("value", &estimate.value)?;
                interval(&mut map, estimate)?;
                map.end()
            }
        }
    }
}
