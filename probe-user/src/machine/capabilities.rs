//! The capabilities that counting needs: `CAP_BPF` to load programs, `CAP_PERFMON` to attach them
//! and to open counters of all tasks. `CAP_SYS_ADMIN` implies both.

use std::path::{Path, PathBuf};

use rustix::thread::{CapabilitySet, capabilities};

use super::Roots;

/// Remedy in a user namespace.
pub(crate) const OUTSIDE: &str = "the rights that it has are those of a user namespace, and the \
     kernel asks for the machine's own: run it outside, in no rootless container";

/// Capabilities are missing.
#[derive(Clone, Debug, thiserror::Error)]
#[error("counting needs {missing}, which this process does not have: {remedy}")]
pub struct MissingCapabilities {
    /// The capabilities that are missing.
    pub missing: String,
    /// The remedy.
    pub remedy: String,
}

/// The initial user namespace: the kernel's `PROC_USER_INIT_INO`.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// Whether this process is outside the initial user namespace: then its capabilities apply only
/// within its own user namespace.
pub(crate) fn in_user_namespace(proc: &Path) -> bool {
    let namespace = std::fs::read_link(proc.join("self/ns/user"));
    namespace.is_ok_and(|namespace| namespace != Path::new(INITIAL_USER_NAMESPACE))
}

/// The capabilities of this process in the initial user namespace.
pub(crate) fn effective(proc: &Path) -> CapabilitySet {
    match in_user_namespace(proc) {
        true => CapabilitySet::empty(),
        false => capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective),
    }
}

/// Checks for missing capabilities before anything is opened.
pub(crate) fn check() -> Result<(), MissingCapabilities> {
    let proc = Roots::default().proc;
    let effective = effective(&proc);
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
    let remedy = match rustix::process::geteuid().is_root() {
        _ if in_user_namespace(&proc) => OUTSIDE.to_owned(),
        // A root process that lacks a capability was started without it.
        true => {
            "give it to the container (in Kubernetes by securityContext.capabilities.add), or to \
                 the unit (CapabilityBoundingSet=)"
                .to_owned()
        }
        false => {
            let binary = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("pmuscope"));
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
