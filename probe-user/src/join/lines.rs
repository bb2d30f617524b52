//! Cache lines by whose accesses they were: the rows of a line's owners and CPUs, under the names
//! that the view has for them.

use std::collections::BTreeMap;

use probe_common::spe::{LineKey, LineRow};

use super::{Entity, Naming};
use crate::window::{Lines, Owner};

/// A cache line that was accessed.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The address without the bits that lie in the line.
    pub line: u64,
    /// In which space, as in [`LineKey::space`].
    pub space: u64,
    /// Who accessed it on which CPUs. None: whoever the user did not ask for.
    pub owners: BTreeMap<Option<Entity>, BTreeMap<u32, LineRow>>,
}

/// All lines of a window, in the order of their addresses.
pub(super) fn by_owner(lines: &Lines, naming: &Naming) -> Vec<Line> {
    let mut found: BTreeMap<(u64, u64), Line> = BTreeMap::new();
    for (key, row) in &lines.rows {
        let LineKey { line, space, .. } = *key;
        let entry = found.entry((space, line)).or_insert_with(|| Line {
            line,
            space,
            owners: BTreeMap::new(),
        });
        let owner = naming.entity(Owner {
            cgroup: key.cgroup,
            tgid: key.tgid,
        });
        let cpus = entry.owners.entry(owner).or_default();
        add(cpus.entry(key.cpu).or_default(), row);
    }
    found.into_values().collect()
}

/// Adds what another owner of the same name did.
pub(crate) fn add(sum: &mut LineRow, more: &LineRow) {
    for (sum, more) in [
        (&mut sum.loads, more.loads),
        (&mut sum.stores, more.stores),
        (&mut sum.atomics, more.atomics),
        (&mut sum.peers, more.peers),
        (&mut sum.timed, more.timed),
        (&mut sum.cycles, more.cycles),
    ] {
        *sum = sum.saturating_add(more);
    }
    sum.read |= more.read;
    sum.written |= more.written;
}
