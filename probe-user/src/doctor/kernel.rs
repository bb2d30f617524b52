//! The kernel: version, configuration, type information.

use super::{Area, Finding, Loss, State, Subject, subject::Arch};
use crate::{
    machine::{
        BtfError,
        kernel_config::{Built, KernelConfig},
    },
    session::object::offsets,
};

const AREA: Area = Area::Kernel;

/// The oldest supported version. In older kernels the allocation of hash maps is not safe in the
/// scheduler, and the programs for SPE do not load on arm64.
const FLOOR: (u32, u32) = (6, 1);

/// An option of the kernel's configuration that counting uses.
struct KernelOption {
    /// The name without `CONFIG_`.
    option: &'static str,
    /// The loss without it.
    lost: &'static str,
    /// Whether counting per container requires it.
    needed: bool,
}

const OPTIONS: [KernelOption; 7] = [
    KernelOption {
        option: "BPF_SYSCALL",
        lost: "everything: no eBPF program can be loaded",
        needed: true,
    },
    KernelOption {
        option: "BPF_EVENTS",
        lost: "everything: no program can be attached to the scheduler",
        needed: true,
    },
    KernelOption {
        option: "PERF_EVENTS",
        lost: "everything: no counter can be opened",
        needed: true,
    },
    KernelOption {
        option: "CGROUPS",
        lost: "everything: there are no containers to count for",
        needed: true,
    },
    KernelOption {
        option: "DEBUG_INFO_BTF",
        lost: "everything: the programs cannot find the kernel's fields",
        needed: true,
    },
    KernelOption {
        option: "BPF_JIT",
        lost: "speed: the programs are interpreted, at every context switch",
        needed: false,
    },
    KernelOption {
        option: "CGROUP_PERF",
        lost: "`--hook cgroup-switches` and perf's --for-each-cgroup; the default hook works \
               without it",
        needed: false,
    },
];

pub(super) fn check(subject: &Subject, config: Option<&KernelConfig>) -> Vec<Finding> {
    let types = types(subject);
    let mut findings = vec![version(subject, types.state == State::Ok)];
    findings.extend(options(config));
    findings.push(types);
    findings.extend([waits(subject), pressure(subject)]);
    findings
}

fn waits(subject: &Subject) -> Finding {
    if subject.machine.keeps_waits() {
        return AREA.ok("waits", "the kernel keeps how long threads wait for a CPU");
    }
    AREA.missing(
        "waits",
        "there is no /proc/self/schedstat",
        Loss::new("how long containers wait for a CPU, and for whom").advise(
            "boot a kernel that is built with CONFIG_SCHEDSTATS=y or CONFIG_TASK_DELAY_ACCT=y, as \
             the distributions' own are",
        ),
    )
}

fn pressure(subject: &Subject) -> Finding {
    if subject.machine.proc("pressure/cpu").is_some() {
        return AREA.ok("pressure", "the kernel has pressure stall information");
    }
    AREA.missing(
        "pressure",
        "/proc/pressure/cpu cannot be read",
        Loss::new("for which part of the time containers want CPU, memory or I/O")
            .advise("boot with psi=1 on the kernel's command line; it needs CONFIG_PSI=y"),
    )
}

/// `types_are_supported`: whether the kernel's types are those of a supported kernel, whatever its
/// version.
fn version(subject: &Subject, types_are_supported: bool) -> Finding {
    let release = subject.release().unwrap_or_default();
    let found = format!("Linux {release}, {}", subject.process.arch.name());
    let newer = "boot a newer kernel of the distribution";
    match subject.version() {
        None => AREA.degraded(
            "version",
            "the kernel does not tell its version in /proc/sys/kernel/osrelease",
            Loss::new("nothing for certain: the trials below decide")
                .run("mount procfs", "sudo mount -t proc none /proc"),
        ),
        Some(version) if version < FLOOR && !types_are_supported => AREA.stops(
            "version",
            found,
            Loss::new("everything: pmuscope needs Linux 6.1").advise(newer),
        ),
        Some(version) if version < FLOOR && subject.process.arch == Arch::Arm64 => AREA.degraded(
            "version",
            found,
            Loss::new("SPE: decoding its records in the kernel needs Linux 6.1").advise(newer),
        ),
        Some(_) => AREA.ok("version", found),
    }
}

fn options(config: Option<&KernelConfig>) -> Vec<Finding> {
    let Some(config) = config else {
        return vec![
            AREA.degraded(
                "config",
                "neither /proc/config.gz nor /boot/config-RELEASE can be read",
                Loss::new("reasons: what the kernel was built without is not known below")
                    .run(
                        "where the kernel has it as a module",
                        "sudo modprobe configs",
                    )
                    .advise("in a container, mount the host's /boot read-only"),
            ),
        ];
    };
    let (set, unset): (Vec<&KernelOption>, Vec<&KernelOption>) = OPTIONS
        .iter()
        .partition(|wanted| config.built(wanted.option) == Built::In);
    let names: Vec<String> = set
        .iter()
        .map(|wanted| format!("CONFIG_{}", wanted.option))
        .collect();
    let source = config.source.display();
    let found = format!("{source} has {}", names.join(", "));
    let mut findings = vec![AREA.ok("config", found)];
    if names.is_empty() {
        findings.clear();
    }
    findings.extend(unset.into_iter().map(|wanted| {
        let check = format!("CONFIG_{}", wanted.option);
        let found = format!("not set in {source}");
        let loss = Loss::new(wanted.lost).advise(format!(
            "boot a kernel that is built with {check}=y, as the distributions' own are"
        ));
        if wanted.needed {
            AREA.stops(check, found, loss)
        } else {
            AREA.missing(check, found, loss)
        }
    }));
    findings
}

fn types(subject: &Subject) -> Finding {
    let path = subject.machine.vmlinux();
    match offsets::kernel_types(&path, false, false) {
        Ok(types) => AREA.ok(
            "BTF",
            format!(
                "describes all {} fields that pmuscope reads",
                types.offsets.len()
            ),
        ),
        Err(error @ BtfError::MapAllocator { .. }) => AREA.stops(
            "BTF",
            error.to_string(),
            Loss::new("everything: counting could deadlock this kernel")
                .advise("boot Linux 6.1 or newer"),
        ),
        Err(error) => AREA.stops(
            "BTF",
            error.to_string(),
            Loss::new("everything: the programs cannot find the kernel's fields")
                .advise("boot a kernel that is built with CONFIG_DEBUG_INFO_BTF=y"),
        ),
    }
}
