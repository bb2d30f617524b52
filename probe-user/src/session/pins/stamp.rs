//! What pins are of: the name of their directory says it.

use twox_hash::XxHash64;

use crate::{
    session::{Config, object},
    snapshot::layout,
};

/// How the names of our directories begin: a place may be shared with others.
pub(super) const PREFIX: &str = "session-";

/// The directory of a session that has not started completely.
pub(super) const UNFINISHED: &str = "session-unfinished";

/// In place of a build's digest, while its programs replace those of another.
const MIXED: &str = "mixed";

/// What pins are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// How the pinned maps are read.
    pub(super) layout: String,
    /// The programs, which are others with messages.
    pub(super) build: String,
    /// What is counted.
    pub(super) plan: String,
}

impl Stamp {
    /// That of a session of this program.
    pub(super) fn of(config: &Config) -> Self {
        Self {
            layout: layout(),
            build: digest(&[object::OBJECT, &[u8::from(object::log_is_shown())]].concat()),
            plan: digest(&counted(config)),
        }
    }

    /// That of the same pins with programs of more than one build, which all builds replace.
    pub(super) fn mixed(&self) -> Self {
        Self {
            build: MIXED.to_owned(),
            ..self.clone()
        }
    }

    /// The name of a directory with such pins. A bpffs has no dots in names.
    pub(super) fn name(&self) -> String {
        format!("{PREFIX}{}-{}-{}", self.layout, self.build, self.plan)
    }

    /// None for a name that is no stamp.
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

/// All that decides what a row of the pinned maps means.
fn counted(config: &Config) -> Vec<u8> {
    let plan = &config.plan;
    let groups = plan.groups.iter().map(|group| {
        let events = group.iter().map(|event| (&event.counter, event.exclude));
        events.collect::<Vec<_>>()
    });
    let counted = (
        groups.collect::<Vec<_>>(),
        plan.rotated,
        config.by_process,
        config.max_rows,
    );
    serde_json::to_vec(&counted).expect("plain data")
}

fn digest(bytes: &[u8]) -> String {
    format!("{:016x}", XxHash64::oneshot(0, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let stamp = Stamp {
            layout: "1x2x3".into(),
            build: digest(b"build"),
            plan: digest(b"plan"),
        };
        assert_eq!(Stamp::parse(&stamp.name()), Some(stamp));
        for damaged in [
            UNFINISHED,
            "session-",
            "session-1-2",
            "session-1-2-3-4",
            "x",
        ] {
            assert_eq!(Stamp::parse(damaged), None, "{damaged}");
        }
    }

    /// So that another release of the same programs finds its pins.
    #[test]
    fn a_digest_is_the_same_everywhere() {
        assert_eq!(digest(b""), "ef46db3751d8e999");
    }
}
