//! The catalogue as docs/metrics.md.

use std::fmt::Write as _;

use super::{
    Catalogue,
    chip::{Chip, Hardware, Models, Platform},
    model::{Family, Metric, Per, PmuSpec},
};
use crate::formula::Implicit;

const HEAD: &str = "\
# Metrics

<!-- Made by `cargo xtask docs` from probe-user/catalogue/*.toml: edit those. -->

Every metric that pmuscope computes, with its formula, the events it needs and the document it
comes from. `pmuscope stat -M NAME`, `-M group:NAME` or `-M all` counts them, `pmuscope derive`
computes them from counts taken elsewhere, `--catalogue FILE` adds some of your own: the format is
that of the files in probe-user/catalogue, described in probe-user/src/catalogue/mod.rs.

## How a value comes about

All events of a metric are counted in one group, so that a ratio is exact however the groups take
turns. Core metrics have a value for each container: counts are scaled by enabled / running time on
each CPU and then added up, and time is the wall time of the window; `rel_error` is the error of that
([accuracy.md](accuracy.md)). Uncore metrics have a value for each socket or device: counts stay as
they are, and time is the running time of their group.

Metrics of SPE are estimates of samples, with a value for each container; asking for one starts the
sampling ([spe.md](spe.md)).

A value that cannot be had is absent, never zero and never clamped. The reasons are: an event was
not counted; a counter never ran, or for so little time that most is unknown; the denominator is
zero; a share is above its largest possible value because its denominator is too small, or because
its events do not count the same things; the chip has no such value; a quantity is not known.

Formulas have `+ - * /`, parentheses, numbers, event names, `min(a, b)`, `max(a, b)`,
`a if condition else b`, and these quantities:

";

const CHIPS: &str = "\
## Which chip this is

`--chip` says it. Without it, pmuscope goes by what this table has, the first column that tells first; what fits
no row has the generic metrics only. Chips of one platform are told by their sockets and the GPUs on PCI; where
these fit none, no metric is ruled out.

| platform | chips (`--chip`) | PMUs | SoC | PMUs without a name | core or CPU |
|---|---|---|---|---|---|
";

const NOT_BY_PMUS: &str = "
The PMUs of Grace do not tell the chip: NVLink-C2C1 and CNVLINK are registered on chips that do not
use them, and count zero there.

";

/// The whole document.
#[must_use]
pub fn markdown(catalogue: &Catalogue) -> String {
    let mut out = HEAD.to_owned();
    for implicit in Implicit::ALL {
        line(&mut out, &format!("- `{implicit}`: {}", describe(implicit)));
    }
    out.push('\n');
    out.push_str(CHIPS);
    for platform in Platform::all() {
        line(&mut out, &tells(*platform));
    }
    out.push_str(NOT_BY_PMUS);
    for chip in Chip::all().iter().filter(|chip| chip.spec().coverage) {
        coverage(&mut out, catalogue, *chip);
    }
    for family in catalogue.families() {
        let metrics = catalogue.metrics();
        let metrics: Vec<&Metric> = metrics
            .filter(|metric| metric.family.name == family.name)
            .collect();
        section(&mut out, family, &metrics);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// A row of the table of platforms; none for what nothing tells.
fn tells(platform: Platform) -> String {
    let spec = platform.spec();
    let list = |items: Vec<String>| match items.is_empty() {
        true => "-".to_owned(),
        false => items.join(", "),
    };
    let chips = platform.chips().map(|chip| {
        let spec = chip.spec();
        let sockets = match spec.sockets {
            None => String::new(),
            Some((1, 1)) => ": 1 socket".to_owned(),
            Some((least, most)) if least == most => format!(": {least} sockets"),
            Some((least, most)) => format!(": {least} to {most} sockets"),
        };
        let gpus = match spec.gpus {
            None => "",
            Some(true) => ", with such GPUs",
            Some(false) => ", without GPU",
        };
        format!("{} (`{chip}`{sockets}{gpus})", spec.title)
    });
    let midr = spec.midr.iter().map(|midr| format!("MIDR {midr:#x}"));
    let cpus = spec.cpus.iter().map(|cpus| {
        let models = cpus.models.iter().map(|models| match models {
            Models::One(one) => format!("{one:#x}"),
            Models::Range(first, last) => format!("{first:#x} to {last:#x}"),
        });
        let models = models.collect::<Vec<_>>().join(", ");
        format!("{} family {:#x} model {models}", cpus.vendor, cpus.family)
    });
    let pmus = spec.pmus.iter().map(|pmu| format!("`{pmu}*`"));
    let products = spec
        .products
        .iter()
        .map(|product| format!("product {product:#x}"));
    format!(
        "| {} | {} | {} | {} | {} | {} |",
        spec.title,
        list(chips.collect()),
        list(pmus.collect()),
        list(spec.soc.iter().map(|soc| format!("`{soc}`")).collect()),
        list(products.collect()),
        list(midr.chain(cpus).collect()),
    )
}

fn describe(implicit: Implicit) -> &'static str {
    match implicit {
        Implicit::DurationTime => "the time in ns",
        Implicit::Seconds => "the time in seconds",
        Implicit::NumCpus => "the CPUs that are counted",
        Implicit::Slots => "what the core can issue per cycle, from sysfs or the catalogue",
        Implicit::NumUnits => "the units of the PMU whose counts were added up",
        Implicit::NumPorts => "the root ports that the filter selects",
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// Which uncore metrics have a value on a chip of Grace.
fn coverage(out: &mut String, catalogue: &Catalogue, chip: Chip) {
    let machine = Hardware::of_chip(chip);
    line(out, &format!("### {} (`{chip}`)\n", chip.title()));
    line(
        out,
        "| PMU | metrics with a value | metrics without, and why |",
    );
    line(out, "|---|---|---|");
    for family in catalogue.families() {
        let metrics = catalogue
            .on(&machine)
            .into_iter()
            .filter(|metric| metric.family.name == family.name && !metric.pmu.pattern.is_core());
        let (mut with, mut without) = (Vec::new(), Vec::<(String, Vec<String>)>::new());
        for metric in metrics {
            let name = format!("`{}`", metric.name);
            match (metric.not_on.get(&chip), metric.valid_on(&machine)) {
                (Some(why), _) => match without.iter_mut().find(|(known, _)| known == why) {
                    Some((_, names)) => names.push(name),
                    None => without.push((why.clone(), vec![name])),
                },
                (None, _) => with.push(name),
            }
        }
        if with.is_empty() && without.is_empty() {
            continue;
        }
        let without: Vec<String> = without
            .into_iter()
            .map(|(why, names)| format!("{}: {why}", names.join(", ")))
            .collect();
        let or_none = |text: String| {
            if text.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };
        line(
            out,
            &format!(
                "| {} | {} | {} |",
                family.title,
                or_none(with.join(", ")),
                or_none(without.join("; "))
            ),
        );
    }
    out.push('\n');
}

fn section(out: &mut String, family: &Family, metrics: &[&Metric]) {
    line(out, &format!("## {} (`{}`)\n", family.title, family.name));
    for pmu in &family.pmus {
        events(out, pmu);
    }
    for metric in metrics {
        entry(out, metric);
    }
}

fn events(out: &mut String, pmu: &PmuSpec) {
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
    line(out, &format!("{text}.\n"));
    line(out, "| event | encoding | one count is | counters |");
    line(out, "|---|---|---|---|");
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
        line(out, &row);
    }
    out.push('\n');
}

fn entry(out: &mut String, metric: &Metric) {
    line(out, &format!("### `{}`\n", metric.name));
    line(
        out,
        &format!("{}, in {}.\n", metric.title, unit(&metric.unit)),
    );
    line(out, &format!("    {}\n", metric.formula.text()));
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
    line(out, &format!("- {}", facts.join("; ")));
    line(
        out,
        &format!("- source: {}: {}", metric.document, metric.section),
    );
    let chips: Vec<&str> = metric.chips().into_iter().map(Chip::title).collect();
    line(out, &format!("- valid on: {}", chips.join("; ")));
    for note in &metric.notes {
        line(out, &format!("- {note}"));
    }
    for (chip, why) in &metric.not_on {
        line(out, &format!("- no value on {}: {why}", chip.title()));
    }
    out.push('\n');
}

fn unit(unit: &str) -> &str {
    match unit {
        "1" => "1 (a plain ratio)",
        unit => unit,
    }
}
