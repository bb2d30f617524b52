//! Results over all guests, as the last lines of a run say them.

use std::fmt;

use crate::stages::Counts;

/// A failed test, its guest, and the last lines of its output.
pub(super) struct Failure {
    pub(super) what: String,
    pub(super) reason: Vec<String>,
}

/// Results over all guests.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) passed: usize,
    pub(super) failed: Vec<Failure>,
    pub(super) skipped: usize,
    /// Guests that were not booted: nothing in them has changed since they passed.
    pub(super) unchanged: usize,
}

impl Totals {
    pub(super) fn add(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed.extend(more.failed);
        self.skipped += more.skipped;
        self.unchanged += more.unchanged;
    }

    /// As a stage's result has them.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            passed: self.passed,
            failed: self.failed.len(),
            skipped: self.skipped,
        }
    }

    /// No test was found.
    pub(super) fn none(&self) -> bool {
        self.passed + self.failed.len() + self.skipped + self.unchanged == 0
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
            unchanged,
        } = self;
        for failure in failed {
            writeln!(f, "failed: {}", failure.what)?;
            for line in &failure.reason {
                writeln!(f, "{line}")?;
            }
        }
        write!(f, "{passed} passed, {} failed", failed.len())?;
        if *skipped > 0 {
            write!(f, ", {skipped} skipped")?;
        }
        if *unchanged > 0 {
            write!(
                f,
                "; {unchanged} guests unchanged since they passed (`cargo xtask vm` boots them too)"
            )?;
        }
        Ok(())
    }
}
