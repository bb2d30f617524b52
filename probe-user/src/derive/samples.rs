//! Documented metrics of what SPE sampled, for every entity of a report.

use std::collections::BTreeMap;

use probe_common::spe::{Class, Source};

use super::{Report, Row, metrics, rank};
use crate::{
    catalogue::{Counts, Sampled},
    join::{SpeJoined, View},
    load::{Place, Plan},
    pull::SpeCounts,
    window::{Served, SpeUsage, SpeWindow},
};

impl Report {
    /// Gives the sampled metrics their values. Who was sampled without having been counted gets a row.
    pub fn add_samples(&mut self, plan: &Plan, window: &SpeWindow, view: &View) {
        self.sampling = window.health.counts();
        let SpeJoined { rows, total } = view.join_spe(window);
        for entity in rows.keys() {
            if self.rows.iter().any(|row| row.label == *entity) {
                continue;
            }
            let usage = vec![None; plan.groups.len()];
            self.rows.push(Row {
                label: entity.clone(),
                values: vec![None; self.columns.len()],
                metrics: metrics::of_usage(plan, &usage, window.length),
            });
        }
        self.rows.sort_by_key(|row| rank(&row.label));
        let nothing = BTreeMap::new();
        for (at, (planned, source)) in metrics::cores(plan).enumerate() {
            let sampled = |(event, place): &(String, Place)| match place {
                Place::Sampled(what) => Some((event.clone(), *what)),
                _ => None,
            };
            let events: Vec<(String, Sampled)> = source.events.iter().filter_map(sampled).collect();
            if events.is_empty() {
                continue;
            }
            let value = |usage: &SpeUsage| {
                let mut counts = Counts::of_cpus(window.length);
                for (event, what) in &events {
                    counts.add(event, count(*what, usage), 1, 1);
                }
                metrics::evaluate(plan, planned, counts)
            };
            for row in &mut self.rows {
                row.metrics[at] = value(rows.get(&row.label).unwrap_or(&nothing));
            }
            self.total.metrics[at] = value(&total);
        }
    }
}

/// The estimate of a quantity.
fn count(what: Sampled, usage: &SpeUsage) -> u64 {
    let sum = |counts: &dyn Fn(&SpeCounts) -> f64, of: &dyn Fn(Class, Served) -> bool| -> f64 {
        let of = usage
            .iter()
            .filter(|((class, served), _)| of(*class, *served));
        of.map(|(_, row)| counts(row)).sum()
    };
    let served = |sources: &'static [Source]| {
        move |class: Class, served: Served| {
            class == Class::Load && matches!(served, Served::By(by) if sources.contains(&by))
        }
    };
    let loads = |class: Class, _: Served| class == Class::Load;
    let stores = |class: Class, _: Served| class == Class::Store;
    let all = |row: &SpeCounts| row.operations;
    let estimate = match what {
        Sampled::Loads => sum(&all, &loads),
        Sampled::LoadCycles => sum(&cycles, &loads),
        Sampled::LoadWalks => sum(&walks, &loads),
        Sampled::SourcedLoads => sum(&all, &|class, served| {
            class == Class::Load && matches!(served, Served::By(_))
        }),
        Sampled::L1Loads => sum(&all, &served(&[Source::L1d])),
        Sampled::L2Loads => sum(&all, &served(&[Source::L2])),
        Sampled::PeerLoads => sum(&all, &served(&[Source::PeerCore])),
        Sampled::ClusterLoads => sum(&all, &served(&[Source::LocalCluster, Source::PeerCluster])),
        Sampled::SystemCacheLoads => sum(&all, &served(&[Source::L3, Source::SystemCache])),
        Sampled::DramLoads => sum(&all, &served(&[Source::Dram])),
        Sampled::RemoteLoads => sum(&all, &served(&[Source::Remote, Source::RemoteDram])),
        Sampled::Stores => sum(&all, &stores),
        Sampled::StoreCycles => sum(&cycles, &stores),
        Sampled::StoreWalks => sum(&walks, &stores),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of operations, rounded"
    )]
    let estimate = estimate.round() as u64;
    estimate
}

/// What the samples' total latencies stand for; a sample without one counts as their mean.
#[expect(clippy::cast_precision_loss, reason = "cycles of a window, below 2^53")]
fn cycles(counts: &SpeCounts) -> f64 {
    let timed: u64 = counts.row.histogram.iter().sum();
    if timed == 0 {
        return 0.0;
    }
    counts.row.total.cycles as f64 / timed as f64 * counts.operations
}

/// The operations with a translation table walk that the samples stand for.
#[expect(
    clippy::cast_precision_loss,
    reason = "samples of a window, below 2^53"
)]
fn walks(counts: &SpeCounts) -> f64 {
    if counts.row.samples == 0 {
        return 0.0;
    }
    counts.row.walks as f64 / counts.row.samples as f64 * counts.operations
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of weight 1,000, each of `cycles`, every other with a walk.
    fn samples(count: u64, cycles: u64) -> SpeCounts {
        let mut counts = SpeCounts::default();
        counts.row.samples = count;
        counts.row.walks = count / 2;
        counts.row.total.cycles = count * cycles;
        counts.row.histogram[3] = count;
        counts.operations = 1000.0 * f64::from(u32::try_from(count).unwrap());
        counts
    }

    #[test]
    fn samples_stand_for_operations() {
        let usage = SpeUsage::from([
            ((Class::Load, Served::By(Source::L1d)), samples(6, 4)),
            ((Class::Load, Served::By(Source::Dram)), samples(2, 400)),
            ((Class::Load, Served::Number(77)), samples(2, 10)),
            ((Class::Store, Served::NotSaid), samples(4, 7)),
        ]);
        let expected = [
            (Sampled::Loads, 10_000),
            (Sampled::SourcedLoads, 8000),
            (Sampled::L1Loads, 6000),
            (Sampled::L2Loads, 0),
            (Sampled::DramLoads, 2000),
            (Sampled::RemoteLoads, 0),
            (Sampled::LoadCycles, 6 * 4000 + 2 * 400_000 + 2 * 10_000),
            (Sampled::LoadWalks, 5000),
            (Sampled::Stores, 4000),
            (Sampled::StoreCycles, 28_000),
            (Sampled::StoreWalks, 2000),
        ];
        for (what, estimate) in expected {
            assert_eq!(count(what, &usage), estimate, "{what:?}");
        }
    }
}
