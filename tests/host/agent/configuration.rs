//! `--check-config`, and starts that are refused.

use std::fs;

use crate::{
    agent::{Agent, Given, own},
    support::{pmuscope, shared_machine},
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
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            output.status.code(),
            said.replace(file.to_str().unwrap(), "F"),
        )
    };
    assert_eq!(
        check("interval = \"1s\"\n[http]\nlisten = \"off\"\n"),
        (Some(0), String::new())
    );
    // Files that would end the start.
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
        let (code, said) = check(text);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    let (code, said) = check("interval = 1\n[htp]\nlisten = \"off\"\n[spe]\nperiod = 1\n");
    assert_eq!(code, Some(1));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(
        lines[0].starts_with("pmuscope: F:1: interval: is a time such as"),
        "{said}"
    );
    assert!(
        lines[1].starts_with("F:2: htp: there is no such key; the nearest are http."),
        "{said}"
    );
    assert!(
        lines[2].starts_with("F:5: spe.period: is 4096 at least"),
        "{said}"
    );
}

/// Both would go on with the same totals.
#[test]
fn a_second_agent_with_the_same_state_is_refused() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let config = format!("interval = \"200ms\"\n[state]\npath = {:?}\n", state.path());
    let given = Given {
        config: &config,
        ..Given::default()
    };
    let mut agent = Agent::with(&given, |_| {});
    let second = || {
        pmuscope()
            .args(["agent", "--listen", "off", "--run-directory"])
            .arg(agent.directory.path().join("other"))
            .env("PMUSCOPE_AGENT_STATE_PATH", state.path())
            .output()
            .unwrap()
    };
    let output = second();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let sentence = format!(
        "another agent saves its totals in {}; ",
        state.path().display()
    );
    assert!(said.contains(&sentence), "{said}");
    // It saves elsewhere from here on, and may not come back while another one is there.
    agent.reload("interval = \"200ms\"\n");
    let third = Agent::with(&given, |_| {});
    agent.reload(&config);
    agent.next_window();
    assert_eq!(own(&agent.series(), "refused_reloads_total"), 1.0);
    drop(third);
    agent.reload(&config);
    agent.next_window();
    assert_eq!(own(&agent.series(), "refused_reloads_total"), 1.0);
}

#[test]
fn a_second_agent_is_refused_by_the_first_ones_pid() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let agent = Agent::start();
    let output = pmuscope()
        .args(["agent", "--listen", "off", "--run-directory"])
        .arg(agent.directory.path().join("run"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let sentence = format!(
        "another agent runs here already, process {}: it holds ",
        agent.pid()
    );
    assert!(said.contains(&sentence), "{said}");
    // An address that is taken.
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("cannot listen at {}: ", agent.address)),
        "{said}"
    );
}
