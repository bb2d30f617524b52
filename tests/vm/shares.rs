//! Shares of a socket's traffic against the truth: the uncore test PMU counts a known number for each
//! nanosecond that a watched container runs, so what each container caused is known exactly.
//!
//! What is measured is the way of a share: weights charged at switches, counters read one after the
//! other, what else runs. How well a core's misses stand for a socket's traffic is not.
//! `cargo xtask vm --filter shares` prints the table of docs/accuracy.md.

use std::collections::BTreeMap;

use probe_common::CgroupId;
use probe_user::{
    join::share::{Method, Shares, Traffic, Weights},
    load::{Place, Plan, PlannedWeight, WeightKind},
    window::{Owner, Window},
};

use crate::{
    support::{Counting, Load, TestCgroup, machine},
    testpmu::{TestPmu, core, event},
};

fn place(plan: &Plan, name: &str) -> Place {
    let mut columns = plan.columns.iter();
    columns.find(|column| column.name == name).unwrap().place
}

fn owner(cgroup: CgroupId) -> Owner {
    Owner { cgroup, tgid: 0 }
}

/// Shares of socket 0's reads.
fn shares(plan: &Plan, window: &Window) -> Shares {
    let planned = PlannedWeight {
        kind: WeightKind::LlcReadMisses,
        all: place(plan, "all"),
        remote: None,
    };
    let weights = [Weights::counted(&planned, window)];
    let count = |at| {
        let mut readings = window.uncore.iter();
        readings
            .find(|reading| reading.at == at)
            .unwrap()
            .count
            .unwrap()
    };
    let traffic = Traffic {
        measured: count(0),
        ..Traffic::default()
    };
    let best = Weights::best(&weights, 0).unwrap();
    let shares = best.cpu_reads(0, &traffic).unwrap();
    assert_eq!(shares.measured(), traffic.measured, "conservation");
    shares
}

/// The relative errors of the shares above a hundredth, of one load.
struct Errors {
    squares: f64,
    largest: f64,
    shares: u32,
}

impl Errors {
    fn print(&self, load: &str, method: Method) {
        println!(
            "| {load} | {method} | {:.2} % | {:.2} % |",
            100.0 * self.root_mean_square(),
            100.0 * self.largest
        );
    }

    fn root_mean_square(&self) -> f64 {
        (self.squares / f64::from(self.shares)).sqrt()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a test")]
fn compare(shares: &[(Shares, BTreeMap<CgroupId, u64>)]) -> Errors {
    let mut errors = Errors {
        squares: 0.0,
        largest: 0.0,
        shares: 0,
    };
    for (shares, truth) in shares {
        let all: u64 = truth.values().sum();
        for (cgroup, truth) in truth {
            if truth * 100 < all {
                continue;
            }
            let share = shares
                .owners
                .get(&owner(*cgroup))
                .map_or(0, |share| share.weight);
            let error = (share as f64 / *truth as f64 - 1.0).abs();
            errors.squares += error * error;
            errors.largest = errors.largest.max(error);
            errors.shares += 1;
        }
    }
    assert!(errors.shares > 0, "nothing to compare");
    errors
}

/// Loads on CPU 0, each on for so many microseconds of ten thousand.
fn measure(pmu: &TestPmu, on: &[u64]) -> Errors {
    let (name, _) = core();
    // Both PMUs count one for each nanosecond: a core for whoever runs, the fabric for who is watched.
    pmu.control(&format!("rate {name} {} 0 0 1000000", event(0)));
    pmu.control("taskrate nvidia_scf_pmu_0 0x1a5 0 0 1000000");
    let cgroups: Vec<TestCgroup> = on.iter().map(|_| TestCgroup::new("share")).collect();
    // Everything else in the guest runs in the root cgroup.
    pmu.control("watch cgroup 1 1");
    for cgroup in &cgroups {
        pmu.control(&format!("watch cgroup {} 1", cgroup.id.0));
    }
    let events = format!(
        "{name}/config={:#x},name=all/,nvidia_scf_pmu_0/cmem_rd_data/",
        event(0)
    );
    let mut loads: Vec<Load> = cgroups
        .iter()
        .zip(on)
        .map(|(cgroup, on)| cgroup.load(&format!("burst 0 {on} {} 1500", 10_000 - on)))
        .collect();
    // Nobody runs at the ends of the window, so that the truth has the same ones.
    let time = |cgroup: &TestCgroup| (cgroup.id, pmu.time_on(cgroup.id, 0));
    let before: BTreeMap<CgroupId, u64> = cgroups.iter().map(time).collect();
    let mut counting = Counting::start(&events);
    loads.iter_mut().for_each(Load::go);
    loads.into_iter().for_each(|load| drop(load.finish()));
    let window = counting.window();
    let now = cgroups.iter().map(time);
    let truth = now.map(|(id, now)| (id, now - before[&id])).collect();
    let measured = [(shares(counting.session.plan(), &window), truth)];
    pmu.control("unwatch");
    compare(&measured)
}

#[test]
fn shares_are_near_the_truth() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace,core rates=0");
    println!("| load | method | error (root mean square) | largest |");
    let two = [
        [9_000, 1_000],
        [8_000, 2_000],
        [7_000, 3_000],
        [6_000, 4_000],
        [5_000, 5_000],
    ];
    for on in two {
        let errors = measure(&pmu, &on);
        errors.print(
            &format!("{}:{}", on[0] / 100, on[1] / 100),
            Method::LlcReadMisses,
        );
        assert!(errors.root_mean_square() < 0.01);
    }
    for containers in [5_usize, 10, 20, 50] {
        let on = vec![9_000 / containers as u64; containers];
        let errors = measure(&pmu, &on);
        errors.print(&format!("{containers} equal"), Method::LlcReadMisses);
        assert!(errors.root_mean_square() < 0.01);
    }
}
