//! References of metrics to metrics.

use super::{
    super::{Catalogue, Chip, Hardware, Metric},
    merged, metric_text,
};

const HEAD: &str = r#"
name = "mine"
title = "Mine"
platforms = ["spr"]
document = "my notes"
[pmu.core]
pattern = "{core}"
per = "cpu"
[pmu.core.events]
CYCLES = { perf = "cycles", count = "cycle" }
INSTRUCTIONS = { perf = "instructions", count = "instruction" }
MISSES = { perf = "cache-misses", count = "event" }
"#;

fn merge(metrics: &[(&str, &str)]) -> Result<Catalogue, String> {
    let mut text = HEAD.to_owned();
    for (name, formula) in metrics {
        text += &metric_text(name, ["1", "ratio"], formula, "");
    }
    merged(&text)
}

fn metric(catalogue: &Catalogue, name: &str) -> Metric {
    let machine = Hardware::of_chip(Chip::named("sapphire-rapids").unwrap());
    catalogue.select(name, &machine).unwrap()[0].clone()
}

/// The metrics may be in any order, and name each other over any number of steps.
#[test]
fn a_formula_may_name_metrics_of_its_file() {
    let catalogue = merge(&[
        ("twice", "2 * my_cpi + my_cpi"),
        ("my_cpi", "1 / my_ipc"),
        ("my_ipc", "INSTRUCTIONS / CYCLES"),
    ])
    .unwrap();
    let twice = metric(&catalogue, "twice");
    assert_eq!(
        twice.formula.text(),
        "2 * (1 / (INSTRUCTIONS / CYCLES)) + (1 / (INSTRUCTIONS / CYCLES))"
    );
    assert_eq!(twice.formula.events(), ["INSTRUCTIONS", "CYCLES"]);
    assert_eq!(twice.pmu.key, "core");
}

/// All events of the formula must then be of that metric's PMU.
#[test]
fn a_formula_may_name_a_metric_of_another_file() {
    let metric = metric(&merge(&[("cpi", "1 / ipc")]).unwrap(), "cpi");
    assert_eq!(
        metric.formula.text(),
        "1 / (INST_RETIRED.ANY / CPU_CLK_UNHALTED.THREAD)"
    );
    let perf = &metric.pmu.events["INST_RETIRED.ANY"].perf;
    assert_eq!(perf, "{pmu}/event=0xc0,umask=0x00/");
}

#[test]
fn invalid_references_are_refused_in_a_sentence() {
    let refusal = |metrics: &[(&str, &str)]| merge(metrics).err().unwrap();
    assert_eq!(
        refusal(&[("a", "b + 1"), ("b", "c"), ("c", "a / CYCLES")]),
        "catalogue mine.toml: metric a: its formula needs its own value: a -> b -> c -> a; write \
         one of them over events (line 14)"
    );
    assert_eq!(
        refusal(&[("a", "1 + a")]),
        "catalogue mine.toml: metric a: its formula needs its own value: a -> a; write one of \
         them over events (line 14)"
    );
    assert_eq!(
        refusal(&[("a", "1 + scf_cycles")]),
        "catalogue mine.toml: metric a: scf_cycles is a metric, but not of all platforms of this \
         file: a formula cannot name it (line 14)"
    );
    // The events are not in one group, so no ratio of them is exact.
    let message = refusal(&[("a", "MISSES / ipc")]);
    assert!(message.contains("of two PMUs"), "{message}");
    // Each of 20 steps doubles the length of the formula.
    let names: Vec<(String, String)> = (0..20)
        .map(|n| (format!("m{n}"), format!("m{0} + m{0}", n + 1)))
        .chain([("m20".to_owned(), "CYCLES".to_owned())])
        .collect();
    let metrics: Vec<(&str, &str)> = names.iter().map(|(a, b)| (&**a, &**b)).collect();
    let message = refusal(&metrics);
    assert!(message.contains("64000 are the limit"), "{message}");
}
