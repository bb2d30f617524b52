//! The rights of the process: first capabilities, then sysctls.

use rustix::thread::CapabilitySet;

use super::{Area, Finding, Loss, Subject};
use crate::machine::capabilities;

const AREA: Area = Area::Rights;

/// A warning: the sysctls weaken the machine's security for all users (after the warning in
/// NVIDIA's Grace guide, "Configuring Perf").
const WARNING: &str = "the settings below apply to every user of this machine, not only to \
     pmuscope: first read what they open (Documentation/admin-guide/perf-security.rst), and ask \
     the administrator";

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    vec![
        capabilities(subject),
        perf_event_paranoid(subject),
        kptr_restrict(subject),
    ]
}

fn capabilities(subject: &Subject) -> Finding {
    let needed = [
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::PERFMON, "CAP_PERFMON"),
    ];
    let missing: Vec<&str> = needed
        .into_iter()
        .filter_map(|(capability, name)| (!subject.has(capability)).then_some(name))
        .collect();
    if missing.is_empty() {
        let present = if subject
            .process
            .capabilities
            .contains(CapabilitySet::SYS_ADMIN)
        {
            "CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON"
        } else {
            "CAP_BPF and CAP_PERFMON"
        };
        return AREA.ok("capabilities", present);
    }
    let loss = grant(
        subject,
        Loss::new("everything: loading the programs and counting all tasks of a CPU is refused"),
    );
    let missing = missing.join(" and ");
    AREA.stops("capabilities", format!("without {missing}"), loss)
}

/// Adds the ways to grant the capabilities.
fn grant(subject: &Subject, loss: Loss) -> Loss {
    if capabilities::in_user_namespace(&subject.machine.roots().proc) {
        return loss.advise(capabilities::OUTSIDE);
    }
    let binary = subject.process.binary.display();
    loss.run(
        "grant them to the program, once",
        format!("sudo setcap cap_bpf,cap_perfmon+ep {binary}"),
    )
    .advise("in Kubernetes: securityContext.capabilities.add: [BPF, PERFMON]")
    .run("or run it as root", format!("sudo {binary} doctor"))
}

/// The finding about `kernel.perf_event_paranoid`. Levels up to 2 are those of the upstream kernel.
/// Debian's and Ubuntu's kernels add 3 and 4, at which they require `CAP_SYS_ADMIN`.
fn perf_event_paranoid(subject: &Subject) -> Finding {
    let check = "perf_event_paranoid";
    let Some(level) = setting(subject, "perf_event_paranoid") else {
        return unreadable(check, "kernel.perf_event_paranoid");
    };
    let found = level.to_string();
    let sys_admin = subject
        .process
        .capabilities
        .contains(CapabilitySet::SYS_ADMIN);
    if sys_admin || level <= 2 && subject.has(CapabilitySet::PERFMON) {
        return AREA.ok(check, format!("{found}, which the capabilities above pass"));
    }
    if subject.has(CapabilitySet::PERFMON) {
        let loss = Loss::new(
            "perhaps everything: at 3 and above Debian's and Ubuntu's kernels want CAP_SYS_ADMIN \
             to open a counter (the trials below tell)",
        )
        .advise("with CAP_SYS_ADMIN beside the two capabilities the setting can stay")
        .advise(WARNING)
        .sysctl("kernel.perf_event_paranoid", 2);
        return AREA.degraded(check, found, loss);
    }
    if level <= 0 {
        let found = format!("{found}: opening counters of all tasks is open to everybody");
        return AREA.ok(check, found);
    }
    let loss = Loss::new("counters of all tasks of a CPU, to a process without CAP_PERFMON")
        .advise("grant the capabilities as above: with them this setting does not matter")
        .advise(
            "lowering it opens counters to perf and other tools, but not to pmuscope's programs, \
             which need the capabilities all the same",
        )
        .advise(WARNING)
        .sysctl("kernel.perf_event_paranoid", 0);
    AREA.degraded(check, found, loss)
}

fn kptr_restrict(subject: &Subject) -> Finding {
    let check = "kptr_restrict";
    let Some(level) = setting(subject, "kptr_restrict") else {
        return unreadable(check, "kernel.kptr_restrict");
    };
    if level <= 0 || level == 1 && subject.has(CapabilitySet::SYSLOG) {
        return AREA.ok(check, level.to_string());
    }
    let loss = Loss::new(
        "names of kernel functions in perf's profiles; no count of pmuscope needs kernel addresses",
    );
    let loss = if level == 1 {
        let binary = subject.process.binary.display();
        loss.run(
            "grant the capability that passes it",
            format!("sudo setcap cap_bpf,cap_perfmon,cap_syslog+ep {binary}"),
        )
    } else {
        loss
    };
    let loss = loss.advise(WARNING).sysctl("kernel.kptr_restrict", 0);
    AREA.degraded(check, level.to_string(), loss)
}

fn setting(subject: &Subject, name: &str) -> Option<i32> {
    subject.proc(&format!("sys/kernel/{name}"))?.parse().ok()
}

fn unreadable(check: &str, name: &str) -> Finding {
    let loss = Loss::new("nothing for certain: the trials below decide")
        .run("mount procfs", "sudo mount -t proc none /proc");
    AREA.degraded(check, format!("{name} cannot be read"), loss)
}
