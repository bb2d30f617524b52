//! Wrong input: every error is one sentence with what happened, to what, and what to do.

use std::process::{Command, Stdio};

use test_harness::{pmuscope, shared_machine};

/// Arguments of `pmuscope`, exit code, and expected text on stderr.
const CASES: &[(&[&str], i32, &str)] = &[
    (&[], 2, "Usage: pmuscope [OPTIONS] <COMMAND>"),
    (&["stats"], 2, "a similar subcommand exists: 'stat'"),
    (&["stat", "-I", "5"], 2, "it must be from 10ms to 1 day"),
    (
        &["stat", "--by", "pods"],
        2,
        "[possible values: container, pod, cgroup, process]",
    ),
    (&["stat", "--max-rows", "0"], 2, "0 is not in 1..=134217728"),
    (
        &["roofline", "--sizes", "48K,1"],
        2,
        "it must be 4096 bytes or more",
    ),
    (&["stat", "-e", "page-fault", "true"], 1, "page-faults"),
    (
        &["stat", "-e", "", "true"],
        1,
        "the list of events is empty; name at least one, such as task-clock",
    ),
    (
        &["stat", "-e", "{task-clock", "true"],
        1,
        "at column 12: expected `,` or `}`",
    ),
    (&["stat", "-e", "msr/tscc/", "true"], 1, "tsc"),
    (&["stat", "-e", "mrs/tsc/", "true"], 1, "msr"),
    (&["stat", "-e", "task-clock:q", "true"], 1, "q"),
    (
        &["stat", "-M", "nosuch", "true"],
        1,
        "`pmuscope list metrics` names all",
    ),
    (
        &["stat", "-o", "/nowhere/out", "true"],
        1,
        "cannot write /nowhere/out: No such file or directory",
    ),
    (
        &[
            "stat",
            "--by",
            "process",
            "--hook",
            "cgroup-switches",
            "true",
        ],
        1,
        "--by process needs --hook sched-switch",
    ),
];

/// Like [`CASES`], for arguments that are checked only if pmuscope has the right to count.
const COUNTING_CASES: &[(&[&str], i32, &str)] = &[
    (
        &["stat", "--", "/nowhere/command"],
        127,
        "cannot start /nowhere/command: No such file or directory",
    ),
    (
        &["stat", "--", "/proc/version"],
        126,
        "cannot start /proc/version: Permission denied",
    ),
    (
        &["stat", "--cgroup", "/nowhere", "true"],
        1,
        "no cgroup /nowhere under ",
    ),
    (
        &[
            "stat",
            "-e",
            "{task-clock,cs,faults,minor-faults,major-faults,cpu-clock,migrations,dummy,emulation-faults}",
            "true",
        ],
        1,
        "at most 20 counters, 8 in a group",
    ),
];

/// Changes to the machine in a private mount namespace, and the expected message of `pmuscope stat
/// true`.
const BROKEN_MACHINES: &[(&str, &str)] = &[
    (
        "umount --lazy $(awk '$3 == \"cgroup2\" {print $2}' /proc/mounts)",
        "no cgroup2 file system in /proc/self/mountinfo: mount it with `mount -t cgroup2 none \
         /sys/fs/cgroup`",
    ),
    (
        "mount -t tmpfs none /sys/kernel/btf",
        "cannot read the kernel's BTF at /sys/kernel/btf/vmlinux: No such file or directory",
    ),
    (
        "mount --bind /dev/null /sys/kernel/btf/vmlinux",
        "pmuscope needs a kernel built with CONFIG_DEBUG_INFO_BTF=y",
    ),
    (
        "mount -t tmpfs none /sys",
        "/sys/bus/event_source/devices: is missing: mount sysfs with `mount -t sysfs none /sys`",
    ),
    (
        "mount -t tmpfs none /proc",
        "cannot read /proc/self/mountinfo: No such file or directory (os error 2)\n",
    ),
];

fn check(cases: &[(&[&str], i32, &str)]) {
    for (args, code, expected) in cases {
        let output = pmuscope()
            .args(*args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        println!("pmuscope {}\n{log}", args.join(" "));
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {log}");
        assert!(
            log.contains(expected),
            "{args:?} says\n{log}\nand not\n{expected}"
        );
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn wrong_arguments_are_reported() {
    check(CASES);
}

#[test]
fn wrong_arguments_of_counting_are_reported() {
    if let Some(_machine) = shared_machine() {
        check(COUNTING_CASES);
    }
}

/// Makes bpf(2) fail in the next program, as on a kernel without BPF.
fn without_bpf() -> std::io::Result<()> {
    let statement = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 1,
        k,
    };
    // Offset of the number of the system call in `seccomp_data`.
    let mut filter = [
        statement(0x20, 0),                                     // A = number
        statement(0x15, u32::try_from(libc::SYS_bpf).unwrap()), // is it bpf?
        statement(0x06, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        statement(0x06, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the filter has the length that it states, and the kernel copies it.
    match unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn a_kernel_without_bpf_is_reported() {
    use std::os::unix::process::CommandExt as _;

    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut command = pmuscope();
    command
        .args(["stat", "-e", "task-clock", "true"])
        .stdin(Stdio::null());
    // SAFETY: between fork and exec the closure makes one system call.
    unsafe { command.pre_exec(without_bpf) };
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    println!("{log}");
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("CONFIG_BPF_SYSCALL=y"), "{log}");
}

#[test]
fn broken_machines_are_reported() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]);
        command.stdin(Stdio::null()).output()
    };
    if !unshare("mount -t tmpfs none /mnt").is_ok_and(|output| output.status.success()) {
        println!("skipped: this process may not mount in a namespace of its own");
        return;
    }
    let program = pmuscope().get_program().to_owned();
    let program = program.to_str().unwrap();
    for (script, expected) in BROKEN_MACHINES {
        let output = unshare(&format!("{script} && exec {program} stat true")).unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        println!("{script}\n{log}");
        assert_eq!(output.status.code(), Some(1), "{script}: {log}");
        assert!(
            log.contains(expected),
            "{script} says\n{log}\nand not\n{expected}"
        );
    }
}
