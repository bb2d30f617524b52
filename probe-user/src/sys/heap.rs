//! The heap of this process.

/// Gives freed memory back to the kernel. glibc keeps what reading the kernel's types took, for as
/// long as this process lives; other allocators do not need to be asked.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointer goes in or out.
    unsafe {
        libc::malloc_trim(0);
    }
}
