//! Checks that a guest matches its row of the boot table, and has what other tests rely on.

use std::{
    env,
    fs::{self, File},
    io,
    path::Path,
    process::Command,
};

use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_TASK_CLOCK, PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE,
};
use probe_user::{
    session::{Config, Session},
    sys::spin::spin,
};
use rustix::time::{ClockId, clock_gettime};
use test_harness::{plan, this_machine};

use crate::{
    counter::{Counter, Target, pmu_type},
    guest::{skip, value},
};

/// One test, since each test is a separate process.
#[test]
fn the_guest_is_what_its_row_says() {
    kernel_and_architecture_are_those_of_the_boot();
    pages_are_as_large_as_the_kernel_name_says();
    kernel_is_realtime_if_its_name_says_so();
    command_line_is_that_of_the_boot();
    file_systems_are_mounted();
    kernel_has_btf();
    modules_of_the_boot_are_loaded();
    core_pmu_has_the_name_of_its_firmware();
    pmuscope_runs();
}

fn kernel_and_architecture_are_those_of_the_boot() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("procfs");
    assert_eq!(release.trim(), value("RELEASE"));
    let arch = match env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    };
    assert_eq!(arch, value("ARCH"));
}

fn pages_are_as_large_as_the_kernel_name_says() {
    let maps = fs::read_to_string("/proc/self/smaps").expect("procfs");
    let size = maps
        .lines()
        .find_map(|line| line.strip_prefix("KernelPageSize:"))
        .expect("smaps names the page size");
    let expected = if value("RELEASE").ends_with("-16k") {
        "16 kB"
    } else {
        "4 kB"
    };
    assert_eq!(size.trim(), expected);
}

fn kernel_is_realtime_if_its_name_says_so() {
    let version = fs::read_to_string("/proc/sys/kernel/version").expect("procfs");
    let realtime = version.split(' ').any(|word| word == "PREEMPT_RT");
    assert_eq!(realtime, value("RELEASE").contains("-rt-"), "{version}");
}

fn command_line_is_that_of_the_boot() {
    let words = fs::read_to_string("/proc/cmdline").expect("procfs");
    let wanted = value("APPEND");
    for word in wanted.split_whitespace() {
        assert!(
            words.split_whitespace().any(|given| given == word),
            "{words}"
        );
    }
}

fn file_systems_are_mounted() {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("procfs");
    for (kind, directory) in [
        ("cgroup2", "/sys/fs/cgroup"),
        ("bpf", "/sys/fs/bpf"),
        ("debugfs", "/sys/kernel/debug"),
    ] {
        let is_mounted = mounts.lines().any(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            fields[1] == directory && fields[2] == kind
        });
        assert!(is_mounted, "no {kind} on {directory} in\n{mounts}");
    }
}

fn kernel_has_btf() {
    let btf = fs::read("/sys/kernel/btf/vmlinux").expect("CONFIG_DEBUG_INFO_BTF");
    // Documentation/bpf/btf.rst, struct btf_header.
    assert_eq!(btf[..2], 0xeb9f_u16.to_ne_bytes());
}

fn pmuscope_runs() {
    let binary = env::var_os("PMUSCOPE_BIN").expect("the init names the binary");
    // The binary starts on this architecture; other tests check its output.
    let status = Command::new(binary).arg("--version").status();
    assert!(status.expect("it can be executed").code().is_some());
}

/// This kernel's verifier accepts the accounting programs. The SPE tests check the SPE programs.
#[test]
fn programs_are_loaded() {
    for by_process in [false, true] {
        let config = Config {
            plan: plan("task-clock"),
            by_process: by_process.into(),
            follow_command: by_process,
            ..Config::default()
        };
        let mut session = Session::start(config, &this_machine()).unwrap();
        session.pull().unwrap();
    }
}

fn modules_of_the_boot_are_loaded() {
    let wanted = value("MODULES");
    let loaded = loaded_modules();
    for name in wanted.split(',').filter(|name| !name.is_empty()) {
        assert!(
            loaded.iter().any(|module| module == name),
            "{name} is not loaded: {loaded:?}"
        );
    }
}

#[test]
fn software_event_counts() {
    let config = u64::from(PERF_COUNT_SW_TASK_CLOCK);
    let mut clock = Counter::open(PERF_TYPE_SOFTWARE, config, &Target::This).expect("a counter");
    // The CPU time of a switch begins before the event starts, so only a measurement without a
    // switch is exact.
    let exact = (0..20).find_map(|_| {
        let switches = context_switches();
        let mut inner = 0;
        let start = cpu_time();
        let counted = clock.count(|| {
            let start = cpu_time();
            // Without a trusted TSC the guest's clock moves in ticks.
            while inner == 0 {
                spin(100_000);
                inner = cpu_time() - start;
            }
        });
        let outer = cpu_time() - start;
        (context_switches() == switches).then_some((inner, counted, outer))
    });
    let (inner, counted, outer) = exact.expect("one of 20 short runs without a switch");
    assert!(
        (inner..=outer).contains(&counted),
        "{counted} ns counted, CPU time between {inner} and {outer} ns"
    );
}

/// The lines of this thread's status that count its switches.
fn context_switches() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").expect("procfs");
    let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
    lines.collect()
}

/// CPU time of this thread, in ns.
fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("time is positive")
}

/// A cgroup has its own perf state only if a controller was enabled in the root. The hook on
/// cgroup-switches depends on that state.
#[test]
fn cgroup_has_a_perf_state_where_a_controller_is_on() {
    let path = Path::new("/sys/fs/cgroup/smoke");
    fs::create_dir(path).expect("a new cgroup");
    let directory = File::open(path).expect("its directory");
    let config = u64::from(PERF_COUNT_SW_TASK_CLOCK);
    let opened = Counter::open(PERF_TYPE_SOFTWARE, config, &Target::Cgroup(&directory, 0));
    let error = opened.err().map(|error| error.kind());
    drop(directory);
    fs::remove_dir(path).expect("an empty cgroup can be removed");
    let expected = value("CONTROLLERS")
        .is_empty()
        .then_some(io::ErrorKind::NotFound);
    assert_eq!(error, expected);
}

fn core_pmu_has_the_name_of_its_firmware() {
    let pmus = ["armv8_pmuv3", "armv8_pmuv3_0", "cpu"];
    let found: Vec<_> = pmus
        .into_iter()
        .filter(|name| pmu_type(name).is_some())
        .collect();
    if value("PMU").is_empty() {
        return hardware_cycles_are_refused();
    }
    let expected: &[&str] = match &*value("FIRMWARE") {
        "dt" => &["armv8_pmuv3"],
        _ => &["armv8_pmuv3_0"],
    };
    assert_eq!(found, expected);
}

fn hardware_cycles_are_refused() {
    let config = u64::from(PERF_COUNT_HW_CPU_CYCLES);
    let opened = Counter::open(PERF_TYPE_HARDWARE, config, &Target::This);
    let error = opened.err().map(|error| error.kind());
    assert_eq!(error, Some(io::ErrorKind::NotFound));
}

/// Our modules can be loaded into this kernel and unloaded.
#[test]
fn test_modules_load() {
    let Ok(files) = fs::read_dir("/lib/pmuscope") else {
        return skip("tests/vm/kmod has no Makefile, so the guest has no test modules");
    };
    for file in files {
        let path = file.expect("a directory entry").path();
        let stem = path.file_stem().expect("NAME.ko").to_string_lossy();
        let name = stem.replace('-', "_");
        run("insmod", &path.to_string_lossy());
        assert!(loaded_modules().contains(&name), "{name} did not load");
        run("rmmod", &name);
        assert!(!loaded_modules().contains(&name), "{name} did not unload");
    }
}

fn run(program: &str, argument: &str) {
    let output = (Command::new(program).arg(argument).output()).expect("busybox has it");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {argument}: {stderr}");
}

fn loaded_modules() -> Vec<String> {
    let modules = fs::read_to_string("/proc/modules").expect("procfs");
    let names = modules.lines().filter_map(|line| line.split(' ').next());
    names.map(String::from).collect()
}
