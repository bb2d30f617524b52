//! Filters that restrict an uncore PMU to a device.

use std::fmt;

/// Filter terms that restrict an uncore PMU to a port or device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmuFilter {
    /// The PMU.
    pub pmu: String,
    /// Terms with their values, such as `root_port` = 0x100.
    pub filters: Vec<(String, u64)>,
}

/// In event syntax, with `EVENT` for the event.
impl fmt::Display for PmuFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/EVENT", self.pmu)?;
        for (name, value) in &self.filters {
            write!(f, ",{name}={value:#x}")?;
        }
        f.write_str("/")
    }
}
