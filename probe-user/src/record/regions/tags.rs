//! The tagged ranges of one process, as they were at each moment.
//!
//! A tag holds from its time on, until it is ended or replaced: by one of exactly its range (it has
//! another name then), or by one of its own name that overlaps it (it has grown, shrunk or moved).
//! Where several hold an address it belongs to the innermost: the smallest, of these the latest.

use std::{collections::HashSet, sync::Arc};

use super::{
    room::Room,
    set::{Range, Set, Tag},
};

/// Tags of a process that hold at one time, and those that ended lately.
const MOST: usize = 65_536;

/// The tags that a process had before it executed another program, or ended.
#[derive(Clone, Debug)]
struct Past {
    set: Arc<Set>,
    /// Since when and until when, ns of `CLOCK_MONOTONIC`.
    had: std::ops::Range<u64>,
}

/// The tags of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Tags {
    set: Arc<Set>,
    /// Since when the process has had a set of its own, or its parent's, ns of `CLOCK_MONOTONIC`.
    from: u64,
    /// When it was forked, where it began with its parent's: those since then are its own.
    born: Option<u64>,
    /// Those that ended lately.
    ended: Vec<Tag>,
    past: Vec<Past>,
}

/// What a call of `tag_addr` did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// The process's own tags that it ended.
    pub(super) ended: Vec<Tag>,
    /// Tags that there was no room for.
    pub(super) dropped: u64,
}

impl Tags {
    /// Handles a call of `tag_addr`; `name` is none where there is no room for it. Where there is
    /// no room to change tags that a relative shares, the process has none of them from now on.
    pub(super) fn tag(
        &mut self,
        time: u64,
        name: Option<&Arc<str>>,
        (start, end): Range,
        room: &mut Room,
    ) -> Done {
        let mut done = Done::default();
        let Some(mut replaced) = self.set.replaced(name, (start, end)) else {
            return done;
        };
        let begins = start < end && name.is_none_or(|name| !name.is_empty());
        let is_full = replaced.is_empty() && self.set.live.len() >= MOST;
        let new = name.filter(|_| begins && !is_full && room.take(1));
        done.dropped += u64::from(begins && new.is_none());
        if new.is_none() && replaced.is_empty() {
            return done;
        }
        let is_shared = Arc::strong_count(&self.set) > 1;
        if is_shared && !room.take(self.set.live.len()) {
            let own = self.end_all(time);
            done.dropped += self
                .past
                .last()
                .map_or(0, |past| past.set.live.len() as u64);
            done.ended = own;
            replaced.clear();
        }
        let set = Arc::make_mut(&mut self.set);
        set.changes(time);
        for range in replaced {
            if let Some(mut tag) = set.remove(range) {
                tag.until = Some(time.max(tag.since));
                let is_own = self.born.is_none_or(|born| tag.since > born);
                done.ended.extend(is_own.then(|| tag.clone()));
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
        done
    }

    /// Ends all of them. Gives the process's own.
    pub(super) fn end_all(&mut self, time: u64) -> Vec<Tag> {
        let own = self.own().cloned().map(|tag| Tag {
            until: Some(time.max(tag.since)),
            ..tag
        });
        let own = own.collect();
        let set = std::mem::take(&mut self.set);
        if !set.live.is_empty() {
            let had = self.from..time;
            self.past.push(Past { set, had });
        }
        self.from = time;
        own
    }

    /// The name of the innermost tag of an address at a moment, or now.
    pub(super) fn at(&self, address: u64, time: Option<u64>) -> Option<&Arc<str>> {
        let Some(time) = time else {
            return self.set.innermost(address);
        };
        if self.born.is_some_and(|born| time < born) {
            return None;
        }
        let past = self.past.iter().rev();
        let set = if time >= self.from {
            Some(&self.set)
        } else {
            { past }
                .find(|past| past.had.contains(&time))
                .map(|past| &past.set)
        };
        if let Some(set) = set
            && time >= set.changed
        {
            return set.innermost(address);
        }
        // Something changed since then, which is rare: most samples are later.
        let live = set.into_iter().flat_map(|set| set.live.values());
        let holding = live
            .chain(&self.ended)
            .filter(|tag| tag.holds(address, time));
        holding.min_by_key(|tag| tag.rank()).map(|tag| &tag.name)
    }

    /// Forgets tags that ended before `horizon`.
    pub(super) fn forget(&mut self, horizon: u64) {
        self.ended.retain(|tag| !is_old(tag, horizon));
        let over = self.ended.len().saturating_sub(MOST);
        self.ended.drain(..over);
        self.past.retain(|past| past.had.end >= horizon);
    }

    /// Whether [`Self::forget`] has anything to do.
    pub(super) fn has_old(&self, horizon: u64) -> bool {
        let past = self.past.first();
        self.ended.first().is_some_and(|tag| is_old(tag, horizon))
            || self.ended.len() > MOST
            || past.is_some_and(|past| past.had.end < horizon)
    }

    /// Those that hold and are not its parent's.
    pub(super) fn own(&self) -> impl Iterator<Item = &Tag> {
        let born = self.born;
        let live = self.set.live.values();
        live.filter(move |tag| born.is_none_or(|born| tag.since > born))
    }

    /// How many hold.
    pub(super) fn count(&self) -> usize {
        self.set.live.len()
    }

    /// How many are kept, without those of the sets in `counted`, to which its own are added.
    pub(super) fn kept(&self, counted: &mut HashSet<usize>) -> usize {
        let past = self.past.iter().map(|past| &past.set);
        let sets = past.chain([&self.set]);
        let new = sets.filter(|set| counted.insert(Arc::as_ptr(set).addr()));
        self.ended.len() + new.map(|set| set.live.len()).sum::<usize>()
    }

    /// As a child has them that is forked at this moment.
    pub(super) fn forked(&self, time: u64) -> Self {
        Self {
            set: Arc::clone(&self.set),
            from: time,
            born: Some(time),
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
            let done = tags.tag(
                *time,
                Some(&Arc::from(*name)),
                (*start, *end),
                &mut Room::of(99),
            );
            assert_eq!(done.dropped, 0);
        }
        tags
    }

    fn at(tags: &Tags, address: u64, time: u64) -> Option<&str> {
        tags.at(address, Some(time)).map(|name| &**name)
    }

    #[test]
    fn an_address_is_of_its_innermost_tag() {
        let tags = tags(&[(1, "arena", 0, 100), (2, "b", 40, 60), (3, "a", 45, 50)]);
        assert_eq!(at(&tags, 47, 9), Some("a"));
        assert_eq!(at(&tags, 50, 9), Some("b"));
        assert_eq!(at(&tags, 60, 9), Some("arena"));
        assert_eq!(at(&tags, 100, 9), None);
        // As it was before the inner ones.
        assert_eq!(at(&tags, 47, 2), Some("b"));
        assert_eq!(at(&tags, 47, 1), Some("arena"));
        assert_eq!(at(&tags, 47, 0), None);
    }

    #[test]
    fn a_range_that_is_tagged_again_has_another_name() {
        let tags = tags(&[(1, "old", 10, 20), (5, "new", 10, 20)]);
        assert_eq!(at(&tags, 10, 4), Some("old"));
        assert_eq!(at(&tags, 10, 5), Some("new"));
        assert_eq!(tags.own().count(), 1);
    }

    #[test]
    fn a_name_moves_where_it_overlaps_and_has_several_ranges_elsewhere() {
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
        let tags_left = tags(&by_range);
        // What reaches out of the range goes on.
        assert_eq!(at(&tags_left, 10, 2), Some("ab"));
        assert_eq!(at(&tags_left, 20, 2), Some("b"));
        let by_name = [&calls[..], &[(2, "ab", 0, 0)]].concat();
        let tags_left = tags(&by_name);
        assert_eq!(at(&tags_left, 10, 2), Some("a"));
        assert_eq!(tags_left.own().count(), 2);
    }

    #[test]
    fn a_child_has_the_tags_of_its_parent() {
        let parent = tags(&[(1, "a", 10, 20)]);
        let child = parent.forked(7);
        assert_eq!(at(&child, 10, 7), Some("a"));
        assert_eq!(at(&child, 10, 6), None);
    }

    /// What the documentation says, call by call and tag by tag.
    fn plainly(calls: &[(&str, u64, u64)], address: u64, time: u64) -> Option<String> {
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
        fn regions_are_those_of_the_plain_rules_at_each_moment(
            calls in prop::collection::vec(
                (prop::sample::select(&["", "a", "b", "c", "d"]), 0..24_u64, 0..24_u64),
                1..40,
            ),
            forks: usize,
        ) {
            let call = |tags: &mut Tags, at: usize| {
                let (name, start, end) = calls[at];
                let (name, room) = (Arc::from(name), &mut Room::of(99));
                tags.tag(at as u64, Some(&name), (start, end), room).dropped
            };
            // The parent goes on, its child does the same, and executes another program at last.
            let forks = forks % calls.len();
            let mut parent = Tags::default();
            for at in 0..forks {
                prop_assert_eq!(call(&mut parent, at), 0);
            }
            let mut child = parent.forked(forks as u64);
            for at in forks..calls.len() {
                prop_assert_eq!(call(&mut parent, at) + call(&mut child, at), 0);
            }
            let own: Vec<Tag> = child.own().cloned().collect();
            prop_assert_eq!(child.end_all(calls.len() as u64).len(), own.len());
            prop_assert!(own.iter().all(|tag| tag.since > forks as u64 || forks == 0));
            for time in 0..calls.len() as u64 {
                for address in 0..25 {
                    let expected = plainly(&calls, address, time);
                    let found = at(&parent, address, time).map(str::to_owned);
                    prop_assert_eq!(&found, &expected, "{} at {}", address, time);
                    if time > forks as u64 {
                        let found = at(&child, address, time).map(str::to_owned);
                        prop_assert_eq!(&found, &expected, "{} at {}", address, time);
                    }
                }
            }
            prop_assert_eq!(child.at(0, None), None);
        }
    }
}
