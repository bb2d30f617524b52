//! Data-source tables of this machine's cores: what the numbers in SPE records mean.

use std::collections::BTreeMap;

use probe_common::spe::{Operation, Origin, Record, SourceTable};

use crate::machine::Machine;

/// The data-source table of each CPU that has one.
#[derive(Clone, Debug, Default)]
pub(super) struct DataSourceTables(BTreeMap<u32, SourceTable>);

impl DataSourceTables {
    pub(super) fn for_machine(machine: &Machine) -> Self {
        let cpus = machine.online().unwrap_or_default();
        let tables = cpus.iter().filter_map(|cpu| {
            let table = SourceTable::for_midr(machine.midr(cpu)?)?;
            Some((cpu, table))
        });
        Self(tables.collect())
    }

    /// Where the data of a load came from; None for other operations, and on CPUs without a table.
    pub(super) fn origin(&self, cpu: u32, record: &Record) -> Option<Origin> {
        match record.operation()? {
            Operation::LoadStore(op) if !op.is_store() => {
                self.0.get(&cpu)?.load(record.data_source()?)
            }
            _ => None,
        }
    }
}
