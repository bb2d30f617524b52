//! Runtimes with the kubelet's interface (CRI): containerd, CRI-O, cri-dockerd.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper::http::uri::PathAndQuery;
use prost::Message;
use tonic::{
    Code, Request,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::{
    super::{
        clip::{NAME, clip},
        source::{Fault, FoundContainer, FoundPod, LARGEST, Reply, SourceAnswer, WantedIds},
    },
    fault, is_absent,
    messages::{
        Container, ContainerFilter, ITEMS, ListContainersRequest, ListContainersResponse,
        ListImagesRequest, ListImagesResponse, ListPodSandboxRequest, ListPodSandboxResponse,
        PodSandbox, PodSandboxFilter, VersionRequest, VersionResponse,
    },
};

const VERSION: &str = "/runtime.v1.RuntimeService/Version";
const LIST_CONTAINERS: &str = "/runtime.v1.RuntimeService/ListContainers";
const LIST_POD_SANDBOX: &str = "/runtime.v1.RuntimeService/ListPodSandbox";
const LIST_IMAGES: &str = "/runtime.v1.ImageService/ListImages";

/// The kubelet's label of a sandbox with the uid of its pod.
const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";

/// The kubelet's name for the pause container of a sandbox.
const PAUSE_NAME: &str = "POD";

/// Maximum number of containers, and of pods, to ask for one by one in a round, if the whole list
/// is too large.
const MAX_SINGLE_REQUESTS: usize = 32;

/// Maximum number of cached image names.
const MAX_IMAGES: usize = 4096;

/// A CRI socket.
#[derive(Debug)]
pub(crate) struct Cri {
    socket: PathBuf,
    /// Names of images by id.
    images: HashMap<String, String>,
}

/// Why a call has no answer.
enum CallError {
    /// The runtime does not have the CRI service.
    Unimplemented,
    /// The answer exceeds the limit of bytes or items.
    TooLarge,
    Fault(Fault),
}

type CallResult<T> = Result<T, CallError>;

impl Cri {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            images: HashMap::new(),
        }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks for all containers and pods at once, or for some ids one by one if the whole list is
    /// too large. Connects anew for each round, which costs little and needs no recovery after a
    /// failure.
    pub(crate) async fn ask(&mut self, wanted: &WantedIds, timeout: Duration) -> Reply {
        if is_absent(&self.socket) {
            return Reply::absent();
        }
        let mut round = match Round::connect(&self.socket, timeout).await {
            Ok(round) => round,
            Err(fault) => return Reply::failed(fault),
        };
        let result = round.ask(wanted, &mut self.images).await;
        let mut reply = Reply {
            answer: round.answer,
            ..Reply::default()
        };
        match result {
            Ok(()) => {}
            // For example, the containerd of Docker has its CRI plugin switched off.
            Err(CallError::Unimplemented) => reply.absent = true,
            Err(CallError::TooLarge) => {
                let reason = format!(
                    "an answer has more than {ITEMS} items, or is larger than {LARGEST} bytes"
                );
                reply.fault = Some(Fault::Failed(reason));
            }
            Err(CallError::Fault(fault)) => reply.fault = Some(fault),
        }
        reply
    }
}

/// One round of requests.
struct Round {
    grpc: Grpc<Channel>,
    timeout: Duration,
    runtime: Arc<str>,
    answer: SourceAnswer,
}

impl Round {
    async fn connect(socket: &Path, timeout: Duration) -> Result<Self, Fault> {
        let uri = format!("unix://{}", socket.display());
        let endpoint = Endpoint::from_shared(uri).map_err(|error| fault(&error))?;
        let channel = match tokio::time::timeout(timeout, endpoint.connect()).await {
            Ok(channel) => channel.map_err(|error| fault(&error))?,
            Err(_) => return Err(Fault::Timeout),
        };
        Ok(Self {
            grpc: Grpc::new(channel).max_decoding_message_size(LARGEST),
            timeout,
            runtime: "cri".into(),
            answer: SourceAnswer::default(),
        })
    }

    async fn ask(
        &mut self,
        wanted: &WantedIds,
        images: &mut HashMap<String, String>,
    ) -> CallResult<()> {
        let version: VersionResponse = self.call(VERSION, VersionRequest {}).await?;
        if !version.runtime_name.is_empty() {
            self.runtime = clip(version.runtime_name, NAME, &mut self.answer.cut).into();
        }
        let whole_list = async {
            let sandboxes: ListPodSandboxResponse = self
                .call(LIST_POD_SANDBOX, ListPodSandboxRequest::default())
                .await?;
            // A container created between the two calls is asked for in a later round.
            let containers: ListContainersResponse = self
                .call(LIST_CONTAINERS, ListContainersRequest::default())
                .await?;
            match sandboxes.rest || containers.rest {
                true => Err(CallError::TooLarge),
                false => Ok((sandboxes.items, containers.items)),
            }
        };
        match whole_list.await {
            Ok((sandboxes, containers)) => self.add(wanted, sandboxes, containers),
            Err(CallError::TooLarge) => self.ask_singly(wanted).await?,
            Err(error) => return Err(error),
        }
        self.name_images(images).await
    }

    /// Asks for the first wanted ids, one by one.
    async fn ask_singly(&mut self, wanted: &WantedIds) -> CallResult<()> {
        let containers: Vec<&str> = wanted.open_containers().take(MAX_SINGLE_REQUESTS).collect();
        for id in containers {
            let filter = Some(ContainerFilter { id: id.to_owned() });
            let found: ListContainersResponse = self
                .call(LIST_CONTAINERS, ListContainersRequest { filter })
                .await?;
            let sandbox = found.items.first().map(|it| it.pod_sandbox_id.clone());
            // CRI does not list a pod's pause container as a container.
            let by_id = PodSandboxFilter {
                id: sandbox.unwrap_or_else(|| id.to_owned()),
                ..PodSandboxFilter::default()
            };
            let sandboxes = self.sandboxes(by_id).await?;
            self.add(wanted, sandboxes, found.items);
        }
        let pods = wanted
            .pods()
            .iter()
            .map(AsRef::as_ref)
            .filter(|uid| wanted.contains(uid))
            .take(MAX_SINGLE_REQUESTS);
        for uid in pods.collect::<Vec<&str>>() {
            if self.answer.pods.iter().any(|pod| pod.uid == uid) {
                continue;
            }
            let label_selector = HashMap::from([(POD_UID_LABEL.to_owned(), uid.to_owned())]);
            let by_uid = PodSandboxFilter {
                label_selector,
                ..PodSandboxFilter::default()
            };
            let sandboxes = self.sandboxes(by_uid).await?;
            self.add(wanted, sandboxes, Vec::new());
        }
        Ok(())
    }

    async fn sandboxes(&mut self, filter: PodSandboxFilter) -> CallResult<Vec<PodSandbox>> {
        let filter = Some(filter);
        let found: ListPodSandboxResponse = self
            .call(LIST_POD_SANDBOX, ListPodSandboxRequest { filter })
            .await?;
        Ok(found.items)
    }

    /// Adds the wanted pods and containers to the answer.
    fn add(&mut self, wanted: &WantedIds, sandboxes: Vec<PodSandbox>, containers: Vec<Container>) {
        let mut pods: HashMap<String, FoundPod> = HashMap::new();
        for sandbox in sandboxes {
            let Some(metadata) = sandbox.metadata else {
                continue;
            };
            let pod = FoundPod {
                uid: metadata.uid,
                namespace: metadata.namespace,
                name: metadata.name,
                labels: sandbox.labels,
            };
            if wanted.contains(&sandbox.id) {
                let pause = FoundContainer {
                    id: sandbox.id.clone(),
                    name: PAUSE_NAME.to_owned(),
                    ..FoundContainer::default()
                };
                self.add_container(pause, Some(&pod));
            } else if wanted.contains(&pod.uid) {
                self.answer.pods.push(pod.clone());
            }
            pods.insert(sandbox.id, pod);
        }
        for container in containers {
            if !wanted.contains(&container.id) {
                continue;
            }
            let image = container.image.unwrap_or_default();
            let image = [image.user_specified_image, image.image, container.image_ref];
            let found = FoundContainer {
                id: container.id,
                name: container.metadata.map_or_else(String::new, |it| it.name),
                image: image.into_iter().find(|image| !image.is_empty()),
                labels: container.labels,
                ..FoundContainer::default()
            };
            self.add_container(found, pods.get(&container.pod_sandbox_id));
        }
    }

    fn add_container(&mut self, found: FoundContainer, pod: Option<&FoundPod>) {
        self.answer.pods.extend(pod.cloned());
        self.answer.containers.push(FoundContainer {
            pod: pod.map(|pod| pod.uid.clone()),
            runtime: Arc::clone(&self.runtime),
            ..found
        });
    }

    /// Replaces the image ids of the answer by image names.
    async fn name_images(&mut self, images: &mut HashMap<String, String>) -> CallResult<()> {
        let mut ids = self
            .answer
            .containers
            .iter()
            .filter_map(|it| it.image.as_deref().filter(|image| is_image_id(image)));
        if ids.any(|id| !images.contains_key(id)) {
            let list: ListImagesResponse = self.call(LIST_IMAGES, ListImagesRequest {}).await?;
            let names_by_id = list.items.into_iter().filter_map(|image| {
                let tag = image.repo_tags.into_iter().next()?;
                Some((image.id, tag))
            });
            *images = names_by_id.take(MAX_IMAGES).collect();
        }
        for found in &mut self.answer.containers {
            if let Some(image) = &mut found.image
                && let Some(name) = images.get(image)
            {
                image.clone_from(name);
            }
        }
        Ok(())
    }

    async fn call<Q, A>(&mut self, path: &'static str, question: Q) -> CallResult<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let call = async {
            let ready = self.grpc.ready().await;
            ready.map_err(|error| CallError::Fault(fault(&error)))?;
            let path = PathAndQuery::from_static(path);
            let codec = ProstCodec::<Q, A>::default();
            let answered = self.grpc.unary(Request::new(question), path, codec).await;
            answered.map_err(|status| match status.code() {
                Code::Unimplemented => CallError::Unimplemented,
                Code::OutOfRange | Code::ResourceExhausted => CallError::TooLarge,
                code => CallError::Fault(Fault::Failed(format!("{code}: {}", status.message()))),
            })
        };
        let answered = tokio::time::timeout(self.timeout, call).await;
        let answer = answered.unwrap_or(Err(CallError::Fault(Fault::Timeout)))?;
        self.answer.answers += 1;
        Ok(answer.into_inner())
    }
}

/// Whether an image is `sha256:<digits>`, which CRI reports if the kubelet requested it by id.
fn is_image_id(image: &str) -> bool {
    image.starts_with("sha256:")
}
