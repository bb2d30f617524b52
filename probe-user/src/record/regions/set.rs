//! Tags that hold together, which relatives share.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

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
    pub(super) fn rank(&self) -> (u64, Reverse<u64>, u64) {
        (self.end - self.start, Reverse(self.since), self.start)
    }

    pub(super) fn holds(&self, address: u64, time: u64) -> bool {
        (self.start..self.end).contains(&address)
            && self.since <= time
            && self.until.is_none_or(|until| time < until)
    }
}

pub(super) type Range = (u64, u64);

/// Tags that hold together. A child shares those of its parent until one of the two changes some.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub(super) live: BTreeMap<Range, Tag>,
    /// The ranges of each name: no two of them overlap.
    by_name: HashMap<Arc<str>, BTreeSet<Range>>,
    /// When it last changed, ns of `CLOCK_MONOTONIC`.
    pub(super) changed: u64,
    /// Ranges that do not overlap, in their order, each with its innermost tag; made when asked
    /// for.
    flat: OnceLock<Vec<(u64, u64, Arc<str>)>>,
}

impl Clone for Set {
    /// To be changed: what is made of the tags is left out.
    fn clone(&self) -> Self {
        Self {
            live: self.live.clone(),
            by_name: self.by_name.clone(),
            changed: self.changed,
            flat: OnceLock::new(),
        }
    }
}

impl Set {
    /// Takes note that it changes.
    pub(super) fn changes(&mut self, time: u64) {
        self.changed = self.changed.max(time);
        self.flat.take();
    }

    /// The ranges that a call of `tag_addr` ends; none where it changes nothing. A name that there
    /// is no room for is none.
    pub(super) fn replaced(
        &self,
        name: Option<&Arc<str>>,
        (start, end): Range,
    ) -> Option<Vec<Range>> {
        let named = { name.and_then(|name| self.by_name.get(name)) };
        let ranges: Vec<Range> = if start >= end {
            // All of its name.
            named.into_iter().flatten().copied().collect()
        } else if name.is_some_and(|name| name.is_empty()) {
            // All inside the range.
            let inside = self.live.range((start, 0)..(end, 0));
            inside
                .map(|(range, _)| *range)
                .filter(|range| range.1 <= end)
                .collect()
        } else {
            let exact = self.live.get(&(start, end));
            if exact.is_some_and(|tag| Some(&tag.name) == name) {
                return None;
            }
            let before = named.into_iter();
            let before = before.flat_map(|ranges| ranges.range(..(end, 0)).rev());
            let overlapping = before.copied().take_while(|range| range.1 > start);
            overlapping.chain(exact.map(|_| (start, end))).collect()
        };
        Some(ranges)
    }

    pub(super) fn add(&mut self, tag: Tag) {
        let range = (tag.start, tag.end);
        self.by_name
            .entry(Arc::clone(&tag.name))
            .or_default()
            .insert(range);
        self.live.insert(range, tag);
    }

    pub(super) fn remove(&mut self, range: Range) -> Option<Tag> {
        let tag = self.live.remove(&range)?;
        if let Some(ranges) = self.by_name.get_mut(&tag.name) {
            ranges.remove(&range);
            if ranges.is_empty() {
                self.by_name.remove(&tag.name);
            }
        }
        Some(tag)
    }

    /// The name of the innermost tag of an address since the last change.
    pub(super) fn innermost(&self, address: u64) -> Option<&Arc<str>> {
        let flat = self.flat.get_or_init(|| self.flatten());
        let behind = flat.partition_point(|(start, ..)| *start <= address);
        let (_, end, name) = flat.get(behind.checked_sub(1)?)?;
        (address < *end).then_some(name)
    }

    fn flatten(&self) -> Vec<(u64, u64, Arc<str>)> {
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
        flat
    }
}
