//! What is read from the PMUs' directories in sysfs.

use std::path::Path;

use test_support::{Tree, sysfs};

use super::{Pmus, counter, event, machine, refusal};
use crate::machine::{PmuKind, Word, cpus};

fn kind(machine: &Pmus, name: &str) -> PmuKind {
    machine.get(name).unwrap().unwrap().kind.clone()
}

#[test]
fn pmus_are_core_uncore_or_other() {
    let (grace, spr, odd) = (machine("grace"), machine("spr"), machine("odd"));
    assert_eq!(
        kind(&grace, "armv8_pmuv3_0"),
        PmuKind::Core,
        "it has a cpus file"
    );
    assert_eq!(kind(&spr, "cpu"), PmuKind::Core, "by its name");
    assert_eq!(kind(&spr, "msr"), PmuKind::Other);
    assert_eq!(kind(&spr, "software"), PmuKind::Other);
    for (pmus, name, mask) in [
        (&grace, "nvidia_scf_pmu_1", "72"),
        (&spr, "uncore_imc_0", "0,56"),
        (&odd, "offlinemask", "0,512"),
        (&odd, "emptymask", ""),
    ] {
        let cpus = mask.parse().unwrap();
        assert_eq!(kind(pmus, name), PmuKind::Uncore { cpus }, "{name}");
    }
    let cores = |pmus: &Pmus| pmus.cores().map(|pmu| pmu.name.clone()).collect::<Vec<_>>();
    assert_eq!(cores(&grace), ["armv8_pmuv3_0"]);
    assert_eq!(cores(&odd), ["armv8_cortex_a55", "armv8_cortex_a76"]);
}

/// A test PMU may be registered with the type of raw events: then raw events count on it.
#[test]
fn the_raw_type_makes_a_core_pmu() {
    let root = Tree::new();
    root.pmu("armv9_fake", &[("type", "4\n")]);
    assert_eq!(
        kind(&Pmus::read(root.path()).unwrap(), "armv9_fake"),
        PmuKind::Core
    );
    root.pmu("armv9_fake", &[("cpumask", "0\n")]);
    let uncore = Pmus::read(root.path()).unwrap();
    assert_eq!(
        uncore.cores().count(),
        0,
        "a cpumask makes it uncore whatever its type"
    );
}

#[test]
fn properties_of_pmus_and_events_are_read() {
    let odd = machine("odd");
    let split = odd.get("split").unwrap().unwrap();
    assert_eq!(split.identifier.as_deref(), Some("r0p1"));
    assert_eq!(split.caps["depth"], "4");
    assert_eq!(split.formats["event"].to_string(), "config:0-7,32-35");
    assert_eq!(split.formats["third"].word(), Word::Config3);
    let scale_and_unit = |name: &str| {
        let event = &split.events[name];
        (event.scale, event.unit.as_deref())
    };
    assert_eq!(scale_and_unit("plain"), (None, None));
    assert_eq!(scale_and_unit("scaled"), (Some(0.25), None));
    assert_eq!(scale_and_unit("united"), (None, Some("Joules")));
    assert_eq!(scale_and_unit("both"), (Some(64.0), Some("B")));
    assert!(
        !split.events.keys().any(|name| name.contains('.')),
        "no side file is an event"
    );
    assert_eq!(
        odd.get("armv8_cortex_a76").unwrap().unwrap().cpus,
        Some("4-5".parse().unwrap())
    );

    let grace = machine("grace");
    let scf = grace.get("nvidia_scf_pmu_0").unwrap().unwrap();
    assert_eq!(scf.identifier.as_deref(), Some("2cf0036b"));
    assert_eq!(scf.events["cycles"].terms, [("event".to_owned(), 1 << 32)]);
    let core = grace.get("armv8_pmuv3_0").unwrap().unwrap();
    assert_eq!(core.caps["slots"], "0x00000008");
}

/// Each error is reported only when its PMU is used: all other PMUs work.
#[test]
fn malformed_pmus_are_reported_when_used() {
    let odd = machine("odd");
    let devices = sysfs("odd").join("bus/event_source/devices");
    let devices = devices.display();
    for (pmu, reason) in [
        (
            "badformat",
            "format/term: holds `config:7-0`: the bits of a format are numbers or rising ranges \
             from 0 to 63, separated by commas",
        ),
        (
            "badword",
            "format/term: holds `config5:0-7`: a format starts with config, config1, config2, \
             config3 or config4 and a colon",
        ),
        ("badevent", "events/param: does not hold terms with numbers"),
        (
            "badscale",
            "events/x.scale: does not hold a factor above zero",
        ),
        (
            "badmask",
            "cpumask: holds `0-1,all`, which is no list of CPUs: `all` is neither a CPU number \
             nor a range of them",
        ),
        ("badtype", "type: does not hold a number"),
        ("notype", "type: is missing"),
    ] {
        assert!(odd.get(pmu).unwrap().is_err(), "{pmu}");
        assert_eq!(
            refusal(&format!("{pmu}/event=1/"), &odd),
            format!("the PMU `{pmu}` cannot be used: {devices}/{pmu}/{reason}")
        );
    }
    assert_eq!(odd.unreadable().count(), 7);
    assert!(odd.get("split").unwrap().is_ok());
}

#[test]
fn a_missing_sysfs_is_reported() {
    let error = Pmus::read(Path::new("/nonexistent")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nonexistent/bus/event_source/devices: is missing: mount sysfs with `mount -t sysfs none \
         /sys`"
    );
}

#[test]
fn online_and_possible_cpus_are_read() {
    for (machine, online, possible) in [
        ("grace", "0-143", "0-143"),
        ("vera", "0-175", "0-175"),
        ("spr", "0-223", "0-223"),
        ("odd", "0-5", "0-7"),
    ] {
        let root = sysfs(machine);
        assert_eq!(cpus::online(&root).unwrap().to_string(), online);
        assert_eq!(cpus::possible(&root).unwrap().to_string(), possible);
    }
}

/// The machine of this test run: every kernel has software events.
#[test]
fn this_machine_has_software_events() {
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let software = pmus.get("software").unwrap().unwrap();
    assert_eq!((software.type_, &software.kind), (1, &PmuKind::Other));
    assert!(!cpus::online(Path::new("/sys")).unwrap().is_empty());
    if let Some(msr) = pmus.get("msr") {
        let tsc = counter("msr/tsc/", &pmus);
        assert_eq!((tsc.type_, tsc.config), (msr.unwrap().type_, 0));
    }
}

/// Every event that a driver names uses only terms of its format/.
#[test]
fn every_event_of_the_drivers_resolves() {
    let mut events = 0;
    for machine in ["grace", "vera", "spr"].map(machine) {
        for pmu in machine.iter() {
            for name in pmu.events.keys() {
                let text = format!("{}/{name}/", pmu.name);
                assert_eq!(event(&text, &machine).name, text);
                events += 1;
            }
        }
        assert_eq!(machine.unreadable().count(), 0);
    }
    assert!(events > 500, "{events}");
}
