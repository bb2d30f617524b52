//! A report as `OpenMetrics` text 1.0, one exposition for each window.
//!
//! Counters are totals since the start of their rows: the raw count, its enabled and running time,
//! and the estimate for the whole time. Metrics have the values of the last window, in base units;
//! their errors are separate families. A series without a value is omitted, and
//! `pmuscope_absent_values` counts these by reason. Values of the machine, and accesses by data
//! source, have separate names, so that a sum over a metric counts nothing twice.
//!
//! [`Exposition`] serves scrapes: it also writes the other formats of Prometheus ([`Dialect`]), and
//! omits series of high cardinality and little use.

mod exposition;
mod family;
mod info;
mod otlp;
mod protobuf;
mod text;

use std::{borrow::Cow, collections::BTreeMap, io};

pub use self::otlp::{OtlpEncoder, OtlpRequest};
pub use self::{
    exposition::{Dialect, Exposition},
    text::{is_reserved_label, reserved_labels},
};
use self::{
    family::{Aspect, Families, MetricFamily, SubjectLevel},
    text::ExpositionText,
};
use super::EmitOptions;
use crate::{
    derive::{
        Attributes, CounterSource, CounterValue, Estimate, LabelReach, MetricInfo, MetricKind,
        Report, ReportSection, Series, Subject, SubjectSeries, Value, ValueMethod, mem_level_name,
    },
    join::WaitedFor,
};

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: EmitOptions) -> io::Result<()> {
    let mut samples = FamilySamples::new(report, false);
    for group in report.groups() {
        if group.section != ReportSection::SelfCounters || options.with_self {
            samples.add(&group);
        }
    }
    samples.write(ExpositionText::new(out, true, ""), true);
    Ok(())
}

/// The samples to write, by family: the format requires the samples of a family to be adjacent.
struct FamilySamples<'a> {
    report: &'a Report,
    families: Families<'a>,
    /// Series and numbers, in the unit of the family.
    by_family: Vec<Vec<(&'a Series, f64)>>,
    /// Series without a value, by reason.
    absent: BTreeMap<&'static str, u64>,
    /// Whether to omit series of high cardinality and little use, as in a scrape.
    lean: bool,
}

impl<'a> FamilySamples<'a> {
    fn new(report: &'a Report, lean: bool) -> Self {
        Self {
            report,
            families: Families::new(report),
            by_family: Vec::new(),
            absent: BTreeMap::new(),
            lean,
        }
    }

    /// Writes all families; `created` adds the start times of counters.
    fn write(&self, mut text: ExpositionText<'_>, created: bool) {
        let labels = CachedLabels::new(self.report, |labels| text::labels(&labels));
        info::write(&mut text, self.report);
        for (family, samples) in self.families.list().iter().zip(&self.by_family) {
            text.head(&family.name, family.type_name(), &family.unit, &family.help);
            for (series, number) in samples {
                let written = (*series, *number);
                write_sample(&mut text, self.report, family, &labels, written, created);
            }
        }
        if let Some((name, help, all)) = self.absent_values() {
            text.head(name, "gauge", "", help);
            for (reason, count) in all {
                text.sample(name, "", &[&text::label("reason", reason)], count);
            }
        }
        text.end();
    }

    /// The family of the number of series without a value: its name, its help, and the numbers by
    /// reason. None if every series has a value.
    fn absent_values(
        &self,
    ) -> Option<(
        &'static str,
        &'static str,
        impl Iterator<Item = (&'static str, f64)>,
    )> {
        let help = "Series without a value, by the reason";
        #[expect(clippy::cast_precision_loss, reason = "a number of series")]
        let all = self
            .absent
            .iter()
            .map(|(reason, count)| (*reason, *count as f64));
        (!self.absent.is_empty()).then_some(("pmuscope_absent_values", help, all))
    }

    fn add(&mut self, group: &SubjectSeries<'a>) {
        let level = match group.section {
            ReportSection::SelfCounters => SubjectLevel::SelfCounters,
            ReportSection::Total | ReportSection::Missing => SubjectLevel::Machine,
            ReportSection::Sockets => SubjectLevel::Sockets,
            ReportSection::Processes => SubjectLevel::Processes,
            ReportSection::Rows | ReportSection::Uncore | ReportSection::Shares => {
                SubjectLevel::Rows
            }
        };
        // Attributes of counter groups whose times were added: all events of a group share them.
        let mut timed: Vec<u32> = Vec::new();
        for series in group.series {
            // A counter with a total is written even without a value in this window.
            match (&series.value, self.report.total(series)) {
                (_, Some(total)) => {
                    let is_first = !timed.contains(&series.attributes);
                    timed.extend(is_first.then_some(series.attributes));
                    self.push_counter(series, level, total, is_first);
                }
                (Err(reason), None) => *self.absent.entry(reason.word()).or_default() += 1,
                // Without a total the counter is 0: nothing was ever counted.
                (Ok(Value::Counter(_)), None) => {}
                (Ok(Value::Gauge(gauge)), None) => {
                    self.push(series, level, Aspect::Value, gauge.value);
                    self.push_error(series, level, gauge);
                    if gauge.running_ratio < 1.0 {
                        self.push(series, level, Aspect::RunningRatio, gauge.running_ratio);
                    }
                    if let Some(bound) = gauge.exceeded_bound {
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
    fn push_counter(
        &mut self,
        series: &'a Series,
        level: SubjectLevel,
        total: &CounterValue,
        with_times: bool,
    ) {
        let raw = total.raw as f64;
        match self.report.metric(series).counting {
            CounterSource::All => return self.push(series, level, Aspect::Raw, raw),
            CounterSource::Event(scale) => self.push(series, level, Aspect::Raw, raw * scale),
            CounterSource::Samples => self.push(series, level, Aspect::Samples, raw),
        }
        if let Some(time) = total.time.filter(|_| with_times) {
            self.push(series, level, Aspect::Enabled, time.enabled as f64);
            self.push(series, level, Aspect::Running, time.running as f64);
        }
        self.push(series, level, Aspect::Estimated, total.estimate.value);
        self.push_error(series, level, &total.estimate);
    }

    /// Adds the error of a number, if known and not 0.
    fn push_error(&mut self, series: &'a Series, level: SubjectLevel, estimate: &Estimate) {
        if let Some((low, high)) = estimate.estimated_interval() {
            self.push(series, level, Aspect::Lower, low);
            self.push(series, level, Aspect::Upper, high);
        }
        // A share states an error of 0 too.
        let is_share = self.report.attributes(series).method.is_share();
        if let Some(error) = estimate.error().filter(|error| *error > 0.0 || is_share) {
            self.push(series, level, Aspect::Error, error);
        }
    }

    fn push(&mut self, series: &'a Series, level: SubjectLevel, aspect: Aspect, number: f64) {
        if self.lean && exposition::is_left_out(self.report, series, aspect) {
            return;
        }
        let by_source = self.report.attributes(series).source.is_some();
        let (family, factor) = self
            .families
            .index_of(series.metric, level, by_source, aspect);
        if self.by_family.len() <= family {
            self.by_family.resize_with(family + 1, Vec::new);
        }
        self.by_family[family].push((series, number * factor));
    }
}

/// Labels of subjects, attributes, groups and events, converted once to what a format writes.
struct CachedLabels<L> {
    subjects: Vec<L>,
    attributes: Vec<L>,
    groups: Vec<L>,
    events: Vec<L>,
    none: L,
}

/// Name and value.
type Label = (Cow<'static, str>, String);

/// Prefix of the labels of what ran during a wait.
const BEHIND: &str = "behind_";

impl<L> CachedLabels<L> {
    fn new(report: &Report, convert: impl Fn(Vec<Label>) -> L) -> Self {
        let subjects = report.subjects.iter().map(|it| subject_labels(report, it));
        let all = report.attributes.iter();
        let attributes = all.clone().map(|it| attribute_labels(report, it));
        let groups = all.map(|it| group_label(it).into_iter().collect());
        let events = report
            .metrics
            .iter()
            .map(|it| event_label(it).into_iter().collect());
        Self {
            subjects: subjects.map(&convert).collect(),
            attributes: attributes.map(&convert).collect(),
            groups: groups.map(&convert).collect(),
            events: events.map(&convert).collect(),
            none: convert(Vec::new()),
        }
    }

    /// The labels of a series in a family.
    fn for_series(&self, family: &MetricFamily, series: &Series) -> [&L; 4] {
        let attributes = series.attributes as usize;
        let subject = &self.subjects[series.subject as usize];
        let (event, group) = (
            &self.events[series.metric as usize],
            &self.groups[attributes],
        );
        let (event, group) = match family.aspect {
            Aspect::Raw => (event, group),
            Aspect::Enabled | Aspect::Running => (&self.none, group),
            _ => (event, &self.none),
        };
        [subject, &self.attributes[attributes], event, group]
    }
}

/// The label of a counter group.
fn group_label(attributes: &Attributes) -> Option<Label> {
    Some(("group".into(), attributes.group?.to_string()))
}

/// The label of an event, which has the name that the user gave it; None for other metrics.
fn event_label(metric: &MetricInfo) -> Option<Label> {
    metric
        .is_event()
        .then(|| ("event".into(), metric.name.clone()))
}

fn write_sample(
    text: &mut ExpositionText<'_>,
    report: &Report,
    family: &MetricFamily,
    labels: &CachedLabels<String>,
    (series, number): (&Series, f64),
    with_created: bool,
) {
    let labels @ [subject, ..] = labels.for_series(family, series).map(String::as_str);
    let labels = &labels;
    let created = |start| (report.boot_time + start).as_secs_f64();
    match &series.value {
        _ if family.kind == MetricKind::Counter => {
            text.sample(&family.name, "_total", labels, number);
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
            let texts = text::labels(texts);
            text.sample(&family.name, "_info", &[subject, &texts], 1.0);
        }
        Ok(Value::State(now, all)) => {
            for state in *all {
                let state_label = text::label(&family.name, state);
                let is_current = f64::from(u8::from(state == now));
                text.sample(&family.name, "", &[subject, &state_label], is_current);
            }
        }
        Ok(Value::Gauge(_) | Value::Counter(_)) | Err(_) => {
            text.sample(&family.name, "", labels, number);
        }
    }
}

/// The labels of a subject.
fn subject_labels(report: &Report, subject: &Subject) -> Vec<Label> {
    let mut labels = Vec::new();
    match subject {
        Subject::Machine | Subject::Pmuscope => {}
        Subject::Socket(socket) => labels.push(("socket".into(), socket.to_string())),
        Subject::Place(place, devices) => {
            if let Some(socket) = place.socket {
                labels.push(("socket".into(), socket.to_string()));
            }
            // The socket label identifies a whole socket.
            let (kind, name) = subject.kind_and_name();
            if kind == "device" || *name != format!("socket {}", place.socket.unwrap_or_default()) {
                labels.push(("device".into(), name.into_owned()));
            }
            if !devices.is_empty() {
                labels.push(("pci_devices".into(), devices.join(",")));
            }
        }
        Subject::Entity(_) | Subject::Io | Subject::Unattributed | Subject::Unknown => {
            let texts = subject.labels(&report.described);
            let texts = texts.texts(LabelReach::Series);
            labels.extend(texts.map(|(name, value)| (name.into(), value)));
        }
    }
    labels
}

/// The labels that identify a series of a subject and a metric. The counter group is omitted.
fn attribute_labels(report: &Report, attributes: &Attributes) -> Vec<Label> {
    let Attributes {
        socket,
        device,
        group: _,
        method,
        sampler,
        operation,
        source,
        behind,
    } = attributes;
    let method = (*method != ValueMethod::Counted).then(|| method.to_string());
    let labels = [
        ("socket", socket.map(|socket| socket.to_string())),
        ("device", device.clone()),
        ("method", method),
        ("sampler", sampler.as_deref().map(str::to_owned)),
        (
            "operation",
            operation.map(|operation| operation.name().to_owned()),
        ),
        ("source", source.map(mem_level_name)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.into(), value?)));
    let behind = behind.as_ref().map(|behind| waited_for(report, behind));
    labels.chain(behind.into_iter().flatten()).collect()
}

/// The labels of what ran during a wait: labels of a subject, with the prefix [`BEHIND`].
fn waited_for(report: &Report, behind: &WaitedFor) -> Vec<Label> {
    let unknown = |name: &str| vec![("kind", "unknown".to_owned()), ("name", name.to_owned())];
    let labels: Vec<(&str, String)> = match behind {
        WaitedFor::Entity(entity) => {
            let subject = Subject::Entity(entity.clone());
            let labels = subject.labels(&report.described);
            labels.texts(LabelReach::Series).collect()
        }
        WaitedFor::Nobody => vec![("kind", "idle".to_owned()), ("name", "idle".to_owned())],
        WaitedFor::Earlier => unknown("earlier"),
        WaitedFor::OtherCpu => unknown("other CPU"),
    };
    let labels = labels.into_iter();
    labels
        .map(|(name, value)| (format!("{BEHIND}{name}").into(), value))
        .collect()
}

#[cfg(test)]
mod tests;
