//! The part of CRI by which the kubelet makes pods. Names and numbers are those of `runtime.v1` in
//! k8s.io/cri-api, `pkg/apis/runtime/v1/api.proto`.

use std::{collections::HashMap, path::Path};

use hyper::http::uri::PathAndQuery;
use prost::Message;
use tonic::{
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
pub(super) struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<PodSandboxConfig>,
}

/// Also the answer to `RunPodSandbox`, `CreateContainer`, and the question of what is done with
/// either: each has an id only.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Id {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<PodSandboxMetadata>,
    #[prost(map = "string, string", tag = "6")]
    pub(super) labels: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub(super) linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxPodSandboxConfig {
    #[prost(string, tag = "1")]
    pub(super) cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    pub(super) security_context: Option<SecurityContext>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SecurityContext {
    #[prost(message, optional, tag = "1")]
    pub(super) namespace_options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NamespaceOption {
    #[prost(int32, tag = "1")]
    pub(super) network: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pub(super) sandbox_config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    pub(super) image: Option<ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    pub(super) command: Vec<String>,
    #[prost(map = "string, string", tag = "9")]
    pub(super) labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub(super) image: String,
}

/// A client that makes pods.
pub(super) struct Cri {
    tokio: tokio::runtime::Runtime,
    grpc: Grpc<Channel>,
}

impl Cri {
    pub(super) fn connect(socket: &Path) -> Self {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
        let channel = tokio.block_on(endpoint.connect()).unwrap();
        Self {
            tokio,
            grpc: Grpc::new(channel),
        }
    }

    /// Calls a method of the runtime service, again until the service is there.
    pub(super) fn call<Q, A>(&mut self, method: &str, question: &Q) -> Result<A, tonic::Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let path = format!("/runtime.v1.RuntimeService/{method}");
        let path = PathAndQuery::from_maybe_shared(path).unwrap();
        let Self { tokio, grpc } = self;
        tokio.block_on(async {
            loop {
                grpc.ready().await.unwrap();
                let codec = ProstCodec::<Q, A>::default();
                let question = tonic::Request::new(question.clone());
                match grpc.unary(question, path.clone(), codec).await {
                    // containerd says that it has booted a moment before its CRI has.
                    Err(status) if status.message() == "server is not initialized yet" => {}
                    answered => return Ok(answered?.into_inner()),
                }
            }
        })
    }
}
