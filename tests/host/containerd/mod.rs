//! Containers of a private containerd.

mod agent;
mod chart;
mod cri;
mod daemon;
mod image;

use std::{sync::Arc, time::Duration};

use probe_user::{
    derive::Report,
    emit::{Emitter, OutputFormat},
    join::View,
    names::resolver::{Resolver, ResolverConfig, RuntimeEndpoint},
    session::Session,
    window::Window,
};
use serde_json::{Value, json};
use test_harness::{Counting, plan, pmuscope, shared_machine};

use self::{
    cri::NamespaceOption,
    daemon::{Containerd, NODE},
};
use crate::peers::has;

/// The namespaces of a pod in the host's network, which needs no network plugin.
const HOST_NETWORK: NamespaceOption = NamespaceOption {
    network: NODE,
    pid: 0,
};

/// Longer than the resolver waits for a runtime.
const MAX_NAME_WAIT: Duration = Duration::from_secs(60);

#[test]
fn pods_of_containerd_have_their_names() {
    let Some(_machine) = shared_machine().filter(|_| can_run()) else {
        return;
    };
    let Some(mut containerd) = Containerd::start() else {
        return;
    };
    let pod = containerd.pod("web-0", HOST_NETWORK);

    // A container that started before the session, found by its cgroup.
    let busy = containerd.container(&pod, "app", "while :; do :; done");
    let output = pmuscope()
        .args(["stat", "-e", "task-clock", "--format", "json"])
        .args(["--container-label", "app", "--self"])
        .args(["--runtime-endpoint", &containerd.endpoint()])
        .args(["--output-fd", "1", "--", "busybox", "sleep", "0.2"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = row(&line, &busy);
    let names = ["namespace", "pod", "container", "runtime"].map(|key| &row[key]);
    assert_eq!(
        names,
        ["pmuscope-test", "web-0", "app", "containerd"],
        "{row}"
    );
    assert_eq!(row["labels"], json!({"app": "shop"}), "{row}");
    assert_eq!(row["pod_uid"], pod.uid.as_str(), "{row}");
    assert!(
        row["image"].as_str().unwrap().contains("pmuscope-test"),
        "{row}"
    );
    assert!(
        line["self"]["names_answers"].as_u64().unwrap() > 0,
        "{line}"
    );

    // A container that starts and ends while it is counted.
    let resolver = Resolver::start(ResolverConfig {
        runtime: RuntimeEndpoint::Socket(containerd.socket.clone()),
        ..ResolverConfig::default()
    });
    let resolver = Arc::new(resolver.unwrap());
    let mut counting = Counting::plain(plan("task-clock"), |config| {
        config.resolver = Some(Arc::clone(&resolver));
    });
    let short = containerd.container(&pod, "job", "true");
    let shown = reported(&mut counting.session, &counting.first);
    let row = self::row(&shown, &short);
    let names = ["namespace", "pod", "container"].map(|key| &row[key]);
    assert_eq!(names, ["pmuscope-test", "web-0", "job"], "{row}");

    // The runtime no longer responds: names that are known remain.
    containerd.stop();
    let shown = reported(&mut counting.session, &counting.first);
    assert_eq!(self::row(&shown, &busy)["container"], "app", "{shown}");
    containerd.serve();
    containerd.remove(&pod);
}

/// Whether the needed programs are installed. Prints the name of a missing one.
fn can_run() -> bool {
    ["containerd", "runc", "busybox", "unshare"]
        .iter()
        .all(|it| has(it))
}

/// The window since a snapshot as JSON, after the names have been resolved.
fn reported(session: &mut Session, first: &probe_user::snapshot::Snapshot) -> Value {
    let mut now = session.pull().unwrap();
    session.await_names(&mut now, MAX_NAME_WAIT);
    let plan = session.plan();
    let (window, view) = (Window::between(first, &now, plan), View::default());
    let joined = view.join(plan, &window, None);
    let report = Report::new(plan, &window, &joined, &view);
    let mut text = Vec::new();
    let mut emitter = Emitter::new(&mut text, OutputFormat::Json, false);
    emitter.write(&report).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn row<'a>(line: &'a Value, id: &str) -> &'a Value {
    let mut rows = line["rows"].as_array().unwrap().iter();
    let found = rows.find(|row| row["name"] == id);
    found.unwrap_or_else(|| panic!("no container {id} in {line:#}"))
}
