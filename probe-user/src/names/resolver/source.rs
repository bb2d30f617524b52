//! Who can be asked for names: what every source is given and answers.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::sockets::{Cri, Engine};
use super::{ResolverConfig, RuntimeEndpoint, files};

/// The largest answer or file that is read, in bytes: CRI lists about 7,000 containers in it.
pub(super) const LARGEST: usize = 4 << 20;

/// Usual places of CRI sockets.
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

/// Usual places of the sockets of engines with Docker's API.
const ENGINE_SOCKETS: [(&str, &str); 2] = [
    ("docker", "run/docker.sock"),
    ("podman", "run/podman/podman.sock"),
];

/// Ids whose names are wanted.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    containers: Vec<Arc<str>>,
    pods: Vec<Arc<str>>,
    open: HashSet<Arc<str>>,
}

impl Wanted {
    /// In the order in which they are to be asked for.
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

    /// Whether a name is wanted that no source has given yet.
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

    /// No further source is asked for what this one knows.
    pub(super) fn remove(&mut self, answer: &Answer) {
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
pub(super) struct Found {
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

/// What a source knows of the wanted; it may have more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) containers: Vec<Found>,
    pub(super) pods: Vec<FoundPod>,
    /// Answers that were read to their end.
    pub(super) answers: u64,
    /// Texts of these that were too long.
    pub(super) cut: u64,
}

impl Answer {
    /// Adds a container by a name as engines have it: `/web`, or what the kubelet's runtimes make
    /// of a pod's container: `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`.
    pub(super) fn add(&mut self, mut found: Found) {
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

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It took too long.
    #[cfg_attr(
        not(feature = "cri"),
        expect(dead_code, reason = "only sockets are waited for")
    )]
    Timeout,
    /// In words.
    Failed(String),
}

/// What asking a source came to.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// What it answered until the first fault.
    pub(super) answer: Answer,
    pub(super) fault: Option<Fault>,
    /// It is not there.
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

/// Who can be asked.
#[derive(Debug)]
pub(super) enum Source {
    Cri(Cri),
    DockerFiles(PathBuf),
    PodmanFiles(PathBuf),
    Engine(Engine),
}

impl Source {
    /// All of them, in the order in which they are asked: CRI knows pods, files cost least, and a
    /// question to podman's socket may start a service.
    pub(super) fn all(config: &ResolverConfig) -> Vec<Self> {
        match &config.runtime {
            RuntimeEndpoint::Off => Vec::new(),
            RuntimeEndpoint::Socket(socket) => vec![Self::Cri(Cri::new(socket.clone()))],
            RuntimeEndpoint::Auto => Self::usual(&config.root),
        }
    }

    fn usual(root: &Path) -> Vec<Self> {
        let mut sources = Vec::new();
        let mut places: Vec<PathBuf> = Vec::new();
        for socket in CRI_SOCKETS.map(|socket| root.join(socket)) {
            // /var/run is a link to /run almost everywhere.
            let place = socket.canonicalize().unwrap_or_else(|_| socket.clone());
            if !places.contains(&place) {
                places.push(place);
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

    /// Its place, for messages.
    pub(super) fn place(&self) -> &Path {
        match self {
            Self::Cri(cri) => cri.socket(),
            Self::DockerFiles(directory) | Self::PodmanFiles(directory) => directory,
            Self::Engine(engine) => engine.socket(),
        }
    }

    /// Asks for all that is wanted; each single question has the time of the timeout.
    pub(super) async fn ask(&mut self, wanted: &Wanted, timeout: Duration) -> Reply {
        match self {
            Self::Cri(cri) => cri.ask(wanted, timeout).await,
            Self::DockerFiles(directory) => files::docker(directory, wanted),
            Self::PodmanFiles(storage) => files::podman(storage, wanted),
            Self::Engine(engine) => engine.ask(wanted, timeout).await,
        }
    }
}
