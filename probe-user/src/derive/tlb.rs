//! Advice about the page size, for memory beyond the reach of a core's TLB with small pages and
//! within it with large pages.

use super::{
    FindingKind, FindingSubject, Report, ReportFinding, Series, capacity::bytes, capacity::float,
};
use crate::{
    catalogue::{TlbEntries, TlbSpec, walk_trips},
    join::MemoryCapacity,
    machine::memory::{MemoryUse, PageSizes},
};

/// The least ratio of page walks to data accesses at which large pages are worth trying.
const MIN_WALK_RATIO: f64 = 0.01;

/// The metric of page walks.
const WALK_RATIO: &str = "dtlb_walk_ratio";

/// Advice for the rows with memory that large pages may help. `walks`: the [`WALK_RATIO`] of a
/// subject, None if not counted.
pub(super) fn findings(
    tlb: &TlbSpec,
    pages: PageSizes,
    holders: &[(u32, MemoryCapacity)],
    walks: impl Fn(u32) -> Option<f64>,
) -> Vec<ReportFinding> {
    let Some(reach) = TlbReach::for_pages(tlb, pages) else {
        return Vec::new();
    };
    let mut advised: Vec<(u64, ReportFinding)> = holders
        .iter()
        .filter_map(|(subject, capacity)| {
            let text = reach.advice(&capacity.now, walks(*subject))?;
            let about = FindingSubject::Subject(*subject);
            Some((
                working_set(&capacity.now),
                ReportFinding {
                    kind: FindingKind::PageSize,
                    about,
                    text,
                    named: None,
                },
            ))
        })
        .collect();
    advised.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    advised.into_iter().map(|(_, finding)| finding).collect()
}

/// The ratio of page walks to data accesses of a row, if counted. Call it before shares are added:
/// until then, all series of the subject belong to its row.
pub(super) fn walk_ratio(report: &Report, subject: u32) -> Option<f64> {
    let of_row = |series: &&Series| series.subject == subject;
    let mut row = report.series.iter().filter(of_row);
    let walks = row.find(|series| report.metric(series).name == WALK_RATIO)?;
    Some(walks.estimate()?.value)
}

/// The bytes of memory accessed through the TLB: anonymous memory if known, else all memory.
fn working_set(held: &MemoryUse) -> u64 {
    held.anon.unwrap_or(held.used)
}

/// TLB entries for small and large pages.
struct TlbReach {
    small: TlbEntries,
    large: TlbEntries,
}

impl TlbReach {
    /// None if the catalogue has no entries for these page sizes.
    fn for_pages(tlb: &TlbSpec, pages: PageSizes) -> Option<Self> {
        Some(Self {
            small: tlb.entries_for(pages.small)?,
            large: tlb.entries_for(pages.huge?)?,
        })
    }

    /// The advice to use large pages. None if small pages suffice for the memory, if large pages do
    /// not, if most of it is in large pages already, or if the page table is rarely walked.
    fn advice(&self, held: &MemoryUse, walks: Option<f64>) -> Option<String> {
        let set = working_set(held);
        let Self { small, large } = self;
        let huge = held.huge.unwrap_or(0);
        let fits_large_alone = (small.reach() + 1..=large.reach()).contains(&set);
        if !fits_large_alone || huge > set / 2 || walks.is_some_and(|walks| walks < MIN_WALK_RATIO)
        {
            return None;
        }
        let of_what = match held.anon {
            Some(_) => "of anonymous memory",
            None => "of memory",
        };
        let mut text = format!(
            "its {} {of_what} are more than a core's TLB maps with pages of {} ({} x {} = {}), and \
             fit with pages of {} ({} x {} = {})",
            bytes(set),
            bytes(small.page),
            small.entries,
            bytes(small.page),
            bytes(small.reach()),
            bytes(large.page),
            large.entries,
            bytes(large.page),
            bytes(large.reach()),
        );
        if held.huge.is_some() {
            let share = 100.0 * float(huge) / float(set);
            text.push_str(&format!("; {share:.0}% of that is in huge pages"));
        }
        match walks {
            Some(walks) => text.push_str(&format!(
                "; {:.1}% of its data accesses walk the page table",
                walks * 100.0
            )),
            None => text.push_str(&format!(
                "; whether it walks the page table often is not counted (-M {WALK_RATIO})"
            )),
        }
        if let (Some(small), Some(large)) = (walk_trips(small.page), walk_trips(large.page)) {
            text.push_str(&format!(
                "; an access that walks takes up to {small} trips to memory with the small ones, \
                 {large} with the large ones, more in a virtual machine"
            ));
        }
        text.push_str(": try transparent huge pages (madvise(MADV_HUGEPAGE), or `always`)");
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{catalogue::Platform, join::MemoryPeak};

    const MIB: u64 = 1 << 20;
    const PAGES: PageSizes = PageSizes {
        small: 4096,
        huge: Some(2 * MIB),
    };

    /// Sandy Bridge: reaches 2 MiB with small pages and 64 MiB with large pages.
    fn snb() -> &'static TlbSpec {
        Platform::named("snb").unwrap().spec().tlb.as_ref().unwrap()
    }

    fn held(used: u64, anon: Option<u64>, huge: Option<u64>) -> MemoryUse {
        MemoryUse {
            used,
            anon,
            huge,
            ..MemoryUse::default()
        }
    }

    fn advice(held: &MemoryUse, walks: Option<f64>) -> Option<String> {
        TlbReach::for_pages(snb(), PAGES)
            .unwrap()
            .advice(held, walks)
    }

    #[test]
    fn advice_states_its_evidence() {
        let text = advice(&held(80 * MIB, Some(40 * MIB), Some(4 * MIB)), Some(0.023));
        assert_eq!(
            text.unwrap(),
            "its 40.0 MiB of anonymous memory are more than a core's TLB maps with pages of 4.0 \
             KiB (512 x 4.0 KiB = 2.0 MiB), and fit with pages of 2.0 MiB (32 x 2.0 MiB = 64.0 \
             MiB); 10% of that is in huge pages; 2.3% of its data accesses walk the page table; an \
             access that walks takes up to 5 trips to memory with the small ones, 4 with the large \
             ones, more in a virtual machine: try transparent huge pages (madvise(MADV_HUGEPAGE), \
             or `always`)"
        );
        let text = advice(&held(40 * MIB, None, None), None).unwrap();
        assert!(text.starts_with("its 40.0 MiB of memory are"), "{text}");
        assert!(text.contains("is not counted (-M dtlb_walk_ratio)"));
        assert!(!text.contains("huge pages;"), "{text}");
    }

    #[test]
    fn advice_is_only_for_memory_that_large_pages_help() {
        let anon = |bytes, huge| held(100 * MIB, Some(bytes), Some(huge));
        for (held, walks, expected) in [
            (anon(2 * MIB, 0), None, false),
            (anon(2 * MIB + 1, 0), None, true),
            (anon(64 * MIB, 0), None, true),
            (anon(64 * MIB + 1, 0), None, false),
            // Half of the memory is in large pages, then a byte more.
            (anon(40 * MIB, 20 * MIB), None, true),
            (anon(40 * MIB, 20 * MIB + 1), None, false),
            (anon(40 * MIB, 0), Some(0.0099), false),
            (anon(40 * MIB, 0), Some(0.01), true),
        ] {
            let text = advice(&held, walks);
            assert_eq!(text.is_some(), expected, "{held:?} {walks:?}");
        }
    }

    #[test]
    fn the_largest_memory_is_first_and_unknown_page_sizes_have_no_advice() {
        let capacity = |mib: u64| MemoryCapacity {
            now: held(mib * MIB, None, None),
            peak: MemoryPeak {
                bytes: 0,
                at: std::time::Duration::ZERO,
            },
        };
        let all: Vec<MemoryCapacity> = [10, 50, 1, 30, 20].map(capacity).into();
        let holders: Vec<(u32, MemoryCapacity)> = (0..).zip(all).collect();
        let advised = findings(snb(), PAGES, &holders, |_| None);
        let subjects: Vec<FindingSubject> = advised.iter().map(|finding| finding.about).collect();
        assert_eq!(subjects, [1, 3, 4, 0].map(FindingSubject::Subject));
        let walks_of_3 = |subject| Some(if subject == 3 { 0.5 } else { 0.0 });
        assert_eq!(findings(snb(), PAGES, &holders, walks_of_3).len(), 1);
        let arm = PageSizes {
            small: 65_536,
            huge: Some(512 * MIB),
        };
        let without = PageSizes {
            huge: None,
            ..PAGES
        };
        for pages in [arm, without] {
            assert!(findings(snb(), pages, &holders, |_| None).is_empty());
        }
    }
}
