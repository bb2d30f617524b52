//! Rows, and values of sockets and devices.

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{Object, value::Shown};
use crate::{
    derive::{Group, Kind, Report, Series, Subject, samples_of, served_name},
    emit::label::{Called, container_id, label, pid, pod, unit_of},
};

/// An entity, a socket or the whole machine, with all of its values.
pub(super) struct Row<'a> {
    pub(super) report: &'a Report,
    pub(super) group: &'a Group<'a>,
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { report, group } = *self;
        let mut map = serializer.serialize_map(None)?;
        match group.subject {
            Subject::Machine => {}
            Subject::Socket(socket) => map.serialize_entry("socket", socket)?,
            subject => who(&mut map, report, subject)?,
        }
        let plain = |events: bool| {
            Object(move || {
                let series = group.series.iter();
                series.filter_map(move |series| {
                    let metric = report.metric(series);
                    let wanted = (metric.kind == Kind::Counter) == events;
                    let plain = report.attributes(series).operation.is_none();
                    (plain && wanted).then_some((&metric.name, Shown::of(report, series)))
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
                    let was_sampled = samples_of(series)?.raw > 0;
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
        for (name, value) in accesses(report, parts.next().unwrap_or_default()) {
            map.serialize_entry(name, &value)?;
        }
        let sources = || {
            parts.clone().filter_map(|series| {
                let served = report.attributes(&series[0]).source?;
                let was_sampled = samples_of(series)?.raw > 0;
                was_sampled.then_some((
                    served_name(served),
                    Object(move || accesses(report, series)),
                ))
            })
        };
        map.serialize_entry("sources", &Object(sources))?;
        map.end()
    }
}

/// The values of one kind of access, without histograms: these count since the session began, and a
/// line is about a window.
fn accesses<'a>(
    report: &'a Report,
    series: &'a [Series],
) -> impl Iterator<Item = (&'a str, Shown<'a>)> {
    let of_window = |series: &&Series| report.metric(series).kind != Kind::Histogram;
    let shown = |series| {
        let name = report.metric(series).name.as_str();
        (name, Shown::of(report, series))
    };
    series.iter().filter(of_window).map(shown)
}

/// A value of a socket or device, or an owner's share of it.
pub(super) struct OfPlace<'a> {
    pub(super) report: &'a Report,
    pub(super) subject: &'a Subject,
    pub(super) series: &'a Series,
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
        who(&mut map, report, subject)?;
        if let Subject::Place(place, devices) = subject {
            map.serialize_entry("socket", &place.socket)?;
            map.serialize_entry("devices", devices)?;
        } else {
            let attributes = report.attributes(series);
            map.serialize_entry("socket", &attributes.socket)?;
            map.serialize_entry("device", &attributes.device)?;
        }
        Shown::of(report, series).fields(&mut map)?;
        map.end()
    }
}

/// Whom a row or a cell names.
pub(super) fn who<M: SerializeMap>(
    map: &mut M,
    report: &Report,
    subject: &Subject,
) -> Result<(), M::Error> {
    let (kind, name) = label(subject);
    map.serialize_entry("kind", kind)?;
    map.serialize_entry("name", &name)?;
    if let Some(pod) = pod(subject) {
        map.serialize_entry("pod_uid", pod)?;
    }
    if let Some(id) = container_id(subject) {
        map.serialize_entry("container_id", id)?;
    }
    if let Some(pid) = pid(subject) {
        map.serialize_entry("pid", &pid)?;
    }
    if let Some(unit) = unit_of(subject) {
        map.serialize_entry("unit", unit)?;
    }
    let called = Called::of(report, subject);
    for (what, name) in called.names() {
        map.serialize_entry(what, name)?;
    }
    if let Some(container) = called.container {
        map.serialize_entry("runtime", &container.runtime)?;
        if let Some(image) = &container.image {
            map.serialize_entry("image", image)?;
        }
    }
    let labels = called.labels();
    if !labels.is_empty() {
        map.serialize_entry("labels", &labels)?;
    }
    Ok(())
}
