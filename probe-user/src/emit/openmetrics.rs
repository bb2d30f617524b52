//! A report as `OpenMetrics` text 1.0, one exposition for each window.
//!
//! Counters are totals since their rows began: the raw count, the time for which it was counted,
//! and the estimate for the whole time. Metrics are those of the last window, in base units, with
//! their errors in families beside them. A series without a value is left out, and
//! `pmuscope_absent_values` counts these by reason. Values of the machine, and accesses by data
//! source, have names of their own, so that a sum over a metric counts nothing twice.
//!
//! [`Exposition`] is the same for a server that is scraped: also in the text format of Prometheus
//! 0.0.4, and without what costs many series and tells little.

mod exposition;
mod family;
mod info;
mod otlp;
mod text;

use std::{collections::BTreeMap, io};

pub use self::otlp::{Otlp, Request};
pub use self::{
    exposition::{Dialect, Exposition},
    text::{OWN_LABELS, is_own_label},
};
use self::{
    family::{Aspect, Families, Family, Level},
    text::Text,
};
use super::{
    Options,
    label::{Called, container_id, label, pid, pod, unit_of},
};
use crate::derive::{
    Attributes, Counter, Counting, Estimate, Group, Kind, Method, Metric, Part, Report, Series,
    Subject, Value, served_name,
};

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: Options) -> io::Result<()> {
    let mut samples = Samples::new(report, false);
    for group in report.groups() {
        if group.part != Part::Own || options.with_self {
            samples.add(&group);
        }
    }
    samples.write(Text::new(out, Dialect::OpenMetrics, ""), true);
    Ok(())
}

/// The samples to write, by family: all samples of a family must stand together.
struct Samples<'a> {
    report: &'a Report,
    families: Families<'a>,
    by_family: Vec<Vec<(&'a Series, f64)>>,
    /// The number of series without a value, by reason.
    absent: BTreeMap<&'static str, u64>,
    /// Whether what costs many series and tells little is left out.
    lean: bool,
}

impl<'a> Samples<'a> {
    fn new(report: &'a Report, lean: bool) -> Self {
        Self {
            report,
            families: Families::new(report),
            by_family: Vec::new(),
            absent: BTreeMap::new(),
            lean,
        }
    }

    /// Writes them, with the times at which counters began where `created` says so.
    fn write(&self, mut text: Text<'_>, created: bool) {
        let labels = Labels::of(self.report);
        info::write(&mut text, self.report);
        for (family, samples) in self.families.list().iter().zip(&self.by_family) {
            text.head(&family.name, family.type_name(), &family.unit, &family.help);
            for (series, number) in samples {
                let written = (*series, *number);
                sample(&mut text, self.report, family, &labels, written, created);
            }
        }
        if !self.absent.is_empty() {
            let name = "pmuscope_absent_values";
            text.head(name, "gauge", "", "Series without a value, by the reason");
            for (reason, count) in &self.absent {
                let reason = text::label("reason", reason);
                #[expect(clippy::cast_precision_loss, reason = "a number of series")]
                text.sample(name, "", &[&reason], *count as f64);
            }
        }
        text.end();
    }

    fn add(&mut self, group: &Group<'a>) {
        let level = match group.part {
            Part::Own => Level::Own,
            Part::Total | Part::Missing => Level::Machine,
            Part::Sockets => Level::Sockets,
            Part::Processes => Level::Processes,
            Part::Rows | Part::Places | Part::Shares => Level::Rows,
        };
        // The times of a counter group are those of all its events.
        let mut timed: Vec<u32> = Vec::new();
        for series in group.series {
            // A counter with a total is written even if it has no value in this window.
            match (&series.value, self.report.total(series)) {
                (_, Some(total)) => {
                    let first = !timed.contains(&series.attributes);
                    timed.extend(first.then_some(series.attributes));
                    self.counter(series, level, total, first);
                }
                (Err(reason), None) => *self.absent.entry(reason.word()).or_default() += 1,
                // Without a total nothing was ever counted: the counter is 0.
                (Ok(Value::Counter(_)), None) => {}
                (Ok(Value::Gauge(gauge)), None) => {
                    self.push(series, level, Aspect::Value, gauge.value);
                    self.trust(series, level, gauge);
                    if gauge.live < 1.0 {
                        self.push(series, level, Aspect::Live, gauge.live);
                    }
                    if let Some(bound) = gauge.above_bound {
                        self.push(series, level, Aspect::Bound, bound);
                    }
                }
                (Ok(Value::Histogram(_) | Value::Info(_) | Value::State(..)), None) => {
                    self.push(series, level, Aspect::Value, f64::NAN);
                }
            }
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "the format's numbers have no better precision"
    )]
    fn counter(&mut self, series: &'a Series, level: Level, total: &Counter, first: bool) {
        let raw = total.raw as f64;
        match self.report.metric(series).counting {
            Counting::All => return self.push(series, level, Aspect::Raw, raw),
            Counting::Event(scale) => self.push(series, level, Aspect::Raw, raw * scale),
            Counting::Samples => self.push(series, level, Aspect::Samples, raw),
        }
        if let Some(time) = total.time.filter(|_| first) {
            self.push(series, level, Aspect::Enabled, time.enabled as f64);
            self.push(series, level, Aspect::Running, time.running as f64);
        }
        self.push(series, level, Aspect::Estimated, total.estimate.value);
        self.trust(series, level, &total.estimate);
    }

    /// The error of a number, where it is known and not zero.
    fn trust(&mut self, series: &'a Series, level: Level, estimate: &Estimate) {
        if let Some((low, high)) = estimate.sampled_interval() {
            self.push(series, level, Aspect::Lower, low);
            self.push(series, level, Aspect::Upper, high);
        }
        // A share states an error of zero too.
        let share = self.report.attributes(series).method.is_share();
        if let Some(error) = estimate.error().filter(|error| *error > 0.0 || share) {
            self.push(series, level, Aspect::Error, error);
        }
    }

    fn push(&mut self, series: &'a Series, level: Level, aspect: Aspect, number: f64) {
        if self.lean && exposition::is_left_out(self.report, series, aspect) {
            return;
        }
        let by_source = self.report.attributes(series).source.is_some();
        let family = self.families.of(series.metric, level, by_source, aspect);
        if self.by_family.len() <= family {
            self.by_family.resize_with(family + 1, Vec::new);
        }
        self.by_family[family].push((series, number));
    }
}

/// The labels of everything that can be told apart, written once.
struct Labels {
    subjects: Vec<String>,
    attributes: Vec<String>,
    groups: Vec<String>,
    events: Vec<String>,
}

/// Name and value.
type Label = (&'static str, String);

impl Labels {
    fn of(report: &Report) -> Self {
        let text = |labels: Vec<Label>| {
            let labels = labels.iter().map(|(name, value)| text::label(name, value));
            labels.collect::<Vec<_>>().join(",")
        };
        let subjects = report
            .subjects
            .iter()
            .map(|it| subject(report, it))
            .map(text);
        let attributes = report.attributes.iter();
        let events = report
            .metrics
            .iter()
            .map(event)
            .map(|it| text(it.into_iter().collect()));
        Self {
            subjects: subjects.collect(),
            attributes: attributes.clone().map(self::attributes).map(text).collect(),
            groups: attributes
                .map(group)
                .map(|it| text(it.into_iter().collect()))
                .collect(),
            events: events.collect(),
        }
    }
}

/// The label of a counter group.
fn group(attributes: &Attributes) -> Option<Label> {
    Some(("group", attributes.group?.to_string()))
}

/// The label of an event by the user's own name.
fn event(metric: &Metric) -> Option<Label> {
    metric.is_event().then(|| ("event", metric.name.clone()))
}

fn sample(
    text: &mut Text<'_>,
    report: &Report,
    family: &Family,
    labels: &Labels,
    (series, number): (&Series, f64),
    with_created: bool,
) {
    let attributes = series.attributes as usize;
    let subject = labels.subjects[series.subject as usize].as_str();
    let event = labels.events[series.metric as usize].as_str();
    let group = labels.groups[attributes].as_str();
    let attributes = labels.attributes[attributes].as_str();
    let labels: &[&str] = match family.aspect {
        Aspect::Raw => &[subject, attributes, event, group],
        Aspect::Enabled | Aspect::Running => &[subject, attributes, group],
        _ => &[subject, attributes, event],
    };
    let created = |start| (report.boot_time + start).as_secs_f64();
    match &series.value {
        _ if family.kind == Kind::Counter => {
            text.sample(&family.name, "_total", labels, number * family.factor);
            if let Some(total) = report.total(series).filter(|_| with_created) {
                text.sample(&family.name, "_created", labels, created(total.start));
            }
        }
        Ok(Value::Histogram(histogram)) => {
            text.histogram(&family.name, labels, histogram, family.factor);
            if with_created {
                text.sample(&family.name, "_created", labels, created(histogram.start));
            }
        }
        Ok(Value::Info(texts)) => {
            let texts = texts.iter().map(|(name, value)| text::label(name, value));
            let texts = texts.collect::<Vec<_>>().join(",");
            text.sample(&family.name, "_info", &[subject, &texts], 1.0);
        }
        Ok(Value::State(now, all)) => {
            for state in *all {
                let own = text::label(&family.name, state);
                let is = f64::from(u8::from(state == now));
                text.sample(&family.name, "", &[subject, &own], is);
            }
        }
        Ok(Value::Gauge(_) | Value::Counter(_)) | Err(_) => {
            text.sample(&family.name, "", labels, number * family.factor);
        }
    }
}

/// The labels of a subject.
fn subject(report: &Report, subject: &Subject) -> Vec<Label> {
    let mut labels = Vec::new();
    match subject {
        Subject::Machine | Subject::Pmuscope => {}
        Subject::Socket(socket) => labels.push(("socket", socket.to_string())),
        Subject::Place(place, devices) => {
            if let Some(socket) = place.socket {
                labels.push(("socket", socket.to_string()));
            }
            // A whole socket needs no name beside its number.
            let (kind, name) = label(subject);
            if kind == "device" || *name != format!("socket {}", place.socket.unwrap_or_default()) {
                labels.push(("device", name.into_owned()));
            }
            if !devices.is_empty() {
                labels.push(("pci_devices", devices.join(",")));
            }
        }
        Subject::Entity(_) | Subject::Io | Subject::Unattributed | Subject::Unknown => {
            let (kind, name) = label(subject);
            labels.extend([("kind", kind.to_owned()), ("name", name.into_owned())]);
            labels.extend(pod(subject).map(|pod| ("pod_uid", pod.to_owned())));
            labels.extend(container_id(subject).map(|id| ("container_id", id.to_owned())));
            labels.extend(pid(subject).map(|pid| ("pid", pid.to_string())));
            labels.extend(unit_of(subject).map(|unit| ("unit", unit.to_owned())));
            let names = Called::of(report, subject).names();
            labels.extend(names.map(|(what, name)| (what, name.to_owned())));
        }
    }
    labels
}

/// The labels that identify a series; how its counters were scheduled is left out.
fn attributes(attributes: &Attributes) -> Vec<Label> {
    let Attributes {
        socket,
        device,
        group: _,
        method,
        operation,
        source,
    } = attributes;
    let method = (*method != Method::Counted).then(|| method.to_string());
    let labels = [
        ("socket", socket.map(|socket| socket.to_string())),
        ("device", device.clone()),
        ("method", method),
        (
            "operation",
            operation.map(|operation| operation.name().to_owned()),
        ),
        ("source", source.map(served_name)),
    ];
    let labels = labels.into_iter();
    let labels = labels.filter_map(|(name, value)| Some((name, value?)));
    labels.collect()
}

#[cfg(test)]
mod tests;
