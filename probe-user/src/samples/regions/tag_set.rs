//! The set of active tags, which a parent and its children share.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

/// A named address range, and the time during which it has the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The name.
    pub name: Arc<str>,
    /// The first address of the range.
    pub start: u64,
    /// The first address after the range.
    pub end: u64,
    /// When it became active, in ns of `CLOCK_MONOTONIC`.
    pub since: u64,
    /// When it ended, in ns of `CLOCK_MONOTONIC`; None while it is active.
    pub until: Option<u64>,
}

impl Tag {
    /// Sort key of tags that contain one address: the innermost is first.
    pub(super) fn rank(&self) -> (u64, Reverse<u64>, u64) {
        (self.end - self.start, Reverse(self.since), self.start)
    }

    /// Whether it contained an address at a time.
    pub(super) fn holds(&self, address: u64, time: u64) -> bool {
        (self.start..self.end).contains(&address)
            && self.since <= time
            && self.until.is_none_or(|until| time < until)
    }
}

/// The first address, and the first address after the range.
pub(super) type Range = (u64, u64);

/// Active tags. A child shares its parent's set until the parent or the child changes it.
#[derive(Debug, Default)]
pub(super) struct TagSet {
    pub(super) active: BTreeMap<Range, Tag>,
    /// The ranges of each name: no two of them overlap.
    by_name: HashMap<Arc<str>, BTreeSet<Range>>,
    /// When the set last changed, in ns of `CLOCK_MONOTONIC`.
    pub(super) changed: u64,
    /// Ranges that do not overlap, in order, each with the name of its innermost tag; computed on
    /// demand.
    flat: OnceLock<Vec<(u64, u64, Arc<str>)>>,
}

impl Clone for TagSet {
    /// Clones the tags for a change, without the computed ranges.
    fn clone(&self) -> Self {
        Self {
            active: self.active.clone(),
            by_name: self.by_name.clone(),
            changed: self.changed,
            flat: OnceLock::new(),
        }
    }
}

impl TagSet {
    /// Notes a change at `time`.
    pub(super) fn note_change(&mut self, time: u64) {
        self.changed = self.changed.max(time);
        self.flat.take();
    }

    /// The ranges whose tags a call of `tag_addr` ends; None if the call changes nothing. `name` is
    /// None for a name beyond the limits.
    pub(super) fn replaced(
        &self,
        name: Option<&Arc<str>>,
        (start, end): Range,
    ) -> Option<Vec<Range>> {
        let named = { name.and_then(|name| self.by_name.get(name)) };
        let ranges: Vec<Range> = if start >= end {
            // All ranges with this name.
            named.into_iter().flatten().copied().collect()
        } else if name.is_some_and(|name| name.is_empty()) {
            // All ranges inside the given range.
            let inside = self.active.range((start, 0)..(end, 0));
            inside
                .map(|(range, _)| *range)
                .filter(|range| range.1 <= end)
                .collect()
        } else {
            let exact = self.active.get(&(start, end));
            if exact.is_some_and(|tag| Some(&tag.name) == name) {
                return None;
            }
            let before = named
                .into_iter()
                .flat_map(|ranges| ranges.range(..(end, 0)).rev());
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
        self.active.insert(range, tag);
    }

    pub(super) fn remove(&mut self, range: Range) -> Option<Tag> {
        let tag = self.active.remove(&range)?;
        if let Some(ranges) = self.by_name.get_mut(&tag.name) {
            ranges.remove(&range);
            if ranges.is_empty() {
                self.by_name.remove(&tag.name);
            }
        }
        Some(tag)
    }

    /// Name of the innermost tag that contains an address, since the last change of the set.
    pub(super) fn innermost(&self, address: u64) -> Option<&Arc<str>> {
        let flat = self.flat.get_or_init(|| self.flatten());
        let next = flat.partition_point(|(start, ..)| *start <= address);
        let (_, end, name) = flat.get(next.checked_sub(1)?)?;
        (address < *end).then_some(name)
    }

    /// Computes `flat`.
    fn flatten(&self) -> Vec<(u64, u64, Arc<str>)> {
        // Each edge: its address, whether a tag begins there, and the tag.
        let mut edges: Vec<(u64, bool, &Tag)> = { self.active.values() }
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
