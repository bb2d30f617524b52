//! The cores of this machine: what their data-source numbers mean.

use std::{collections::BTreeMap, fs, path::Path};

use probe_common::spe::{Operation, Origin, Record, SourceTable};

use crate::machine::cpus;

/// `MIDR_EL1` of a CPU, from `<sysfs>`; Arm only.
pub(super) fn midr(sysfs: &Path, cpu: u32) -> Option<u64> {
    let file = format!("devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
    let text = fs::read_to_string(sysfs.join(file)).ok()?;
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

/// The data-source table of each CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources(BTreeMap<u32, SourceTable>);

impl Sources {
    pub(super) fn read(sysfs: &Path) -> Self {
        let cpus = cpus::online(sysfs).unwrap_or_default();
        let tables = cpus.iter().filter_map(|cpu| {
            let table = SourceTable::of_midr(midr(sysfs, cpu)?)?;
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
