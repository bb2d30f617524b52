//! Packs sets of events that must be counted together into few groups that the PMU can run.

/// Groups, and the group of each event set.
#[derive(Debug, PartialEq)]
pub(crate) struct Packed<E> {
    pub(crate) groups: Vec<Vec<E>>,
    /// For each event set, the index of the group that has all of it; `None` if the set does not
    /// fit even alone.
    pub(crate) group_of: Vec<Option<usize>>,
}

/// Puts every event set as a whole into one group, the largest first. A set goes to the group that
/// already has most of its events and can take the others, else to a new one.
pub(crate) fn pack<E: Clone + PartialEq>(
    event_sets: &[Vec<E>],
    mut fits: impl FnMut(&[E]) -> bool,
) -> Packed<E> {
    let mut order: Vec<usize> = (0..event_sets.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(event_sets[*index].len()));
    let mut groups: Vec<Vec<E>> = Vec::new();
    let mut group_of = vec![None; event_sets.len()];
    for index in order {
        let event_set = &event_sets[index];
        let shared_count = |group: &Vec<E>| {
            event_set
                .iter()
                .filter(|event| group.contains(event))
                .count()
        };
        let mut candidates: Vec<usize> = (0..groups.len()).collect();
        candidates.sort_by_key(|group| std::cmp::Reverse(shared_count(&groups[*group])));
        let place = candidates
            .into_iter()
            .map(|group| (group, union(&groups[group], event_set)))
            .find(|(group, union)| union.len() == groups[*group].len() || fits(union));
        match place {
            Some((group, union)) => {
                groups[group] = union;
                group_of[index] = Some(group);
            }
            None => {
                let alone = union(&[], event_set);
                if fits(&alone) {
                    groups.push(alone);
                    group_of[index] = Some(groups.len() - 1);
                }
            }
        }
    }
    Packed { groups, group_of }
}

fn union<E: Clone + PartialEq>(group: &[E], event_set: &[E]) -> Vec<E> {
    let mut union = group.to_vec();
    for event in event_set {
        if !union.contains(event) {
            union.push(event.clone());
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether a group fits on a PMU with that many counters, and one more that only event 0 can
    /// use.
    fn pmu_with(counters: usize) -> impl Fn(&[u8]) -> bool {
        move |group| group.iter().filter(|event| **event != 0).count() <= counters
    }

    #[test]
    fn metrics_that_share_events_share_groups() {
        let event_sets = [
            vec![1, 0],
            vec![2, 3],
            vec![4, 3],
            vec![1, 5],
            vec![6, 7, 8, 0],
        ];
        let packed = pack(&event_sets, pmu_with(5));
        assert_eq!(
            packed.groups,
            [vec![6, 7, 8, 0, 1, 5], vec![2, 3, 4]],
            "{packed:?}"
        );
        assert_eq!(
            packed.group_of,
            [Some(0), Some(1), Some(1), Some(0), Some(0)]
        );
    }

    #[test]
    fn an_event_set_that_does_not_fit_alone_has_no_group() {
        let packed = pack(&[vec![1, 2, 3], vec![4]], pmu_with(2));
        assert_eq!(packed.groups, [vec![4]]);
        assert_eq!(packed.group_of, [None, Some(0)]);
    }

    proptest! {
        #[test]
        fn every_event_set_is_whole_and_every_group_fits(
            event_sets in prop::collection::vec(prop::collection::vec(0_u8..20, 1..7), 0..30),
            counters in 1_usize..8,
        ) {
            let packed = pack(&event_sets, pmu_with(counters));
            for group in &packed.groups {
                prop_assert!(pmu_with(counters)(group));
                prop_assert_eq!(union(&[], group).len(), group.len());
            }
            for (event_set, group) in event_sets.iter().zip(&packed.group_of) {
                match group {
                    Some(group) => {
                        let group = &packed.groups[*group];
                        prop_assert!(event_set.iter().all(|event| group.contains(event)));
                    }
                    None => prop_assert!(!pmu_with(counters)(&union(&[], event_set))),
                }
            }
        }
    }
}
