//! Rights: what a running agent gives up.

use std::{io, thread};

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// What the agent keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// What opening counters and loading programs needs: after hot-plug, a reload, or a time in
    /// which it was off.
    Counting {
        /// Also the right to lock the memory of SPE's buffers.
        sampling: bool,
    },
    /// Nothing.
    Nothing,
}

/// Gives up all other capabilities of this thread and those that it starts, for good.
///
/// # Errors
///
/// Where the kernel refuses.
pub(super) fn drop_all_but(kept: Kept) -> io::Result<()> {
    let now = capabilities(None)?;
    let wanted = match kept {
        Kept::Nothing => CapabilitySet::empty(),
        Kept::Counting { sampling } => {
            let counting = CapabilitySet::BPF | CapabilitySet::PERFMON;
            match sampling {
                true => counting | CapabilitySet::IPC_LOCK,
                false => counting,
            }
        }
    };
    // CAP_SYS_ADMIN stands for both on kernels and in set-ups that grant nothing else.
    let wanted = match now
        .permitted
        .contains(CapabilitySet::BPF | CapabilitySet::PERFMON)
    {
        true => wanted,
        false if kept == Kept::Nothing => wanted,
        false => wanted | CapabilitySet::SYS_ADMIN,
    };
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            if !wanted.contains(capability) {
                // Older kernels do not know the newest ones.
                let _ = remove_capability_from_bounding_set(capability);
            }
        }
    }
    clear_ambient_capability_set()?;
    set_no_new_privs(true)?;
    let left = now.permitted & wanted;
    set_capabilities(
        None,
        CapabilitySets {
            effective: left,
            permitted: left,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

/// Starts what has threads of its own, none of which has any capability.
///
/// # Errors
///
/// As of `start`, or where the kernel refuses.
pub(super) fn without<T: Send>(start: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let started = scope.spawn(|| {
            drop_all_but(Kept::Nothing)?;
            start()
        });
        let joined = started.join();
        joined.unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
    })
}
