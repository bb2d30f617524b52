//! Names of the functions that samples were in.

use std::collections::{BTreeSet, HashMap, HashSet};

use probe_common::sample::{AddressKey, AddressRow};

use crate::{
    machine::Roots,
    snapshot::Place,
    symbols::{Space, Symbols},
};

/// Who names addresses, and the names so far.
pub(crate) struct Names {
    symbols: Symbols,
    cpus: BTreeSet<u32>,
    pub(crate) places: HashMap<(u32, u64), Place>,
    /// `CLOCK_MONOTONIC` nanoseconds of the last round.
    last: u64,
}

impl Names {
    /// Follows processes on these CPUs.
    pub(crate) fn start(roots: &Roots, cpus: &[u32]) -> Self {
        let mut names = Self {
            symbols: Symbols::new(roots),
            cpus: cpus.iter().copied().collect(),
            places: HashMap::new(),
            last: 0,
        };
        if let Err(error) = names.symbols.follow(cpus) {
            tracing::warn!("{error}");
        }
        if let Some(why) = names.symbols.kernel_hidden() {
            tracing::warn!("{why}");
        }
        names
    }

    /// Also follows processes on this CPU.
    pub(crate) fn follow(&mut self, cpu: u32) {
        if !self.cpus.insert(cpu) {
            return;
        }
        let cpus: Vec<u32> = self.cpus.iter().copied().collect();
        if let Err(error) = self.symbols.follow(&cpus) {
            tracing::warn!("{error}");
        }
    }

    /// Names those instructions that have no name yet, at the time `now` of the programs' clock.
    pub(crate) fn name(&mut self, addresses: &[(AddressKey, AddressRow)], now: u64) {
        self.symbols.catch_up();
        for (key, row) in addresses.iter().filter(|(key, _)| key.page == 0) {
            let (place, space) = match AddressKey::is_kernel(key.address) {
                true => ((0, key.address), Space::Kernel),
                false => ((key.tgid, key.address), Space::Process(key.tgid)),
            };
            let symbols = &mut self.symbols;
            let named = || symbols.name(space, key.address, Some(row.first));
            self.places.entry(place).or_insert_with(named);
        }
        self.symbols.forget(self.last);
        self.last = now;
    }

    /// Forgets the names of all others.
    pub(crate) fn keep(&mut self, kept: &HashSet<(u32, u64)>) {
        self.places.retain(|place, _| kept.contains(place));
    }
}
