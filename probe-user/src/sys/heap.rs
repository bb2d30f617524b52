//! The heap of this process.

/// Returns freed memory to the kernel. Otherwise glibc would keep the memory that was used to read
/// the kernel's types until this process ends. Other allocators need no call.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointer goes in or out.
    unsafe {
        libc::malloc_trim(0);
    }
}
