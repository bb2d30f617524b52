//! Rows that the USAGE map refused, and the messages about them.

use probe_common::CpuCounts;

/// Refusals of the kernel to create a row, by reason, on all CPUs since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The map was full. A CPU that found it full tries again 10 ms later.
    pub full: u64,
    /// The kernel had no free memory.
    pub no_memory: u64,
    /// A part of the map was locked.
    pub contended: u64,
}

impl Refused {
    /// From the sum over CPUs.
    pub(crate) fn from_counts(sum: &CpuCounts) -> Self {
        Self {
            full: sum.full,
            no_memory: sum.no_memory,
            contended: sum.contended,
        }
    }

    /// The messages to the user about a map of `max_rows` rows: one for each reason that occurs for
    /// the first time after `before`.
    pub(crate) fn news(self, before: Self, max_rows: u32) -> Vec<String> {
        let mut messages = Vec::new();
        if before.full == 0 && self.full > 0 {
            messages.push(format!(
                "the map of rows is full ({max_rows}): what has no row is counted as `system \
                 (overflow)`; --max-rows makes it larger"
            ));
        }
        if before.no_memory == 0 && self.no_memory > 0 {
            messages.push(
                "the kernel had no free memory for a row: what has no row is counted as `system \
                 (overflow)`; free some memory if refused_rows_no_memory (--self) goes on growing"
                    .to_owned(),
            );
        }
        if before.contended == 0 && self.contended > 0 {
            messages.push(
                "the map of rows was locked when a row had to be made: what has no row is counted \
                 as `system (overflow)`; please report it if refused_rows_locked (--self) goes on \
                 growing"
                    .to_owned(),
            );
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_reported_once_by_its_name() {
        let none = Refused::default();
        assert_eq!(none.news(none, 2), [""; 0]);
        let all = Refused {
            full: 1,
            no_memory: 1,
            contended: 1,
        };
        let messages = all.news(none, 16_384);
        let words = ["is full (16384): ", "no free memory", "locked"];
        assert_eq!(messages.len(), words.len());
        for (text, word) in messages.iter().zip(words) {
            assert!(text.contains(word), "{text}");
        }
        let later = Refused { full: 9, ..all };
        assert_eq!(later.news(all, 16_384), [""; 0]);
        let full = Refused { full: 1, ..none };
        assert_eq!(full.news(none, 2).len(), 1);
    }
}
