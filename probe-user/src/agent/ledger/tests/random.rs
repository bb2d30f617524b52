//! Random windows: no total decreases, whichever rows are folded or end.

use proptest::prelude::*;

use super::*;

/// What a counter does between two windows.
#[derive(Clone, Debug)]
enum Step {
    Gain(u64),
    Decrease(u64),
    Reset(bool),
}

proptest! {
    /// Whichever rows are folded, and whenever sessions end: no counter decreases, and nothing is
    /// counted twice or lost.
    #[test]
    fn no_total_decreases(
        windows in prop::collection::vec(
            (prop::collection::vec(0_u64..1000, 4), prop::collection::vec(any::<bool>(), 4), 0..8),
            1..40,
        ),
    ) {
        let mut ledger = Ledger::default();
        let mut counted = [0_u64; 4];
        let mut began = 0;
        let mut last: HashMap<Entity, u64> = HashMap::new();
        let mut total_counted = 0_u64;
        for (at, (gains, folds, event)) in windows.into_iter().enumerate() {
            // 0: a restart that continues the session's totals; 1: a restart that does not; 2: a
            // new session.
            if event <= 1 {
                ledger = restarted(&ledger);
                ledger.begin_session(Vec::new(), event == 0);
            }
            if event == 1 || event == 2 {
                ledger.begin_session(Vec::new(), false);
                counted = [0; 4];
                began = at as u64;
            }
            let mut rows = Vec::new();
            for id in 0..4_u8 {
                counted[id as usize] += gains[id as usize];
                total_counted += gains[id as usize];
                rows.push((id, began, counted[id as usize]));
            }
            let ids: Vec<u8> = (0..4).filter(|id| folds[*id as usize]).collect();
            let mut report = report(&rows);
            ledger.apply_totals(&mut report, &folded(&ids));
            for entity in (0..4).map(container).chain([Entity::Others]) {
                if let Some(now) = raw(&report, &entity) {
                    let before = last.insert(entity.clone(), now).unwrap_or(0);
                    prop_assert!(now >= before, "{entity:?}: {now} after {before}");
                }
            }
            prop_assert_eq!(last.values().sum::<u64>(), total_counted);
        }
    }

    /// A counter decreases a little, is reset, or is near `u64::MAX`: the maximum before each reset
    /// is counted once.
    #[test]
    fn a_small_decrease_is_no_gain(
        steps in prop::collection::vec(
            prop_oneof![
                (0_u64..1000).prop_map(Step::Gain),
                (1_u64..50).prop_map(Step::Decrease),
                any::<bool>().prop_map(Step::Reset),
            ],
            1..60,
        ),
        begins in prop_oneof![Just(0), Just(1_u64 << 48), Just(u64::MAX - 2000)],
    ) {
        let mut ledger = Ledger::default();
        let (mut start, mut counted, mut most, mut before) = (0, begins, begins, 0_u64);
        for step in [Step::Gain(0)].into_iter().chain(steps) {
            match step {
                Step::Gain(gain) => counted = counted.saturating_add(gain),
                Step::Decrease(back) => {
                    counted = counted.saturating_sub(back).max(most.div_ceil(2)).min(counted);
                }
                // A reset shows by a new start, or only by a fall to less than half.
                Step::Reset(shows_by_start) => {
                    start += u64::from(shows_by_start);
                    before = before.saturating_add(most);
                    counted = if shows_by_start { counted.min(100) } else { most / 3 };
                    most = counted;
                }
            }
            most = most.max(counted);
            let mut report = report(&[(1, start, counted)]);
            ledger.apply_totals(&mut report, &Folded::default());
            prop_assert_eq!(raw(&report, &container(1)), Some(before.saturating_add(most)));
        }
    }

    /// Processes enter and leave the top list, and sessions end. While a process runs, its counters
    /// never decrease, and each includes all of the current session.
    #[test]
    fn no_total_of_a_process_decreases(
        windows in prop::collection::vec(
            (prop::collection::vec((0_u64..1000, any::<bool>()), 3), 0..6),
            1..40,
        ),
    ) {
        let mut ledger = Ledger::default();
        let mut last = [None::<u64>; 3];
        let mut counted = [0_u64; 3];
        let mut began = 0;
        for (at, (gains, event)) in windows.into_iter().enumerate() {
            if event <= 1 {
                // 0: a restart that continues the session's totals; 1: a restart that does not.
                ledger = restarted(&ledger);
                ledger.begin_session(Vec::new(), event == 0);
                counted = [0; 3];
                began = at as u64 + 1;
            }
            let mut rows = Vec::new();
            for (id, (gain, is_top)) in (0..).zip(gains) {
                counted[usize::from(id)] += gain;
                if is_top {
                    rows.push((id, began, counted[usize::from(id)]));
                }
            }
            let mut report = report_of(&rows, process);
            if !ledger.apply_totals(&mut report, &Folded::default()) {
                ledger.forget(&HashSet::new(), |_| true);
            }
            for (id, _, in_session) in rows {
                let now = raw(&report, &process(id)).unwrap();
                let before = last[usize::from(id)].replace(now).unwrap_or(0);
                prop_assert!(now >= before && now >= in_session, "{id}: {now} after {before}");
            }
        }
    }
}
