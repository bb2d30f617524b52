//! The report on fixture machines (tests/fixtures/doctor), as snapshots.

mod btf;
mod clouds;
mod counters;
mod docs;
mod families;
mod machine;

use std::collections::BTreeMap;

use rustix::thread::CapabilitySet;

use self::{
    btf::{STRUCTURES, Structure, btf},
    machine::{FakeKernel, Fixture, WORKING, process},
};
use super::{
    Diagnosis,
    subject::{Arch, Process},
};

/// State of each check, for tests that change one thing.
fn states(diagnosis: &Diagnosis) -> BTreeMap<String, &'static str> {
    let state = |finding: &super::Finding| (finding.check.clone(), finding.state.name());
    diagnosis.findings.iter().map(state).collect()
}

fn grace(process: Process, trials: FakeKernel) -> Fixture {
    Fixture::new(Some("grace"), "grace", process, trials)
}

#[test]
fn a_healthy_grace_lacks_nothing() {
    let fixture = grace(process(Arch::Arm64), WORKING);
    let diagnosis = fixture.examine();
    assert!(states(&diagnosis).values().all(|state| *state == "ok"));
    assert!(diagnosis.counting_works());
    insta::assert_snapshot!(fixture.report());
}

#[test]
fn missing_capabilities_stop_counting_and_come_first() {
    let process = Process {
        capabilities: CapabilitySet::empty(),
        ..process(Arch::Arm64)
    };
    let trials = FakeKernel {
        cpu: Some((0, libc::EACCES)),
        cgroup: Some(libc::EACCES),
        // A session must not be tried: this error would show.
        session: Err("the session was tried"),
        ..WORKING
    };
    let fixture = grace(process, trials);
    fixture.write("proc/sys/kernel/kptr_restrict", b"1\n");
    let report = fixture.report();
    assert!(!fixture.examine().counting_works());
    let (setcap, sysctl) = (report.find("setcap"), report.find("sysctl -w"));
    assert!(setcap.unwrap() < sysctl.unwrap(), "{report}");
    insta::assert_snapshot!(report);
}

#[test]
fn a_grace_without_drivers_says_which() {
    let process = Process {
        page_size: 65_536,
        capabilities: CapabilitySet::BPF | CapabilitySet::PERFMON,
        ..process(Arch::Arm64)
    };
    insta::assert_snapshot!(Fixture::new(None, "grace-bare", process, WORKING).report());
}

#[test]
fn a_virtual_machine_without_a_pmu_counts_software_events() {
    let process = Process {
        capabilities: CapabilitySet::BPF | CapabilitySet::PERFMON,
        ..process(Arch::X86)
    };
    let trials = FakeKernel {
        cgroup: Some(libc::ENOENT),
        ..WORKING
    };
    let fixture = Fixture::new(None, "vm", process, trials);
    assert!(fixture.examine().counting_works());
    insta::assert_snapshot!(fixture.report());
}

#[test]
fn without_cgroup2_there_are_no_containers() {
    let fixture = Fixture::new(Some("spr"), "cgroup-v1", process(Arch::X86), WORKING);
    assert!(!fixture.examine().counting_works());
    insta::assert_snapshot!(fixture.report());
}

#[test]
fn the_nmi_watchdog_takes_a_counter() {
    let process = Process {
        descriptors: Some(1024),
        ..process(Arch::X86)
    };
    let fixture = Fixture::new(Some("spr"), "spr-watchdog", process, WORKING);
    assert!(fixture.examine().counting_works());
    insta::assert_snapshot!(fixture.report());

    fixture.write("proc/sys/kernel/nmi_watchdog", b"0\n");
    assert_eq!(states(&fixture.examine())["NMI watchdog"], "ok");
}

#[test]
fn an_old_kernel_stops_counting() {
    let trials = FakeKernel {
        cpu: Some((4, libc::ENODEV)),
        session: Err("the kernel refused program sched_switch: invalid argument"),
        ..WORKING
    };
    let fixture = Fixture::new(None, "old", process(Arch::X86), trials);
    insta::assert_snapshot!(fixture.report());
}

/// Below 6.1 the backported allocator of maps decides, not the version.
#[test]
fn a_kernel_below_the_floor_counts_where_the_allocator_is_backported() {
    let fixture = Fixture::new(Some("spr"), "cgroup-v1", process(Arch::X86), WORKING);
    let release = fixture.machine().proc("sys/kernel/osrelease").unwrap();
    assert!(release.starts_with("5.14.0-503.el9"), "{release}");
    let state = |fixture: &Fixture| {
        let states = states(&fixture.examine());
        (states["version"], states["BTF"])
    };
    assert_eq!(state(&fixture), ("ok", "ok"));
    let without = STRUCTURES
        .iter()
        .filter(|(name, _)| *name != "bpf_mem_alloc");
    let without: Vec<Structure> = without.copied().collect();
    fixture.write("sys/kernel/btf/vmlinux", &btf(&without));
    assert_eq!(state(&fixture), ("missing", "missing"));
    assert!(!fixture.examine().counting_works());
    let report = fixture.report();
    assert!(
        report.contains("counting could deadlock this kernel"),
        "{report}"
    );
}

#[test]
fn the_buddy_watchdog_takes_no_counter() {
    let fixture = Fixture::new(Some("spr"), "spr-watchdog", process(Arch::X86), WORKING);
    let config = "CONFIG_HARDLOCKUP_DETECTOR_BUDDY=y\n";
    fixture.write("boot/config-6.8.0-60-generic", config.as_bytes());
    assert_eq!(states(&fixture.examine())["NMI watchdog"], "ok");
}

#[test]
fn a_field_that_the_kernel_lacks_is_named() {
    let fixture = grace(process(Arch::Arm64), WORKING);
    let without: Vec<Structure> = STRUCTURES
        .into_iter()
        .filter(|(name, _)| *name != "css_set")
        .collect();
    fixture.write("sys/kernel/btf/vmlinux", &btf(&without));
    let diagnosis = fixture.examine();
    assert!(!diagnosis.counting_works());
    let finding = diagnosis.findings.iter().find(|f| f.check == "BTF");
    let found = &finding.unwrap().found;
    assert!(found.contains("no css_set.dfl_cgrp"), "{found}");
}

#[test]
fn a_session_that_fails_stops_counting_whatever_the_files_say() {
    let trials = FakeKernel {
        session: Err("the kernel refused program flush: the verifier's reason"),
        ..WORKING
    };
    let diagnosis = grace(process(Arch::Arm64), trials).examine();
    assert!(!diagnosis.counting_works());
    assert_eq!(
        diagnosis.verdict(),
        "counting per container cannot work here: see count"
    );
}

#[test]
fn a_limit_below_one_event_per_cpu_stops_counting() {
    let limited = |descriptors| Process {
        descriptors: Some(descriptors),
        ..process(Arch::Arm64)
    };
    let works = |descriptors| {
        grace(limited(descriptors), WORKING)
            .examine()
            .counting_works()
    };
    // The machine has 144 CPUs, and 256 descriptors are kept for other files.
    assert!(works(256 + 144));
    assert!(!works(256 + 143));
}

#[test]
fn a_cgroup_namespace_hides_names() {
    let fixture = grace(process(Arch::Arm64), WORKING);
    let line = "34 26 0:29 /kubepods/podx /sys/fs/cgroup ro - cgroup2 cgroup ro\n";
    fixture.write("proc/self/mountinfo", line.as_bytes());
    let diagnosis = fixture.examine();
    assert_eq!(states(&diagnosis)["cgroup2"], "degraded");
    assert!(diagnosis.counting_works());
}

#[test]
fn an_uncore_pmu_without_a_cpu_is_degraded() {
    let fixture = grace(process(Arch::Arm64), WORKING);
    let path = "sys/bus/event_source/devices/nvidia_scf_pmu_1/cpumask";
    fixture.write(path, b"\n");
    let diagnosis = fixture.examine();
    assert_eq!(states(&diagnosis)["nvidia_scf_pmu"], "degraded");
}

/// Sub-NUMA clustering on Xeons makes several nodes of a socket.
#[test]
fn nodes_within_a_socket_are_reported() {
    let fixture = Fixture::new(Some("spr"), "spr-watchdog", process(Arch::X86), WORKING);
    fixture.write("sys/devices/system/cpu/online", b"0-3\n");
    for cpu in 0..4_u8 {
        let at = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        fixture.write(&at, if cpu < 2 { b"0\n" } else { b"1\n" });
        let node = format!("sys/devices/system/node/node{cpu}/cpulist");
        fixture.write(&node, format!("{cpu}\n").as_bytes());
    }
    let report = fixture.report();
    assert!(report.contains("NUMA nodes of a socket"), "{report}");
    assert!(report.contains("up to 2: counts and shares"), "{report}");
}

#[test]
fn root_complexes_without_the_right_to_name_their_devices_are_reported() {
    let fixture = grace(process(Arch::Arm64), WORKING);
    for file in ["type", "cpumask"] {
        let path = format!("sys/bus/event_source/devices/nvidia_pcie_pmu_0_rc_4/{file}");
        fixture.write(&path, b"0\n");
    }
    let port = "sys/devices/pci0005:c0/0005:c0:00.0";
    for (file, bytes) in [
        ("class", &b"0x060400\n"[..]),
        ("vendor", b"0x10de\n"),
        ("device", b"0x22c1\n"),
        ("config", &[0; 64]),
    ] {
        fixture.write(&format!("{port}/{file}"), bytes);
    }
    fixture.link("sys/bus/pci/devices/0005:c0:00.0", port);
    let diagnosis = fixture.examine();
    assert_eq!(states(&diagnosis)["PCI devices"], "degraded");
    assert!(diagnosis.counting_works());
    // With the capability the whole configuration space can be read.
    fixture.write(&format!("{port}/config"), &[0; 4096]);
    assert!(!states(&fixture.examine()).contains_key("PCI devices"));
}

#[test]
fn the_json_has_the_findings_of_the_diagnosis() {
    let process = Process {
        capabilities: CapabilitySet::empty(),
        ..process(Arch::Arm64)
    };
    let diagnosis = grace(process, WORKING).examine();
    let mut text = Vec::new();
    diagnosis.write_json(&mut text).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["counting_works"], false);
    assert_eq!(json["verdict"], diagnosis.verdict());
    let findings = json["findings"].as_array().unwrap();
    assert_eq!(findings.len(), diagnosis.findings.len());
    let capabilities = findings.iter().find(|f| f["check"] == "capabilities");
    let capabilities = capabilities.unwrap();
    assert_eq!(capabilities["area"], "rights");
    assert_eq!(capabilities["state"], "missing");
    assert_eq!(capabilities["stops_counting"], true);
    let command = &capabilities["remedies"][0]["commands"][0];
    assert_eq!(
        command,
        "sudo setcap cap_bpf,cap_perfmon+ep /usr/bin/pmuscope"
    );
    let version = findings.iter().find(|f| f["check"] == "version").unwrap();
    assert_eq!(version["lost"], serde_json::Value::Null);
}
