//! The most accessed pages of each process, by samples.

use std::collections::{BTreeMap, BTreeSet};

use probe_common::spe::{PageKey, PageRow};

use super::{Estimate, MEAN_LATENCY, ReportTable, TableCell};

/// The column of the number of samples of a page.
pub(crate) const SAMPLES: &str = "memory_access_samples";

/// The table of the `shown` most accessed pages of each process.
pub(super) fn hottest(pages: &[(PageKey, PageRow)], shown: usize) -> ReportTable {
    let row = |page: HotPage| {
        vec![
            TableCell::Number(page.tgid.into()),
            TableCell::Address(page.address),
            TableCell::Number(page.samples),
            TableCell::Estimate(page.mean.map(Estimate::exact)),
        ]
    };
    ReportTable {
        name: "pages",
        columns: vec!["pid", "address", SAMPLES, MEAN_LATENCY],
        counts: Vec::new(),
        rows: hottest_pages(pages, shown).into_iter().map(row).collect(),
        small_rows: BTreeSet::new(),
    }
}

/// A page of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct HotPage {
    tgid: u32,
    /// Address of its first byte.
    address: u64,
    samples: u64,
    /// Mean total latency in cycles; None if no sample has a latency. The distribution is not kept,
    /// so the error is unknown.
    mean: Option<f64>,
}

fn hottest_pages(pages: &[(PageKey, PageRow)], shown: usize) -> Vec<HotPage> {
    let mut processes: BTreeMap<u64, Vec<&(PageKey, PageRow)>> = BTreeMap::new();
    for page in pages {
        processes.entry(page.0.tgid).or_default().push(page);
    }
    let size = rustix::param::page_size() as u64;
    let of_process = processes.into_values().flat_map(|mut pages| {
        pages.sort_by_key(|(key, row)| (std::cmp::Reverse(row.samples), key.page));
        pages.into_iter().take(shown).map(|(key, row)| HotPage {
            tgid: u32::try_from(key.tgid).unwrap_or_default(),
            address: key.page.wrapping_mul(size),
            samples: row.samples,
            mean: mean(row),
        })
    });
    of_process.collect()
}

#[expect(clippy::cast_precision_loss, reason = "sums of a window, below 2^53")]
fn mean(row: &PageRow) -> Option<f64> {
    (row.timed > 0).then(|| row.cycles as f64 / row.timed as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_its_hottest_pages() {
        let page = |tgid, page, samples| {
            // Latencies alternate between 9 and 11; the last sample has none.
            let words = [samples, samples - 1, 10 * (samples - 1), 1];
            (PageKey { page, tgid }, PageRow::from_words(&words))
        };
        let pages = [page(1, 5, 3), page(1, 6, 9), page(1, 7, 4), page(2, 5, 1)];
        let hot = hottest_pages(&pages, 2);
        let shown: Vec<_> = hot.iter().map(|page| (page.tgid, page.samples)).collect();
        assert_eq!(shown, [(1, 9), (1, 4), (2, 1)]);
        let mean = hot[0].mean.unwrap();
        assert!((mean - 10.0).abs() < 1e-12, "{mean:?}");
        assert_eq!(hot[2].mean, None);
        assert_eq!(hottest_pages(&pages, 0), []);
    }
}
