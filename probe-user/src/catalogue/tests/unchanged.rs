//! The metrics of each chip as a snapshot: a change of the catalogue's format must not change them.

use std::fmt::Write as _;

use super::{
    super::{Chip, Hardware, Platform},
    CATALOGUE,
};

/// Every metric of a chip with its family, and the reason if it has no value there.
fn metrics(chip: Chip) -> String {
    let machine = Hardware::of_chip(chip);
    let mut text = format!(
        "{chip}: {}, platform {}, GPUs per socket {:?}\n",
        chip.title(),
        machine.platform,
        machine.gpus_per_socket
    );
    for metric in CATALOGUE.on(&machine) {
        let value = match metric.valid_on(&machine) {
            Ok(()) => String::new(),
            Err(why) => format!(": {why}"),
        };
        let (family, name) = (&metric.family.name, &metric.name);
        writeln!(text, "  {family} {name}{value}").unwrap();
    }
    text
}

#[test]
fn metrics_of_the_chips() {
    let platform_names = [
        "grace",
        "neoverse-v2",
        "vera",
        "spr",
        "emr",
        "snb",
        "generic",
    ];
    let platforms = platform_names.into_iter().filter_map(Platform::named);
    let text: String = platforms.flat_map(Platform::chips).map(metrics).collect();
    insta::assert_snapshot!(text);
}
