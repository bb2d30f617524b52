//! `--check-config`, and starts that the agent refuses.

use std::fs;

use test_harness::{
    agent::{Agent, AgentOptions, own},
    pmuscope, shared_machine,
};

#[test]
fn a_configuration_is_checked_without_counting() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("agent.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut command = pmuscope();
        command
            .args(["agent", "--check-config", "--config"])
            .arg(&file);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            output.status.code(),
            stderr.replace(file.to_str().unwrap(), "F"),
        )
    };
    assert_eq!(
        check("interval = \"1s\"\n[http]\nlisten = \"off\"\n"),
        (Some(0), String::new())
    );
    // Configurations that the start would refuse.
    for (text, expected) in [
        (
            "[http]\nlisten = \"off\"\n[otlp]\nendpoint = \"https://127.0.0.1:1\"\n\
             ca_file = \"/nowhere/ca.crt\"\n",
            "/nowhere/ca.crt",
        ),
        (
            "[http]\nweb_config = \"/nowhere/web.yml\"\n",
            "/nowhere/web.yml",
        ),
    ] {
        let (code, stderr) = check(text);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    let (code, stderr) = check("interval = 1\n[htp]\nlisten = \"off\"\n[spe]\nperiod = 1\n");
    assert_eq!(code, Some(1));
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{stderr}");
    assert!(
        lines[0].starts_with("pmuscope: F:1: interval: is a time such as"),
        "{stderr}"
    );
    assert!(
        lines[1].starts_with("F:2: htp: there is no such key; the nearest are http."),
        "{stderr}"
    );
    assert!(
        lines[2].starts_with("F:5: spe.period: is 4096 at least"),
        "{stderr}"
    );
}

/// Two agents with one state would continue the same totals.
#[test]
fn a_second_agent_with_the_same_state_is_refused() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let config = format!("interval = \"200ms\"\n[state]\npath = {:?}\n", state.path());
    let options = AgentOptions {
        config: &config,
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    let second = || {
        pmuscope()
            .args(["agent", "--listen", "off", "--run-directory"])
            .arg(agent.directory.path().join("other"))
            .env("PMUSCOPE_AGENT_STATE_PATH", state.path())
            .output()
            .unwrap()
    };
    let output = second();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let sentence = format!(
        "another agent saves its totals in {}; ",
        state.path().display()
    );
    assert!(stderr.contains(&sentence), "{stderr}");
    // The first agent now saves elsewhere. It cannot return to the state while the third agent has
    // it.
    agent.reload("interval = \"200ms\"\n");
    let third = Agent::with(&options, |_| {});
    agent.reload(&config);
    agent.next_window();
    assert_eq!(own(&agent.series(), "refused_reloads_total"), 1.0);
    drop(third);
    agent.reload(&config);
    agent.next_window();
    assert_eq!(own(&agent.series(), "refused_reloads_total"), 1.0);
}

#[test]
fn a_refused_second_agent_names_the_first_ones_pid() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let agent = Agent::start();
    let output = pmuscope()
        .args(["agent", "--listen", "off", "--run-directory"])
        .arg(agent.directory.path().join("run"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let sentence = format!(
        "another agent runs here already, process {}: it holds ",
        agent.pid()
    );
    assert!(stderr.contains(&sentence), "{stderr}");
    // The address is in use.
    let output = pmuscope()
        .args([
            "agent",
            "--listen",
            &agent.address.to_string(),
            "--run-directory",
        ])
        .arg(agent.directory.path().join("other"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(&format!("cannot listen at {}: ", agent.address)),
        "{stderr}"
    );
}
