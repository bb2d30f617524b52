//! The rows of the view by source of `for_each_source`.

use std::collections::BTreeMap;

use super::{Entity, MemoryCapacities, Naming, PressureRows, WaitRows, share};
use crate::{
    devices::DeviceDeltas,
    machine::{memory::MemoryReading, pressure::PressureDelta, resctrl::GroupBytes},
    snapshot::{SourceReading, WaitDelta, for_each_source},
    window::Window,
};

/// The data of a source in a window, not yet assigned to rows.
pub(crate) trait SourceDelta {
    /// The data by row of the view.
    type Rows;

    /// Assigns the data to rows. `before`: the rows of the previous window.
    fn join(&self, window: &Window, naming: &Naming, before: Option<&Self::Rows>) -> Self::Rows;
}

macro_rules! rows {
    ($($(#[$doc:meta])* $source:ident: $reader:ty => $reading:ty,)*) => {
        /// The rows, by source; None for a source that the session does not read.
        #[derive(Debug, Default)]
        pub struct SourceRows {$(
            $(#[$doc])*
            pub(crate) $source: Option<<<$reading as SourceReading>::Delta as SourceDelta>::Rows>,
        )*}

        impl SourceRows {
            /// The rows of a window, continued from those of the previous one.
            pub(super) fn join(window: &Window, naming: &Naming, before: Option<&Self>) -> Self {
                Self {$(
                    $source: window.sources.$source.as_ref().map(|delta| {
                        let before = before.and_then(|before| before.$source.as_ref());
                        delta.join(window, naming, before)
                    }),
                )*}
            }
        }
    };
}

for_each_source!(rows);

/// The rows of a source that has none.
#[derive(Debug)]
pub(crate) struct NoRows;

/// Bytes that resctrl counted, by entity and socket.
#[derive(Debug)]
pub(crate) struct MonitoredBytes(pub(crate) BTreeMap<(Entity, u32), u64>);

/// The traffic of devices has no rows: it becomes shares of owners.
impl SourceDelta for DeviceDeltas {
    type Rows = NoRows;

    fn join(&self, _: &Window, _: &Naming, _: Option<&NoRows>) -> NoRows {
        NoRows
    }
}

impl SourceDelta for Vec<GroupBytes> {
    type Rows = MonitoredBytes;

    fn join(&self, window: &Window, naming: &Naming, _: Option<&MonitoredBytes>) -> MonitoredBytes {
        MonitoredBytes(share::monitored(self, window, naming))
    }
}

impl SourceDelta for PressureDelta {
    type Rows = PressureRows;

    fn join(
        &self,
        window: &Window,
        naming: &Naming,
        before: Option<&PressureRows>,
    ) -> PressureRows {
        PressureRows::from_delta(self, window, naming, before)
    }
}

impl SourceDelta for WaitDelta {
    type Rows = WaitRows;

    fn join(&self, window: &Window, naming: &Naming, before: Option<&WaitRows>) -> WaitRows {
        WaitRows::from_delta(self, window, naming, before)
    }
}

/// Memory at the end of the window, and peaks since the session began.
impl SourceDelta for [MemoryReading; 2] {
    type Rows = MemoryCapacities;

    fn join(
        &self,
        window: &Window,
        naming: &Naming,
        before: Option<&MemoryCapacities>,
    ) -> MemoryCapacities {
        MemoryCapacities::from_readings(self, window, naming, before)
    }
}
