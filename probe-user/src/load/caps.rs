//! The rights that counting needs: `CAP_BPF` to load programs, `CAP_PERFMON` to attach them and to
//! open counters of all tasks. `CAP_SYS_ADMIN` implies both.

use std::path::Path;

use rustix::thread::{CapabilitySet, capabilities};

use super::LoadError;

/// Says which right is missing, before anything is tried.
pub(crate) fn check() -> Result<(), LoadError> {
    let effective = capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective);
    if effective.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    let missing: Vec<_> = [
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::PERFMON, "CAP_PERFMON"),
    ]
    .into_iter()
    .filter_map(|(needed, name)| (!effective.contains(needed)).then_some(name))
    .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let binary = std::env::current_exe().unwrap_or_else(|_| Path::new("pmuscope").to_path_buf());
    Err(LoadError::Capability {
        missing: missing.join(" and "),
        binary,
    })
}
