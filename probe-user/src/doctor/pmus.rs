//! The core PMU and the uncore PMUs: which exist, and what is lost without those that do not.

use super::{Area, Finding, Loss, Subject, config::driver_remedies, subject::Arch};
use crate::{
    catalogue::{Catalogue, Driver, Hardware, PlatformSpec, UncoreSpec},
    devices::{ConfigSpaceError, Devices},
    event::spe::is_spe,
    list::pmu_kind,
    machine::{
        Pmu, PmuKind, Pmus,
        kernel_config::{Built, KernelConfig},
    },
};

const AREA: Area = Area::Pmus;

/// The core PMU's drivers on arm64, by NVIDIA's Grace guide. Neither can be a module.
const CORE_ARM: [&str; 2] = ["ARM_PMU_ACPI", "ARM_PMUV3"];

pub(super) fn check(
    subject: &Subject,
    config: Option<&KernelConfig>,
    pmus: &Result<&Pmus, String>,
) -> Vec<Finding> {
    let pmus = match pmus {
        Ok(pmus) => pmus,
        Err(error) => {
            let loss = Loss::new("everything: no event can be named")
                .run("mount sysfs", "sudo mount -t sysfs none /sys");
            return vec![AREA.stops("sysfs", error.clone(), loss)];
        }
    };
    let mut findings = vec![core(subject, config, pmus)];
    findings.extend(uncore(subject, config, pmus));
    findings.extend(clusters(subject));
    findings.extend(devices(subject, pmus));
    findings.extend(pmus.unreadable().map(|error| {
        let loss = Loss::new("that PMU's events").advise(
            "the file comes from its driver: report it to the kernel's distributor, with `uname \
             -r`",
        );
        AREA.degraded("PMU files", error.to_string(), loss)
    }));
    findings
}

/// The finding about NUMA nodes within a socket: no counter tells them apart.
fn clusters(subject: &Subject) -> Option<Finding> {
    let nodes = subject.machine.topology().nodes_per_socket();
    let found = format!("up to {nodes}: counts and shares of memory traffic are of whole sockets");
    (nodes > 1).then(|| AREA.ok("NUMA nodes of a socket", found))
}

fn core(subject: &Subject, config: Option<&KernelConfig>, pmus: &Pmus) -> Finding {
    let check = "core PMU";
    let cores: Vec<String> = pmus
        .cores()
        .map(|pmu| format!("{} ({} named events)", pmu.name, pmu.events.len()))
        .collect();
    if !cores.is_empty() {
        return AREA.ok(check, cores.join(", "));
    }
    let mut loss = Loss::new(
        "cycles, instructions, cache and branch events, and every metric made of them; software \
         events count",
    );
    if subject.is_virtual() {
        loss = loss.run(
            "have the virtual machine started with a PMU (cloud: an instance type that has one, \
             or metal)",
            "qemu-system-... -accel kvm -cpu host,pmu=on",
        );
    }
    if subject.process.arch == Arch::Arm64 {
        loss = loss.with(core_remedies(config));
    } else if !subject.is_virtual() {
        loss = loss.advise(
            "look for `Performance Events` in dmesg: the kernel says why it has no driver for the \
             CPU",
        );
    }
    let found = if subject.is_virtual() {
        "none: this is a virtual machine without one"
    } else {
        "none"
    };
    AREA.missing(check, found, loss)
}

/// Remedies for a missing core PMU on arm64. Before Linux 6.4 the driver had no option of its own,
/// so an unset option is a reason only if the driver is missing.
fn core_remedies(config: Option<&KernelConfig>) -> Vec<super::Remedy> {
    let unset: Vec<&str> = CORE_ARM
        .into_iter()
        .filter(|option| config.is_none_or(|config| config.built(option) == Built::Not))
        .collect();
    let drivers: Vec<Driver> = if unset.is_empty() {
        CORE_ARM.to_vec()
    } else {
        unset
    }
    .into_iter()
    .map(|option| Driver {
        option: option.to_owned(),
        module: None,
    })
    .collect();
    driver_remedies(
        config,
        &drivers,
        "the firmware does not list the PMU's interrupt: see `dmesg | grep -i pmu`",
    )
}

fn uncore(subject: &Subject, config: Option<&KernelConfig>, pmus: &Pmus) -> Vec<Finding> {
    let all: Vec<&Pmu> = pmus
        .iter()
        .filter(|pmu| matches!(pmu.kind, PmuKind::Uncore { .. }))
        // SPE's PMU has a cpumask too, but SPE has checks of its own.
        .filter(|pmu| !is_spe(&pmu.name))
        .collect();
    let with_prefix = |prefix: &str| -> Vec<&Pmu> {
        let same = all.iter().copied();
        same.filter(|pmu| pmu.name.starts_with(prefix)).collect()
    };
    let platform = Hardware::detect(&subject.machine).platform.spec();
    if platform.uncore.is_empty() {
        return vec![unknown_platform(subject, &all)];
    }
    let mut findings = Vec::new();
    // Families of one driver have one reason and one remedy.
    for families in platform.uncore.chunk_by(|a, b| a.drivers() == b.drivers()) {
        let (existing, absent): (Vec<&UncoreSpec>, Vec<&UncoreSpec>) = families
            .iter()
            .partition(|family| !with_prefix(&family.pmu).is_empty());
        findings.extend(
            existing
                .into_iter()
                .map(|family| present(family, &with_prefix(&family.pmu))),
        );
        if !absent.is_empty() {
            findings.push(missing(subject, config, platform, &absent, pmus));
        }
    }
    let known = |pmu: &&Pmu| {
        let mut families = platform.uncore.iter();
        families.any(|family| pmu.name.starts_with(&family.pmu))
    };
    let others: Vec<&Pmu> = all.iter().copied().filter(|pmu| !known(pmu)).collect();
    if !others.is_empty() {
        findings.push(AREA.ok("other uncore PMUs", names(&others)));
    }
    findings
}

/// The finding about PCI devices without a name. On Tegra410 the register that links root complexes
/// to devices is readable only with `CAP_SYS_ADMIN`.
fn devices(subject: &Subject, pmus: &Pmus) -> Option<Finding> {
    let machine = &subject.machine;
    let catalogue = Catalogue::builtin().ok()?;
    let devices = Devices::read(machine, pmus, &catalogue);
    let hidden = devices
        .problems
        .values()
        .filter(|problem| **problem == ConfigSpaceError::NoRight);
    let loss = Loss::new("the names of devices in PCIe counts: root complexes keep their numbers")
        .run("start it with the right, which it needs for that alone", {
            let binary = subject.process.binary.display();
            format!("sudo setcap cap_bpf,cap_perfmon,cap_sys_admin+ep {binary}")
        });
    let found = match hidden.count() {
        0 => return None,
        ports => format!("the configuration space of {ports} root ports needs CAP_SYS_ADMIN"),
    };
    Some(AREA.degraded("PCI devices", found, loss))
}

/// The uncore PMUs of an unknown platform.
fn unknown_platform(subject: &Subject, all: &[&Pmu]) -> Finding {
    let check = "uncore PMUs";
    if !all.is_empty() {
        return AREA.ok(check, names(all));
    }
    let loss = Loss::new("what sockets see: bandwidth and latency of memory, L3 and PCIe");
    let (found, loss) = if subject.is_virtual() {
        let advice = "hypervisors do not show them to guests: run pmuscope on the host";
        ("none: this is a virtual machine", loss.advise(advice))
    } else {
        let advice = "metrics are known for the platforms of docs/reference/metrics.md; any other \
             event that a driver lists can be counted by `stat -e PMU/EVENT/`";
        ("none", loss.advise(advice))
    };
    AREA.missing(check, found, loss)
}

/// The finding about a family of which PMUs exist.
fn present(family: &UncoreSpec, pmus: &[&Pmu]) -> Finding {
    let check = family.pmu.trim_end_matches('_');
    let without_cpu: Vec<&str> = pmus
        .iter()
        .filter(|pmu| matches!(&pmu.kind, PmuKind::Uncore { cpus } if cpus.is_empty()))
        .map(|pmu| pmu.name.as_str())
        .collect();
    if without_cpu.is_empty() {
        return AREA.ok(check, names(pmus));
    }
    let without_cpu = without_cpu.join(", ");
    let loss = Loss::new(format!("the counts of {without_cpu}")).run(
        "bring a CPU of that socket online",
        "echo 1 | sudo tee /sys/devices/system/cpu/cpuN/online",
    );
    AREA.degraded(
        check,
        format!("no CPU in the cpumask of {without_cpu}"),
        loss,
    )
}

/// The finding about missing PMUs of one driver.
fn missing(
    subject: &Subject,
    config: Option<&KernelConfig>,
    platform: &PlatformSpec,
    families: &[&UncoreSpec],
    pmus: &Pmus,
) -> Finding {
    let names = families.iter().map(|family| &family.pmu);
    let check = names
        .map(|name| name.trim_end_matches('_'))
        .collect::<Vec<_>>()
        .join(", ");
    let mut found = format!("none, on {}", platform.title);
    let lost: Vec<&str> = families.iter().map(|family| &*family.lost).collect();
    let loss = Loss::new(lost.join("; "));
    if subject.is_virtual() {
        let advice = "hypervisors do not show them to guests: run pmuscope on the host";
        return AREA.missing(check, found, loss.advise(advice));
    }
    // Without NVIDIA's part of the driver, Arm's part names the devices itself.
    if pmus.names().any(|name| name.starts_with("arm_cspmu_")) {
        found.push_str(", but arm_cspmu_* without NVIDIA's names");
    }
    let drivers = families.first().map_or(&[][..], |family| family.drivers());
    let loss = loss.with(driver_remedies(
        config,
        drivers,
        "this machine does not have that part, or its firmware does not list it",
    ));
    AREA.missing(check, found, loss)
}

/// Names of PMUs. PMUs that differ only in their number share a name with a count.
fn names(pmus: &[&Pmu]) -> String {
    let mut kinds: Vec<(String, usize, usize)> = Vec::new();
    for pmu in pmus {
        let name = pmu_kind(&pmu.name);
        let events = pmu.events.len();
        match kinds.iter_mut().find(|(known, _, _)| *known == name) {
            Some((_, count, _)) => *count += 1,
            None => kinds.push((name, 1, events)),
        }
    }
    let text = |(name, count, events): &(String, usize, usize)| {
        format!("{count} x {name} ({events} named events)")
    };
    kinds.iter().map(text).collect::<Vec<_>>().join(", ")
}
