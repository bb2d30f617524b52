//! The rights that counting needs: `CAP_BPF` to load programs, `CAP_PERFMON` to attach them and to
//! open counters of all tasks. `CAP_SYS_ADMIN` implies both.

use std::path::PathBuf;

use rustix::thread::{CapabilitySet, capabilities};

/// Rights are missing.
#[derive(Clone, Debug, thiserror::Error)]
#[error("counting needs {missing}, which this process does not have: {remedy}")]
pub struct MissingCapabilities {
    /// The capabilities that are missing.
    pub missing: String,
    /// What to do.
    pub remedy: String,
}

/// Says which right is missing, before anything is tried.
pub(crate) fn check() -> Result<(), MissingCapabilities> {
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
    // Who is root without it was started with less.
    let remedy = match rustix::process::geteuid().is_root() {
        true => {
            "give it to the container (in Kubernetes by securityContext.capabilities.add), or to \
                 the unit (CapabilityBoundingSet=)"
                .to_owned()
        }
        false => {
            let binary = std::env::current_exe();
            let binary = binary.unwrap_or_else(|_| PathBuf::from("pmuscope"));
            format!(
                "run it as root, or grant it once with `sudo setcap cap_bpf,cap_perfmon+ep {}`",
                binary.display()
            )
        }
    };
    Err(MissingCapabilities {
        missing: missing.join(" and "),
        remedy,
    })
}
