//! Names of real containers, from a real containerd of the test's own: its state, its socket and
//! its pods are below a temporary directory.

mod cri;
mod image;

use std::{
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use probe_user::{
    derive::Report,
    emit::{Emitter, Format},
    join::View,
    names::resolver::{Resolver, ResolverConfig, RuntimeEndpoint},
    session::Session,
    window::Window,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::{
    cri::{
        ContainerConfig, ContainerMetadata, CreateContainerRequest, Cri, Id, ImageSpec,
        LinuxPodSandboxConfig, NamespaceOption, Nothing, PodSandboxConfig, PodSandboxMetadata,
        RunPodSandboxRequest, SecurityContext,
    },
    image::IMAGE,
};
use crate::{
    peers::has,
    support::{Counting, machine, plan, pmuscope},
};

/// `NamespaceMode.NODE`: the host's network, so that no network plugin is needed.
const NODE: i32 = 2;

/// Longer than a runtime takes that answers at all.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn pods_of_containerd_have_their_names() {
    let Some(_machine) = machine().filter(|_| has("containerd") && has("runc") && has("busybox"))
    else {
        return;
    };
    let Some(mut containerd) = Containerd::start() else {
        return;
    };
    let pod = containerd.pod("web-0");

    // A container that was there before, by the program.
    let busy = containerd.container(&pod, "app", "while :; do :; done");
    let output = pmuscope()
        .args(["stat", "-e", "task-clock", "--format", "json"])
        .args(["--container-label", "app", "--self"])
        .args(["--runtime-endpoint", &containerd.endpoint()])
        .args(["--", "busybox", "sleep", "0.2"])
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

    // A container that begins and ends while it is counted.
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

    // Nobody answers any more: what was known stays.
    containerd.stop();
    let shown = reported(&mut counting.session, &counting.first);
    assert_eq!(self::row(&shown, &busy)["container"], "app", "{shown}");
    containerd.serve();
    containerd.remove(&pod);
}

/// What was counted since a snapshot, as JSON, with the names that come.
fn reported(session: &mut Session, first: &probe_user::snapshot::Snapshot) -> Value {
    let mut now = session.pull().unwrap();
    session.await_names(&mut now, LONG);
    let plan = session.plan();
    let (window, view) = (Window::between(first, &now, plan), View::default());
    let joined = view.join(plan, &window, None);
    let report = Report::new(plan, &window, &joined, &view);
    let mut text = Vec::new();
    let mut emitter = Emitter::new(&mut text, Format::Json, false);
    emitter.write(&report).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn row<'a>(line: &'a Value, id: &str) -> &'a Value {
    let mut rows = line["rows"].as_array().unwrap().iter();
    let found = rows.find(|row| row["name"] == id);
    found.unwrap_or_else(|| panic!("no container {id} in {line:#}"))
}

/// A pod with its sandbox.
struct Pod {
    sandbox: String,
    uid: String,
    config: PodSandboxConfig,
}

/// A containerd, which ends with the test.
struct Containerd {
    directory: TempDir,
    socket: PathBuf,
    process: Option<Child>,
    sandboxes: Vec<Pod>,
}

impl Containerd {
    /// Starts it and gives it an image; None, with the reason, where it cannot run here.
    fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut containerd = Self {
            socket: directory.path().join("containerd.sock"),
            directory,
            process: None,
            sandboxes: Vec::new(),
        };
        fs::write(containerd.below("config.toml"), containerd.config()).unwrap();
        if let Err(log) = containerd.try_serve() {
            println!("skipped: containerd does not run here: {log}");
            return None;
        }
        let image = image::write(containerd.directory.path());
        let mut import = Command::new("ctr");
        import.arg("--address").arg(&containerd.socket);
        import.args([
            "--namespace",
            "k8s.io",
            "images",
            "import",
            "--snapshotter",
            "native",
        ]);
        let imported = import.arg(image).output().unwrap();
        assert!(imported.status.success(), "{imported:?}");
        Some(containerd)
    }

    fn below(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    fn config(&self) -> String {
        let [root, state, plugins] = ["root", "state", "opt"].map(|name| self.below(name));
        format!(
            r#"version = 2
root = {root:?}
state = {state:?}
[grpc]
address = {socket:?}
[ttrpc]
address = "{socket}.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
path = {plugins:?}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{IMAGE}"
restrict_oom_score_adj = true
disable_tcp_service = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
"#,
            socket = self.socket.display(),
        )
    }

    fn serve(&mut self) {
        self.try_serve().unwrap();
    }

    /// Starts the daemon, and waits until it says that it serves. Otherwise its log.
    fn try_serve(&mut self) -> Result<(), String> {
        let mut process = Command::new("containerd")
            .arg("--config")
            .arg(self.below("config.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        self.process = Some(process);
        let mut log = String::new();
        for line in lines.by_ref() {
            let line = line.unwrap();
            if line.contains("containerd successfully booted") {
                // It goes on writing.
                thread::spawn(move || lines.for_each(drop));
                return Ok(());
            }
            log.push_str(&line);
            log.push('\n');
        }
        Err(log)
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Makes a pod as the kubelet does.
    fn pod(&mut self, name: &str) -> Pod {
        let uid = format!("{:08x}-0000-4000-8000-000000000001", std::process::id());
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.clone(),
                namespace: "pmuscope-test".to_owned(),
            }),
            labels: HashMap::from([
                ("io.kubernetes.pod.uid".to_owned(), uid.clone()),
                ("app".to_owned(), "shop".to_owned()),
            ]),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/kubepods/besteffort/pod{uid}"),
                security_context: Some(SecurityContext {
                    namespace_options: Some(NamespaceOption { network: NODE }),
                }),
            }),
        };
        let question = RunPodSandboxRequest {
            config: Some(config.clone()),
        };
        let made: Id = Cri::connect(&self.socket)
            .call("RunPodSandbox", &question)
            .unwrap();
        let pod = |sandbox| Pod {
            sandbox,
            uid: uid.clone(),
            config: config.clone(),
        };
        self.sandboxes.push(pod(made.id.clone()));
        pod(made.id)
    }

    /// Starts a container with a shell's command: its id.
    fn container(&mut self, pod: &Pod, name: &str, command: &str) -> String {
        let mut cri = Cri::connect(&self.socket);
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
            }),
            image: Some(ImageSpec {
                image: IMAGE.to_owned(),
            }),
            command: ["/bin/busybox", "sh", "-c", command]
                .map(str::to_owned)
                .into(),
            labels: HashMap::new(),
        };
        let question = CreateContainerRequest {
            pod_sandbox_id: pod.sandbox.clone(),
            config: Some(config),
            sandbox_config: Some(pod.config.clone()),
        };
        let made: Id = cri.call("CreateContainer", &question).unwrap();
        let _: Nothing = cri.call("StartContainer", &made).unwrap();
        made.id
    }

    /// Removes a pod and the cgroups that were made for it.
    fn remove(&mut self, pod: &Pod) {
        let mut cri = Cri::connect(&self.socket);
        let id = || Id {
            id: pod.sandbox.clone(),
        };
        for method in ["StopPodSandbox", "RemovePodSandbox"] {
            let _: Nothing = cri.call(method, &id()).unwrap();
        }
        self.sandboxes.retain(|it| it.sandbox != pod.sandbox);
        remove_cgroups(&pod.uid);
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // After a failure: processes in pods do not end with the daemon.
        if !self.sandboxes.is_empty() {
            if self.process.is_none() {
                let _ = self.try_serve();
            }
            for pod in std::mem::take(&mut self.sandboxes) {
                let mut cri = Cri::connect(&self.socket);
                for method in ["StopPodSandbox", "RemovePodSandbox"] {
                    let id = pod.sandbox.clone();
                    let _ = cri.call::<Id, Nothing>(method, &Id { id });
                }
                remove_cgroups(&pod.uid);
            }
        }
        self.stop();
    }
}

/// Removes what the runtime made for a pod in all hierarchies, as the kubelet would.
fn remove_cgroups(uid: &str) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(" - cgroup"));
    for mount in mounts.filter_map(|line| line.split(' ').nth(4)) {
        let pods = Path::new(mount).join("kubepods/besteffort");
        // Empty ones only: others have a kubelet.
        for directory in [
            &pods.join(format!("pod{uid}")),
            &pods,
            &Path::new(mount).join("kubepods"),
        ] {
            let _ = fs::remove_dir(directory);
        }
    }
}
