//! Blocks signals around work that they would disturb.

use std::{mem::MaybeUninit, ptr};

/// Restores this thread's previous signal mask on drop.
struct Blocked(libc::sigset_t);

/// Runs `work` while this thread blocks all signals. The BPF verifier gives up on a program if a
/// signal is pending (`EAGAIN`), so signals that keep coming can make every attempt fail. Signals
/// to the process go to another thread, or stay pending.
pub(crate) fn uninterrupted<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are valid places; the first call fills `all`, the second `before`. Neither
    // can fail with these arguments.
    let _blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        Blocked(before.assume_init())
    };
    work()
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: a set that the kernel gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_hangup() -> bool {
        let mut set = MaybeUninit::uninit();
        // SAFETY: a valid place, which the call fills.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), set.as_mut_ptr());
            libc::sigismember(set.as_ptr(), libc::SIGHUP) == 1
        }
    }

    #[test]
    fn signals_are_blocked_only_during_the_work() {
        assert!(!blocks_hangup());
        assert!(uninterrupted(blocks_hangup));
        assert!(!blocks_hangup());
        std::panic::catch_unwind(|| uninterrupted(|| panic!("a test's"))).unwrap_err();
        assert!(!blocks_hangup());
    }
}
