//! Filters that make an uncore PMU count for a device.

use std::fmt;

/// A filter that narrows an uncore PMU to a port or device, in event syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Narrowed {
    /// The PMU.
    pub pmu: String,
    /// Terms with their values, such as `root_port` = 0x100.
    pub filters: Vec<(String, u64)>,
}

/// In event syntax, with a place for the event.
impl fmt::Display for Narrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/EVENT", self.pmu)?;
        for (name, value) in &self.filters {
            write!(f, ",{name}={value:#x}")?;
        }
        f.write_str("/")
    }
}
