//! Counts of this process that go on from session to session ([`ProcessCounts`]).

use crate::{
    names::resolver::{Resolver, ResolverHealth},
    sys::bpf,
};

/// Counts of this process. A session reports them since it began, as all of its counts: whoever
/// adds up the sessions of a process counts nothing twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCounts {
    /// Map calls that were repeated because the map was busy.
    pub(super) map_retries: u64,
    /// Counts of requests for names to runtimes; None without a resolver.
    pub(super) names: Option<ResolverHealth>,
}

impl ProcessCounts {
    /// The counts since the process and the resolver started.
    pub(super) fn now(resolver: Option<&Resolver>) -> Self {
        Self {
            map_retries: bpf::retries(),
            names: resolver.map(Resolver::health),
        }
    }

    /// The counts since earlier ones of the same resolver.
    pub(super) fn since(self, earlier: &Self) -> Self {
        let names_before = earlier.names.unwrap_or_default();
        Self {
            map_retries: self.map_retries - earlier.map_retries,
            names: self.names.map(|names| names.since(&names_before)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second session with the same resolver begins at 0, except for what is true now.
    #[test]
    fn counts_of_a_session_begin_at_0() {
        let counts = |answers, map_retries| ProcessCounts {
            map_retries,
            names: Some(ResolverHealth {
                answers,
                errors: 2,
                timeouts: 3,
                known: 4,
                waiting: 5,
                refused: 6,
                cut: 7,
                not_asked: 8,
            }),
        };
        let before = counts(10, 20);
        let added = counts(11, 22).since(&before);
        let names = ResolverHealth {
            answers: 1,
            known: 4,
            waiting: 5,
            ..ResolverHealth::default()
        };
        let expected = ProcessCounts {
            map_retries: 2,
            names: Some(names),
        };
        assert_eq!(added, expected);
    }
}
