//! Platforms that consist of data only: a file of the catalogue and a tree of sysfs.

use std::fmt::Write as _;

use test_support::{Tree, sysfs};

use super::{
    super::{Hardware, MetricSettings, Platform, template::Pattern},
    CATALOGUE,
};
use crate::machine::{Machine, Roots};

/// The counter groups of the platform's own metrics, on the recorded machine of this name.
fn opened(name: &str) -> String {
    let machine = Machine::at(Roots {
        sys: sysfs(name),
        proc: "/nonexistent".into(),
        ..Roots::default()
    });
    let hardware = Hardware::detect(&machine);
    assert_eq!(Some(hardware.platform), Platform::named(name));
    assert!(hardware.chip.is_some());
    let mut text = format!("{name}: {}\n", hardware.platform.spec().title);
    let metrics = CATALOGUE.on(&hardware).into_iter();
    for metric in metrics.filter(|metric| !metric.family.fallback) {
        let groups = metric
            .groups(machine.pmus().unwrap(), &MetricSettings::default())
            .unwrap_or_else(|why| panic!("{}: {why}", metric.name));
        for group in groups {
            let (name, place) = (&metric.name, &group.place);
            writeln!(text, "  {name} [{place}] {}", group.text()).unwrap();
        }
    }
    text
}

#[test]
fn amd_epyc() {
    insta::assert_snapshot!(opened("zen4") + &opened("zen5"));
}

#[test]
fn neoverse_n1_and_v1() {
    insta::assert_snapshot!(opened("neoverse-n1") + &opened("neoverse-v1"));
}

#[test]
fn intel_servers() {
    insta::assert_snapshot!(opened("icx") + &opened("gnr"));
}

/// Desktops have the same cores, but other memory controllers.
#[test]
fn a_desktop_with_the_same_cores_is_no_server() {
    let root = Tree::new();
    let modalias = "cpu:type:x86,ven0002fam0019mod0061:feature:,0000\n";
    root.write("sys/devices/system/cpu/modalias", modalias);
    let hardware = Hardware::detect(&Machine::at(Roots::below(root.path())));
    assert_eq!(hardware.platform, Platform::generic());
}

#[test]
fn instances_may_be_named_by_an_address() {
    let pattern = Pattern::parse("arm_dmc620_{address}").unwrap();
    let address = |name| pattern.instance(name).and_then(|it| it.address);
    assert_eq!(address("arm_dmc620_10008c000"), Some(0x1_0008_c000));
    assert_eq!(address("arm_dmc620_10008c000x"), None);
    assert_eq!(address("arm_dmc620_"), None);
    assert_eq!(pattern.to_string(), "arm_dmc620_{address}");
}
