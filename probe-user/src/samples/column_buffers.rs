//! Buffers of a row group, one for each column. They do not allocate per value, and their loop over
//! samples does not branch on whether a value is missing.

use std::{collections::HashMap, sync::Arc};

use super::Sample;

/// Which rows of a column have a value. Most columns have a value in every row, or in none; levels
/// of single rows are kept only for the others.
#[derive(Debug, Default)]
pub(super) struct Presence {
    rows: usize,
    present: usize,
    each: Vec<i16>,
}

/// Definition levels of a column's rows.
#[derive(Clone, Copy)]
pub(super) enum Levels<'a> {
    None(usize),
    All(usize),
    /// 1 for each row with a value, 0 for one without.
    Some(&'a [i16]),
}

impl Presence {
    pub(super) fn add(&mut self, rows: usize, present: usize, each: impl Iterator<Item = bool>) {
        let before = (self.rows, i16::from(self.present > 0));
        self.rows += rows;
        self.present += present;
        if let Levels::Some(_) = self.levels() {
            if self.each.is_empty() {
                self.each.resize(before.0, before.1);
            }
            self.each.extend(each.map(i16::from));
        }
    }

    pub(super) fn levels(&self) -> Levels<'_> {
        match self.present {
            0 => Levels::None(self.rows),
            present if present == self.rows => Levels::All(self.rows),
            _ => Levels::Some(&self.each),
        }
    }

    fn clear(&mut self) {
        (self.rows, self.present) = (0, 0);
        self.each.clear();
    }
}

/// The non-null values of a column.
#[derive(Debug, Default)]
pub(super) struct ColumnBuffer<T> {
    pub(super) values: Vec<T>,
    pub(super) presence: Presence,
}

impl<T: Copy + Default> ColumnBuffer<T> {
    #[inline]
    pub(super) fn extend(&mut self, samples: &[Sample], mut get: impl FnMut(&Sample) -> Option<T>) {
        let from = self.values.len();
        self.values.resize(from + samples.len(), T::default());
        let values = &mut self.values[from..];
        let mut present = 0;
        for sample in samples {
            let value = get(sample);
            // A missing value is overwritten by the next one.
            values[present] = value.unwrap_or_default();
            present += usize::from(value.is_some());
        }
        self.values.truncate(from + present);
        let each = samples.iter().map(|sample| get(sample).is_some());
        self.presence.add(samples.len(), present, each);
    }

    /// Removes the values, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.presence.clear();
    }
}

/// How a sample gets its name in a column.
#[derive(Clone, Copy)]
pub(super) struct NameLookup {
    /// A number below [`KEYS`] that determines the name.
    pub(super) key: fn(&Sample) -> Option<u16>,
    pub(super) name: fn(&Sample) -> Option<&'static str>,
}

/// Number of possible keys.
pub(super) const KEYS: usize = 1024;

/// The key's name was not looked up yet.
const UNKNOWN: u16 = u16::MAX;
/// The key has no name.
const NAMELESS: u16 = u16::MAX - 1;

/// A column of few distinct names: rows have indices into `distinct`. The names stay for the next
/// row group.
#[derive(Debug)]
pub(super) struct NameBuffer {
    pub(super) indices: ColumnBuffer<u16>,
    pub(super) distinct: Vec<&'static str>,
    by_key: Box<[u16; KEYS]>,
}

impl Default for NameBuffer {
    fn default() -> Self {
        Self {
            indices: ColumnBuffer::default(),
            distinct: Vec::new(),
            by_key: Box::new([UNKNOWN; KEYS]),
        }
    }
}

impl NameBuffer {
    pub(super) fn extend(&mut self, samples: &[Sample], lookup: NameLookup) {
        let Self {
            indices,
            distinct,
            by_key,
        } = self;
        indices.extend(samples, |sample| {
            let known = &mut by_key[usize::from((lookup.key)(sample)?) % KEYS];
            if *known == UNKNOWN {
                *known = (lookup.name)(sample).map_or(NAMELESS, |name| index(distinct, name));
            }
            (*known != NAMELESS).then_some(*known)
        });
    }
}

fn index(distinct: &mut Vec<&'static str>, name: &'static str) -> u16 {
    let at = distinct
        .iter()
        .position(|distinct| *distinct == name)
        .unwrap_or_else(|| {
            distinct.push(name);
            distinct.len() - 1
        });
    u16::try_from(at).expect("fewer names than keys")
}

/// A column of repeated texts: rows have indices into `distinct`, which has each text once.
#[derive(Debug, Default)]
pub(super) struct TextBuffer {
    pub(super) indices: ColumnBuffer<u16>,
    pub(super) distinct: Vec<Arc<str>>,
    by_text: HashMap<Arc<str>, u16>,
    last: Option<(Arc<str>, u16)>,
}

impl TextBuffer {
    pub(super) fn extend(&mut self, samples: &[Sample], get: fn(&Sample) -> Option<&Arc<str>>) {
        let mut indices = std::mem::take(&mut self.indices);
        indices.extend(samples, |sample| get(sample).map(|text| self.index(text)));
        self.indices = indices;
    }

    fn index(&mut self, text: &Arc<str>) -> u16 {
        match &self.last {
            Some((last, index)) if Arc::ptr_eq(last, text) => *index,
            _ => {
                let index = *self.by_text.entry(Arc::clone(text)).or_insert_with(|| {
                    self.distinct.push(Arc::clone(text));
                    u16::try_from(self.distinct.len() - 1)
                        .expect("no more than rows of a row group")
                });
                self.last = Some((Arc::clone(text), index));
                index
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.indices.clear();
        self.distinct.clear();
        self.by_text.clear();
        self.last = None;
    }
}
