//! The tags of one process over time.
//!
//! A tag is active until it is ended or replaced. A tag of exactly the same range replaces it
//! (renames the range), as does an overlapping tag of the same name (grows, shrinks or moves it).
//! An address in several tags belongs to the innermost tag: the smallest, or the latest of those of
//! equal size.

use std::{collections::HashSet, sync::Arc};

use super::{
    limits::EntryBudget,
    tag_set::{Range, Tag, TagSet},
};

/// Maximum number of active tags of a process, and maximum number of its recently ended tags.
const MAX_TAGS: usize = 65_536;

/// The tags that a process had until an exec or its exit.
#[derive(Clone, Debug)]
struct PastTags {
    set: Arc<TagSet>,
    /// When these tags were active, in ns of `CLOCK_MONOTONIC`.
    during: std::ops::Range<u64>,
}

/// The tags of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Tags {
    set: Arc<TagSet>,
    /// Since when `set` applies, in ns of `CLOCK_MONOTONIC`: the last fork or exec, or the time at
    /// which the limits removed all tags.
    from: u64,
    /// When the process was forked with inherited tags, in ns of `CLOCK_MONOTONIC`: later tags are
    /// its own.
    forked_at: Option<u64>,
    /// Tags that ended recently, one by one.
    ended: Vec<Tag>,
    /// Sets of tags that ended recently, all at once.
    past: Vec<PastTags>,
}

/// Result of a call of `tag_addr`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TagOutcome {
    /// Ended tags that were not inherited.
    pub(super) ended: Vec<Tag>,
    /// Number of tags beyond the limits.
    pub(super) dropped: u64,
}

impl Tags {
    /// Handles a call of `tag_addr`; `name` is None for a name beyond the limits. Tags that are
    /// shared with the parent or a child are copied first; if the limits do not allow a copy, the
    /// process loses all of them.
    pub(super) fn tag(
        &mut self,
        time: u64,
        name: Option<&Arc<str>>,
        (start, end): Range,
        budget: &mut EntryBudget,
    ) -> TagOutcome {
        let mut outcome = TagOutcome::default();
        let Some(mut replaced) = self.set.replaced(name, (start, end)) else {
            return outcome;
        };
        let begins = start < end && name.is_none_or(|name| !name.is_empty());
        let is_full = replaced.is_empty() && self.set.active.len() >= MAX_TAGS;
        let new = name.filter(|_| begins && !is_full && budget.reserve(1));
        outcome.dropped += u64::from(begins && new.is_none());
        if new.is_none() && replaced.is_empty() {
            return outcome;
        }
        let is_shared = Arc::strong_count(&self.set) > 1;
        if is_shared && !budget.reserve(self.set.active.len()) {
            let own = self.end_all(time);
            outcome.dropped += self
                .past
                .last()
                .map_or(0, |past| past.set.active.len() as u64);
            outcome.ended = own;
            replaced.clear();
        }
        let set = Arc::make_mut(&mut self.set);
        set.note_change(time);
        for range in replaced {
            if let Some(mut tag) = set.remove(range) {
                tag.until = Some(time.max(tag.since));
                let is_own = self.forked_at.is_none_or(|forked_at| tag.since > forked_at);
                outcome.ended.extend(is_own.then(|| tag.clone()));
                self.ended.push(tag);
            }
        }
        if let Some(name) = new {
            set.add(Tag {
                name: Arc::clone(name),
                start,
                end,
                since: time,
                until: None,
            });
        }
        outcome
    }

    /// Ends all tags. Returns those that were not inherited.
    pub(super) fn end_all(&mut self, time: u64) -> Vec<Tag> {
        let own = self
            .own()
            .cloned()
            .map(|tag| Tag {
                until: Some(time.max(tag.since)),
                ..tag
            })
            .collect();
        let set = std::mem::take(&mut self.set);
        if !set.active.is_empty() {
            let during = self.from..time;
            self.past.push(PastTags { set, during });
        }
        self.from = time;
        own
    }

    /// Name of the innermost tag that contains an address, at a time or now.
    pub(super) fn at(&self, address: u64, time: Option<u64>) -> Option<&Arc<str>> {
        let Some(time) = time else {
            return self.set.innermost(address);
        };
        if self.forked_at.is_some_and(|forked_at| time < forked_at) {
            return None;
        }
        let past = self.past.iter().rev();
        let set = if time >= self.from {
            Some(&self.set)
        } else {
            { past }
                .find(|past| past.during.contains(&time))
                .map(|past| &past.set)
        };
        if let Some(set) = set
            && time >= set.changed
        {
            return set.innermost(address);
        }
        // The set has changed since `time`. This is rare, since most samples are newer than the
        // last change.
        let active = set.into_iter().flat_map(|set| set.active.values());
        let holding = active
            .chain(&self.ended)
            .filter(|tag| tag.holds(address, time));
        holding.min_by_key(|tag| tag.rank()).map(|tag| &tag.name)
    }

    /// Drops tags that ended before `horizon`, and the earliest ended tags beyond [`MAX_TAGS`].
    pub(super) fn forget(&mut self, horizon: u64) {
        self.ended.retain(|tag| !is_old(tag, horizon));
        let excess = self.ended.len().saturating_sub(MAX_TAGS);
        self.ended.drain(..excess);
        self.past.retain(|past| past.during.end >= horizon);
    }

    /// Whether [`Self::forget`] would drop anything.
    pub(super) fn has_old(&self, horizon: u64) -> bool {
        let past = self.past.first();
        self.ended.first().is_some_and(|tag| is_old(tag, horizon))
            || self.ended.len() > MAX_TAGS
            || past.is_some_and(|past| past.during.end < horizon)
    }

    /// Active tags that are not inherited.
    pub(super) fn own(&self) -> impl Iterator<Item = &Tag> {
        let forked_at = self.forked_at;
        let active = self.set.active.values();
        active.filter(move |tag| forked_at.is_none_or(|forked_at| tag.since > forked_at))
    }

    /// Number of active tags.
    pub(super) fn active_count(&self) -> usize {
        self.set.active.len()
    }

    /// Number of stored tags. Sets in `counted` (by address) are not counted again; adds this
    /// process's sets to `counted`.
    pub(super) fn stored(&self, counted: &mut HashSet<usize>) -> usize {
        let past = self.past.iter().map(|past| &past.set);
        let sets = past.chain([&self.set]);
        let new = sets.filter(|set| counted.insert(Arc::as_ptr(set).addr()));
        self.ended.len() + new.map(|set| set.active.len()).sum::<usize>()
    }

    /// The tags of a child that is forked at `time`.
    pub(super) fn forked(&self, time: u64) -> Self {
        Self {
            set: Arc::clone(&self.set),
            from: time,
            forked_at: Some(time),
            ended: Vec::new(),
            past: Vec::new(),
        }
    }
}

fn is_old(tag: &Tag, horizon: u64) -> bool {
    tag.until.is_some_and(|until| until < horizon)
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    fn tags(calls: &[(u64, &str, u64, u64)]) -> Tags {
        let mut tags = Tags::default();
        for (time, name, start, end) in calls {
            let outcome = tags.tag(
                *time,
                Some(&Arc::from(*name)),
                (*start, *end),
                &mut EntryBudget::with_limit(99),
            );
            assert_eq!(outcome.dropped, 0);
        }
        tags
    }

    fn at(tags: &Tags, address: u64, time: u64) -> Option<&str> {
        tags.at(address, Some(time)).map(|name| &**name)
    }

    #[test]
    fn an_address_belongs_to_its_innermost_tag() {
        let tags = tags(&[(1, "arena", 0, 100), (2, "b", 40, 60), (3, "a", 45, 50)]);
        assert_eq!(at(&tags, 47, 9), Some("a"));
        assert_eq!(at(&tags, 50, 9), Some("b"));
        assert_eq!(at(&tags, 60, 9), Some("arena"));
        assert_eq!(at(&tags, 100, 9), None);
        // These times are before the inner tags.
        assert_eq!(at(&tags, 47, 2), Some("b"));
        assert_eq!(at(&tags, 47, 1), Some("arena"));
        assert_eq!(at(&tags, 47, 0), None);
    }

    #[test]
    fn tagging_a_range_again_renames_it() {
        let tags = tags(&[(1, "old", 10, 20), (5, "new", 10, 20)]);
        assert_eq!(at(&tags, 10, 4), Some("old"));
        assert_eq!(at(&tags, 10, 5), Some("new"));
        assert_eq!(tags.own().count(), 1);
    }

    #[test]
    fn a_tag_moves_only_to_an_overlapping_range() {
        let tags = tags(&[(1, "a", 10, 20), (2, "a", 30, 40), (3, "a", 15, 25)]);
        assert_eq!(at(&tags, 12, 2), Some("a"));
        assert_eq!(at(&tags, 12, 3), None);
        assert_eq!(at(&tags, 24, 3), Some("a"));
        assert_eq!(at(&tags, 30, 3), Some("a"));
    }

    #[test]
    fn tags_end_by_range_and_by_name() {
        let calls = [(1, "a", 10, 20), (1, "b", 20, 30), (1, "ab", 10, 30)];
        let by_range = [&calls[..], &[(2, "", 10, 25)]].concat();
        let remaining = tags(&by_range);
        // A tag that extends beyond the range stays.
        assert_eq!(at(&remaining, 10, 2), Some("ab"));
        assert_eq!(at(&remaining, 20, 2), Some("b"));
        let by_name = [&calls[..], &[(2, "ab", 0, 0)]].concat();
        let remaining = tags(&by_name);
        assert_eq!(at(&remaining, 10, 2), Some("a"));
        assert_eq!(remaining.own().count(), 2);
    }

    #[test]
    fn a_child_has_the_tags_of_its_parent() {
        let parent = tags(&[(1, "a", 10, 20)]);
        let child = parent.forked(7);
        assert_eq!(at(&child, 10, 7), Some("a"));
        assert_eq!(at(&child, 10, 6), None);
    }

    /// Name of the tag at an address, by the documented rules: applied call by call and tag by tag.
    fn expected_name(calls: &[(&str, u64, u64)], address: u64, time: u64) -> Option<String> {
        // Name, start, end, and time of each active tag.
        let mut tags: Vec<(String, u64, u64, u64)> = Vec::new();
        for (now, (name, start, end)) in (0..).zip(calls).take_while(|(now, _)| *now <= time) {
            let (start, end) = (*start, *end);
            if start >= end {
                tags.retain(|tag| tag.0 != *name);
            } else if name.is_empty() {
                tags.retain(|tag| tag.1 < start || end < tag.2);
            } else if !tags
                .iter()
                .any(|tag| (&*tag.0, tag.1, tag.2) == (name, start, end))
            {
                tags.retain(|tag| tag.0 != *name || end <= tag.1 || tag.2 <= start);
                tags.retain(|tag| (tag.1, tag.2) != (start, end));
                tags.push(((*name).to_owned(), start, end, now));
            }
        }
        let holding = tags
            .into_iter()
            .filter(|tag| tag.1 <= address && address < tag.2);
        let rank = |tag: &(String, u64, u64, u64)| (tag.2 - tag.1, Reverse(tag.3));
        holding.min_by_key(rank).map(|tag| tag.0)
    }

    proptest! {
        #[test]
        fn names_match_the_documented_rules_at_each_time(
            calls in prop::collection::vec(
                (prop::sample::select(&["", "a", "b", "c", "d"]), 0..24_u64, 0..24_u64),
                1..40,
            ),
            fork_at: usize,
        ) {
            let call = |tags: &mut Tags, at: usize| {
                let (name, start, end) = calls[at];
                let (name, budget) = (Arc::from(name), &mut EntryBudget::with_limit(99));
                tags.tag(at as u64, Some(&name), (start, end), budget).dropped
            };
            // After the fork, parent and child make the same calls. Finally the child executes
            // another program.
            let fork_at = fork_at % calls.len();
            let mut parent = Tags::default();
            for at in 0..fork_at {
                prop_assert_eq!(call(&mut parent, at), 0);
            }
            let mut child = parent.forked(fork_at as u64);
            for at in fork_at..calls.len() {
                prop_assert_eq!(call(&mut parent, at) + call(&mut child, at), 0);
            }
            let own: Vec<Tag> = child.own().cloned().collect();
            prop_assert_eq!(child.end_all(calls.len() as u64).len(), own.len());
            prop_assert!(own.iter().all(|tag| tag.since > fork_at as u64 || fork_at == 0));
            for time in 0..calls.len() as u64 {
                for address in 0..25 {
                    let expected = expected_name(&calls, address, time);
                    let found = at(&parent, address, time).map(str::to_owned);
                    prop_assert_eq!(&found, &expected, "{} at {}", address, time);
                    if time > fork_at as u64 {
                        let found = at(&child, address, time).map(str::to_owned);
                        prop_assert_eq!(&found, &expected, "{} at {}", address, time);
                    }
                }
            }
            prop_assert_eq!(child.at(0, None), None);
        }
    }
}
