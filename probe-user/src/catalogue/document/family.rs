//! The page of a family: its metrics, then the events that they need.

use std::fmt::Write as _;

use super::{GENERATED_MARK, push_line, with_final_break};
use crate::catalogue::{
    Catalogue,
    chip::{Chip, Platform},
    model::{Family, Metric, Per, PmuSpec},
};

/// The whole page.
pub(super) fn page(catalogue: &Catalogue, family: &Family) -> String {
    let mut out = format!("# {}\n\n{GENERATED_MARK}\n\n", family.title);
    let platforms: Vec<&str> = family
        .platforms
        .iter()
        .map(|platform| platform.spec().title.as_str())
        .collect();
    let is_everywhere = Platform::all().len() == platforms.len();
    match is_everywhere {
        true => push_line(&mut out, "On every platform.\n"),
        false => push_line(&mut out, &format!("On {}.\n", platforms.join(", "))),
    }
    push_line(&mut out, "| metric | what it is | unit | group |");
    push_line(&mut out, "|---|---|---|---|");
    let metrics: Vec<&Metric> = catalogue
        .metrics()
        .filter(|metric| metric.family.name == family.name)
        .collect();
    for metric in &metrics {
        let Metric {
            name,
            title,
            unit,
            group,
            ..
        } = metric;
        push_line(
            &mut out,
            &format!("| [`{name}`](#{name}) | {title} | {unit} | `{group}` |"),
        );
    }
    push_line(&mut out, "\n## Metrics\n");
    for metric in metrics {
        write_metric(&mut out, metric);
    }
    push_line(&mut out, "## Events\n");
    // A PMU without events is in the file only for the devices that it counts.
    for pmu in family.pmus.iter().filter(|pmu| !pmu.events.is_empty()) {
        write_events(&mut out, pmu);
    }
    with_final_break(out)
}

fn write_events(out: &mut String, pmu: &PmuSpec) {
    let per = match pmu.per {
        Per::Cpu => "a value for each container",
        Per::Socket => "a value for each socket",
        Per::Device => "a value for each device",
    };
    let mut text = format!("PMU `{}`: {per}", pmu.pattern);
    if let Some(counters) = pmu.counters {
        let _ = write!(text, ", {counters} events at once");
    }
    if let Some(slots) = pmu.slots {
        let _ = write!(text, ", {slots} slots per cycle");
    }
    for (filter, value) in &pmu.defaults {
        let _ = write!(text, ", `{filter}` is {value:#x} unless asked otherwise");
    }
    push_line(out, &format!("{text}.\n"));
    push_line(out, "| event | encoding | one count is | counters |");
    push_line(out, "|---|---|---|---|");
    for (name, event) in &pmu.events {
        let counters = match (&event.counters, event.fixed) {
            (_, true) => "its own".to_owned(),
            (Some(counters), false) => {
                let counters: Vec<String> = counters.iter().map(u8::to_string).collect();
                counters.join(", ")
            }
            (None, false) => "any".to_owned(),
        };
        let row = format!(
            "| `{name}` | `{}` | {} | {counters} |",
            event.perf, event.count
        );
        push_line(out, &row);
    }
    out.push('\n');
    let mut texts = pmu
        .events
        .iter()
        .filter_map(|(name, event)| Some((name, event.text.as_ref()?)))
        .peekable();
    if texts.peek().is_some() {
        push_line(out, "Meaning of some:\n");
        for (name, text) in texts {
            push_line(out, &format!("- `{name}`: {text}"));
        }
        out.push('\n');
    }
}

fn write_metric(out: &mut String, metric: &Metric) {
    push_line(out, &format!("### `{}`\n", metric.name));
    push_line(
        out,
        &format!("{}, in {}.\n", metric.title, unit_text(&metric.unit)),
    );
    push_line(out, &format!("    {}\n", metric.formula.text()));
    let mut facts = vec![format!("{}, group `{}`", metric.kind, metric.group)];
    if let Some(bound) = metric.bound {
        facts.push(format!("at most {bound}"));
    }
    if !metric.pmu.pattern.is_core() {
        facts.push(format!("apportion: {}", metric.apportion));
    }
    if !metric.aliases.is_empty() {
        facts.push(format!("also named `{}`", metric.aliases.join("`, `")));
    }
    push_line(out, &format!("- {}", facts.join("; ")));
    push_line(
        out,
        &format!("- source: {}: {}", metric.document, metric.section),
    );
    let chips: Vec<&str> = metric.chips().into_iter().map(Chip::title).collect();
    push_line(out, &format!("- valid on: {}", chips.join("; ")));
    for note in &metric.notes {
        push_line(out, &format!("- {note}"));
    }
    for (chip, why) in &metric.not_on {
        push_line(out, &format!("- no value on {}: {why}", chip.title()));
    }
    out.push('\n');
}

fn unit_text(unit: &str) -> &str {
    match unit {
        "1" => "1 (a plain ratio)",
        unit => unit,
    }
}
