//! A report of any number of containers.

use super::builder::{CLOCK, Fixture};
use crate::{
    derive::{Attributes, Estimate, MetricKind, Reason, Report, Subject},
    join::Entity,
};

/// A pseudo-random number from another.
fn mixed(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Fixture {
    /// Adds the clock, five events of which the last three are multiplexed, and seven metrics.
    fn counted(&mut self, weight: u64) {
        let shares = [
            ("cycles", 3_100, 1.0),
            ("instructions", 4_700, 1.0),
            ("cache-misses", 9, 0.5),
            ("cache-references", 130, 0.5),
            ("branch-misses", 21, 0.25),
        ];
        self.count(CLOCK, weight * 1_000, 1000.0 * float(weight));
        for (name, each, running_ratio) in shares {
            let scaled = float(weight * each);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of a whole number"
            )]
            let raw = (scaled * running_ratio) as u64;
            self.count((name, "", MetricKind::Counter), raw, scaled);
        }
        let metrics = [
            ("cpus_used", "CPU", 1e-6, 1.0),
            ("frequency", "GHz", 0.0, 1.0),
            ("ipc", "1/cycle", 0.0, 1.0),
            ("cache_miss_ratio", "1", 0.0, 0.5),
            ("cache_miss_mpki", "1/kinst", 0.0, 0.5),
            ("branch_miss_mpki", "1/kinst", 0.0, 0.25),
            ("load_bandwidth", "GB/s", 1e-5, 1.0),
        ];
        for (at, (name, unit, each, running_ratio)) in (1_u8..).zip(metrics) {
            let value = each * float(weight) + 1.5 / f64::from(at);
            let estimate = Estimate {
                running_ratio,
                ..Estimate::exact(value)
            };
            self.gauge(name, unit, estimate);
        }
    }
}

/// A report of this many containers, two in each pod: 13 columns, and metrics that need SPE.
pub(crate) fn containers(number: u64) -> Report {
    let mut fixture = Fixture::default();
    for at in 0..number {
        let id = format!("{:016x}", mixed(at)).repeat(4);
        let uid = format!("{:016x}", mixed(at / 2 + 1_000));
        let pod = format!("{}-{}-4a7d-9d50-0a1b2c3d4e5f", &uid[..8], &uid[8..12]);
        let entity = Entity::Container {
            id: id.into(),
            pod: Some(pod.into()),
        };
        fixture.about(Subject::Entity(entity), Attributes::default());
        fixture.counted(900_000 / (at + 1));
    }
    for (entity, weight) in [(Entity::System, 9_000), (Entity::Idle, 1_200_000)] {
        fixture.about(Subject::Entity(entity), Attributes::default());
        fixture.counted(weight);
    }
    fixture.about(Subject::Machine, Attributes::default());
    fixture.counted((0..number).map(|at| 900_000 / (at + 1)).sum::<u64>() + 1_209_000);
    let loads = ["rate", "latency", "dram_ratio", "l1_ratio", "remote_ratio"];
    for name in loads {
        let reason = "there is no PMU arm_spe_*: its driver is not loaded";
        let reason = Reason::NotPlanned(reason.to_owned());
        fixture.absent(&format!("spe_load_{name}"), "1", reason);
    }
    fixture.report
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn float(number: u64) -> f64 {
    number as f64
}
