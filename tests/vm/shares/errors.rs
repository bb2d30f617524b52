//! How far shares are from the truth, and from what they state of that.

use probe_common::CgroupId;
use probe_user::join::share::Shares;

use super::owner;

/// Errors of shares, as parts of the truth.
#[derive(Default)]
pub(super) struct Errors {
    pub(super) squares: f64,
    pub(super) largest: f64,
    pub(super) shares: u32,
    /// Of the errors as parts of `counting_error`.
    pub(super) in_units: f64,
    /// Each `counting_error`.
    pub(super) stated: Vec<f64>,
}

#[expect(clippy::cast_precision_loss, reason = "counts of a test")]
impl Errors {
    /// Takes in the share of a container that truly had `truth`.
    pub(super) fn add(&mut self, shares: &Shares, cgroup: CgroupId, truth: u64) {
        let share = shares.owners.get(&owner(cgroup)).copied();
        let share = share.unwrap_or_default();
        let error = (share.count as f64 / truth as f64 - 1.0).abs();
        // Without a count nothing is stated: then all of it is missing.
        let stated = shares.counting_error(&share).unwrap_or(1.0);
        self.squares += error * error;
        self.largest = self.largest.max(error);
        self.in_units += (error / stated).powi(2);
        self.stated.push(stated);
        self.shares += 1;
    }

    pub(super) fn mean(&self, squares: f64) -> f64 {
        assert!(self.shares > 0, "nothing to compare");
        (squares / f64::from(self.shares)).sqrt()
    }

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
            self.mean(self.in_units),
        );
    }
}
