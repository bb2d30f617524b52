//! The catalogue as pages of the documentation: the index docs/reference/metrics.md, and the pages
//! of docs/reference/metrics/.

mod chips;
mod family;
mod questions;

use self::questions::Question;
use super::Catalogue;
use crate::formula::Implicit;

/// A page of the documentation.
#[derive(Debug)]
pub struct Page {
    /// Its path below docs/reference/.
    pub path: String,
    /// Its text, in Markdown.
    pub text: String,
}

const GENERATED_MARK: &str =
    "<!-- Made by `cargo xtask docs` from probe-user/catalogue/*.toml: edit those. -->";

const HEAD: &str = "\
Every metric that pmuscope computes has an entry with its formula, the events it needs and the
document it comes from: [by question](#which-metric-answers), [by family](#families). Which of them
a machine has: `pmuscope list metrics`.

`pmuscope stat -M NAME`, `-M group:NAME` or `-M all` counts them, `pmuscope derive` computes them
from counts taken elsewhere, `--catalogue FILE` adds some of your own: [catalogue](catalogue.md) has
the format of the files.

## Which metric answers

";

const VALUES: &str = "\
## How a value comes about

All events of a metric are counted in one group, so that a ratio is exact however the groups take
turns. Core metrics have a value for each container: counts are scaled by enabled / running time on
each CPU and then added up, and time is the wall time of the window; `counting_error` is the error
of that ([accuracy.md](../how-it-works/accuracy.md)). Uncore metrics have a value for each socket or
device: counts stay as they are, and time is the running time of their group.

Metrics of SPE are estimates from samples, with a value for each container; selecting one starts
the sampling ([spe.md](../how-it-works/spe.md)).

A value that cannot be had is absent, never zero and never clamped. The reasons are: an event was
not counted; a counter never ran, or for so little time that most is unknown; the denominator is
zero; a share is above its largest possible value because its denominator is too small, or because
its events do not count the same things; the chip has no such value; a quantity is not known.

Formulas have `+ - * /`, parentheses, numbers, event names, `min(a, b)`, `max(a, b)`,
`a if condition else b`, and these quantities:

";

/// All pages.
///
/// # Panics
/// On a mistake in catalogue/questions.toml, which is compiled in.
#[must_use]
pub fn pages(catalogue: &Catalogue) -> Vec<Page> {
    let mut pages = vec![
        Page {
            path: "metrics.md".to_owned(),
            text: index(catalogue),
        },
        Page {
            path: "metrics/chips.md".to_owned(),
            text: chips::page(catalogue),
        },
    ];
    pages.extend(catalogue.families().map(|family| Page {
        path: format!("metrics/{}.md", family.name),
        text: family::page(catalogue, family),
    }));
    pages
}

fn index(catalogue: &Catalogue) -> String {
    let mut out = format!("# Metrics\n\n{GENERATED_MARK}\n\n{HEAD}");
    for question in Question::all() {
        question.write(&mut out, catalogue);
    }
    push_line(&mut out, "## Families\n");
    for family in catalogue.families() {
        let metrics = catalogue.metrics();
        let count = metrics.filter(|metric| metric.family.name == family.name);
        let entry = format!(
            "- [{}](metrics/{}.md): {} metrics",
            family.title,
            family.name,
            count.count()
        );
        push_line(&mut out, &entry);
    }
    push_line(
        &mut out,
        "\nHow the chip of a machine is found, and what has no value there: \
        [chips](metrics/chips.md).\n",
    );
    out.push_str(VALUES);
    for implicit in Implicit::ALL {
        push_line(&mut out, &format!("- `{implicit}`: {}", describe(implicit)));
    }
    with_final_break(out)
}

fn describe(implicit: Implicit) -> &'static str {
    match implicit {
        Implicit::DurationTime => "the time in ns",
        Implicit::Seconds => "the time in seconds",
        Implicit::CounterTime => {
            "the time in ns for which the container ran, by the group of the formula's counters"
        }
        Implicit::NumCpus => "the CPUs that are counted",
        Implicit::Slots => "what the core can issue per cycle, from sysfs or the catalogue",
        Implicit::NumUnits => "the units of the PMU whose counts were added up",
        Implicit::NumPorts => "the root ports that the filter selects",
        Implicit::NumSockets => "the sockets whose counts were added up",
        Implicit::SmtOn => "1 if cores run two threads, else 0",
        Implicit::TscFrequency => "Hz of the time stamp counter",
    }
}

fn push_line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// The text, ending in exactly one line break.
fn with_final_break(mut out: String) -> String {
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}
