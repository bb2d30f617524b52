//! A fake CRI runtime.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::{Ready, pending, ready},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

use hyper::{
    body::Incoming,
    http::{Request, Response},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tempfile::TempDir;
use tokio::{net::UnixListener, sync::Notify};
use tonic::{
    Status,
    body::Body,
    server::{Grpc, UnaryService},
};
use tonic_prost::ProstCodec;

use crate::names::resolver::sockets::messages::{
    Container, ContainerMetadata, Image, ImageSpec, List, ListContainersRequest, ListImagesRequest,
    ListPodSandboxRequest, PodSandbox, PodSandboxMetadata, VersionRequest, VersionResponse,
};

/// The runtime's content and behaviour.
#[derive(Clone, Default)]
pub(super) struct Runtime {
    pub(super) containers: Vec<Container>,
    pub(super) sandboxes: Vec<PodSandbox>,
    pub(super) images: Vec<Image>,
    /// The name that it reports; None for `test-runtime`.
    pub(super) name: Option<String>,
    /// Whether it answers no call.
    pub(super) hangs: bool,
    /// The error with which it answers every call, if any.
    pub(super) refuses: Option<Status>,
}

impl Runtime {
    /// Adds a pod of this uid and name with one container of this id and name.
    pub(super) fn with(mut self, uid: &str, pod: &str, id: &str, name: &str) -> Self {
        let sandbox = format!("{:0>64}", self.sandboxes.len());
        self.sandboxes.push(PodSandbox {
            id: sandbox.clone(),
            metadata: Some(PodSandboxMetadata {
                name: pod.to_owned(),
                uid: uid.to_owned(),
                namespace: "shop".to_owned(),
            }),
            labels: HashMap::from([("io.kubernetes.pod.uid".to_owned(), uid.to_owned())]),
        });
        self.containers.push(Container {
            id: id.to_owned(),
            pod_sandbox_id: sandbox,
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
            }),
            image: Some(ImageSpec {
                image: "sha256:11".to_owned(),
                user_specified_image: String::new(),
            }),
            ..Container::default()
        });
        self
    }
}

/// The runtime on its socket, until it is dropped.
pub(super) struct Server {
    runtime: Arc<Mutex<Runtime>>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// A directory and the path of a socket in it.
pub(super) fn socket() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("cri.sock");
    (directory, socket)
}

impl Server {
    pub(super) fn start(socket: &Path, runtime: Runtime) -> Self {
        let runtime = Arc::new(Mutex::new(runtime));
        let stop = Arc::new(Notify::new());
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (serving, stopped) = (Arc::clone(&runtime), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let tokio = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            tokio.block_on(async {
                tokio::select! {
                    () = stopped.notified() => {}
                    () = serve(listener, serving) => {}
                }
            });
        });
        Self {
            runtime,
            stop,
            thread: Some(thread),
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Runtime)) {
        change(&mut self.runtime.lock().unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.notify_one();
        self.thread.take().unwrap().join().unwrap();
    }
}

async fn serve(listener: std::os::unix::net::UnixListener, runtime: Arc<Mutex<Runtime>>) {
    let listener = UnixListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let runtime = Arc::clone(&runtime);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let runtime = runtime.lock().unwrap().clone();
                answer(runtime, request)
            });
            let builder = http2::Builder::new(TokioExecutor::new());
            // Fails when the client closes the connection.
            let _ = builder
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    runtime: Runtime,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if runtime.hangs {
        pending::<()>().await;
    }
    if let Some(status) = runtime.refuses {
        return Ok(status.into_http());
    }
    let path = request.uri().path().to_owned();
    Ok(match path.as_str() {
        "/runtime.v1.RuntimeService/Version" => {
            unary(request, |_: VersionRequest| VersionResponse {
                runtime_name: runtime
                    .name
                    .clone()
                    .unwrap_or_else(|| "test-runtime".to_owned()),
            })
            .await
        }
        "/runtime.v1.RuntimeService/ListContainers" => {
            unary(request, move |asked: ListContainersRequest| {
                let id = asked.filter.unwrap_or_default().id;
                let mut containers = runtime.containers.clone();
                containers.retain(|it| id.is_empty() || it.id == id);
                list(containers)
            })
            .await
        }
        "/runtime.v1.RuntimeService/ListPodSandbox" => {
            unary(request, move |asked: ListPodSandboxRequest| {
                let filter = asked.filter.unwrap_or_default();
                let mut items = runtime.sandboxes.clone();
                items.retain(|it| filter.id.is_empty() || it.id == filter.id);
                items.retain(|it| {
                    let mut wanted = filter.label_selector.iter();
                    wanted.all(|(key, value)| it.labels.get(key) == Some(value))
                });
                list(items)
            })
            .await
        }
        "/runtime.v1.ImageService/ListImages" => {
            unary(request, move |_: ListImagesRequest| {
                list(runtime.images.clone())
            })
            .await
        }
        _ => Status::unimplemented("no such method").into_http(),
    })
}

fn list<T>(items: Vec<T>) -> List<T> {
    List { items, rest: false }
}

struct Method<F>(F);

impl<Q, A, F: Fn(Q) -> A> UnaryService<Q> for Method<F> {
    type Response = A;
    type Future = Ready<Result<tonic::Response<A>, Status>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        ready(Ok(tonic::Response::new((self.0)(request.into_inner()))))
    }
}

async fn unary<Q, A>(request: Request<Incoming>, method: impl Fn(Q) -> A) -> Response<Body>
where
    Q: Message + Default + 'static,
    A: Message + 'static,
{
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
    grpc.unary(Method(method), request).await
}
