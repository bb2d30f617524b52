//! Capabilities that a running agent gives up.

use std::{io, thread};

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// The capabilities that a thread keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptCapabilities {
    /// The capabilities to open counters and load programs. CPU hot-plug, a reload, and switching
    /// the agent on again need them.
    Counting {
        /// Also `CAP_IPC_LOCK`, to lock the memory of SPE's buffers.
        sampling: bool,
    },
    /// Nothing.
    Nothing,
}

/// Gives up all capabilities but `kept`, for this thread and the threads that it starts from now
/// on. It cannot be undone.
///
/// # Errors
///
/// If the kernel refuses.
pub(super) fn drop_all_but(kept: KeptCapabilities) -> io::Result<()> {
    let now = capabilities(None)?;
    let needed = match kept {
        KeptCapabilities::Nothing => CapabilitySet::empty(),
        KeptCapabilities::Counting { sampling } => {
            let counting = CapabilitySet::BPF | CapabilitySet::PERFMON;
            match sampling {
                true => counting | CapabilitySet::IPC_LOCK,
                false => counting,
            }
        }
    };
    // Some kernels and set-ups grant only CAP_SYS_ADMIN, which implies CAP_BPF and CAP_PERFMON.
    let wanted = match now
        .permitted
        .contains(CapabilitySet::BPF | CapabilitySet::PERFMON)
    {
        true => needed,
        false if kept == KeptCapabilities::Nothing => needed,
        false => needed | CapabilitySet::SYS_ADMIN,
    };
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            if !wanted.contains(capability) {
                // Older kernels do not know the newest capabilities.
                let _ = remove_capability_from_bounding_set(capability);
            }
        }
    }
    clear_ambient_capability_set()?;
    set_no_new_privs(true)?;
    let remaining = now.permitted & wanted;
    set_capabilities(
        None,
        CapabilitySets {
            effective: remaining,
            permitted: remaining,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

/// Calls `start` on a thread without capabilities, so that the threads that it starts have none.
///
/// # Errors
///
/// The error of `start`, or of the kernel if it refuses to drop capabilities.
pub(super) fn run_without<T: Send>(start: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let started = scope.spawn(|| {
            drop_all_but(KeptCapabilities::Nothing)?;
            start()
        });
        let joined = started.join();
        joined.unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
    })
}
