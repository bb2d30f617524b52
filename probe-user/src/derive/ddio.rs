//! What Intel's paper on DDIO says to the values of its metrics: which writes go past the cache, and what to
//! try where requests of devices miss it.

use super::PlaceRow;

/// Something that a socket's values say in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The socket.
    pub socket: u32,
    /// A sentence.
    pub text: String,
}

/// What the paper advises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What to do.
    pub what: &'static str,
    /// The metrics that should fall then.
    pub lowers: &'static [&'static str],
}

const READS: &str = "io_percent_of_inbound_reads_that_miss_l3";
const FULL_WRITES: &str = "io_percent_of_inbound_full_writes_that_miss_l3";
const PARTIAL_WRITES: &str = "io_percent_of_inbound_partial_writes_that_miss_l3";
const NON_ALLOCATING: &str = "io_writes_not_allocated";

/// Section 4, in its order; the metrics are those of which it, or section 5.2, says that they improve.
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
        what: "make the working set smaller, such as the rings of the network device (`ethtool -G`)",
        lowers: &[FULL_WRITES, READS, "l2_miss_latency"],
    },
    Advice {
        what: "give I/O more ways of the LLC (register IO_LLC_WAYS)",
        lowers: &[FULL_WRITES, PARTIAL_WRITES],
    },
];

/// Writes that go past the cache, by socket.
///
/// By the paper's Table 1, CLFLUSH occurs where non-allocating writes are configured. It gives no threshold,
/// so any part is said that does not round to none in the digits it is said with. That DDIO is off is said
/// where as good as no write ends with WBMTOI, as in Table 8 (218 for 570,128,486 CLFLUSH): all of them in the
/// same digits.
pub(super) fn findings(places: &[PlaceRow]) -> Vec<Finding> {
    let of_metric = places
        .iter()
        .filter(|row| row.metric.name == NON_ALLOCATING);
    of_metric
        .filter_map(|row| {
            let part = row.value.as_ref().ok()?.value;
            let socket = row.place.socket?;
            let part = format!("{part:.1}");
            let off = match part.as_str() {
                "0.0" => return None,
                "100.0" => ": DDIO is off for them, by the BIOS or by the device",
                _ => "",
            };
            let text = format!(
                "{part} % of the inbound writes of socket {socket} do not allocate in the cache (they end with \
                 CLFLUSH in place of WBMTOI){off}"
            );
            Some(Finding { socket, text })
        })
        .collect()
}

/// The paper's advice, where requests of devices miss the cache at all.
pub(super) fn advice(places: &[PlaceRow]) -> &'static [Advice] {
    let misses = |row: &PlaceRow| {
        let of_misses = [READS, FULL_WRITES, PARTIAL_WRITES].contains(&row.metric.name.as_str());
        of_misses && row.value.as_ref().is_ok_and(|value| value.value > 0.0)
    };
    if places.iter().any(misses) {
        &ADVICE
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        catalogue::{Catalogue, Place},
        derive::{Measured, MetricHead},
        formula::NoValue,
    };

    fn row(metric: &str, socket: u32, value: Option<f64>) -> PlaceRow {
        let value = value.map(|value| Measured {
            value,
            live: 1.0,
            interval: None,
            error: None,
        });
        PlaceRow {
            place: Place {
                socket: Some(socket),
                ..Place::default()
            },
            devices: Vec::new(),
            metric: MetricHead {
                name: metric.to_owned(),
                unit: "%".to_owned(),
            },
            value: value.ok_or(NoValue::NeverRan(metric.to_owned())),
        }
    }

    /// Table 8: without allocation 570,128,486 flushes and 218 writebacks, with it none and 657,470,490.
    #[test]
    fn writes_past_the_cache_are_said() {
        let part = 100.0 * 570_128_486.0 / (570_128_486.0 + 218.0);
        let rows = [
            row(NON_ALLOCATING, 0, Some(part)),
            row(NON_ALLOCATING, 1, Some(0.0)),
            row(NON_ALLOCATING, 2, None),
        ];
        let found = findings(&rows);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].text,
            "100.0 % of the inbound writes of socket 0 do not allocate in the cache (they end with CLFLUSH in \
             place of WBMTOI): DDIO is off for them, by the BIOS or by the device"
        );
    }

    /// One flush among 10^9 writes is said of nobody, and of what allocates in part not that DDIO is off.
    #[test]
    fn a_stray_flush_is_no_finding() {
        let one = 100.0 / (1.0 + 1e9);
        assert_eq!(findings(&[row(NON_ALLOCATING, 0, Some(one))]), []);
        let some = findings(&[row(NON_ALLOCATING, 1, Some(40.0))]);
        assert_eq!(some.len(), 1);
        assert_eq!(
            some[0].text,
            "40.0 % of the inbound writes of socket 1 do not allocate in the cache (they end with CLFLUSH in place of \
             WBMTOI)"
        );
    }

    #[test]
    fn advice_is_for_who_misses() {
        assert_eq!(advice(&[row(FULL_WRITES, 0, Some(0.0))]), []);
        assert_eq!(advice(&[row("memory_bandwidth_total", 0, Some(5.0))]), []);
        assert_eq!(advice(&[row(READS, 1, Some(74.0))]).len(), 5);
    }

    /// What should fall can be counted, and by the view that gives the advice.
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
