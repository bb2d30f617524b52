//! File descriptors: how many a run needs, and the limits of this process (`RLIMIT_NOFILE`).

use std::{fmt, fs};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::roots::Roots;

/// Number of descriptors of any session's maps, programs and links, with a margin.
pub const OTHER_DESCRIPTORS: u64 = 256;

/// Number of descriptors that are open only briefly: files of procfs and sysfs, the pipe of a
/// message.
const TRANSIENT_DESCRIPTORS: u64 = 32;

/// Minimum number of descriptors with which a run is tried.
const LEAST_DESCRIPTORS: u64 = 24;

/// Descriptors that a run needs, by purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needed(Vec<(&'static str, u64)>);

impl Needed {
    /// Adds `count` descriptors for `what`, a noun in the plural.
    #[must_use]
    pub fn with(mut self, what: &'static str, count: usize) -> Self {
        if count > 0 {
            self.0.push((what, count as u64));
        }
        self
    }

    /// The number of all these descriptors.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (what, count)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{count} for {what}")?;
        }
        Ok(())
    }
}

/// The hard limit is lower than the number of descriptors that a run needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this needs {} open files ({needed}; {open} others), and the hard limit of this process is \
     {limit}: {}, or ask for less", self.all(), remedy(self.all())
)]
pub struct TooFewDescriptors {
    /// Descriptors that the run opens.
    pub needed: Needed,
    /// Other descriptors that may be open at the same time.
    pub open: u64,
    /// The hard limit.
    pub limit: u64,
}

impl TooFewDescriptors {
    /// Number of descriptors that would be open.
    fn all(&self) -> u64 {
        self.needed.total() + self.open
    }
}

/// How to raise the limit to `all`.
#[must_use]
pub fn remedy(all: u64) -> String {
    format!(
        "raise it (`ulimit -Hn {all} && ulimit -n {all}` as root; LimitNOFILE={all} in a systemd \
         unit)"
    )
}

/// Cause and remedy of `EMFILE` and `ENFILE`; None for other errors. `EMFILE` occurs only if
/// something else in this process took descriptors that [`allow`] had found free.
#[must_use]
pub fn exhausted(errno: Option<i32>) -> Option<String> {
    match errno? {
        libc::EMFILE => {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            Some(format!(
                "too many open files: this process has {} and may have {limit}: {}",
                open_now(),
                remedy(limit.saturating_mul(2))
            ))
        }
        libc::ENFILE => Some(
            "the machine has as many open files as it may have: raise that (`sysctl fs.file-max` \
             shows it)"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The hard limit; None if it is infinite.
#[must_use]
pub fn hard_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Raises the soft limit to 24 descriptors if it is lower: with fewer, timers and signals cannot be
/// set up. A command that is started later has the raised limit.
///
/// # Errors
///
/// If the hard limit is below 24.
pub fn allow_least() -> Result<(), TooFewDescriptors> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if let Some(limit) = maximum.filter(|limit| *limit < LEAST_DESCRIPTORS) {
        let open = open_now();
        return Err(TooFewDescriptors {
            needed: Needed(vec![("any run", LEAST_DESCRIPTORS.saturating_sub(open))]),
            open,
            limit,
        });
    }
    if current.is_some_and(|current| current < LEAST_DESCRIPTORS) {
        raise(Some(LEAST_DESCRIPTORS), maximum);
    }
    Ok(())
}

/// Raises the soft limit to the sum of open and needed descriptors.
///
/// # Errors
///
/// If the hard limit is below that sum.
pub fn allow(needed: &Needed) -> Result<(), TooFewDescriptors> {
    let open = open_now() + TRANSIENT_DESCRIPTORS;
    let all = open + needed.total();
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if let Some(limit) = maximum.filter(|limit| *limit < all) {
        return Err(TooFewDescriptors {
            needed: needed.clone(),
            open,
            limit,
        });
    }
    if current.is_some_and(|current| current < all) {
        raise(Some(all), maximum);
    }
    Ok(())
}

/// Raises the soft limit to the hard one, for an unknown number of descriptors.
pub fn allow_most() {
    let maximum = hard_limit();
    raise(maximum, maximum);
}

fn raise(current: Option<u64>, maximum: Option<u64>) {
    // Raising the soft limit up to the hard limit needs no privilege. If it failed, the next open
    // would report it.
    let _granted = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}

fn open_now() -> u64 {
    // One entry is the descriptor of this directory.
    let entries = fs::read_dir(Roots::default().proc.join("self/fd"))
        .into_iter()
        .flatten();
    (entries.count() as u64).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hard_limit_that_is_too_low_is_named_with_what_needs_more() {
        let needed = Needed::default()
            .with("events on CPUs", 1152)
            .with("hooks", 0)
            .with("uncore events", 500);
        assert_eq!(needed.total(), 1652);
        let error = TooFewDescriptors {
            needed,
            open: 48,
            limit: 1024,
        };
        assert_eq!(
            error.to_string(),
            "this needs 1700 open files (1152 for events on CPUs, 500 for uncore events; 48 \
             others), and the hard limit of this process is 1024: raise it (`ulimit -Hn 1700 && \
             ulimit -n 1700` as root; LimitNOFILE=1700 in a systemd unit), or ask for less"
        );
    }
}
