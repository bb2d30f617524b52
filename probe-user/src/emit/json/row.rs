//! Rows, and values of sockets and devices.

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{LazyObject, value::SeriesFields};
use crate::derive::{
    LabelReach, MetricKind, Report, Series, Subject, SubjectSeries, find_sample_counter,
    mem_level_name,
};

/// An entity, a socket or the whole machine with all its values.
pub(super) struct RowObject<'a> {
    pub(super) report: &'a Report,
    pub(super) group: &'a SubjectSeries<'a>,
}

impl Serialize for RowObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { report, group } = *self;
        let mut map = serializer.serialize_map(None)?;
        match group.subject {
            Subject::Machine => {}
            Subject::Socket(socket) => map.serialize_entry("socket", socket)?,
            subject => serialize_subject(&mut map, report, subject)?,
        }
        let without_accesses = |events: bool| {
            LazyObject(move || {
                let series = group.series.iter();
                series.filter_map(move |series| {
                    let metric = report.metric(series);
                    let is_wanted = (metric.kind == MetricKind::Counter) == events;
                    let is_access = report.attributes(series).operation.is_some();
                    let is_shown = report.is_of_window(series) && !is_access && is_wanted;
                    is_shown.then_some((&metric.name, SeriesFields::new(report, series)))
                })
            })
        };
        map.serialize_entry("events", &without_accesses(true))?;
        map.serialize_entry("metrics", &without_accesses(false))?;
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
                    let was_sampled = find_sample_counter(series)?.raw > 0;
                    was_sampled.then_some((name, ClassObject { report, series }))
                })
            };
            map.serialize_entry("classes", &LazyObject(classes))?;
        }
        map.end()
    }
}

/// Sampled accesses of one class: all together, then by memory level.
struct ClassObject<'a> {
    report: &'a Report,
    series: &'a [Series],
}

impl Serialize for ClassObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { report, series } = *self;
        let mut parts = series.chunk_by(|a, b| a.attributes == b.attributes);
        let mut map = serializer.serialize_map(None)?;
        if let Some(sampler) = &report.attributes(&series[0]).sampler {
            map.serialize_entry("sampler", sampler)?;
        }
        for (name, value) in accesses(report, parts.next().unwrap_or_default()) {
            map.serialize_entry(name, &value)?;
        }
        let sources = || {
            parts.clone().filter_map(|series| {
                let level = report.attributes(&series[0]).source?;
                let was_sampled = find_sample_counter(series)?.raw > 0;
                was_sampled.then_some((
                    mem_level_name(level),
                    LazyObject(move || accesses(report, series)),
                ))
            })
        };
        map.serialize_entry("sources", &LazyObject(sources))?;
        map.end()
    }
}

/// The values of accesses of one class or memory level.
fn accesses<'a>(
    report: &'a Report,
    series: &'a [Series],
) -> impl Iterator<Item = (&'a str, SeriesFields<'a>)> {
    let of_window = |series: &&Series| report.is_of_window(series);
    let shown = |series| {
        let name = report.metric(series).name.as_str();
        (name, SeriesFields::new(report, series))
    };
    series.iter().filter(of_window).map(shown)
}

/// A metric of a socket or device, or an owner's share of it.
pub(super) struct PlacedValue<'a> {
    pub(super) report: &'a Report,
    pub(super) subject: &'a Subject,
    pub(super) series: &'a Series,
}

impl Serialize for PlacedValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            report,
            subject,
            series,
        } = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("metric", &report.metric(series).name)?;
        serialize_subject(&mut map, report, subject)?;
        if let Subject::Place(place, devices) = subject {
            map.serialize_entry("socket", &place.socket)?;
            map.serialize_entry("devices", devices)?;
        } else {
            let attributes = report.attributes(series);
            map.serialize_entry("socket", &attributes.socket)?;
            map.serialize_entry("device", &attributes.device)?;
        }
        SeriesFields::new(report, series).write_fields(&mut map)?;
        map.end()
    }
}

/// Writes the fields that identify the subject of a row or a cell.
pub(super) fn serialize_subject<M: SerializeMap>(
    map: &mut M,
    report: &Report,
    subject: &Subject,
) -> Result<(), M::Error> {
    let labels = subject.labels(&report.described);
    for (name, value) in labels.values(LabelReach::Info) {
        map.serialize_entry(name, &value)?;
    }
    let selected = labels.selected();
    if !selected.is_empty() {
        map.serialize_entry("labels", &selected)?;
    }
    Ok(())
}
