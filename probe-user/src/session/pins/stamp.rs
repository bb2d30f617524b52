//! The stamp of pins: layout, build and plan, encoded in the name of their directory.

use twox_hash::XxHash64;

use crate::{
    machine::Machine,
    session::{Config, object},
    snapshot::layout,
};

/// Prefix of the names of pmuscope's directories. Other programs may have directories beside them.
pub(super) const PREFIX: &str = "session-";

/// The directory's name during the start of a session with new pins.
pub(super) const UNFINISHED: &str = "session-unfinished";

/// Text in place of the build's digest, while programs of one build replace those of another.
const MIXED: &str = "mixed";

/// Identifies what pins contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PinStamp {
    /// Layout of the pinned maps.
    pub(super) layout: String,
    /// Digest of the programs, and of whether they send messages.
    pub(super) build: String,
    /// Digest of what is counted.
    pub(super) plan: String,
}

impl PinStamp {
    /// The stamp of a session of this build.
    pub(super) fn for_config(config: &Config, machine: &Machine) -> Self {
        Self {
            layout: layout(),
            build: digest(&[object::OBJECT, &[u8::from(object::log_is_shown())]].concat()),
            plan: digest(&meaning_of_rows(config, machine)),
        }
    }

    /// The stamp of these pins while they have programs of more than one build. Every build
    /// replaces such programs.
    pub(super) fn mixed(&self) -> Self {
        Self {
            build: MIXED.to_owned(),
            ..self.clone()
        }
    }

    /// The name of the directory. It has no dots, which a bpffs does not allow.
    pub(super) fn name(&self) -> String {
        format!("{PREFIX}{}-{}-{}", self.layout, self.build, self.plan)
    }

    /// Parses a directory's name; None if it is no stamp.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-').map(str::to_owned);
        let stamp = Self {
            layout: parts.next()?,
            build: parts.next()?,
            plan: parts.next()?,
        };
        parts.next().is_none().then_some(stamp)
    }
}

/// Everything that defines the meaning of a row in the pinned maps.
fn meaning_of_rows(config: &Config, machine: &Machine) -> Vec<u8> {
    let plan = &config.plan;
    let groups = plan.groups.iter().map(|group| {
        let events = group.iter().map(|event| (&event.counter, event.exclude));
        events.collect::<Vec<_>>()
    });
    let meaning = (
        groups.collect::<Vec<_>>(),
        plan.rotated,
        config.by_process,
        config.max_rows,
        config.keeps_ledger(machine),
    );
    serde_json::to_vec(&meaning).expect("plain data")
}

fn digest(bytes: &[u8]) -> String {
    format!("{:016x}", XxHash64::oneshot(0, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_parsed_from_its_name() {
        let stamp = PinStamp {
            layout: "1x2x3".into(),
            build: digest(b"build"),
            plan: digest(b"plan"),
        };
        assert_eq!(PinStamp::parse(&stamp.name()), Some(stamp));
        for damaged in [
            UNFINISHED,
            "session-",
            "session-1-2",
            "session-1-2-3-4",
            "x",
        ] {
            assert_eq!(PinStamp::parse(damaged), None, "{damaged}");
        }
    }

    /// A release must find the pins of another release with the same programs.
    #[test]
    fn digests_are_the_same_in_every_build() {
        assert_eq!(digest(b""), "ef46db3751d8e999");
    }
}
