//! The sources of names ([`NameSource`]), with the ids that they are asked for and their answers.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::sockets::{Cri, Engine};
use super::{ResolverConfig, RuntimeEndpoint, files};

/// Maximum size of an answer or file in bytes: enough for a CRI list of about 7,000 containers.
pub(super) const LARGEST: usize = 4 << 20;

/// Usual paths of CRI sockets, relative to the root.
const CRI_SOCKETS: [&str; 8] = [
    "run/containerd/containerd.sock",
    "run/crio/crio.sock",
    "run/cri-dockerd.sock",
    "var/run/cri-dockerd.sock",
    "run/k3s/containerd/containerd.sock",
    "run/k0s/containerd.sock",
    "var/snap/microk8s/common/run/containerd.sock",
    "run/isulad.sock",
];

/// Engines with Docker's API: name, and usual path of the socket relative to the root.
const ENGINE_SOCKETS: [(&str, &str); 2] = [
    ("docker", "run/docker.sock"),
    ("podman", "run/podman/podman.sock"),
];

/// Ids to ask for.
#[derive(Debug, Default)]
pub(super) struct WantedIds {
    containers: Vec<Arc<str>>,
    pods: Vec<Arc<str>>,
    /// Ids that no source has named yet.
    open: HashSet<Arc<str>>,
}

impl WantedIds {
    /// Takes ids in the order in which to ask for them.
    pub(super) fn new(containers: Vec<Arc<str>>, pods: Vec<Arc<str>>) -> Self {
        let open = containers.iter().chain(&pods).map(Arc::clone).collect();
        Self {
            containers,
            pods,
            open,
        }
    }

    pub(super) fn containers(&self) -> &[Arc<str>] {
        &self.containers
    }

    pub(super) fn pods(&self) -> &[Arc<str>] {
        &self.pods
    }

    /// Whether the id is wanted and no source has named it yet.
    pub(super) fn contains(&self, id: &str) -> bool {
        self.open.contains(id)
    }

    /// Containers that no source has named yet.
    pub(super) fn open_containers(&self) -> impl Iterator<Item = &str> {
        let containers = self.containers.iter().map(AsRef::as_ref);
        containers.filter(|id| self.contains(id))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Removes the ids of an answer: no further source is asked for them.
    pub(super) fn remove(&mut self, answer: &SourceAnswer) {
        for found in &answer.containers {
            self.open.remove(&*found.id);
        }
        for found in &answer.pods {
            self.open.remove(&*found.uid);
        }
    }
}

/// A container that a source knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundContainer {
    pub(super) id: String,
    pub(super) name: String,
    /// Uid of its pod.
    pub(super) pod: Option<String>,
    pub(super) image: Option<String>,
    pub(super) labels: HashMap<String, String>,
    pub(super) runtime: Arc<str>,
}

/// A pod that a source knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundPod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: HashMap<String, String>,
}

/// The containers and pods that a source knows, possibly more than requested.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SourceAnswer {
    pub(super) containers: Vec<FoundContainer>,
    pub(super) pods: Vec<FoundPod>,
    /// Answers that were read completely.
    pub(super) answers: u64,
    /// Texts truncated because they were too long.
    pub(super) cut: u64,
}

impl SourceAnswer {
    /// Adds a container with its name as engines have it: `/web`, or
    /// `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT` if the kubelet created it. The latter also adds
    /// the pod.
    pub(super) fn add(&mut self, mut found: FoundContainer) {
        let name = found.name.strip_prefix('/').unwrap_or(&found.name);
        let fields: Vec<&str> = name.split('_').collect();
        if let ["k8s", container, pod, namespace, uid, _] = fields[..] {
            self.pods.push(FoundPod {
                uid: uid.to_owned(),
                namespace: namespace.to_owned(),
                name: pod.to_owned(),
                labels: HashMap::new(),
            });
            found.pod = Some(uid.to_owned());
            found.name = container.to_owned();
        } else {
            found.name = name.to_owned();
        }
        self.containers.push(found);
    }
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The request timed out.
    Timeout,
    /// The request failed for this reason.
    Failed(String),
}

/// The result of asking a source.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// Everything that was read, also if a request failed.
    pub(super) answer: SourceAnswer,
    /// A failed request; None if all succeeded.
    pub(super) fault: Option<Fault>,
    /// Whether the source does not exist.
    pub(super) absent: bool,
}

impl Reply {
    pub(super) fn absent() -> Self {
        Self {
            absent: true,
            ..Self::default()
        }
    }

    pub(super) fn failed(fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..Self::default()
        }
    }
}

/// A source of names.
#[derive(Debug)]
pub(super) enum NameSource {
    Cri(Cri),
    DockerFiles(PathBuf),
    PodmanFiles(PathBuf),
    Engine(Engine),
}

impl NameSource {
    /// All sources, in the order in which they are asked: CRI knows pods, files cost least, and a
    /// request to podman's socket may start a service.
    pub(super) fn all(config: &ResolverConfig) -> Vec<Self> {
        match &config.runtime {
            RuntimeEndpoint::Off => Vec::new(),
            RuntimeEndpoint::Socket(socket) => vec![Self::Cri(Cri::new(socket.clone()))],
            RuntimeEndpoint::Auto => Self::usual(&config.root),
        }
    }

    fn usual(root: &Path) -> Vec<Self> {
        let mut sources = Vec::new();
        let mut paths: Vec<PathBuf> = Vec::new();
        for socket in CRI_SOCKETS.map(|socket| root.join(socket)) {
            // /var/run is a link to /run almost everywhere.
            let path = socket.canonicalize().unwrap_or_else(|_| socket.clone());
            if !paths.contains(&path) {
                paths.push(path);
                sources.push(Self::Cri(Cri::new(socket)));
            }
        }
        sources.push(Self::DockerFiles(root.join("var/lib/docker/containers")));
        sources.push(Self::PodmanFiles(root.join("var/lib/containers/storage")));
        for (runtime, socket) in ENGINE_SOCKETS {
            sources.push(Self::Engine(Engine::new(runtime, root.join(socket))));
        }
        sources
    }

    /// The path of the source, for messages.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Cri(cri) => cri.socket(),
            Self::DockerFiles(directory) | Self::PodmanFiles(directory) => directory,
            Self::Engine(engine) => engine.socket(),
        }
    }

    /// Asks for the wanted ids. Each single request has this timeout.
    pub(super) async fn ask(&mut self, wanted: &WantedIds, timeout: Duration) -> Reply {
        match self {
            Self::Cri(cri) => cri.ask(wanted, timeout).await,
            Self::DockerFiles(directory) => files::docker(directory, wanted),
            Self::PodmanFiles(storage) => files::podman(storage, wanted),
            Self::Engine(engine) => engine.ask(wanted, timeout).await,
        }
    }
}
