//! The part of CRI that the kubelet uses to create pods. Names and numbers are those of
//! `runtime.v1` in k8s.io/cri-api, `pkg/apis/runtime/v1/api.proto`.

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

/// The id of a pod, a container or an image, as the only needed field of several messages: the
/// responses to `RunPodSandbox` and `CreateContainer`, requests to stop or remove, and an image.
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
    #[prost(string, tag = "3")]
    pub(super) log_directory: String,
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
    pub(super) security_context: Option<SandboxSecurityContext>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SandboxSecurityContext {
    #[prost(message, optional, tag = "1")]
    pub(super) namespace_options: Option<NamespaceOption>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct NamespaceOption {
    #[prost(int32, tag = "1")]
    pub(super) network: i32,
    #[prost(int32, tag = "2")]
    pub(super) pid: i32,
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
    #[prost(string, repeated, tag = "4")]
    pub(super) args: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) envs: Vec<KeyValue>,
    #[prost(message, repeated, tag = "7")]
    pub(super) mounts: Vec<Mount>,
    #[prost(map = "string, string", tag = "9")]
    pub(super) labels: HashMap<String, String>,
    #[prost(string, tag = "11")]
    pub(super) log_path: String,
    #[prost(message, optional, tag = "15")]
    pub(super) linux: Option<LinuxContainerConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Mount {
    #[prost(string, tag = "1")]
    pub(super) container_path: String,
    #[prost(string, tag = "2")]
    pub(super) host_path: String,
    #[prost(bool, tag = "3")]
    pub(super) readonly: bool,
    /// `PRIVATE`, `HOST_TO_CONTAINER`, `BIDIRECTIONAL`.
    #[prost(int32, tag = "5")]
    pub(super) propagation: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) resources: Option<Resources>,
    #[prost(message, optional, tag = "2")]
    pub(super) security_context: Option<SecurityContext>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resources {
    #[prost(int64, tag = "4")]
    pub(super) memory_limit_in_bytes: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SecurityContext {
    #[prost(message, optional, tag = "1")]
    pub(super) capabilities: Option<Capability>,
    #[prost(bool, tag = "2")]
    pub(super) privileged: bool,
    #[prost(message, optional, tag = "3")]
    pub(super) namespace_options: Option<NamespaceOption>,
    #[prost(message, optional, tag = "5")]
    pub(super) run_as_user: Option<Number>,
    #[prost(bool, tag = "7")]
    pub(super) readonly_rootfs: bool,
    #[prost(bool, tag = "11")]
    pub(super) no_new_privs: bool,
    #[prost(message, optional, tag = "12")]
    pub(super) run_as_group: Option<Number>,
    #[prost(string, repeated, tag = "13")]
    pub(super) masked_paths: Vec<String>,
    #[prost(string, repeated, tag = "14")]
    pub(super) readonly_paths: Vec<String>,
    #[prost(message, optional, tag = "15")]
    pub(super) seccomp: Option<SecurityProfile>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Number {
    #[prost(int64, tag = "1")]
    pub(super) value: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Capability {
    #[prost(string, repeated, tag = "1")]
    pub(super) add_capabilities: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) drop_capabilities: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SecurityProfile {
    /// `RuntimeDefault`, `Unconfined`, `Localhost`.
    #[prost(int32, tag = "1")]
    pub(super) profile_type: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<ContainerStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatus {
    /// `CREATED`, `RUNNING`, `EXITED`, `UNKNOWN`.
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
    #[prost(int32, tag = "7")]
    pub(super) exit_code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExecSyncRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) cmd: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExecSyncResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) stderr: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub(super) exit_code: i32,
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

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageStatusRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<ImageSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<Id>,
}

/// A CRI client that creates pods.
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

    /// Calls a method of the runtime service. Retries until the service is available.
    pub(super) fn call<Q, A>(&mut self, method: &str, request: &Q) -> Result<A, tonic::Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.ask(&format!("/runtime.v1.RuntimeService/{method}"), request)
    }

    pub(super) fn ask_for_image(
        &mut self,
        request: &ImageStatusRequest,
    ) -> Result<ImageStatusResponse, tonic::Status> {
        self.ask("/runtime.v1.ImageService/ImageStatus", request)
    }

    fn ask<Q, A>(&mut self, path: &str, request: &Q) -> Result<A, tonic::Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let path = path.to_owned();
        let path = PathAndQuery::from_maybe_shared(path).unwrap();
        let Self { tokio, grpc } = self;
        tokio.block_on(async {
            loop {
                grpc.ready().await.unwrap();
                let codec = ProstCodec::<Q, A>::default();
                let request = tonic::Request::new(request.clone());
                match grpc.unary(request, path.clone(), codec).await {
                    // containerd reports that it has booted shortly before its CRI is available.
                    Err(status) if status.message() == "server is not initialized yet" => {}
                    result => return Ok(result?.into_inner()),
                }
            }
        })
    }
}
