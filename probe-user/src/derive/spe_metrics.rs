//! Documented metrics from samples of memory accesses, for each entity of a report, with 95%
//! intervals.

use std::time::Duration;

use probe_common::spe::{Class, Source};

use super::{
    Estimate, Spread, latency,
    metrics::{self, MetricValue},
    spe::{self, REMOTE},
    statistics::{self, ConfidenceInterval},
};
use crate::{
    catalogue::{MetricCounts, SampledQuantity},
    formula::{EventCount, NoValue},
    plan::{CountSource, MetricSource, Plan, PlannedMetric},
    snapshot::SampleCounts,
    window::{MemLevel, SampleUsage, SampleWindow},
};

/// The events of a source that are estimated from samples.
fn sampled_events(source: &MetricSource) -> Vec<(String, SampledQuantity)> {
    let sampled = |(event, place): &(String, CountSource)| match place {
        CountSource::Sampled(what) => Some((event.clone(), *what)),
        _ => None,
    };
    source.events.iter().filter_map(sampled).collect()
}

/// A metric from the samples of a window.
pub(super) struct SpeMetric<'a> {
    plan: &'a Plan,
    planned: &'a PlannedMetric,
    /// All events of its formula.
    events: Vec<(String, SampledQuantity)>,
    window: &'a SampleWindow,
    /// Length of the window.
    length: Duration,
}

impl<'a> SpeMetric<'a> {
    /// None for a metric that is not estimated from samples.
    pub(super) fn new(
        plan: &'a Plan,
        planned: &'a PlannedMetric,
        source: &MetricSource,
        window: &'a SampleWindow,
        length: Duration,
    ) -> Option<Self> {
        let events = sampled_events(source);
        (!events.is_empty()).then_some(Self {
            plan,
            planned,
            events,
            window,
            length,
        })
    }

    pub(super) fn value(&self, usage: &SampleUsage) -> MetricValue {
        let max_latency = self.window.max_latency();
        let estimated = |(_, what): &(String, SampledQuantity)| quantity(*what, usage, max_latency);
        let quantities: Vec<Quantity> = self
            .events
            .iter()
            .map(estimated)
            .collect::<Option<Vec<_>>>()
            .ok_or(NoValue::TooFewSamples)?;
        let values: Vec<f64> = quantities.iter().map(|it| it.total.value).collect();
        let value = self.evaluate(&values)?;
        let interval = self
            .varying_quantity(&quantities)
            .and_then(|(at, low, high)| {
                let end = |end: f64| {
                    let mut values = values.clone();
                    values[at] = end;
                    Some(self.evaluate(&values).ok()?.value)
                };
                let (a, b) = (end(low)?, end(high)?);
                let around = ConfidenceInterval::around(value.value, a.min(b), a.max(b));
                Some(Spread::Sampled(around.low, around.high))
            });
        Ok(Estimate {
            spread: interval.unwrap_or_default(),
            ..value
        })
    }

    fn evaluate(&self, values: &[f64]) -> MetricValue {
        let mut counts = MetricCounts::for_cpus(self.length);
        for ((event, _), count) in self.events.iter().zip(values) {
            let (count, running_ratio) = (*count, 1.0);
            counts.add_sample(
                event,
                EventCount {
                    count,
                    running_ratio,
                },
            );
        }
        metrics::evaluate(self.plan, self.planned, counts)
    }

    /// The index of the quantity that determines the error, with its lowest and highest value. None
    /// if no single quantity determines the error.
    fn varying_quantity(&self, quantities: &[Quantity]) -> Option<(usize, f64, f64)> {
        match quantities {
            [one] => {
                let ConfidenceInterval { low, high, .. } = if one.total.value > 0.0 {
                    one.total
                } else {
                    // A latency that was not sampled may be as long as a sample can hold.
                    let each = match self.events[0].1 {
                        SampledQuantity::LoadCycles | SampledQuantity::StoreCycles => {
                            self.window.max_latency()
                        }
                        _ => 1.0,
                    };
                    statistics::unsampled(self.window.weight() * each)
                };
                Some((0, low, high))
            }
            // The error of a part per unit of the whole does not depend on the size of the whole.
            [a, b] => {
                let pairs = [(0, a, 1, b), (1, b, 0, a)];
                pairs.into_iter().find_map(|(at, part, whole_at, whole)| {
                    let (kind, each) = part.per_unit?;
                    let (each, whole) = (each?, whole.total.value);
                    (self.events[whole_at].1 == kind).then_some((
                        at,
                        each.low * whole,
                        each.high * whole,
                    ))
                })
            }
            _ => None,
        }
    }
}

/// An estimated quantity.
struct Quantity {
    total: ConfidenceInterval,
    /// The whole to which this quantity belongs, as a part of it or a sum over it, and the mean of
    /// this quantity per unit of the whole. None if this quantity is itself a whole.
    per_unit: Option<(SampledQuantity, Option<ConfidenceInterval>)>,
}

/// What to sum over a class of operations.
enum SummedPart {
    Operations,
    Cycles,
    Walks,
    Sourced,
    ServedBy(&'static [Source]),
}

/// The estimate of a quantity; None if it needs a mean and has too few samples for one. No latency
/// exceeds `max_latency` cycles.
fn quantity(what: SampledQuantity, usage: &SampleUsage, max_latency: f64) -> Option<Quantity> {
    let (class, sum) = match what {
        SampledQuantity::Loads => (Class::Load, SummedPart::Operations),
        SampledQuantity::LoadCycles => (Class::Load, SummedPart::Cycles),
        SampledQuantity::LoadWalks => (Class::Load, SummedPart::Walks),
        SampledQuantity::SourcedLoads => (Class::Load, SummedPart::Sourced),
        SampledQuantity::L1Loads => (Class::Load, SummedPart::ServedBy(&[Source::L1d])),
        SampledQuantity::L2Loads => (Class::Load, SummedPart::ServedBy(&[Source::L2])),
        SampledQuantity::PeerLoads => (Class::Load, SummedPart::ServedBy(&[Source::PeerCore])),
        SampledQuantity::ClusterLoads => {
            let sources = &[Source::LocalCluster, Source::PeerCluster];
            (Class::Load, SummedPart::ServedBy(sources))
        }
        SampledQuantity::SystemCacheLoads => {
            let sources = &[Source::L3, Source::SystemCache];
            (Class::Load, SummedPart::ServedBy(sources))
        }
        SampledQuantity::DramLoads => (Class::Load, SummedPart::ServedBy(&[Source::Dram])),
        SampledQuantity::RemoteLoads => (Class::Load, SummedPart::ServedBy(REMOTE)),
        SampledQuantity::Stores => (Class::Store, SummedPart::Operations),
        SampledQuantity::StoreCycles => (Class::Store, SummedPart::Cycles),
        SampledQuantity::StoreWalks => (Class::Store, SummedPart::Walks),
    };
    let parts = spe::samples_of_class(usage, class);
    let of_class = |wanted: &dyn Fn(MemLevel) -> bool| spe::sum(parts.clone(), wanted);
    let all = of_class(&|_| true);
    let whole = if class == Class::Load {
        SampledQuantity::Loads
    } else {
        SampledQuantity::Stores
    };
    let counted = |counts: &SampleCounts| statistics::count(counts.operations, counts.variance);
    let (total, per_unit) = match sum {
        SummedPart::Operations => (counted(&all), None),
        SummedPart::Cycles if all.samples == 0 => (counted(&all), None),
        SummedPart::Cycles => {
            let mean = latency::mean(&all, max_latency)?;
            let total = statistics::product(counted(&all), mean);
            (total, Some((whole, Some(mean))))
        }
        SummedPart::Walks => {
            let share = spe::walk_share(&all);
            let factor = share.map_or(0.0, |share| share.value);
            let walked = statistics::count(all.operations * factor, all.variance * factor);
            (walked, Some((whole, share)))
        }
        SummedPart::Sourced => {
            let sourced = of_class(&spe::is_source_known);
            (counted(&sourced), Some((whole, spe::share(&sourced, &all))))
        }
        SummedPart::ServedBy(sources) => {
            let (part, known) = (
                of_class(&spe::served_by(sources)),
                of_class(&spe::is_source_known),
            );
            let each = spe::share(&part, &known);
            (counted(&part), Some((SampledQuantity::SourcedLoads, each)))
        }
    };
    Some(Quantity { total, per_unit })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use probe_common::spe::SpeRow;

    use super::*;
    use crate::{
        catalogue::{Catalogue, Chip, Hardware},
        window::{Gained, SampleKind, sampled_window},
    };

    /// Samples of weight 1,000 and latency `cycles`; half of them walked the page table.
    fn samples(count: u32, cycles: u16) -> SampleCounts {
        let (operations, cycles_of_each) = (1000.0 * f64::from(count), f64::from(cycles));
        let mut histogram = [0.0; _];
        histogram[SpeRow::bucket(cycles)] = operations;
        SampleCounts {
            samples: count.into(),
            operations,
            variance: 1000.0 * operations,
            walks: operations / 2.0,
            cycles: operations * cycles_of_each,
            squares: operations * cycles_of_each * cycles_of_each,
            histogram,
            ..SampleCounts::default()
        }
    }

    fn usage() -> SampleUsage {
        let spe = SampleKind::spe;
        SampleUsage::from([
            (spe(Class::Load, MemLevel::By(Source::L1d)), samples(600, 4)),
            (
                spe(Class::Load, MemLevel::By(Source::Dram)),
                samples(200, 400),
            ),
            (spe(Class::Load, MemLevel::Number(77)), samples(200, 10)),
            (spe(Class::Store, MemLevel::Unknown), samples(4000, 7)),
        ])
    }

    #[test]
    fn samples_stand_for_operations() {
        let usage = usage();
        let expected = [
            (SampledQuantity::Loads, 1_000_000),
            (SampledQuantity::SourcedLoads, 800_000),
            (SampledQuantity::L1Loads, 600_000),
            (SampledQuantity::L2Loads, 0),
            (SampledQuantity::DramLoads, 200_000),
            (SampledQuantity::RemoteLoads, 0),
            (
                SampledQuantity::LoadCycles,
                600 * 4000 + 200 * 400_000 + 200 * 10_000,
            ),
            (SampledQuantity::LoadWalks, 500_000),
            (SampledQuantity::Stores, 4_000_000),
            (SampledQuantity::StoreCycles, 28_000_000),
            (SampledQuantity::StoreWalks, 2_000_000),
        ];
        for (what, expected) in expected {
            let value = quantity(what, &usage, 4095.0).unwrap().total.value;
            assert!(
                (value - f64::from(expected)).abs() < 1e-6,
                "{what:?}: {value}"
            );
        }
    }

    /// The values of all metrics of `group:spe`.
    fn metrics(usage: &SampleUsage) -> BTreeMap<String, MetricValue> {
        let (catalogue, machine) = (
            Catalogue::builtin().unwrap(),
            Hardware::of_chip(Chip::named("grace-cpu-superchip").unwrap()),
        );
        let mut plan = Plan::default();
        plan.metrics.machine = Some(machine);
        for metric in catalogue.select("group:spe", &machine).unwrap() {
            let events = metric.events().into_iter().map(|event| {
                let sampled = metric.pmu.events[event].sampled.unwrap();
                (event.to_owned(), CountSource::Sampled(sampled))
            });
            let source = MetricSource {
                events: events.collect(),
                ..MetricSource::default()
            };
            plan.metrics.list.push(PlannedMetric {
                sources: Ok(vec![source]),
                io: Vec::new(),
                metric: metric.clone(),
            });
        }
        // One second, at a period of 32,768.
        let mut window = sampled_window(BTreeMap::new());
        window.total = Gained::first(self::usage(), Duration::ZERO);
        let value = |(planned, source): (&PlannedMetric, &MetricSource)| {
            let length = Duration::from_secs(1);
            let metric = SpeMetric::new(&plan, planned, source, &window, length).unwrap();
            (planned.metric.name.clone(), metric.value(usage))
        };
        metrics::core_metrics(&plan).map(value).collect()
    }

    #[track_caller]
    fn assert_interval(value: &MetricValue, expected: [f64; 3], tolerance: f64) {
        let value = value.as_ref().unwrap();
        let (low, high) = value.estimated_interval().unwrap();
        for (found, expected) in [value.value, low, high].into_iter().zip(expected) {
            assert!((found - expected).abs() < tolerance, "{value:?}");
        }
    }

    #[test]
    fn every_metric_has_its_interval() {
        let values = metrics(&usage());
        assert_eq!(values.len(), 13);
        for (name, value) in &values {
            let value = value.as_ref().unwrap();
            let (low, high) = value.estimated_interval().expect(name);
            assert!(
                low <= value.value && value.value <= high,
                "{name}: {value:?}"
            );
            assert!(low < high, "{name}: {value:?}");
        }
        // Exact Poisson limits of 1,000 are 938.97 and 1063.96.
        assert_interval(
            &values["spe_load_rate"],
            [1e6, 938_970.0, 1_063_960.0],
            50.0,
        );
        // Wilson's intervals of 200 of 800 and of 500 of 1,000.
        assert_interval(
            &values["spe_load_dram_ratio"],
            [0.25, 0.221_3, 0.281_1],
            1e-3,
        );
        assert_interval(
            &values["spe_load_tlb_walk_ratio"],
            [0.5, 0.469_0, 0.531_0],
            1e-3,
        );
    }

    /// The estimates equal those of `mem` from the same samples.
    #[test]
    fn estimates_equal_those_of_mem() {
        let usage = usage();
        let values = metrics(&usage);
        let sum = |wanted: &dyn Fn(MemLevel) -> bool| {
            spe::sum(spe::samples_of_class(&usage, Class::Load), wanted)
        };
        let (all, remote) = (sum(&|_| true), sum(&spe::served_by(REMOTE)));
        let known = sum(&spe::is_source_known);
        for (name, estimate) in [
            (
                "spe_load_rate",
                statistics::count(all.operations, all.variance),
            ),
            ("spe_load_latency", latency::mean(&all, 4095.0).unwrap()),
            ("spe_load_tlb_walk_ratio", spe::walk_share(&all).unwrap()),
            (
                "spe_load_remote_ratio",
                spe::share(&remote, &known).unwrap(),
            ),
        ] {
            let ConfidenceInterval { value, low, high } = estimate;
            assert_interval(&values[name], [value, low, high], 1e-6);
        }
    }

    #[test]
    fn without_samples_a_rate_has_the_poisson_limit() {
        let values = metrics(&SampleUsage::new());
        // The exact Poisson limit of a count of 0 is 3.689.
        let limit = 3.689 * 32_768.0;
        assert_interval(&values["spe_load_rate"], [0.0, 0.0, limit], 1000.0);
        assert!(matches!(
            values["spe_load_latency"],
            Err(NoValue::DenominatorZero(_))
        ));
    }

    #[test]
    fn few_samples_have_a_rate_and_no_mean() {
        let kind = SampleKind::spe(Class::Load, MemLevel::Unknown);
        // One sample too few for a mean.
        let usage = SampleUsage::from([(kind, samples(29, 4))]);
        let values = metrics(&usage);
        assert_eq!(values["spe_load_latency"], Err(NoValue::TooFewSamples));
        assert!(values["spe_load_rate"].is_ok());
    }
}
