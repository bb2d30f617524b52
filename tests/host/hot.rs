//! `pmuscope hot` from the command line: function names, also in a container, and refused options.

use std::{os::unix::process::CommandExt as _, process::Stdio};

use serde_json::Value;
use test_harness::{load_binary, machine, pmuscope, shared_machine};

use crate::{nobody::Programs, peers::has, rights::drop_rights, runc::Container};

/// The JSON of a run of `hot` with a load.
fn hot(arguments: &[&str]) -> Value {
    let output = pmuscope()
        .args(["hot", "--format", "json", "--output-fd", "1"])
        .args(["--runtime-endpoint", "off"])
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_hot_function_has_its_name() {
    let Some(_machine) = machine() else {
        return;
    };
    let load = load_binary();
    let command = [
        "-e",
        "cpu-clock:u",
        "--",
        load.to_str().unwrap(),
        "burn",
        "0",
        "1000",
    ];
    let report = hot(&command);
    let is_command = |row: &&Value| row["owner"]["kind"] == "command";
    let rows = report["hot"].as_array().unwrap();
    let first = rows.iter().find(is_command).unwrap();
    assert!(
        first["function"].as_str().unwrap().contains("spin"),
        "{first}"
    );
    let module = first["module"].as_str().unwrap();
    assert_eq!(module, load.canonicalize().unwrap().to_str().unwrap());
    let share = &first["share"];
    let [low, value, high] = ["low", "value", "high"].map(|end| share[end].as_f64().unwrap());
    assert!(low < value && value <= high && value > 0.5, "{share}");
}

#[test]
fn an_event_that_cannot_be_sampled_is_refused_before_loading() {
    for (event, expected) in [
        (
            "cpu-clock/period=5/",
            "below the 10000 ns that the kernel allows at least",
        ),
        ("duration_time", "it is no counter"),
        (
            "page-faults/freq=1000000000/",
            "kernel.perf_event_max_sample_rate allows",
        ),
    ] {
        let output = pmuscope().args(["hot", "-e", event]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && error.contains(expected),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// The program is a file inside a container only, and has ended when its functions are named.
#[test]
fn a_hot_function_of_a_container_has_its_name() {
    let Some(_machine) = machine().filter(|_| has("runc")) else {
        return;
    };
    let libraries: Vec<&str> = ["/lib", "/lib64", "/usr/lib"]
        .into_iter()
        .filter(|directory| std::path::Path::new(directory).exists())
        .collect();
    let container = Container::new(0xdef, &load_binary(), &libraries);
    let run = container.run(&["/bin/load", "burn", "0", "2000"]);
    let mut arguments = vec!["-e", "cpu-clock:u", "--", "runc"];
    arguments.extend(run.get_args().map(|word| word.to_str().unwrap()));
    let report = hot(&arguments);
    let rows = report["hot"].as_array().unwrap();
    let is_container = |row: &&Value| row["owner"]["name"] == container.id.as_str();
    let first = rows.iter().find(is_container);
    let first = first.unwrap_or_else(|| panic!("no {} in {report}", container.id));
    assert!(
        first["function"].as_str().unwrap().contains("spin"),
        "{first}"
    );
    // The path of the file inside the container.
    assert_eq!(first["module"], "/bin/load", "{first}");
    assert!(first["share"]["value"].as_f64().unwrap() > 0.5, "{first}");
}

/// Without `CAP_SYSLOG` the kernel hides its addresses unless `perf_event_paranoid` is at most 1.
/// Kernel functions then have no names, and a message gives the reason.
#[test]
fn kernel_functions_have_no_names_without_the_right() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let setting = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap();
        text.trim().parse::<i32>().unwrap()
    };
    if setting("perf_event_paranoid") < 2 && setting("kptr_restrict") == 0 {
        println!("skipped: everybody may see the kernel's addresses here");
        return;
    }
    let programs = Programs::new();
    let load = programs.load();
    let mut command = programs.pmuscope();
    command
        .args([
            "hot",
            "--format",
            "json",
            "-e",
            "page-faults/period=1/k",
            "--output-fd",
            "1",
            "--",
        ])
        .args([load.to_str().unwrap(), "touch", "2000"])
        .stdin(Stdio::null());
    // SAFETY: between fork and exec the closure makes system calls only.
    unsafe {
        command.pre_exec(drop_rights);
    }
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let why: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("kernel."))
        .collect();
    assert_eq!(why.len(), 1, "{stderr}");
    assert!(why[0].contains("kptr_restrict"), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    // The load writes to stdout too.
    let mut lines = text.lines();
    let report = lines.find(|line| line.starts_with('{')).unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    let rows = report["hot"].as_array().unwrap().iter();
    let functions: Vec<&str> = rows.map(|row| row["function"].as_str().unwrap()).collect();
    // Kernel instructions are shown as offsets.
    let hidden = |function: &&str| function.starts_with("+0xffff");
    assert!(
        !functions.is_empty() && functions.iter().all(hidden),
        "{report}"
    );
}

/// Only the kernel knows that this PMU raises no interrupt.
#[test]
fn a_pmu_without_interrupts_is_refused_in_a_sentence() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    if !std::path::Path::new("/sys/bus/event_source/devices/msr").exists() {
        println!("skipped: this machine has no PMU msr");
        return;
    }
    let output = pmuscope().args(["hot", "-e", "msr/tsc/"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    let error = stderr.lines().last().unwrap();
    assert!(
        error.starts_with("pmuscope: cannot sample msr/tsc/ on CPU ")
            && error.contains("`pmuscope stat -e` counts it"),
        "{stderr}"
    );
}
