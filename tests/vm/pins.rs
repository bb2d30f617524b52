//! Pins on other kernels: maps, programs and links stay in the guest's bpffs, and a session of the
//! same or another build continues with them.

use std::{fs, path::Path};

use probe_user::session::{Config, Continuity, PinPath, unpin};
use test_harness::{Counting, TestCgroup, machine, plan};

fn config() -> Config {
    Config {
        plan: plan("task-clock,page-faults"),
        pins: Some(PinPath::default()),
        ..Config::default()
    }
}

/// Renames the pins as if another build had made them.
fn restamp(pin_dir: &Path) {
    let session = fs::read_dir(pin_dir).unwrap().next().unwrap().unwrap();
    let name = session.file_name().into_string().unwrap();
    let mut parts: Vec<&str> = name.split('-').collect();
    parts[2] = "0123456789abcdef";
    fs::rename(session.path(), pin_dir.join(parts.join("-"))).unwrap();
}

#[test]
fn counting_goes_on_without_a_process() {
    let Some(_machine) = machine() else { return };
    let PinPath(pin_dir) = PinPath::default();
    let cgroup = TestCgroup::new("pins");
    let mut counting = Counting::with_plan(config().plan, |start| *start = config());
    let builds = [Continuity::TakenOver, Continuity::Replaced];
    for (round, continuity) in (1..).zip(builds) {
        let generation = counting.session.generation().unwrap();
        counting = counting.restart(config(), || {
            cgroup.load("burst 0 3000 1000 100").finish();
            let touched = cgroup.load("touch 1000").finish();
            assert!(touched.trim().parse::<u64>().unwrap() >= 1000);
            if continuity == Continuity::Replaced {
                restamp(&pin_dir);
            }
        });
        assert_eq!(counting.session.continuity(), continuity);
        assert_eq!(counting.session.generation().unwrap(), generation);
        let window = counting.window();
        let faults = counting.count(&window, "page-faults", cgroup.id).unwrap();
        assert!(faults >= round * 1000, "{faults}");
        let counted = counting.count(&window, "task-clock", cgroup.id).unwrap();
        counting.assert_cpu_time(&window, "cgroup", counted, cgroup.cpu_time());
        let handover = window.health.handed_over.unwrap();
        println!("{handover:?}");
        assert!(handover.times == round && handover.gap > 0, "{handover:?}");
        assert_eq!(window.health.sum.rebased, 0);
    }
    counting.session.keep_pins();
    drop(counting);
    assert_eq!(unpin(&PinPath::default()).unwrap(), 1);
    assert!(!pin_dir.exists());
}
