//! Errors of shares against the truth, and against their stated errors.

use probe_common::CgroupId;
use probe_user::join::share::Shares;

use super::owner;

/// Relative errors of shares.
#[derive(Default)]
pub(super) struct ShareErrors {
    /// Sum of squared errors.
    pub(super) squares: f64,
    pub(super) largest: f64,
    /// Number of shares.
    pub(super) shares: u32,
    /// Sum of squared ratios of the error to `counting_error`.
    pub(super) normalized_squares: f64,
    /// The `counting_error` of each share.
    pub(super) stated: Vec<f64>,
}

#[expect(clippy::cast_precision_loss, reason = "counts of a test")]
impl ShareErrors {
    /// Adds the share of a container with the true count `truth`.
    pub(super) fn add(&mut self, shares: &Shares, cgroup: CgroupId, truth: u64) {
        let share = (shares.owners.get(&owner(cgroup)).copied()).unwrap_or_default();
        let error = (share.count as f64 / truth as f64 - 1.0).abs();
        // Without a count there is no stated error; then the whole share is missing.
        let stated = shares.relative_error(&share).unwrap_or(1.0);
        self.squares += error * error;
        self.largest = self.largest.max(error);
        self.normalized_squares += (error / stated).powi(2);
        self.stated.push(stated);
        self.shares += 1;
    }

    /// The root mean square for a sum of squares.
    pub(super) fn mean(&self, squares: f64) -> f64 {
        assert!(self.shares > 0, "nothing to compare");
        (squares / f64::from(self.shares)).sqrt()
    }

    /// Median of the stated errors.
    pub(super) fn median(&self) -> f64 {
        let mut stated = self.stated.clone();
        stated.sort_by(f64::total_cmp);
        stated[stated.len() / 2]
    }

    pub(super) fn print(&self, load: &str, method: &str) {
        println!(
            "| {load} | {method} | {:.2} % | {:.2} % | {:.2} % | {:.2} |",
            100.0 * self.mean(self.squares),
            100.0 * self.largest,
            100.0 * self.median(),
            self.mean(self.normalized_squares),
        );
    }
}
