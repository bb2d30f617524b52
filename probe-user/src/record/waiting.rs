//! Values that wait for their row group, column by column. Nothing is allocated or compared for a
//! value, and loops over samples do not branch on what is in them.

use std::{collections::HashMap, sync::Arc};

use super::Sample;

/// Which rows of a column have a value. Most columns have one in every row, or in none: only others
/// are told row by row.
#[derive(Debug, Default)]
pub(super) struct Presence {
    rows: usize,
    there: usize,
    each: Vec<i16>,
}

/// The same for those who write it.
#[derive(Clone, Copy)]
pub(super) enum Levels<'a> {
    None(usize),
    All(usize),
    /// 1 for each row with a value, 0 for one without.
    Some(&'a [i16]),
}

impl Presence {
    pub(super) fn add(&mut self, rows: usize, there: usize, each: impl Iterator<Item = bool>) {
        let before = (self.rows, i16::from(self.there > 0));
        self.rows += rows;
        self.there += there;
        if let Levels::Some(_) = self.levels() {
            if self.each.is_empty() {
                self.each.resize(before.0, before.1);
            }
            self.each.extend(each.map(i16::from));
        }
    }

    pub(super) fn levels(&self) -> Levels<'_> {
        match self.there {
            0 => Levels::None(self.rows),
            there if there == self.rows => Levels::All(self.rows),
            _ => Levels::Some(&self.each),
        }
    }

    fn clear(&mut self) {
        (self.rows, self.there) = (0, 0);
        self.each.clear();
    }
}

/// Values of a column: those that are there.
#[derive(Debug, Default)]
pub(super) struct Waiting<T> {
    pub(super) values: Vec<T>,
    pub(super) presence: Presence,
}

impl<T: Copy + Default> Waiting<T> {
    #[inline]
    pub(super) fn extend(&mut self, samples: &[Sample], mut get: impl FnMut(&Sample) -> Option<T>) {
        let from = self.values.len();
        self.values.resize(from + samples.len(), T::default());
        let values = &mut self.values[from..];
        let mut there = 0;
        for sample in samples {
            let value = get(sample);
            // Overwritten by the next one where there is none.
            values[there] = value.unwrap_or_default();
            there += usize::from(value.is_some());
        }
        self.values.truncate(from + there);
        let each = samples.iter().map(|sample| get(sample).is_some());
        self.presence.add(samples.len(), there, each);
    }

    /// Forgets them, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.presence.clear();
    }
}

/// Where the name of a sample in a column comes from.
#[derive(Clone, Copy)]
pub(super) struct Naming {
    /// A number below [`KEYS`] on which alone the name depends.
    pub(super) key: fn(&Sample) -> Option<u16>,
    pub(super) name: fn(&Sample) -> Option<&'static str>,
}

/// Different keys of names.
pub(super) const KEYS: usize = 1024;

/// No name was asked for yet.
const UNKNOWN: u16 = u16::MAX;
/// There is none.
const NAMELESS: u16 = u16::MAX - 1;

/// One of a few names in each row: their numbers in `held`. What is known of them stays from row
/// group to row group.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) numbers: Waiting<u16>,
    pub(super) held: Vec<&'static str>,
    by_key: Box<[u16; KEYS]>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            numbers: Waiting::default(),
            held: Vec::new(),
            by_key: Box::new([UNKNOWN; KEYS]),
        }
    }
}

impl Names {
    pub(super) fn extend(&mut self, samples: &[Sample], naming: Naming) {
        let Self {
            numbers,
            held,
            by_key,
        } = self;
        numbers.extend(samples, |sample| {
            let known = &mut by_key[usize::from((naming.key)(sample)?) % KEYS];
            if *known == UNKNOWN {
                *known = (naming.name)(sample).map_or(NAMELESS, |name| number(held, name));
            }
            (*known != NAMELESS).then_some(*known)
        });
    }
}

fn number(held: &mut Vec<&'static str>, name: &'static str) -> u16 {
    let at = held.iter().position(|held| *held == name);
    let at = at.unwrap_or_else(|| {
        held.push(name);
        held.len() - 1
    });
    u16::try_from(at).expect("fewer names than keys")
}

/// Texts that come again and again: each is held once.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) numbers: Waiting<u16>,
    pub(super) held: Vec<Arc<str>>,
    known: HashMap<Arc<str>, u16>,
    last: Option<(Arc<str>, u16)>,
}

impl Texts {
    pub(super) fn extend(&mut self, samples: &[Sample], get: fn(&Sample) -> Option<&Arc<str>>) {
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.extend(samples, |sample| get(sample).map(|text| self.number(text)));
        self.numbers = numbers;
    }

    fn number(&mut self, text: &Arc<str>) -> u16 {
        match &self.last {
            Some((last, number)) if Arc::ptr_eq(last, text) => *number,
            _ => {
                let number = *self.known.entry(Arc::clone(text)).or_insert_with(|| {
                    self.held.push(Arc::clone(text));
                    u16::try_from(self.held.len() - 1).expect("no more than rows of a row group")
                });
                self.last = Some((Arc::clone(text), number));
                number
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.held.clear();
        self.known.clear();
        self.last = None;
    }
}
