//! Divides waits among the owners that ran meanwhile, over random sequences of switches: the parts
//! add up to the wait, and each belongs to the right owner.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use probe_common::{CgroupId, CpuState, WaitSlice, WaitSlices, WaitSpan};
use proptest::prelude::*;

/// A CPU as the program at `sched_switch` keeps it, and all slices that it ever had.
struct Cpu {
    state: CpuState,
    ring: WaitSlices,
    /// Beginning, end and owner of each slice.
    history: Vec<(u64, u64, CgroupId)>,
}

type Parts = BTreeMap<CgroupId, u64>;

impl Cpu {
    fn new() -> Self {
        let slice = WaitSlice {
            end: 0,
            owner: CgroupId(0),
        };
        let mut state = CpuState::ZERO;
        state.owner = CgroupId::EARLIER;
        Self {
            state,
            ring: WaitSlices {
                slices: [slice; WaitSlices::KEPT],
                count: 0,
            },
            history: Vec::new(),
        }
    }

    fn switch(&mut self, at: u64, next: CgroupId) {
        let owner = self.state.owner;
        self.ring.close(&mut self.state, at);
        self.state.owner = next;
        let began = self.began();
        let end = at.max(began);
        match self.history.last_mut() {
            Some(last) if last.2 == owner => last.1 = end,
            _ => self.history.push((began, end, owner)),
        }
    }

    /// When the open slice began.
    fn began(&self) -> u64 {
        self.history.last().map_or(0, |(_, end, _)| *end)
    }

    /// Divides a wait as the eBPF program does.
    fn divide(&self, mut wait: WaitSpan) -> Parts {
        let mut parts = Parts::new();
        let mut add = |owner, nanos| *parts.entry(owner).or_default() += nanos;
        add(self.state.owner, wait.take_since(self.state.slice_began));
        if wait.queued >= self.state.previous_slice_began {
            add(self.state.previous_owner, wait.end - wait.queued);
            return parts;
        }
        for back in 1..=self.ring.known() {
            let owner = self.ring.back(back).owner;
            add(owner, wait.take_since(self.ring.back(back + 1).end));
            if wait.is_divided() {
                return parts;
            }
        }
        add(CgroupId::EARLIER, wait.end - wait.queued);
        parts
    }

    /// Divides a wait by the whole history.
    fn expected(&self, wait: WaitSpan) -> Parts {
        let mut parts = Parts::new();
        let open = (self.began(), u64::MAX, self.state.owner);
        let known = self.history.len().min(WaitSlices::KEPT) - 1;
        let oldest = self.history.len() - known;
        let slices = self.history.iter().copied().enumerate();
        for (at, (began, end, owner)) in slices.chain([(usize::MAX, open)]) {
            let owner = if at < oldest {
                CgroupId::EARLIER
            } else {
                owner
            };
            let part = wait.end.min(end).saturating_sub(wait.queued.max(began));
            *parts.entry(owner).or_default() += part;
        }
        parts
    }
}

fn without_zeros(parts: Parts) -> Parts {
    parts.into_iter().filter(|(_, nanos)| *nanos != 0).collect()
}

/// Lengths as they occur: zero, microseconds of bursts, slices of milliseconds.
fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        1_u64..50,
        1_000_u64..100_000,
        1_000_000_u64..50_000_000
    ]
}

proptest! {
    /// Covers few and many owners, idle among them, and more slices than the ring holds. The clock
    /// at a switch may be older than at the switch before.
    #[test]
    fn the_parts_of_a_wait_add_up_to_it(
        owners in 1_u64..100,
        switches in prop::collection::vec((length(), any::<u64>(), 0_u8..10), 1..300),
        (since_switch, waited_share) in (length(), 0.0..1.0),
    ) {
        let mut cpu = Cpu::new();
        let mut now = 1_000_000_000;
        cpu.switch(now, CgroupId::IDLE);
        for (ran, next, late) in switches {
            now += ran;
            let at = now - if late == 0 { 500 } else { 0 };
            let next = match next % owners {
                0 => CgroupId::IDLE,
                next => CgroupId(next),
            };
            cpu.switch(at, next);
        }
        // A wait ends with the switch that opened the last slice, or during that slice.
        let end = now + since_switch;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^53")]
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let queued = 1_000_000_000 + ((end - 1_000_000_000) as f64 * waited_share) as u64;
        let wait = WaitSpan { queued, end };
        let parts = cpu.divide(wait);
        prop_assert_eq!(parts.values().sum::<u64>(), end - queued);
        prop_assert_eq!(without_zeros(parts), without_zeros(cpu.expected(wait)));
    }
}
