//! Each container gets what it used: compared with the kernel's own accounting, cgroup by
//! cgroup. That all rows add up to the machine proves nothing about who is charged.

use crate::support::{Counting, Load, TestCgroup, assert_within, machine, online_cpus, taken_time};

/// Stated by the project: within 1%. Our count runs from switch to switch as the kernel's own
/// does; what interrupts and the hypervisor took is measured and allowed for.
const PERCENT: f64 = 1.0;

/// Counting, with what was taken from tasks meanwhile.
struct Attribution {
    counting: Counting,
    taken: u64,
}

impl Attribution {
    fn start() -> Self {
        Self {
            counting: Counting::start("task-clock"),
            taken: taken_time(),
        }
    }

    fn check(&mut self, cgroups: &[&TestCgroup]) {
        let window = self.counting.window();
        let taken = taken_time() - self.taken;
        for cgroup in cgroups {
            let counted = self
                .counting
                .count(&window, "task-clock", cgroup.id)
                .expect("it ran, so it has a row");
            let truth = cgroup.cpu_time();
            assert_within(
                &cgroup.path,
                counted,
                counted.clamp(truth, truth + taken),
                PERCENT,
            );
        }
    }
}

#[test]
fn two_cgroups_two_to_one_on_one_cpu() {
    let Some(_machine) = machine() else { return };
    let (a, b) = (TestCgroup::new("two"), TestCgroup::new("one"));
    let mut attribution = Attribution::start();
    let loads = [
        a.load("burn 0 400"),
        a.load("burn 0 400"),
        b.load("burn 0 400"),
    ];
    loads.into_iter().for_each(|load| drop(load.finish()));
    attribution.check(&[&a, &b]);
}

#[test]
fn short_bursts_on_each_cpu_in_turn() {
    let Some(_machine) = machine() else { return };
    for cpu in online_cpus() {
        let a = TestCgroup::new("burst");
        let mut attribution = Attribution::start();
        a.load(&format!("burst {cpu} 1000 10000 1500")).finish();
        attribution.check(&[&a]);
    }
}

#[test]
fn beside_a_task_that_only_updates_maps() {
    let Some(_machine) = machine() else { return };
    let maps = TestCgroup::new("maps");
    let mut attribution = Attribution::start();
    let mut noise = maps.load("maps 2500");
    noise.go();
    for cpu in online_cpus() {
        let (a, b, c) = (
            TestCgroup::new("two"),
            TestCgroup::new("one"),
            TestCgroup::new("burst"),
        );
        let mut loads = [
            a.load(&format!("burn {cpu} 200")),
            a.load(&format!("burn {cpu} 200")),
            b.load(&format!("burn {cpu} 200")),
            c.load(&format!("burst {cpu} 1000 10000 600")),
        ];
        loads.iter_mut().for_each(Load::go);
        loads.into_iter().for_each(|load| drop(load.finish()));
        attribution.check(&[&a, &b, &c]);
    }
    noise.finish();
    attribution.check(&[&maps]);
}
