//! The readers of the sources ([`SourceReaders`]): devices, resctrl, waits, pressure and memory.

use std::{cell::Cell, time::Duration};

use probe_common::CgroupId;

use super::{Config, EbpfObject, SessionError, Uncore, command};
use crate::{
    devices::{DeviceReader, DeviceUse},
    machine::{
        Machine,
        cgroup::Hierarchy,
        memory::{MemoryReader, MemoryReading},
        pressure::{CgroupCounter, PressureReader, PressureReading},
        resctrl::{self, GroupBytes},
    },
    snapshot::{Names, SourceReadings, WaitReader, WaitReading, for_each_source},
};

/// What the readers need from the pull that calls them.
pub(super) struct PullContext<'a> {
    /// The time of the snapshot.
    pub(super) at: Duration,
    /// Names of every cgroup and process with a row.
    pub(super) names: &'a Names,
    pub(super) object: &'a EbpfObject,
    /// The waits, which were read with the counts. [`WaitReader`] takes them from here.
    pub(super) waits: Cell<WaitReading>,
    pub(super) hierarchy: &'a Hierarchy,
    /// The owner to which the started command is charged. None if there is no command, or if this
    /// process is not in the initial pid namespace.
    pub(super) command: Option<CgroupId>,
}

/// A reader of one source.
trait SourceReader {
    type Reading;

    fn read_in(&mut self, pull: &PullContext<'_>) -> Result<Self::Reading, SessionError>;
}

macro_rules! readers {
    ($($(#[$doc:meta])* $source:ident: $reader:ty => $reading:ty,)*) => {
        /// The readers, by source.
        pub(crate) struct SourceReaders {$(
            $(#[$doc])*
            $source: Option<$reader>,
        )*}

        impl SourceReaders {
            /// Reads every source once.
            pub(super) fn read(
                &mut self,
                pull: &PullContext<'_>,
            ) -> Result<SourceReadings, SessionError> {
                Ok(SourceReadings {$(
                    $source: self
                        .$source
                        .as_mut()
                        .map(|reader| reader.read_in(pull))
                        .transpose()?,
                )*})
            }
        }
    };
}

for_each_source!(readers);

impl SourceReaders {
    /// Opens the sources that this configuration reads.
    pub(super) fn open(
        config: &Config,
        machine: &Machine,
        hierarchy: &Hierarchy,
        uncore: &Uncore,
    ) -> Result<Self, SessionError> {
        let plan = &config.plan;
        let devices = || DeviceReader::new(&plan.devices, machine, hierarchy);
        let memory = || match config.by_process.any() {
            true => MemoryReader::for_processes(machine),
            false => MemoryReader::for_cgroups(machine),
        };
        // Memory is opened first, since it may be refused.
        let memory = config.memory.then(memory).transpose()?;
        // Waits contain the time for which a quota throttled the owner, so throttling is read too.
        let pressure: Option<&[_]> = match (config.pressure, plan.counts_waits()) {
            (true, _) => Some(&CgroupCounter::ALL),
            (false, true) => Some(CgroupCounter::BESIDE_WAITS),
            (false, false) => None,
        };
        let pressure = pressure.map(|counters| PressureReader::new(machine, counters));
        Ok(Self {
            devices: plan.reads_devices().then(devices),
            resctrl: open_resctrl(config, machine, hierarchy, uncore),
            waits: plan.counts_waits().then_some(WaitReader),
            pressure: pressure.transpose()?,
            memory,
        })
    }
}

/// The reader of resctrl's monitoring groups, if the session apportions memory traffic.
fn open_resctrl(
    config: &Config,
    machine: &Machine,
    hierarchy: &Hierarchy,
    uncore: &Uncore,
) -> Option<resctrl::Reader> {
    let plan = &config.plan;
    let topology = uncore.topology().filter(|_| !plan.weights.is_empty())?;
    let reader = resctrl::Reader::new(machine, hierarchy, &topology)?;
    let machine = plan.metrics.machine.as_ref();
    if let Some(warning) = machine.and_then(|machine| machine.platform.spec().resctrl.as_ref()) {
        tracing::warn!("{warning}");
    }
    Some(reader)
}

impl SourceReader for DeviceReader {
    type Reading = DeviceUse;

    fn read_in(&mut self, pull: &PullContext<'_>) -> Result<DeviceUse, SessionError> {
        Ok(self.read(pull.at)?)
    }
}

impl SourceReader for resctrl::Reader {
    type Reading = Vec<GroupBytes>;

    fn read_in(&mut self, pull: &PullContext<'_>) -> Result<Vec<GroupBytes>, SessionError> {
        Ok(self.read(pull.at))
    }
}

impl SourceReader for PressureReader {
    type Reading = PressureReading;

    fn read_in(&mut self, pull: &PullContext<'_>) -> Result<PressureReading, SessionError> {
        let cgroups = pull.names.cgroups.iter();
        Ok(self.read(cgroups.map(|(id, path)| (*id, path.as_str()))))
    }
}

impl SourceReader for WaitReader {
    type Reading = WaitReading;

    fn read_in(&mut self, pull: &PullContext<'_>) -> Result<WaitReading, SessionError> {
        Ok(pull.waits.take())
    }
}

impl SourceReader for MemoryReader {
    type Reading = MemoryReading;

    fn read_in(&mut self, pull: &PullContext<'_>) -> Result<MemoryReading, SessionError> {
        let PullContext { names, object, .. } = *pull;
        let cgroups = names.cgroups.iter().map(|(id, path)| (*id, path.as_str()));
        let processes = names.processes.keys().copied();
        let command = pull
            .command
            .map(|owner| command::processes(object, pull.hierarchy, owner, names));
        Ok(self.read(cgroups, processes, command.as_ref()))
    }
}
