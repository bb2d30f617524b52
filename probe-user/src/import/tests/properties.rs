//! No input makes reading, computing or printing panic.

use proptest::prelude::*;

use super::{
    super::{derive, json, read, table},
    CATALOGUE,
};
use crate::catalogue::{Hardware, Platform};

fn read_derive_and_print(text: &str) {
    let Ok(readings) = read(text) else { return };
    for platform in [
        Platform::named("grace").unwrap(),
        Platform::named("spr").unwrap(),
    ] {
        if let Ok(derived) = derive(&CATALOGUE, &Hardware::of_platform(platform), &readings) {
            table(&mut Vec::new(), &derived).unwrap();
            json(&mut Vec::new(), &derived).unwrap();
        }
    }
}

fn event() -> impl Strategy<Value = String> {
    let events = CATALOGUE.families().flat_map(|family| {
        family.pmus.iter().flat_map(|pmu| {
            pmu.events.iter().flat_map(|(name, event)| {
                [
                    name.clone(),
                    event.perf.replace("{pmu}", "nvidia_scf_pmu_0"),
                ]
            })
        })
    });
    prop::sample::select(events.collect::<Vec<_>>())
}

/// Words of perf's output, and similar ones.
const WORDS: &[&str] = &[
    "",
    "msec",
    "MiB",
    "<not counted>",
    "S0",
    "CPU1",
    "a/b",
    "{",
    "}",
    "duration_time",
    "seconds",
    "1e300",
    "é/é,é/",
    "Performance counter stats for 'x':",
    "0.5 seconds time elapsed",
    "0.100268289",
    "1\u{202f}234",
    "# 1.23",
    "(83.33%)",
    "( +-  0.1% )",
    "\x1b[1m",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_is_handled(text in "\\PC{0,200}") {
        read_derive_and_print(&text);
    }

    #[test]
    fn similar_inputs_are_handled(
        fields in prop::collection::vec(
            prop_oneof![
                event(),
                "[0-9]{1,20}(\\.[0-9]{1,3})?",
                prop::sample::select(WORDS).prop_map(str::to_owned),
            ],
            0..12,
        ),
        separator in prop::sample::select(&[",", "=", "\n", " "][..]),
    ) {
        read_derive_and_print(&fields.join(separator));
    }

    #[test]
    fn known_events_are_handled(pairs in prop::collection::vec((event(), any::<f64>()), 1..8)) {
        let line = |(event, value): &(_, f64)| format!("{event}={}", value.abs());
        let lines: Vec<String> = pairs.iter().map(line).collect();
        read_derive_and_print(&lines.join("\n"));
    }
}
