//! Results over all guests, as the last lines of a run say them.

use std::fmt;

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
        for Failure { what, reason } in failed {
            writeln!(f, "failed: {what}")?;
            for line in reason {
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
