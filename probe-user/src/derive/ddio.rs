//! Conclusions of Intel's paper on DDIO from its metrics: which writes of devices bypass the cache,
//! and what to try if requests of devices miss the cache.

use super::{FindingKind, FindingSubject, Report, ReportFinding, ReportSection, Subject};

/// One piece of advice of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What to do.
    pub what: &'static str,
    /// The metrics that should fall as a result.
    pub lowers: &'static [&'static str],
}

const READS: &str = "io_percent_of_inbound_reads_that_miss_l3";
const FULL_WRITES: &str = "io_percent_of_inbound_full_writes_that_miss_l3";
const PARTIAL_WRITES: &str = "io_percent_of_inbound_partial_writes_that_miss_l3";
const NON_ALLOCATING: &str = "io_writes_not_allocated";

/// The advice of the paper's section 4, in its order. `lowers` has the metrics that improve by
/// section 4 or 5.2.
const ADVICE: [Advice; 5] = [
    Advice {
        what: "reuse the memory of I/O buffers: allocate enough of them once",
        lowers: &[FULL_WRITES, "memory_bandwidth_total"],
    },
    Advice {
        what: "use again first what was used last: keep free buffers on a stack, not in a queue",
        lowers: &[READS, "memory_bandwidth_read"],
    },
    Advice {
        what: "process what comes in sooner, in batches or on more cores",
        lowers: &[FULL_WRITES, "l2_miss_latency"],
    },
    Advice {
        what: "make the working set smaller, such as the rings of the network device (`ethtool \
               -G`)",
        lowers: &[FULL_WRITES, READS, "l2_miss_latency"],
    },
    Advice {
        what: "give I/O more ways of the LLC (register IO_LLC_WAYS)",
        lowers: &[FULL_WRITES, PARTIAL_WRITES],
    },
];

/// A metric of a socket: name, socket and value.
type SocketValue<'a> = (&'a str, u32, f64);

/// Values of sockets and devices from series `first` on.
fn socket_values(report: &Report, first: usize) -> impl Iterator<Item = SocketValue<'_>> {
    let places = report
        .groups_from(first)
        .filter(|group| group.section == ReportSection::Uncore);
    let series = places.flat_map(|group| group.series.iter().map(move |it| (group.subject, it)));
    series.filter_map(|(subject, series)| {
        let Subject::Place(place, _) = subject else {
            return None;
        };
        let name = report.metric(series).name.as_str();
        Some((name, place.socket?, series.estimate()?.value))
    })
}

/// Findings about writes that bypass the cache, by socket.
pub(super) fn findings(report: &Report, first: usize) -> Vec<ReportFinding> {
    let findings = socket_values(report, first).filter_map(|(metric, socket, part)| {
        let text = ddio_finding(metric, part, &format!("socket {socket}"))?;
        let about = FindingSubject::Socket(socket);
        Some(ReportFinding {
            kind: FindingKind::InboundWrites,
            about,
            text,
            named: None,
        })
    });
    findings.collect()
}

/// The paper's advice for the values of a report.
pub(super) fn advice(report: &Report, first: usize) -> &'static [Advice] {
    ddio_advice(socket_values(report, first).map(|(metric, _, value)| (metric, value)))
}

/// The finding about the inbound writes of the devices of `place`, which is empty for the whole
/// machine.
///
/// By the paper's Table 1, CLFLUSH occurs if non-allocating writes are configured. The paper gives
/// no threshold, so every percentage that does not round to 0.0 is reported. DDIO is reported as
/// off if the percentage rounds to 100.0: in Table 8 almost no write ends with WBMTOI (218 for
/// 570,128,486 CLFLUSH).
#[must_use]
pub fn ddio_finding(metric: &str, part: f64, place: &str) -> Option<String> {
    if metric != NON_ALLOCATING {
        return None;
    }
    let part = format!("{part:.1}");
    let off = match part.as_str() {
        "0.0" => return None,
        "100.0" => ": DDIO is off for them, by the BIOS or by the device",
        _ => "",
    };
    let of = if place.is_empty() { "" } else { " of " };
    Some(format!(
        "{part} % of the inbound writes{of}{place} do not allocate in the cache (they end with \
         CLFLUSH in place of WBMTOI){off}"
    ))
}

/// The largest excess of hits plus misses over all requests in the paper, in percent (Tables 7 and
/// 8; the catalogue's note `no_hit_share`). A share of misses up to this may consist of hits.
const COUNTED_TWICE: f64 = 7.8;

/// The paper's advice, if the share of device requests that miss the cache is above
/// `COUNTED_TWICE`.
pub fn ddio_advice<'a>(values: impl Iterator<Item = (&'a str, f64)>) -> &'static [Advice] {
    let misses = |(metric, value): (&str, f64)| {
        [READS, FULL_WRITES, PARTIAL_WRITES].contains(&metric) && value > COUNTED_TWICE
    };
    let mut values = values;
    if values.any(misses) { &ADVICE } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;

    /// Table 8: 570,128,486 flushes and 218 writebacks without allocation; no flush and 657,470,490
    /// writebacks with allocation.
    #[test]
    fn writes_past_the_cache_are_reported() {
        let part = 100.0 * 570_128_486.0 / (570_128_486.0 + 218.0);
        let found = ddio_finding(NON_ALLOCATING, part, "socket 0").unwrap();
        assert_eq!(ddio_finding(NON_ALLOCATING, 0.0, "socket 1"), None);
        assert_eq!(
            found,
            "100.0 % of the inbound writes of socket 0 do not allocate in the cache (they end \
             with CLFLUSH in \
             place of WBMTOI): DDIO is off for them, by the BIOS or by the device"
        );
    }

    /// One flush among 10^9 writes is no finding. Partial allocation does not mean that DDIO is
    /// off.
    #[test]
    fn a_stray_flush_is_no_finding() {
        let percent = 100.0 / (1.0 + 1e9);
        assert_eq!(ddio_finding(NON_ALLOCATING, percent, "socket 0"), None);
        let partial = ddio_finding(NON_ALLOCATING, 40.0, "socket 1").unwrap();
        assert_eq!(
            partial,
            "40.0 % of the inbound writes of socket 1 do not allocate in the cache (they end with \
             CLFLUSH in place of \
             WBMTOI)"
        );
    }

    #[test]
    fn advice_requires_misses() {
        let advice = |metric, value| ddio_advice([(metric, value)].into_iter());
        for few in [0.0, 0.0001, COUNTED_TWICE] {
            assert!(advice(FULL_WRITES, few).is_empty(), "{few}");
        }
        assert!(advice("memory_bandwidth_total", 5.0).is_empty());
        assert_eq!(advice(READS, 74.0), ADVICE);
    }

    /// The metrics of the advice are in the view that gives it.
    #[test]
    fn every_metric_of_the_advice_is_in_the_view() {
        let catalogue = Catalogue::builtin().unwrap();
        let machine = crate::catalogue::Hardware::of_chip(
            crate::catalogue::Chip::named("sapphire-rapids").unwrap(),
        );
        let view = catalogue.select("group:ddio", &machine).unwrap();
        let names: Vec<&str> = view.iter().map(|metric| metric.name.as_str()).collect();
        let wanted = ADVICE.iter().flat_map(|advice| advice.lowers);
        for name in wanted.chain(&[NON_ALLOCATING]) {
            assert!(names.contains(name), "{name} is not in group:ddio");
        }
    }
}
