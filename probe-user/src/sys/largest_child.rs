//! The largest resident set among the children that this process has waited for (`getrusage(2)`).

/// Largest resident set, in bytes, of these children and of the descendants that they waited for.
/// None if there are no children, or if all were smaller than this process: a child begins as a
/// copy of its parent, and the kernel counts that size as the child's.
pub(crate) fn largest_child() -> Option<u64> {
    let [own, children] = [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].map(largest);
    children.filter(|bytes| own.is_some_and(|own| *bytes > own))
}

fn largest(who: libc::c_int) -> Option<u64> {
    // SAFETY: rusage is plain integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: usage is valid for the kernel to write.
    let answer = unsafe { libc::getrusage(who, &raw mut usage) };
    let kib = u64::try_from(usage.ru_maxrss).ok()?;
    (answer == 0).then(|| kib.saturating_mul(1024))
}
