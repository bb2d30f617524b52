//! Tests of the event syntax against the sysfs trees of `tests/fixtures/sysfs`.

mod errors;
mod filters;
mod generic;
mod properties;
mod resolve;
mod strings;
mod sysfs;

use test_support::sysfs;

use super::{Counter, Event, Source, parse};
use crate::machine::Pmus;

/// The PMUs of one of the recorded machines.
fn machine(name: &str) -> Pmus {
    Pmus::read(&sysfs(name)).unwrap()
}

/// The only event of `text`.
fn event(text: &str, pmus: &Pmus) -> Event {
    let groups = parse(text, pmus).unwrap_or_else(|error| panic!("{text}: {error}"));
    let [group] = &groups[..] else {
        panic!("{text} is {} groups", groups.len())
    };
    assert!(!group.explicit, "{text}");
    let [event] = &group.events[..] else {
        panic!("{text} is {} events", group.events.len())
    };
    event.clone()
}

/// The counter of the only event of `text`.
fn counter(text: &str, pmus: &Pmus) -> Counter {
    match event(text, pmus).source {
        Source::Counter(counter) => counter,
        Source::DurationTime => panic!("{text} is the clock"),
    }
}

/// The error message for `text`.
fn refusal(text: &str, pmus: &Pmus) -> String {
    match parse(text, pmus) {
        Ok(groups) => panic!("{text} was taken: {groups:?}"),
        Err(error) => error.to_string(),
    }
}
