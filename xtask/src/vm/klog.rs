//! Finds faults in a guest's kernel log, of the kernel or of our modules and programs.

/// Words in the first line of the kernel's reports of faults.
const FAULTS: &[&str] = &[
    // WARN_ON(), and findings of lockdep and RCU checks.
    "WARNING:",
    // Soft lockups, sleep in atomic context, use after free.
    "BUG:",
    "kernel BUG at",
    "general protection fault",
    // arm64's words for an oops.
    "Internal error:",
    "Unable to handle kernel",
    "Oops",
    // Stalls, and tasks that hang.
    "rcu: INFO:",
    "INFO: task ",
    "UBSAN:",
];

/// Words, in lower case, that the reports of all other faults contain.
const TRACE: &str = "call trace:";

/// The call trace of a report begins within this many lines.
const LINES_BEFORE_TRACE: usize = 40;

/// A known fault that is not ours.
struct KnownFault {
    /// A part of its first line.
    text: &'static str,
    /// Where it occurs, and why it is not our fault.
    #[expect(dead_code, reason = "for readers of this table")]
    reason: &'static str,
}

const KNOWN: &[KnownFault] = &[];

/// The line of `log` at which the first unknown fault begins.
pub(super) fn fault(log: &[String]) -> Option<usize> {
    first_fault(log, KNOWN)
}

fn first_fault(log: &[String], known: &[KnownFault]) -> Option<usize> {
    let mut last_known = None;
    for (at, line) in log.iter().enumerate() {
        if FAULTS.iter().any(|fault| line.contains(fault)) {
            if !known.iter().any(|known| line.contains(known.text)) {
                return Some(at);
            }
            last_known = Some(at);
        }
        let belongs_to_known = last_known.is_some_and(|begin| at - begin < LINES_BEFORE_TRACE);
        if line.to_ascii_lowercase().contains(TRACE) && !belongs_to_known {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(log: &str) -> Vec<String> {
        log.lines().map(str::to_owned).collect()
    }

    /// From a guest with 6.1 on arm64, some registers left out.
    const WARNED: &str = "\
kernel: [   13.095174] ------------[ cut here ]------------
kernel: [   13.095197] WARNING: CPU: 1 PID: 125 at kernel/events/core.c:11490 perf_pmu_register+0x198/0x470
kernel: [   13.095305] Modules linked in: testpmu(OE+) arm_spe_pmu [last unloaded: testpmu(OE)]
kernel: [   13.095414] CPU: 1 PID: 125 Comm: insmod Tainted: G           OE      6.1.0-50-arm64 #1  Debian 6.1.176-1
kernel: [   13.095481] Hardware name: linux,dummy-virt (DT)
kernel: [   13.095578] pc : perf_pmu_register+0x198/0x470
kernel: [   13.096833] Call trace:
kernel: [   13.096856]  perf_pmu_register+0x198/0x470
kernel: [   13.096940]  tp_register_row+0x3b8/0x5a0 [testpmu]
kernel: [   13.097819]  do_one_initcall+0x64/0x26c
kernel: [   13.098527] ---[ end trace 0000000000000000 ]---";

    /// From a guest with 7.3 on amd64, when a CPU went offline.
    const HARMLESS: &str = "\
kernel: [   62.029912] process 225 (load) no longer affine to cpu1
kernel: [   63.288553] process 230 (load) no longer affine to cpu1";

    #[test]
    fn a_warning_is_a_fault_and_begins_with_its_line() {
        let log = lines(&format!("{HARMLESS}\n{WARNED}"));
        let at = fault(&log).unwrap();
        assert!(log[at].contains("] WARNING: CPU: 1 PID: 125 at "));
        assert_eq!(fault(&lines(HARMLESS)), None);
    }

    #[test]
    fn a_known_warning_and_its_call_trace_are_no_fault() {
        let known = [KnownFault {
            text: "perf_pmu_register",
            reason: "a test",
        }];
        let log = lines(WARNED);
        assert_eq!(first_fault(&log, &known), None);
        let again = lines(&format!("{WARNED}\nkernel: [   14.0] BUG: x"));
        assert_eq!(first_fault(&again, &known), Some(11));
    }

    #[test]
    fn a_call_trace_alone_is_a_fault() {
        let log: Vec<_> = lines(WARNED)
            .into_iter()
            .filter(|line| !line.contains("WARNING:"))
            .collect();
        assert!(log[fault(&log).unwrap()].ends_with("Call trace:"));
    }

    /// Messages of Linux 6.1 and 6.12.
    #[test]
    fn every_kind_of_fault_is_found() {
        let kinds = [
            "WARNING: possible circular locking dependency detected",
            "WARNING: suspicious RCU usage",
            "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [load:231]",
            "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:580",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "rcu: INFO: rcu_sched self-detected stall on CPU",
            "INFO: task load:231 blocked for more than 120 seconds.",
            "kernel BUG at mm/slub.c:435!",
            "Internal error: Oops: 0000000096000004 [#1] SMP",
            "general protection fault, probably for non-canonical address 0xdead: 0000 [#1]",
        ];
        for kind in kinds {
            assert_eq!(fault(&lines(kind)), Some(0), "{kind}");
        }
    }
}
