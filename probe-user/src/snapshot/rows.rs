//! Rows in the order of their keys ([`UsageRows`]), so that the difference of two snapshots is one
//! walk through both.

use probe_common::{UsageKey, UsageRow};
use serde::{Deserialize, Serialize};

/// Counts by owner, CPU and counter group, in the order of their keys; each key once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(UsageKey, UsageRow)>")]
pub struct UsageRows(Vec<(UsageKey, UsageRow)>);

impl UsageRows {
    /// The row of a key.
    #[must_use]
    pub fn get(&self, key: &UsageKey) -> Option<&UsageRow> {
        Some(&self.0[self.find(key).ok()?].1)
    }

    /// The row of a key; a missing row is created with zeros.
    pub(crate) fn get_or_zero(&mut self, key: UsageKey) -> &mut UsageRow {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.0.insert(at, (key, UsageRow::ZERO));
            at
        });
        &mut self.0[at].1
    }

    /// The mutable row of a key.
    pub(crate) fn get_mut(&mut self, key: &UsageKey) -> Option<&mut UsageRow> {
        let at = self.find(key).ok()?;
        Some(&mut self.0[at].1)
    }

    /// Keeps only the rows for which `keep` is true.
    pub(crate) fn retain(&mut self, keep: impl Fn(&UsageKey, &UsageRow) -> bool) {
        self.0.retain(|(key, row)| keep(key, row));
    }

    /// All rows, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&UsageKey, &UsageRow)> {
        self.0.iter().map(|(key, row)| (key, row))
    }

    /// All rows, mutable, in the order of their keys.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&UsageKey, &mut UsageRow)> {
        self.0.iter_mut().map(|(key, row)| (&*key, row))
    }

    /// The keys, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &UsageKey> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, key: &UsageKey) -> Result<usize, usize> {
        self.0.binary_search_by_key(key, |(key, _)| *key)
    }
}

impl From<UsageRows> for Vec<(UsageKey, UsageRow)> {
    fn from(rows: UsageRows) -> Self {
        rows.0
    }
}

/// From the rows of the kernel's map: each key once, in any order.
impl FromIterator<(UsageKey, UsageRow)> for UsageRows {
    fn from_iter<I: IntoIterator<Item = (UsageKey, UsageRow)>>(rows: I) -> Self {
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        Self(rows)
    }
}

impl TryFrom<Vec<(UsageKey, UsageRow)>> for UsageRows {
    type Error = String;

    fn try_from(rows: Vec<(UsageKey, UsageRow)>) -> Result<Self, String> {
        let Self(rows) = rows.into_iter().collect();
        match rows.array_windows().find(|[(a, _), (b, _)]| a == b) {
            Some([(key, _), _]) => Err(format!("two rows have the key {key:?}")),
            None => Ok(Self(rows)),
        }
    }
}

#[cfg(test)]
mod tests {
    use probe_common::CgroupId;

    use super::*;

    fn row(cgroup: u64, count: u64) -> (UsageKey, UsageRow) {
        let key = UsageKey {
            cgroup: CgroupId(cgroup),
            ..UsageKey::ZERO
        };
        let mut row = UsageRow::ZERO;
        row.counts[0] = count;
        (key, row)
    }

    #[test]
    fn rows_are_in_the_order_of_their_keys() {
        let mut rows: UsageRows = [row(7, 1), row(3, 2), row(5, 3)].into_iter().collect();
        let (five, between) = (row(5, 0).0, row(4, 0).0);
        assert_eq!(rows.get(&five), Some(&row(5, 3).1));
        assert_eq!(rows.get(&between), None);
        rows.get_or_zero(five).counts[0] += 10;
        rows.get_or_zero(between).counts[0] += 4;
        let all: Vec<_> = rows
            .iter()
            .map(|(key, row)| (key.cgroup.0, row.counts[0]))
            .collect();
        assert_eq!(all, [(3, 2), (4, 4), (5, 13), (7, 1)]);
        assert_eq!((rows.len(), rows.is_empty()), (4, false));
    }

    #[test]
    fn a_key_that_a_recording_has_twice_is_an_error() {
        let text = |rows: &[(UsageKey, UsageRow)]| serde_json::to_string(rows).unwrap();
        let read = |text: &str| serde_json::from_str::<UsageRows>(text);
        let rows = read(&text(&[row(9, 1), row(8, 2)])).unwrap();
        assert_eq!(
            serde_json::to_string(&rows).unwrap(),
            text(&[row(8, 2), row(9, 1)])
        );
        let error = read(&text(&[row(9, 1), row(8, 2), row(9, 1)])).unwrap_err();
        assert!(
            error.to_string().contains("two rows have the key"),
            "{error}"
        );
    }
}
