//! What a report says of one cgroup.

use probe_user::{
    derive::{Report, Row},
    join::{By, Entity, View},
    window::Window,
};

use crate::support::{Counting, TestCgroup};

/// A report of the window by cgroup.
pub(crate) fn report(counting: &Counting, window: &Window) -> Report {
    let plan = counting.session.plan();
    let view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let joined = view.join(window, plan.groups.len());
    Report::new(plan, window, &joined, window.start)
}

/// The cgroup's row of a report of the window.
pub(crate) fn row(counting: &Counting, window: &Window, cgroup: &TestCgroup) -> Row<Entity> {
    let report = report(counting, window);
    let label = Entity::Cgroup(cgroup.path.clone());
    let row = report.rows.into_iter().find(|row| row.label == label);
    row.unwrap_or_else(|| panic!("{} has no row", cgroup.path))
}
