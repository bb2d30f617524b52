//! A private containerd. Its state, its socket and its pods are in a temporary directory.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use tempfile::TempDir;

use super::{
    cri::{
        ContainerConfig, ContainerMetadata, CreateContainerRequest, Cri, Id, ImageSpec,
        ImageStatusRequest, ImageStatusResponse, LinuxPodSandboxConfig, NamespaceOption, Nothing,
        PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest, SandboxSecurityContext,
    },
    image::{self, IMAGE},
};

/// `NamespaceMode.NODE`, the host's namespace. With the host's network no network plugin is needed.
pub(super) const NODE: i32 = 2;

/// A pod and its sandbox.
pub(super) struct Pod {
    sandbox: String,
    pub(super) uid: String,
    config: PodSandboxConfig,
}

/// A running containerd. Dropping it removes its pods and stops it.
pub(super) struct Containerd {
    directory: TempDir,
    pub(super) socket: PathBuf,
    process: Option<Child>,
    pods: Vec<Pod>,
}

impl Containerd {
    /// Starts containerd and imports an image. None, with a printed reason, where it cannot run.
    pub(super) fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut containerd = Self {
            socket: directory.path().join("containerd.sock"),
            directory,
            process: None,
            pods: Vec::new(),
        };
        fs::write(containerd.below("config.toml"), containerd.config()).unwrap();
        if let Err(log) = containerd.try_serve() {
            println!("skipped: containerd does not run here: {log}");
            return None;
        }
        containerd.import(&image::write(containerd.directory.path()));
        Some(containerd)
    }

    /// Imports the images of an archive.
    pub(super) fn import(&self, archive: &Path) {
        let mut import = Command::new("ctr");
        import.arg("--address").arg(&self.socket);
        import.args(["--namespace", "k8s.io", "images", "import"]);
        import.args(["--snapshotter", "native"]).arg(archive);
        let imported = import.output().unwrap();
        assert!(imported.status.success(), "{imported:?}");
    }

    /// Waits until CRI lists an image. CRI learns of images from events.
    pub(super) fn await_image(&self, image: &str) {
        let request = ImageStatusRequest {
            image: Some(ImageSpec {
                image: image.to_owned(),
            }),
        };
        let mut cri = Cri::connect(&self.socket);
        loop {
            let known: ImageStatusResponse = cri.ask_for_image(&request).unwrap();
            if known.image.is_some() {
                return;
            }
            thread::yield_now();
        }
    }

    /// A path in the temporary directory.
    pub(super) fn below(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn endpoint(&self) -> String {
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

    pub(super) fn serve(&mut self) {
        self.try_serve().unwrap();
    }

    /// Starts the daemon and waits until it serves. The error is its log.
    fn try_serve(&mut self) -> Result<(), String> {
        // The mounts are as on a node with systemd: shared with containers, and with a bpffs. They
        // are private to this daemon.
        let script = r#"mount -t bpf bpf "$0" && exec containerd --config "$1""#;
        for directory in ["bpf", "logs"] {
            fs::create_dir_all(self.below(directory)).unwrap();
        }
        let mut process = Command::new("unshare")
            .args(["--mount", "--propagation", "shared", "sh", "-c", script])
            .args([self.below("bpf"), self.below("config.toml")])
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
                // The daemon continues to write to the pipe, so the thread continues to read.
                thread::spawn(move || lines.for_each(drop));
                return Ok(());
            }
            log.push_str(&line);
            log.push('\n');
        }
        Err(log)
    }

    pub(super) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Creates a pod as the kubelet does.
    pub(super) fn pod(&mut self, name: &str, namespaces: NamespaceOption) -> Pod {
        let number = self.pods.len() + 1;
        let uid = format!("{:08x}-0000-4000-8000-{number:012x}", std::process::id());
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.clone(),
                namespace: "pmuscope-test".to_owned(),
            }),
            log_directory: self.below("logs").display().to_string(),
            labels: HashMap::from([
                ("io.kubernetes.pod.uid".to_owned(), uid.clone()),
                ("app".to_owned(), "shop".to_owned()),
            ]),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/kubepods/besteffort/pod{uid}"),
                security_context: Some(SandboxSecurityContext {
                    namespace_options: Some(namespaces),
                }),
            }),
        };
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
        };
        let created: Id = Cri::connect(&self.socket)
            .call("RunPodSandbox", &request)
            .unwrap();
        let pod = |sandbox| Pod {
            sandbox,
            uid: uid.clone(),
            config: config.clone(),
        };
        self.pods.push(pod(created.id.clone()));
        pod(created.id)
    }

    /// Starts a container that runs a shell command. Returns its id.
    pub(super) fn container(&mut self, pod: &Pod, name: &str, command: &str) -> String {
        let command = ["/bin/busybox", "sh", "-c", command].map(str::to_owned);
        self.run(
            pod,
            ContainerConfig {
                metadata: Some(ContainerMetadata {
                    name: name.to_owned(),
                }),
                image: Some(ImageSpec {
                    image: IMAGE.to_owned(),
                }),
                command: command.into(),
                ..ContainerConfig::default()
            },
        )
    }

    /// Starts a container. Returns its id.
    pub(super) fn run(&mut self, pod: &Pod, config: ContainerConfig) -> String {
        let mut cri = Cri::connect(&self.socket);
        let request = CreateContainerRequest {
            pod_sandbox_id: pod.sandbox.clone(),
            config: Some(config),
            sandbox_config: Some(pod.config.clone()),
        };
        let created: Id = cri.call("CreateContainer", &request).unwrap();
        let _: Nothing = cri.call("StartContainer", &created).unwrap();
        created.id
    }

    /// Removes a pod and the cgroups that the runtime created for it.
    pub(super) fn remove(&mut self, pod: &Pod) {
        let mut cri = Cri::connect(&self.socket);
        let id = || Id {
            id: pod.sandbox.clone(),
        };
        for method in ["StopPodSandbox", "RemovePodSandbox"] {
            let _: Nothing = cri.call(method, &id()).unwrap();
        }
        self.pods.retain(|it| it.sandbox != pod.sandbox);
        remove_cgroups(&pod.uid);
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // After a failed test: processes in pods survive the daemon.
        if !self.pods.is_empty() {
            if self.process.is_none() {
                let _ = self.try_serve();
            }
            for pod in std::mem::take(&mut self.pods) {
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

/// Removes the pod's cgroups from all hierarchies, as the kubelet would.
fn remove_cgroups(uid: &str) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(" - cgroup"));
    for mount in mounts.filter_map(|line| line.split(' ').nth(4)) {
        let pods = Path::new(mount).join("kubepods/besteffort");
        // rmdir fails on cgroups that are in use, which belong to a kubelet.
        for directory in [
            &pods.join(format!("pod{uid}")),
            &pods,
            &Path::new(mount).join("kubepods"),
        ] {
            let _ = fs::remove_dir(directory);
        }
    }
}
