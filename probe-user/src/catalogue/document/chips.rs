//! The page of chips: how each chip is identified, and which metrics have a value on it.

use super::{GENERATED_MARK, push_line, with_final_break};
use crate::catalogue::{
    Catalogue,
    chip::{Chip, Platform},
    hardware::Hardware,
    platform::Models,
};

const HEAD: &str = "\
`--chip` sets the chip. Without it, pmuscope looks for the evidence in this table, from left to
right; a machine that fits no row has only the generic metrics. The number of sockets and the GPUs
on PCI identify the chip of a platform; where these fit none, no metric is ruled out.

| platform | chips (`--chip`) | PMUs | SoC | PMUs without a name | core or CPU |
|---|---|---|---|---|---|
";

const NOT_BY_PMUS: &str = "
The PMUs of Grace do not identify the chip: NVLink-C2C1 and CNVLINK are registered on chips that do
not use them, and count zero there.

";

/// The whole page.
pub(super) fn page(catalogue: &Catalogue) -> String {
    let mut out = format!("# Which chip this is\n\n{GENERATED_MARK}\n\n{HEAD}");
    for platform in Platform::all() {
        push_line(&mut out, &platform_row(*platform));
    }
    out.push_str(NOT_BY_PMUS);
    for chip in Chip::all().iter().filter(|chip| chip.spec().coverage) {
        metrics_table(&mut out, catalogue, *chip);
    }
    with_final_break(out)
}

/// A platform's row of the table of evidence.
fn platform_row(platform: Platform) -> String {
    let spec = platform.spec();
    let joined = |items: Vec<String>| match items.is_empty() {
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
        let models = cpus
            .models
            .iter()
            .map(|models| match models {
                Models::One(one) => format!("{one:#x}"),
                Models::Range(first, last) => format!("{first:#x} to {last:#x}"),
            })
            .collect::<Vec<_>>()
            .join(", ");
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
        joined(chips.collect()),
        joined(pmus.collect()),
        joined(spec.soc.iter().map(|soc| format!("`{soc}`")).collect()),
        joined(products.collect()),
        joined(midr.chain(cpus).collect()),
    )
}

/// Writes a chip's table of uncore metrics: those with a value on it, and those without.
fn metrics_table(out: &mut String, catalogue: &Catalogue, chip: Chip) {
    let machine = Hardware::of_chip(chip);
    push_line(out, &format!("## {} (`{chip}`)\n", chip.title()));
    push_line(
        out,
        "| PMU | metrics with a value | metrics without, and why |",
    );
    push_line(out, "|---|---|---|");
    for family in catalogue.families() {
        let metrics = catalogue
            .on(&machine)
            .into_iter()
            .filter(|metric| metric.family.name == family.name && !metric.pmu.pattern.is_core());
        let (mut valid, mut by_reason) = (Vec::new(), Vec::<(String, Vec<String>)>::new());
        for metric in metrics {
            let name = format!("`{}`", metric.name);
            match metric.not_on.get(&chip) {
                Some(why) => match by_reason.iter_mut().find(|(reason, _)| reason == why) {
                    Some((_, names)) => names.push(name),
                    None => by_reason.push((why.clone(), vec![name])),
                },
                None => valid.push(name),
            }
        }
        if valid.is_empty() && by_reason.is_empty() {
            continue;
        }
        let invalid: Vec<String> = by_reason
            .into_iter()
            .map(|(why, names)| format!("{}: {why}", names.join(", ")))
            .collect();
        let or_dash = |text: String| {
            if text.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };
        push_line(
            out,
            &format!(
                "| {} | {} | {} |",
                family.title,
                or_dash(valid.join(", ")),
                or_dash(invalid.join("; "))
            ),
        );
    }
    out.push('\n');
}
