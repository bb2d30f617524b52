//! What limits or extends the counters: NMI watchdog, file descriptors, resctrl and MPAM.

use std::fs;

use probe_common::SLOTS;

use super::{Area, Finding, Loss, Subject, subject::Arch};
use crate::{
    calibration::{Calibration, DIRECTORY},
    machine::{
        Pmus,
        kernel_config::{Built, KernelConfig},
    },
    sys::descriptors::OTHER_DESCRIPTORS,
};

const AREA: Area = Area::Counters;

pub(super) fn check(
    subject: &Subject,
    config: Option<&KernelConfig>,
    pmus: &Result<&Pmus, String>,
) -> Vec<Finding> {
    let has_core = pmus
        .as_ref()
        .is_ok_and(|pmus| pmus.cores().next().is_some());
    let mut findings = vec![watchdog(subject, config, has_core)];
    findings.extend(descriptors(subject));
    findings.push(resctrl(subject, config));
    findings.extend(calibration(subject));
    findings
}

fn watchdog(subject: &Subject, config: Option<&KernelConfig>, has_core: bool) -> Finding {
    let check = "NMI watchdog";
    let is_on = subject
        .proc("sys/kernel/nmi_watchdog")
        .is_some_and(|value| value != "0");
    if !is_on {
        return AREA.ok(check, "off");
    }
    if !has_core {
        return AREA.ok(
            check,
            "on; there is no core PMU whose counter it could take",
        );
    }
    if config.is_some_and(|config| config.built("HARDLOCKUP_DETECTOR_BUDDY") == Built::In) {
        return AREA.ok(
            check,
            "on, of the kind that takes no counter (CONFIG_HARDLOCKUP_DETECTOR_BUDDY)",
        );
    }
    let loss = Loss::new("one counter of every CPU, so that groups rotate more often")
        .sysctl("kernel.nmi_watchdog", 0)
        .advise("without it a CPU that hangs with interrupts off is not reported");
    AREA.degraded(check, "on", loss)
}

/// The finding about the limit of open files. A session needs a descriptor for each event and CPU,
/// whatever the number of containers.
fn descriptors(subject: &Subject) -> Option<Finding> {
    let check = "open files";
    let online = subject.machine.online().ok()?.len() as u64;
    let needed = online * SLOTS as u64 + OTHER_DESCRIPTORS;
    let Some(limit) = subject.process.descriptors.filter(|limit| *limit < needed) else {
        let found =
            format!("room for {SLOTS} events on each of {online} CPUs ({needed} descriptors)");
        return Some(AREA.ok(check, found));
    };
    let events = limit.saturating_sub(OTHER_DESCRIPTORS) / online.max(1);
    let found = format!("at most {limit}: room for {events} events on each of {online} CPUs");
    let loss = Loss::new(format!("more than {events} events at once"))
        .run(
            "for a shell, as root",
            format!("ulimit -Hn {needed} && ulimit -n {needed}"),
        )
        .advise(format!("for a systemd unit: LimitNOFILE={needed}"));
    Some(if events == 0 {
        AREA.stops(check, found, loss)
    } else {
        AREA.degraded(check, found, loss)
    })
}

/// The finding about resctrl's monitoring groups: the hardware itself counts the memory traffic of
/// each.
fn resctrl(subject: &Subject, config: Option<&KernelConfig>) -> Finding {
    let check = "resctrl";
    let loss = Loss::new(
        "a measurement beside the estimated share of each container in memory traffic and L3 \
         occupancy",
    );
    if let Some(mount) = subject.machine.resctrl() {
        let features = subject.locate(&mount).join("info/L3_MON/mon_features");
        return match fs::read_to_string(features).ok() {
            Some(features) => {
                let features: Vec<&str> = features.split_whitespace().collect();
                let found = format!("{} counts {}", mount.display(), features.join(", "));
                AREA.ok(check, found)
            }
            None => {
                let found = format!("{} is mounted and has no monitors", mount.display());
                let advice = "there is no remedy: this CPU can allocate, but not monitor";
                AREA.missing(check, found, loss.advise(advice))
            }
        };
    }
    if subject.machine.sysfs().join("fs/resctrl").exists() {
        let loss = loss.run("mount it", "sudo mount -t resctrl resctrl /sys/fs/resctrl");
        return AREA.missing(check, "the kernel has it, and it is not mounted", loss);
    }
    let (option, what) = match subject.process.arch {
        Arch::Arm64 => ("ARM64_MPAM", "MPAM"),
        Arch::X86 => ("X86_CPU_RESCTRL", "RDT or its like"),
    };
    let advice = match config.map(|config| config.built(option)) {
        Some(Built::In) => format!(
            "the kernel is built with CONFIG_{option}: this CPU (or its firmware, or the \
             hypervisor) shows no {what}"
        ),
        Some(Built::Module | Built::Not) => {
            format!("boot a kernel that is built with CONFIG_{option}=y, if the CPU has {what}")
        }
        None => format!("the CPU needs {what}, and the kernel CONFIG_{option}=y"),
    };
    AREA.missing(check, "the kernel does not offer it", loss.advise(advice))
}

/// Whether a calibration in the usual directory is of this type of machine. None without a
/// calibration: it is not known here whether this machine has traffic to calibrate.
fn calibration(subject: &Subject) -> Option<Finding> {
    let check = "calibration";
    let directory = &subject.calibrations;
    if !directory.exists() {
        return None;
    }
    let loss = || Loss::new("shares of memory traffic with a measured error");
    Some(match Calibration::read(directory, &subject.machine) {
        Ok(calibration) => {
            let metrics = calibration.traffics.iter().map(|it| it.metric.as_str());
            let metrics: Vec<&str> = metrics.collect();
            let found = format!("of this type of machine, for {}", metrics.join(", "));
            AREA.ok(check, found)
        }
        Err(error) if error.is_of_another_machine() => {
            let loss = loss().run(
                "on this machine, while it does nothing else",
                format!("sudo pmuscope calibrate shares -o {DIRECTORY}/this.toml"),
            );
            AREA.missing(check, error.to_string(), loss)
        }
        Err(error) => AREA.degraded(check, error.to_string(), loss().advise("mend that file")),
    })
}
