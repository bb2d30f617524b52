//! The events of a plan ([`PlanEvents`]), and their positions in another plan ([`PlanPositions`]).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    join::Rows,
    plan::{Plan, Planned},
    window::{Totals, UncoreTotal, Usage},
};

/// The events of a plan, by position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlanEvents {
    /// The events of each group, as they are opened.
    groups: Vec<Vec<String>>,
    uncore: Vec<String>,
}

/// For each position of the current plan, the position of the same events in an earlier plan.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlanPositions {
    /// By group of the current plan; None for a group of new events.
    groups: Vec<Option<usize>>,
    uncore: Vec<Option<usize>>,
}

impl PlanEvents {
    pub(super) fn from_plan(plan: &Plan) -> Self {
        let group = |group: &Vec<Planned>| group.iter().map(Planned::opened).collect();
        Self {
            groups: plan.groups.iter().map(group).collect(),
            uncore: plan.uncore.iter().map(Planned::opened).collect(),
        }
    }
}

/// The index of `wanted` in the list. If several elements are equal, `at` is preferred.
fn position<T: PartialEq>(list: &[T], at: usize, wanted: &T) -> Option<usize> {
    let here = (list.get(at) == Some(wanted)).then_some(at);
    here.or_else(|| list.iter().position(|other| other == wanted))
}

impl PlanPositions {
    /// Compares two plans; None if an event is in another group than before. A group is scaled as a
    /// whole: its counts continue together or not at all.
    pub(super) fn between(before: &PlanEvents, now: &PlanEvents) -> Option<Self> {
        let known = |event: &String| before.groups.iter().any(|group| group.contains(event));
        let group = |(at, group): (usize, &Vec<String>)| {
            let same = position(&before.groups, at, group);
            (same.is_some() || !group.iter().any(known)).then_some(same)
        };
        let uncore = now.uncore.iter().enumerate();
        Some(Self {
            groups: now
                .groups
                .iter()
                .enumerate()
                .map(group)
                .collect::<Option<_>>()?,
            uncore: uncore
                .map(|(at, event)| position(&before.uncore, at, event))
                .collect(),
        })
    }

    /// The totals, in the positions of the current plan.
    pub(super) fn totals<'a>(&self, totals: Totals<'a>) -> Totals<'a> {
        let mut total = totals.total.into_owned();
        total.total = self.usage(&total.total);
        let at = |total: &UncoreTotal| {
            let at = self
                .uncore
                .iter()
                .position(|from| *from == Some(total.at))?;
            Some(UncoreTotal { at, ..*total })
        };
        let uncore: Vec<UncoreTotal> = totals.uncore.iter().filter_map(at).collect();
        Totals {
            total: Cow::Owned(total),
            uncore: Cow::Owned(uncore),
            ..totals
        }
    }

    /// The rows, with totals in the positions of the current plan.
    pub(super) fn rows(&self, rows: Rows<Usage>) -> Rows<Usage> {
        rows.map_totals(|usage| self.usage(usage))
    }

    fn usage(&self, usage: &Usage) -> Usage {
        let total = |from: &Option<usize>| usage.get((*from)?).cloned().flatten();
        self.groups.iter().map(total).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(groups: &[&[&str]], uncore: &[&str]) -> PlanEvents {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        PlanEvents {
            groups: groups.iter().map(|group| list(group)).collect(),
            uncore: list(uncore),
        }
    }

    #[test]
    fn groups_keep_their_totals_at_new_positions() {
        let before = counts(&[&["a", "b"], &["c"]], &["x", "y"]);
        let now = counts(&[&["c"], &["d"], &["a", "b"]], &["y", "z"]);
        let positions = PlanPositions::between(&before, &now).unwrap();
        assert_eq!(positions.groups, [Some(1), None, Some(0)]);
        assert_eq!(positions.uncore, [Some(1), None]);
        // Equal groups each have their own totals.
        let twice = counts(&[&["a"], &["a"]], &["x", "x"]);
        let positions = PlanPositions::between(&twice, &twice).unwrap();
        assert_eq!(positions.groups, [Some(0), Some(1)]);
        assert_eq!(positions.uncore, [Some(0), Some(1)]);
    }

    #[test]
    fn an_event_in_another_group_starts_from_zero() {
        let before = counts(&[&["a", "b"], &["c"]], &[]);
        for now in [&[&["a"][..]][..], &[&["b", "a"]], &[&["a", "b", "c"]]] {
            assert_eq!(
                PlanPositions::between(&before, &counts(now, &[])),
                None,
                "{now:?}"
            );
        }
    }
}
