//! The heap of this process.

/// Returns freed memory to the kernel. glibc would keep the memory that reading the kernel's types
/// took for as long as this process lives; other allocators need no call.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointer goes in or out.
    unsafe {
        libc::malloc_trim(0);
    }
}
