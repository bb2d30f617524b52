//! Sources: sets of kernel files, or BPF maps, that each pull reads once. [`for_each_source`] lists
//! them. The readers, the readings, the deltas and the rows each have one field per source.

use serde::{Deserialize, Serialize};

use super::{WaitDelta, WaitReading};
use crate::{
    devices::{DeviceDeltas, DeviceUse},
    machine::{
        memory::MemoryReading,
        pressure::{PressureDelta, PressureReading},
        resctrl::{self, GroupBytes},
    },
};

/// Calls a macro with each source: the name of its field, the type of its reader, and the type of
/// its reading. Sources are read and shown in this order: the slowest, which reads every process,
/// comes last.
macro_rules! for_each_source {
    ($call:ident) => {
        $call! {
            /// Devices, if any metric is about them.
            devices: crate::devices::DeviceReader => crate::devices::DeviceUse,
            /// resctrl, if memory traffic is apportioned.
            resctrl: crate::machine::resctrl::Reader => Vec<crate::machine::resctrl::GroupBytes>,
            /// Waits of owners, in a session that counts them.
            waits: crate::snapshot::WaitReader => crate::snapshot::WaitReading,
            /// Pressure and throttling of cgroups, in a session that measures them.
            pressure: crate::machine::pressure::PressureReader
                => crate::machine::pressure::PressureReading,
            /// Memory of cgroups or processes, in a session that measures it.
            memory: crate::machine::memory::MemoryReader => crate::machine::memory::MemoryReading,
        }
    };
}

pub(crate) use for_each_source;

/// The reading of one source in a pull.
pub(crate) trait SourceReading {
    /// The result for the window between two readings.
    type Delta;

    /// The change between two readings; for a level, both readings.
    fn delta(earlier: &Self, later: &Self) -> Self::Delta;
}

macro_rules! readings {
    ($($(#[$doc:meta])* $source:ident: $reader:ty => $reading:ty,)*) => {
        /// The readings by source; None for a source that the session does not read.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct SourceReadings {$(
            $(#[$doc])*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $source: Option<$reading>,
        )*}
    };
}

for_each_source!(readings);

impl SourceReading for DeviceUse {
    type Delta = DeviceDeltas;

    fn delta(earlier: &Self, later: &Self) -> DeviceDeltas {
        DeviceDeltas::between(earlier, later)
    }
}

impl SourceReading for Vec<GroupBytes> {
    type Delta = Self;

    fn delta(earlier: &Self, later: &Self) -> Self {
        resctrl::deltas(earlier, later)
    }
}

impl SourceReading for PressureReading {
    type Delta = PressureDelta;

    fn delta(earlier: &Self, later: &Self) -> PressureDelta {
        PressureDelta::between(earlier, later)
    }
}

impl SourceReading for WaitReading {
    type Delta = WaitDelta;

    fn delta(earlier: &Self, later: &Self) -> WaitDelta {
        WaitDelta::between(earlier, later)
    }
}

/// A window has both readings: memory is a level, not a count.
impl SourceReading for MemoryReading {
    type Delta = [Self; 2];

    fn delta(earlier: &Self, later: &Self) -> [Self; 2] {
        [earlier.clone(), later.clone()]
    }
}
