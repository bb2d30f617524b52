//! Results over all guests, printed as the last lines of a run.

use std::fmt;

use crate::stages::TestCounts;

/// Number of failures that the last line of a guest names.
const LISTED: usize = 8;

/// A failed test, or another failure of a guest, with lines of output or of the kernel log.
pub(super) struct Failure {
    pub(super) guest: String,
    pub(super) what: String,
    pub(super) reason: Vec<String>,
}

/// Results over all guests.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) passed: usize,
    pub(super) failed: Vec<Failure>,
    pub(super) skipped: usize,
    /// Guests that were not booted, because they have not changed since they passed.
    pub(super) unchanged: usize,
}

impl Totals {
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped += other.skipped;
        self.unchanged += other.unchanged;
    }

    /// The numbers for a stage's result.
    pub(super) fn counts(&self) -> TestCounts {
        TestCounts {
            passed: self.passed,
            failed: self.failed.len(),
            skipped: self.skipped,
        }
    }

    /// Whether no test was found.
    pub(super) fn is_empty(&self) -> bool {
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
            writeln!(f, "failed: [{}] {}", failure.guest, failure.what)?;
            for line in &failure.reason {
                writeln!(f, "{line}")?;
            }
        }
        // Printed last, since readers of a long log begin at its end.
        for failures in failed.chunk_by(|a, b| a.guest == b.guest) {
            let names: Vec<_> = failures.iter().map(|it| it.what.as_str()).collect();
            let listed = names[..names.len().min(LISTED)].join(", ");
            write!(f, "failed in {}: {listed}", failures[0].guest)?;
            match names.len().saturating_sub(LISTED) {
                0 => writeln!(f)?,
                rest => writeln!(f, ", and {rest} more")?,
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
