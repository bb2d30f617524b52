//! The tagged ranges of one process, as they were at each moment.
//!
//! A tag holds from its time on, until it is ended or replaced: by one of exactly its range (it has
//! another name then), or by one of its own name that overlaps it (it has grown, shrunk or moved).
//! Where several hold an address it belongs to the innermost: the smallest, of these the latest.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// Tags of a process that hold at one time, and those that ended lately.
const MOST: usize = 65_536;

/// A range with a name, and when it had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its name.
    pub name: Arc<str>,
    /// Its first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// ns of `CLOCK_MONOTONIC`.
    pub since: u64,
    /// The same; none while it holds.
    pub until: Option<u64>,
}

impl Tag {
    /// The order of tags that hold one address: the innermost is the first.
    fn rank(&self) -> (u64, Reverse<u64>, u64) {
        (self.end - self.start, Reverse(self.since), self.start)
    }

    fn holds(&self, address: u64, time: u64) -> bool {
        (self.start..self.end).contains(&address)
            && self.since <= time
            && self.until.is_none_or(|until| time < until)
    }
}

type Range = (u64, u64);

/// The tags of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Tags {
    live: BTreeMap<Range, Tag>,
    /// The ranges of each name: no two of them overlap.
    by_name: HashMap<Arc<str>, BTreeSet<Range>>,
    /// Those that ended lately.
    ended: Vec<Tag>,
    /// Ranges that do not overlap, in their order, each with its innermost live tag.
    flat: Vec<(u64, u64, Arc<str>)>,
    /// When a tag last began or ended, ns of `CLOCK_MONOTONIC`.
    changed: u64,
    /// `flat` is of before that.
    stale: bool,
}

impl Tags {
    /// Handles a call of `tag_addr`. Gives the tags that it ended; an error where there are too
    /// many to take it.
    pub(super) fn tag(
        &mut self,
        time: u64,
        name: &Arc<str>,
        (start, end): Range,
    ) -> Result<Vec<Tag>, ()> {
        let replaced: Vec<Range> = if start >= end {
            // All of its name.
            self.by_name
                .get(name)
                .into_iter()
                .flatten()
                .copied()
                .collect()
        } else if name.is_empty() {
            // All inside the range.
            let inside = self.live.range((start, 0)..(end, 0));
            inside
                .map(|(range, _)| *range)
                .filter(|range| range.1 <= end)
                .collect()
        } else {
            if self
                .live
                .get(&(start, end))
                .is_some_and(|tag| tag.name == *name)
            {
                return Ok(Vec::new());
            }
            let same = self.by_name.get(name).into_iter();
            let before = same.flat_map(|ranges| ranges.range(..(end, 0)).rev());
            let overlapping = before.copied().take_while(|range| range.1 > start);
            let exact = self
                .live
                .contains_key(&(start, end))
                .then_some((start, end));
            overlapping.chain(exact).collect()
        };
        let begins = start < end && !name.is_empty();
        if begins && replaced.is_empty() && self.live.len() >= MOST {
            return Err(());
        }
        let ended: Vec<Tag> = { replaced.into_iter() }
            .filter_map(|range| self.end(range, time))
            .collect();
        if begins {
            self.by_name
                .entry(Arc::clone(name))
                .or_default()
                .insert((start, end));
            let tag = Tag {
                name: Arc::clone(name),
                start,
                end,
                since: time,
                until: None,
            };
            self.live.insert((start, end), tag);
        }
        if begins || !ended.is_empty() {
            self.changed = self.changed.max(time);
            self.stale = true;
        }
        Ok(ended)
    }

    fn end(&mut self, range: Range, time: u64) -> Option<Tag> {
        let mut tag = self.live.remove(&range)?;
        if let Some(ranges) = self.by_name.get_mut(&tag.name) {
            ranges.remove(&range);
            if ranges.is_empty() {
                self.by_name.remove(&tag.name);
            }
        }
        tag.until = Some(time.max(tag.since));
        self.ended.push(tag.clone());
        Some(tag)
    }

    /// Ends all of them.
    pub(super) fn end_all(&mut self, time: u64) -> Vec<Tag> {
        let ranges: Vec<Range> = self.live.keys().copied().collect();
        self.changed = self.changed.max(time);
        self.stale = true;
        ranges
            .into_iter()
            .filter_map(|range| self.end(range, time))
            .collect()
    }

    /// The name of the innermost tag of an address at a moment, or now.
    pub(super) fn at(&self, address: u64, time: Option<u64>) -> Option<&Arc<str>> {
        if time.is_none_or(|time| time >= self.changed) && !self.stale {
            let behind = self.flat.partition_point(|(start, ..)| *start <= address);
            let (_, end, name) = self.flat.get(behind.checked_sub(1)?)?;
            return (address < *end).then_some(name);
        }
        // Something changed since then, which is rare: most samples are later.
        let time = time.unwrap_or(u64::MAX);
        let all = self.live.values().chain(&self.ended);
        let holding = all.filter(|tag| tag.holds(address, time));
        holding.min_by_key(|tag| tag.rank()).map(|tag| &tag.name)
    }

    /// Makes ready for [`Self::at`]; ended tags are forgotten that ended before `horizon`.
    pub(super) fn settle(&mut self, horizon: u64) {
        let old = |tag: &Tag| tag.until.is_some_and(|until| until < horizon);
        self.ended.retain(|tag| !old(tag));
        let over = self.ended.len().saturating_sub(MOST);
        self.ended.drain(..over);
        if std::mem::take(&mut self.stale) {
            self.flatten();
        }
    }

    /// Whether [`Self::settle`] has anything to do.
    pub(super) fn is_settled(&self, horizon: u64) -> bool {
        let old = |tag: &Tag| tag.until.is_some_and(|until| until < horizon);
        !self.stale && !self.ended.first().is_some_and(old)
    }

    fn flatten(&mut self) {
        // Each edge with the tag that begins or ends there.
        let mut edges: Vec<(u64, bool, &Tag)> = { self.live.values() }
            .flat_map(|tag| [(tag.start, true, tag), (tag.end, false, tag)])
            .collect();
        edges.sort_by_key(|(at, begins, _)| (*at, *begins));
        let mut open: BTreeMap<_, &Tag> = BTreeMap::new();
        let mut flat: Vec<(u64, u64, Arc<str>)> = Vec::new();
        let mut from = 0;
        for (at, begins, tag) in edges {
            if let Some((_, innermost)) = open.first_key_value()
                && from < at
            {
                match flat.last_mut() {
                    Some((_, end, name)) if *end == from && *name == innermost.name => *end = at,
                    _ => flat.push((from, at, Arc::clone(&innermost.name))),
                }
            }
            from = at;
            if begins {
                open.insert(tag.rank(), tag);
            } else {
                open.remove(&tag.rank());
            }
        }
        self.flat = flat;
    }

    /// The tags that hold.
    pub(super) fn live(&self) -> impl Iterator<Item = &Tag> {
        self.live.values()
    }

    /// As a child has them that is forked at this moment.
    pub(super) fn forked(&self, time: u64) -> Self {
        let mut tags = Self {
            live: self.live.clone(),
            by_name: self.by_name.clone(),
            changed: time,
            stale: true,
            ..Self::default()
        };
        for tag in tags.live.values_mut() {
            tag.since = time;
        }
        tags
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tags(calls: &[(u64, &str, u64, u64)]) -> Tags {
        let mut tags = Tags::default();
        for (time, name, start, end) in calls {
            tags.tag(*time, &Arc::from(*name), (*start, *end)).unwrap();
        }
        tags.settle(0);
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
        assert_eq!(tags.live().count(), 1);
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
        assert_eq!(tags_left.live().count(), 2);
    }

    #[test]
    fn a_child_has_the_tags_of_its_parent() {
        let parent = tags(&[(1, "a", 10, 20)]);
        let mut child = parent.forked(7);
        child.settle(0);
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
            settled: bool,
        ) {
            let mut tags = Tags::default();
            for (time, (name, start, end)) in (0..).zip(&calls) {
                tags.tag(time, &Arc::from(*name), (*start, *end)).unwrap();
            }
            if settled {
                tags.settle(0);
            }
            for time in 0..calls.len() as u64 {
                for address in 0..25 {
                    let found = at(&tags, address, time).map(str::to_owned);
                    prop_assert_eq!(found, plainly(&calls, address, time), "{} at {}", address, time);
                }
            }
        }
    }
}
