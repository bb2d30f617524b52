//! Deltas of the sources in a window.

use crate::snapshot::{SourceReading, SourceReadings, for_each_source};

macro_rules! deltas {
    ($($(#[$doc:meta])* $source:ident: $reader:ty => $reading:ty,)*) => {
        /// The deltas by source; None for a source that the session does not read.
        #[derive(Clone, Debug, Default)]
        pub struct SourceDeltas {$(
            $(#[$doc])*
            pub(crate) $source: Option<<$reading as SourceReading>::Delta>,
        )*}

        impl SourceDeltas {
            /// The difference of two readings.
            pub(super) fn between(earlier: &SourceReadings, later: &SourceReadings) -> Self {
                Self {$(
                    $source: earlier
                        .$source
                        .as_ref()
                        .zip(later.$source.as_ref())
                        .map(|(earlier, later)| SourceReading::delta(earlier, later)),
                )*}
            }
        }
    };
}

for_each_source!(deltas);
