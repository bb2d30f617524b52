//! Buffers of a row group, one for each column. They allocate no memory per value, and their loop
//! over samples does not branch on whether a value is missing.

use std::{collections::HashMap, sync::Arc};

use super::Sample;

/// Which rows of a column have a value. Most columns have a value in every row, or in none; only
/// for the remaining columns a level is kept for each row.
#[derive(Debug, Default)]
pub(super) struct Presence {
    rows: usize,
    /// Number of rows with a value.
    present: usize,
    /// As in [`Levels::Some`]; empty if all rows are alike.
    row_levels: Vec<i16>,
}

/// Definition levels of a column's rows.
#[derive(Clone, Copy)]
pub(super) enum Levels<'a> {
    /// Number of rows, all without a value.
    None(usize),
    /// Number of rows, all with a value.
    All(usize),
    /// 1 for each row with a value, 0 for one without.
    Some(&'a [i16]),
}

impl Presence {
    /// Adds `rows` rows, of which `present` have a value; `has_value` says which.
    pub(super) fn add(
        &mut self,
        rows: usize,
        present: usize,
        has_value: impl Iterator<Item = bool>,
    ) {
        let (rows_before, level_before) = (self.rows, i16::from(self.present > 0));
        self.rows += rows;
        self.present += present;
        if let Levels::Some(_) = self.levels() {
            if self.row_levels.is_empty() {
                self.row_levels.resize(rows_before, level_before);
            }
            self.row_levels.extend(has_value.map(i16::from));
        }
    }

    pub(super) fn levels(&self) -> Levels<'_> {
        match self.present {
            0 => Levels::None(self.rows),
            present if present == self.rows => Levels::All(self.rows),
            _ => Levels::Some(&self.row_levels),
        }
    }

    fn clear(&mut self) {
        (self.rows, self.present) = (0, 0);
        self.row_levels.clear();
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
        let old_length = self.values.len();
        self.values.resize(old_length + samples.len(), T::default());
        let values = &mut self.values[old_length..];
        let mut present = 0;
        for sample in samples {
            let value = get(sample);
            // The next value overwrites a missing one.
            values[present] = value.unwrap_or_default();
            present += usize::from(value.is_some());
        }
        self.values.truncate(old_length + present);
        let has_value = samples.iter().map(|sample| get(sample).is_some());
        self.presence.add(samples.len(), present, has_value);
    }

    /// Removes the values, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.presence.clear();
    }
}

/// How to get the name of a sample in a column of names.
#[derive(Clone, Copy)]
pub(super) struct NameLookup {
    /// A number below [`KEYS`] that determines the name.
    pub(super) key: fn(&Sample) -> Option<u16>,
    pub(super) name: fn(&Sample) -> Option<&'static str>,
}

/// Number of possible keys.
pub(super) const KEYS: usize = 1024;

/// The key's name was not looked up yet.
const NOT_LOOKED_UP: u16 = u16::MAX;
/// The key has no name.
const NAMELESS: u16 = u16::MAX - 1;

/// A column of few distinct names: rows have indices into `distinct`. The names stay for the next
/// row group.
#[derive(Debug)]
pub(super) struct NameBuffer {
    pub(super) indices: ColumnBuffer<u16>,
    pub(super) distinct: Vec<&'static str>,
    /// The index of each key's name, [`NOT_LOOKED_UP`] or [`NAMELESS`].
    by_key: Box<[u16; KEYS]>,
}

impl Default for NameBuffer {
    fn default() -> Self {
        Self {
            indices: ColumnBuffer::default(),
            distinct: Vec::new(),
            by_key: Box::new([NOT_LOOKED_UP; KEYS]),
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
            let cached = &mut by_key[usize::from((lookup.key)(sample)?) % KEYS];
            if *cached == NOT_LOOKED_UP {
                *cached = (lookup.name)(sample).map_or(NAMELESS, |name| index(distinct, name));
            }
            (*cached != NAMELESS).then_some(*cached)
        });
    }
}

/// The index of a name in `distinct`; adds the name if it is missing.
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
    /// The last text with its index: most samples have the text of the sample before.
    last: Option<(Arc<str>, u16)>,
}

impl TextBuffer {
    pub(super) fn extend(&mut self, samples: &[Sample], get: fn(&Sample) -> Option<&Arc<str>>) {
        let mut indices = std::mem::take(&mut self.indices);
        indices.extend(samples, |sample| get(sample).map(|text| self.index(text)));
        self.indices = indices;
    }

    /// The index of a text in `distinct`; adds the text if it is missing.
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
