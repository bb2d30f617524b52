//! docs/reference/troubleshooting.md has every check that can fail, and every command that `doctor`
//! suggests.

use std::collections::BTreeSet;

use super::{
    super::{Loss, config::driver_remedies, subject::Arch},
    clouds, grace,
    machine::{FakeKernel, Fixture, WORKING, process},
};
use crate::catalogue::Platform;

const DOCS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../docs/reference/troubleshooting.md"
));

/// All losses on the fixture machines, each with its check.
fn losses() -> Vec<(String, Loss)> {
    let bare = |arch| super::Process {
        capabilities: rustix::thread::CapabilitySet::empty(),
        page_size: 65_536,
        descriptors: Some(300),
        ..process(arch)
    };
    let refusing = FakeKernel {
        cpu: Some((0, libc::EMFILE)),
        cgroup: Some(libc::ENOENT),
        session: Err("refused"),
        counters: Some((&[1_000_000, 200], 0)),
        core: None,
    };
    let namespace = grace(process(Arch::Arm64), refusing);
    let line = "34 26 0:29 /kubepods/podx /sys/fs/cgroup ro - cgroup2 cgroup ro\n";
    namespace.write("proc/self/mountinfo", line.as_bytes());
    namespace.write(
        "sys/bus/event_source/devices/nvidia_scf_pmu_1/cpumask",
        b"\n",
    );
    let fixtures = [
        namespace,
        grace(bare(Arch::Arm64), refusing),
        Fixture::new(None, "grace-bare", bare(Arch::Arm64), WORKING),
        Fixture::new(None, "vm", bare(Arch::X86), refusing),
        Fixture::new(Some("spr"), "cgroup-v1", process(Arch::X86), WORKING),
        Fixture::new(Some("spr"), "spr-watchdog", bare(Arch::X86), refusing),
        Fixture::new(None, "old", process(Arch::X86), WORKING),
        clouds::graviton4(2, true),
        clouds::architectural(),
        Fixture::new(None, "none", process(Arch::Arm64), WORKING),
    ];
    let lost = |fixture: &Fixture| {
        let findings = fixture.examine().findings.into_iter();
        let lost =
            findings.filter_map(|finding| Some((finding.check, finding.state.loss()?.clone())));
        lost.collect::<Vec<_>>()
    };
    fixtures.iter().flat_map(lost).collect()
}

/// The command as the document has it: for any path, with N for numbers that depend on the machine.
fn as_documented(command: &str) -> String {
    let command = command.replace("/usr/bin/pmuscope", "$PMUSCOPE");
    if !command.starts_with("ulimit") {
        return command;
    }
    let words = command.split(' ').map(|word| {
        let number = word.bytes().all(|b| b.is_ascii_digit());
        if number { "N" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn every_check_and_command_is_in_the_document() {
    let losses = losses();
    let checks: BTreeSet<&str> = losses
        .iter()
        .flat_map(|(check, _)| check.split(", "))
        .collect();
    // With fewer failing checks this test would prove less.
    assert!(checks.len() >= 25, "{checks:?}");
    for check in checks {
        assert!(DOCS.contains(&format!("`{check}`")), "no check {check}");
    }
    let commands: BTreeSet<String> = losses
        .iter()
        .flat_map(|(_, loss)| &loss.remedies)
        .flat_map(|remedy| &remedy.commands)
        .map(|command| as_documented(command))
        .collect();
    assert!(commands.len() >= 20, "{commands:?}");
    for command in commands {
        assert!(DOCS.contains(&command), "no command {command}");
    }
}

#[test]
fn every_driver_is_in_the_document() {
    let platforms = Platform::all().iter();
    for family in platforms.flat_map(|platform| &platform.spec().uncore) {
        let name = family.pmu.trim_end_matches('_');
        assert!(DOCS.contains(&format!("`{name}`")), "no {name}");
        for driver in family.drivers() {
            let option = format!("CONFIG_{}", driver.option);
            assert!(DOCS.contains(&option), "no {option}");
        }
        for remedy in driver_remedies(None, family.drivers(), "") {
            for command in remedy.commands {
                assert!(DOCS.contains(&command), "no {command}");
            }
        }
    }
}
