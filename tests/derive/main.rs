//! Tests of the program `pmuscope derive`.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn fixture(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/derive");
    root.join(name)
}

fn derive(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmuscope"));
    command.arg("derive").args(args);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("pmuscope starts");
    // A command that refuses its arguments does not read its input.
    let mut stdin = child.stdin.take().expect("it is piped");
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("pmuscope ends")
}

#[track_caller]
fn out(args: &[&str], input: &str) -> String {
    let output = derive(args, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn refusal(args: &[&str], input: &str) -> String {
    let output = derive(args, input);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn a_file_and_standard_input_give_the_same() {
    let file = fixture("ddio-table7.txt");
    let text = std::fs::read_to_string(&file).unwrap();
    let from_file = out(&[file.to_str().unwrap(), "--platform", "emr"], "");
    assert_eq!(out(&["-", "--platform", "emr"], &text), from_file);
    assert_eq!(out(&["--platform", "emr"], &text), from_file);
    let line = from_file
        .lines()
        .find(|line| line.contains("io_inbound_read_bandwidth"));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(
        words,
        [
            "io_inbound_read_bandwidth",
            "part",
            "0",
            "40130.17",
            "MB/s",
            "100",
            "%"
        ]
    );
}

#[test]
fn a_catalogue_of_ones_own_adds_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let text = r#"
name = "mine"
title = "Mine"
platforms = ["emr"]
document = "my notes"
[pmu.cha]
pattern = "uncore_cha_{unit}"
per = "socket"
[pmu.cha.events]
ITOM = { perf = "{pmu}/event=0x35,umask=0xcc43ff04/", count = "line64" }
[[metric]]
name = "full_writes"
title = "Full writes"
unit = "MB/s"
kind = "rate"
group = "mine"
formula = "ITOM * 64 / 1e6 / seconds"
section = "1"
"#;
    std::fs::write(&file, text).unwrap();
    let args = [
        "--platform",
        "emr",
        "--format",
        "json",
        "--catalogue",
        file.to_str().unwrap(),
    ];
    let input = "uncore_cha_0/event=0x35,umask=0xcc43ff04/=500000\nseconds=2\n";
    let json: serde_json::Value = serde_json::from_str(&out(&args, input)).unwrap();
    let metrics = json["metrics"].as_array().unwrap();
    let mine = metrics
        .iter()
        .find(|metric| metric["metric"] == "full_writes")
        .unwrap();
    assert_eq!(mine["value"], 16.0);
    // Without the factor, the file is refused.
    std::fs::write(&file, text.replace("* 64 ", "")).unwrap();
    let error = refusal(&args, input);
    assert!(
        error.contains("mine.toml: metric full_writes: it is in MB/s"),
        "{error}"
    );
}

/// Missing metrics are still printed.
#[test]
fn without_a_value_it_fails() {
    let derived = derive(&["--platform", "spr"], "UNC_CHA_CLOCKTICKS=1");
    assert_eq!(derived.status.code(), Some(1));
    let text = String::from_utf8(derived.stdout).expect("text");
    assert!(text.starts_with("no metric has a value\n"), "{text}");
    assert!(text.contains("io_read_tor_latency: not counted:"), "{text}");
    let json = derive(
        &["--platform", "spr", "--format", "json"],
        "UNC_CHA_CLOCKTICKS=1",
    );
    assert_eq!(json.status.code(), Some(1));
}

#[test]
fn refusals_are_one_sentence() {
    let line = |args: &[&str], input: &str| {
        let error = refusal(args, input);
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let chip = line(&["--platform", "spr", "--chip", "grace-hopper"], "x=1");
    assert_eq!(
        chip,
        "pmuscope: chip grace-hopper is on platform grace, not on spr\n"
    );
    assert!(line(&["--platform", "spr"], "").contains("there are no counts in the input"));
    assert!(
        line(&["--platform", "spr"], "x=1")
            .contains("none of the 1 events can be used on spr, the first is x")
    );
    assert!(line(&["--platform", "spr"], "x=1\ny").contains("line 2 is not event=value"));
    let missing = line(&["/nonexistent", "--platform", "spr"], "");
    assert!(missing.starts_with("pmuscope: cannot read /nonexistent: No such file"));
}

/// A metric is listed with all its documentation, and there is a warning if the chip is not this
/// machine's.
#[test]
fn a_metric_is_listed_with_its_formula_and_caveats() {
    let list = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmuscope"));
        let output = command.arg("list").args(args).output();
        output.expect("pmuscope starts")
    };
    // No machine is both chips, so there is at least one warning.
    let mut warned = 0;
    for (chip, metric, formula) in [
        (
            "grace-hopper-multi",
            "remote_read_utilization",
            "remote_read_utilization = ((SOCKET_n_RD_ACCESS) / (2 * CYCLES)) * 100.0",
        ),
        (
            "sapphire-rapids",
            "io_read_tor_depth",
            "UNC_CHA_TOR_OCCUPANCY.IO_PCIRDCUR / UNC_CHA_CLOCKTICKS",
        ),
    ] {
        let output = list(&["metrics", metric, "--chip", chip]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(formula), "{text}");
        assert!(text.contains("\nSource: "), "{text}");
        for template in ["{socket}", "{unit}", "{pmu}", "{peer}", "PEER"] {
            assert!(!text.contains(template), "{template}: {text}");
        }
        let warning = format!("chip {chip} is not what this machine is found to be");
        warned += usize::from(stderr.contains(&warning));
    }
    assert!(warned > 0);
    let unknown = list(&["metrics", "no_such_metric"]);
    assert_eq!(unknown.status.code(), Some(1));
    let metric_as_pmu = list(&["pmus", "ipc"]);
    let stderr = String::from_utf8_lossy(&metric_as_pmu.stderr);
    assert!(stderr.contains("`pmuscope list metrics ipc`"), "{stderr}");
}
