//! Accesses to cache lines by CPU and by the row of their owner.

use std::collections::BTreeMap;

use probe_common::spe::{LineKey, LineRow};

use super::{Entity, Naming};
use crate::window::CacheLines;

/// A cache line that was accessed.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheLine {
    /// The address without the bits inside the line.
    pub line: u64,
    /// The address space, as in [`LineKey::space`].
    pub space: u64,
    /// Accesses by row and CPU. None: owners that the view hides.
    pub owners: BTreeMap<Option<Entity>, BTreeMap<u32, LineRow>>,
}

/// All lines of a window, sorted by address space and address.
pub(super) fn by_owner(lines: &CacheLines, naming: &Naming) -> Vec<CacheLine> {
    let mut by_line: BTreeMap<(u64, u64), CacheLine> = BTreeMap::new();
    for (key, row) in &lines.rows {
        let LineKey { line, space, .. } = *key;
        let entry = by_line.entry((space, line)).or_insert_with(|| CacheLine {
            line,
            space,
            owners: BTreeMap::new(),
        });
        let owner = naming.entity(key.into());
        let cpus = entry.owners.entry(owner).or_default();
        add(cpus.entry(key.cpu).or_default(), row);
    }
    by_line.into_values().collect()
}

/// Adds the accesses of another owner of the same row.
pub(crate) fn add(sum: &mut LineRow, other: &LineRow) {
    for (sum, count) in [
        (&mut sum.loads, other.loads),
        (&mut sum.stores, other.stores),
        (&mut sum.atomics, other.atomics),
        (&mut sum.peers, other.peers),
        (&mut sum.timed, other.timed),
        (&mut sum.cycles, other.cycles),
    ] {
        *sum = sum.saturating_add(count);
    }
    sum.read |= other.read;
    sum.written |= other.written;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use probe_common::CgroupId;

    use super::*;
    use crate::{join::View, window::tests::empty};

    fn lines() -> CacheLines {
        let row = |line, space, cgroup, cpu, byte| {
            let key = LineKey {
                line,
                space,
                cgroup: CgroupId(cgroup),
                tgid: 0,
                cpu,
            };
            let row = LineRow {
                loads: 10,
                stores: 1,
                peers: 2,
                read: 1_u64 << byte,
                written: 2_u64 << byte,
                ..LineRow::ZERO
            };
            (key, row)
        };
        CacheLines {
            rows: vec![
                row(5, LineKey::PHYSICAL, 7, 0, 0),
                row(5, LineKey::PHYSICAL, 7, 1, 8),
                row(5, LineKey::PHYSICAL, 8, 0, 16),
                // The same address in a process is another line.
                row(5, 42, 8, 0, 24),
            ],
            samples: 44,
            tables: Arc::default(),
        }
    }

    #[test]
    fn a_line_has_its_owners_with_their_cpus() {
        let naming = View::default().naming(&empty().names);
        let found = by_owner(&lines(), &naming);
        let shape: Vec<_> = found
            .iter()
            .map(|line| {
                let owners = line
                    .owners
                    .iter()
                    .map(|(owner, cpus)| (owner.clone(), cpus.len()));
                (line.space, owners.collect::<Vec<_>>())
            })
            .collect();
        let unnamed = |id| Some(Entity::Unnamed(id));
        assert_eq!(
            shape,
            [
                (42, vec![(unnamed(8), 1)]),
                (LineKey::PHYSICAL, vec![(unnamed(7), 2), (unnamed(8), 1)]),
            ]
        );
    }

    /// All hidden owners are added up as the owner None.
    #[test]
    fn owners_of_one_name_are_added_up() {
        let view = View {
            below: Some("/nobody".to_owned()),
            ..View::default()
        };
        let found = by_owner(&lines(), &view.naming(&empty().names));
        let hidden = &found[1].owners[&None];
        let sum = hidden[&0];
        assert_eq!(
            (hidden.len(), sum.loads, sum.stores, sum.peers),
            (2, 20, 2, 4)
        );
        assert_eq!((sum.read, sum.written), (1 | 1 << 16, 1 << 1 | 1 << 17));
    }
}
