//! The cores of this machine: what their data-source numbers mean.

use std::collections::BTreeMap;

use probe_common::spe::{Operation, Origin, Record, SourceTable};

use crate::machine::Machine;

/// The data-source table of each CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources(BTreeMap<u32, SourceTable>);

impl Sources {
    pub(super) fn of(machine: &Machine) -> Self {
        let cpus = machine.online().unwrap_or_default();
        let tables = cpus.iter().filter_map(|cpu| {
            let table = SourceTable::of_midr(machine.midr(cpu)?)?;
            Some((cpu, table))
        });
        Self(tables.collect())
    }

    /// Where the data of a load came from.
    pub(super) fn origin(&self, cpu: u32, record: &Record) -> Option<Origin> {
        match record.operation()? {
            Operation::LoadStore(op) if !op.is_store() => {
                self.0.get(&cpu)?.load(record.data_source()?)
            }
            _ => None,
        }
    }
}
