//! Options of a recording (sizes, period, filters), and the resulting `perf_event_attr`s.

use std::{fmt, str::FromStr};

use perf_event_open_sys::bindings::perf_event_attr;

use super::{RecordError, wire};
use crate::{
    event::{
        Counter,
        sampling::{Rate, SampledEvent},
        spe::{self, PERIOD_STEP, SpeEvent},
    },
    machine::Pmus,
    sys::{perf, samples},
};

/// A size in bytes, written with a suffix: `64K`, `1M`, `2G` are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// The text is not a size.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no size: write bytes, or a number with K, M or G behind it, such as 512K or 1M")]
pub struct SizeError(String);

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let wrong = || SizeError(text.to_owned());
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, suffix) = text.split_at(digits);
        let shift = match suffix.strip_suffix("iB").unwrap_or(suffix) {
            "" if suffix.is_empty() => 0,
            "K" | "k" => 10,
            "M" => 20,
            "G" => 30,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "G"), (20, "M"), (10, "K")];
        let divides = |(shift, _): &&(u32, &str)| self.0 != 0 && self.0.trailing_zeros() >= *shift;
        match units.iter().find(divides) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Sizes that each buffer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// The ring of records about AUX bytes and processes.
    pub ring: Size,
    /// The AUX area for samples.
    pub aux: Size,
    /// Number of AUX bytes after which the kernel wakes the reader; None: half the area.
    pub watermark: Option<Size>,
}

impl Buffers {
    /// Checks sizes that the kernel would refuse without a reason (`perf_mmap`,
    /// `arm_spe_pmu_setup_aux`), for pages of `page` bytes.
    pub(super) fn check(self, page: u64) -> Result<(), RecordError> {
        let wrong = |what, size, reason: String| Err(RecordError::Size { what, size, reason });
        for (what, size, pages) in [("--ring", self.ring, 1), ("--aux", self.aux, 2)] {
            let least = Size(pages * page);
            if !size.0.is_power_of_two() {
                let reason = "it must be a power of two".to_owned();
                return wrong(what, size, reason);
            }
            if size < least {
                let page = Size(page);
                let reason = format!("with pages of {page} it must be at least {least}");
                return wrong(what, size, reason);
            }
            if size.0 > 1 << 31 {
                return wrong(what, size, "it must be at most 2G".to_owned());
            }
        }
        match self.watermark {
            Some(watermark) if watermark > self.aux || watermark.0 == 0 => {
                let reason = format!("it must be from 1 to --aux, which is {}", self.aux);
                wrong("--watermark", watermark, reason)
            }
            _ => Ok(()),
        }
    }
}

/// SPE options, in terms of the driver's `format/` directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeOptions {
    /// Operations from one sample to the next. The driver raises this to the core's minimum
    /// interval and clears the low eight bits.
    pub period: u64,
    /// Terms as in perf's `arm_spe_0/TERMS/`.
    pub terms: String,
}

impl SpeOptions {
    /// The core's minimum interval (`caps/min_interval`). With several kinds of core, the largest
    /// of their minimum intervals.
    ///
    /// # Errors
    ///
    /// If the machine has no readable SPE.
    pub fn least_period(pmus: &Pmus) -> Result<u64, RecordError> {
        let least = spe::pmus(pmus)?.into_iter().map(spe::min_interval);
        Ok(least.max().unwrap_or(PERIOD_STEP))
    }

    /// The period that the driver uses for `period`, where `least` is the core's minimum interval
    /// (`drivers/perf/arm_spe_pmu.c`, `PMSIRR_EL1`).
    #[must_use]
    pub const fn effective_period(period: u64, least: u64) -> u64 {
        const INTERVAL: u64 = 0xffff_ff00;
        let raised = if period < least { least } else { period };
        if raised > INTERVAL {
            INTERVAL
        } else {
            raised & INTERVAL
        }
    }

    /// Checks that this machine supports these options, by the rules of `pmuscope mem`.
    ///
    /// # Errors
    ///
    /// If the machine has no SPE, or its SPE does not support the terms or the period.
    pub fn check(&self, pmus: &Pmus) -> Result<(), RecordError> {
        spe::period(pmus, self.period)?;
        self.events(pmus).map(drop)
    }

    /// Mean number of operations from one sample to the next, including jitter. With several kinds
    /// of core, the largest of their means.
    ///
    /// # Errors
    ///
    /// If the machine has no SPE, or its SPE does not support the terms.
    #[expect(clippy::cast_precision_loss, reason = "a period is below 2^32")]
    pub fn mean_period(&self, pmus: &Pmus) -> Result<f64, RecordError> {
        let events = self.events(pmus)?;
        let jitter = events.iter().map(|event| event.jitter).fold(0.0, f64::max);
        Ok(self.period as f64 + jitter)
    }

    /// The events to open, one for each SPE PMU.
    pub(super) fn events(&self, pmus: &Pmus) -> Result<Vec<SpeEvent>, RecordError> {
        Ok(spe::events(pmus, &self.terms)?)
    }
}

/// Attributes of the SPE event.
pub(super) fn spe_attr(
    counter: &Counter,
    sampling: &SpeOptions,
    buffers: Buffers,
) -> perf_event_attr {
    let mut attr = wire::base_attr();
    perf::set_event(&mut attr, &counter.attr());
    attr.sample_period = sampling.period;
    attr.aux_watermark = buffers
        .watermark
        .map_or(0, |size| u32::try_from(size.0).unwrap_or(u32::MAX));
    wake_at_half(&mut attr, buffers);
    attr
}

/// Attributes of a memory-access event, or of its group leader, which has no rate.
pub(super) fn access_attr(
    counter: &Counter,
    event: &SampledEvent,
    rate: Option<Rate>,
    buffers: Buffers,
) -> perf_event_attr {
    let mut attr = samples::attr();
    perf::set_event(&mut attr, &counter.attr());
    perf::set_exclude(&mut attr, event.exclude);
    if let Some(rate) = rate {
        let (rate, by_frequency) = match rate {
            Rate::Period(period) => (period, false),
            Rate::Frequency(rate) => (rate, true),
        };
        attr.sample_period = rate;
        attr.set_freq(by_frequency.into());
        attr.set_precise_ip(event.precise.into());
    }
    // A member of a group is enabled with its leader.
    attr.set_disabled((rate.is_none() || event.leader.is_none()).into());
    wake_at_half(&mut attr, buffers);
    attr
}

/// Attributes of the event that follows processes.
pub(super) fn follow_attr(buffers: Buffers) -> perf_event_attr {
    let mut attr = wire::tracking_attr();
    // Mappings of data are recorded too, to name data addresses.
    attr.set_mmap_data(1);
    wake_at_half(&mut attr, buffers);
    attr
}

/// Wakes the reader when the ring is half full.
fn wake_at_half(attr: &mut perf_event_attr, buffers: Buffers) {
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = u32::try_from(buffers.ring.0 / 2).unwrap_or(u32::MAX);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("1M", 1 << 20),
            ("2G", 2 << 30),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in [
            "",
            "K",
            "1.5M",
            "-1",
            "+1",
            "1T",
            "1 K",
            "iB",
            "4iB",
            "99999999999G",
            "64KB",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_that_the_kernel_would_refuse_are_errors_with_a_reason() {
        let check = |ring: &str, aux: &str, watermark: Option<&str>| {
            let buffers = Buffers {
                ring: ring.parse().unwrap(),
                aux: aux.parse().unwrap(),
                watermark: watermark.map(|text| text.parse().unwrap()),
            };
            buffers.check(16384).map_err(|error| error.to_string())
        };
        assert_eq!(check("16K", "32K", Some("32K")), Ok(()));
        let message = |text: &str| Err(text.to_owned());
        assert_eq!(
            check("48K", "1M", None),
            message("--ring 48K: it must be a power of two")
        );
        assert_eq!(
            check("16K", "16K", None),
            message("--aux 16K: with pages of 16K it must be at least 32K")
        );
        assert_eq!(
            check("4G", "1M", None),
            message("--ring 4G: it must be at most 2G")
        );
        assert_eq!(
            check("64K", "1M", Some("2M")),
            message("--watermark 2M: it must be from 1 to --aux, which is 1M")
        );
    }

    #[test]
    fn effective_periods_are_those_of_the_driver() {
        let effective = SpeOptions::effective_period;
        assert_eq!(effective(1000, 1024), 1024);
        assert_eq!(effective(1024, 1024), 1024);
        assert_eq!(effective(4097, 1024), 4096);
        assert_eq!(effective(10_000, 256), 9_984);
        assert_eq!(effective(1 << 33, 256), 0xffff_ff00);
    }

    proptest! {
        #[test]
        fn sizes_parse_as_printed(bytes: u64) {
            prop_assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
            let whole = Size(bytes >> 30 << 20);
            prop_assert_eq!(whole.to_string().parse(), Ok(whole));
        }
    }
}
