//! Loads a program in several attempts.

use aya::programs::ProgramError;

use crate::sys::signals::uninterrupted;

/// Maximum number of attempts, as in libbpf.
const MAX_ATTEMPTS: usize = 5;

/// Loads a program with all signals blocked. The load is repeated if the kernel gave up (`EAGAIN`)
/// for an event that no signal mask blocks: a stop, the freezer, a tracer.
pub(super) fn load(
    mut attempt: impl FnMut() -> Result<(), ProgramError>,
) -> Result<(), ProgramError> {
    for _ in 1..MAX_ATTEMPTS {
        match uninterrupted(&mut attempt) {
            Err(error) if is_interrupted(&error) => {}
            loaded => return loaded,
        }
    }
    uninterrupted(attempt)
}

fn is_interrupted(error: &ProgramError) -> bool {
    matches!(
        error,
        ProgramError::LoadError { io_error, .. } if io_error.raw_os_error() == Some(libc::EAGAIN)
    )
}

#[cfg(test)]
mod tests {
    use std::io;

    use aya_obj::VerifierLog;

    use super::*;

    fn refusal(errno: i32) -> Result<(), ProgramError> {
        Err(ProgramError::LoadError {
            io_error: io::Error::from_raw_os_error(errno),
            verifier_log: VerifierLog::new(String::new()),
        })
    }

    /// The number of attempts at a program that the kernel refuses `refusals` times, and whether it
    /// was loaded.
    fn attempts(errno: i32, refusals: usize) -> (usize, bool) {
        let mut count = 0;
        let loaded = load(|| {
            count += 1;
            if count <= refusals {
                refusal(errno)
            } else {
                Ok(())
            }
        });
        (count, loaded.is_ok())
    }

    #[test]
    fn an_interrupted_load_is_repeated_up_to_five_times() {
        assert_eq!(attempts(libc::EAGAIN, 0), (1, true));
        assert_eq!(attempts(libc::EAGAIN, 4), (5, true));
        assert_eq!(attempts(libc::EAGAIN, 9), (5, false));
        assert_eq!(attempts(libc::EINVAL, 1), (1, false));
    }
}
