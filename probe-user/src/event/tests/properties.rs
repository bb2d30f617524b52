//! Properties that hold for every input.

use proptest::prelude::*;

use super::{machine, parse};
use crate::{
    event::syntax::{self, EventHead, ListItem, WrittenEvent},
    machine::{
        FieldFormat, Word,
        terms::{self, Term},
    },
};

fn word() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}"
}

fn modifiers() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_]{0,3}"
}

fn term() -> impl Strategy<Value = Term> {
    (word(), prop::option::of("[^,/={}\\s\\p{Cc}]{1,6}"))
        .prop_map(|(name, value)| Term { name, value })
}

fn event() -> impl Strategy<Value = WrittenEvent> {
    let terms = prop::collection::vec(term(), 1..4);
    let head = prop_oneof![
        word().prop_map(EventHead::Name),
        (word(), terms).prop_map(|(pmu, terms)| EventHead::Pmu { pmu, terms }),
    ];
    (head, modifiers()).prop_map(|(head, modifiers)| WrittenEvent { head, modifiers })
}

fn item() -> impl Strategy<Value = ListItem> {
    prop_oneof![
        event().prop_map(ListItem::Event),
        (prop::collection::vec(event(), 1..4), modifiers())
            .prop_map(|(events, modifiers)| ListItem::Group { events, modifiers }),
    ]
}

fn format() -> impl Strategy<Value = FieldFormat> {
    let ranges = prop::collection::vec((0..64_u32, 0..64_u32), 1..6);
    (prop::sample::select(&Word::ALL[..]), ranges).prop_map(|(word, ranges)| {
        let ranges: Vec<String> = ranges
            .into_iter()
            .map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)))
            .collect();
        format!("{}:{}", word.name(), ranges.join(","))
            .parse()
            .unwrap()
    })
}

proptest! {
    #[test]
    fn printing_and_parsing_gives_the_tree_back(items in prop::collection::vec(item(), 1..4)) {
        let text: Vec<String> = items.iter().map(ToString::to_string).collect();
        prop_assert_eq!(syntax::parse(&text.join(",")).unwrap(), items);
    }

    #[test]
    fn spaces_between_events_change_nothing(items in prop::collection::vec(item(), 1..4)) {
        let text: Vec<String> = items.iter().map(|item| format!(" {item}\t")).collect();
        prop_assert_eq!(syntax::parse(&text.join(",")).unwrap(), items);
    }

    #[test]
    fn scattered_values_gather_again(format in format(), value: u64, other: u64) {
        let value = value & format.max();
        let scattered = format.scatter(value).unwrap();
        prop_assert_eq!(scattered & !format.mask(), 0, "only its own bits");
        prop_assert_eq!(format.gather(scattered | other & !format.mask()), value);
    }

    #[test]
    fn values_that_do_not_fit_are_refused(format in format()) {
        prop_assert_eq!(format.scatter(format.max()), Some(format.mask()));
        if let Some(above) = format.max().checked_add(1) {
            prop_assert_eq!(format.scatter(above), None);
        }
    }

    #[test]
    fn formats_print_as_they_are_read(format in format()) {
        prop_assert_eq!(format.to_string().parse::<FieldFormat>().unwrap(), format);
    }

    #[test]
    fn no_format_panics(text in "(config[0-4]?:)?[-0-9,:a-z]{0,12}") {
        let _ = text.parse::<FieldFormat>();
    }

    #[test]
    fn numbers_read_as_they_print(number: u64) {
        for text in [number.to_string(), format!("{number:#x}"), format!("0X{number:X}")] {
            prop_assert_eq!(terms::number(&text), Some(number));
        }
        prop_assert_eq!(terms::number(&format!("+{number}")), None);
        prop_assert_eq!(terms::number(&format!("{number}h")), None);
    }
}

proptest! {
    // Each case resolves a list against a whole machine.
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_input_panics(text in "\\PC{0,30}") {
        PMUS.with(|pmus| { let _ = parse(&text, pmus); });
    }

    /// Pieces of correct lists in any order reach more of the code than random text.
    #[test]
    fn no_mix_of_list_pieces_panics(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12),
    ) {
        PMUS.with(|pmus| { let _ = parse(&pieces.concat(), pmus); });
    }
}

const PIECES: &[&str] = &[
    "{",
    "}",
    "/",
    ",",
    ":",
    "=",
    " ",
    "u",
    "k",
    "p",
    "cycles",
    "task-clock",
    "L1-dcache",
    "-load",
    "-misses",
    "split",
    "armv8_cortex_a55",
    "badformat",
    "emptymask",
    "event",
    "flag",
    "plain",
    "stranger",
    "config1",
    "name",
    "period",
    "0x",
    "0xfff",
    "99999999999999999999",
    "r",
    "ff",
    "duration_time",
    "é",
    "_",
    ".",
    "\n",
];

thread_local! {
    static PMUS: crate::machine::Pmus = machine("odd");
}
