//! Engines with Docker's HTTP interface: Docker, and podman's service.

use std::{
    collections::HashMap,
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::UnixStream;

use super::{
    super::source::{Fault, FoundContainer, LARGEST, Reply, WantedIds},
    fault, is_absent,
};

/// Ids per request, so that the answer stays far below the size limit.
const IDS_PER_REQUEST: usize = 64;

/// The socket of an engine.
#[derive(Debug)]
pub(crate) struct Engine {
    runtime: Arc<str>,
    socket: PathBuf,
}

/// A container of `GET /containers/json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedContainer {
    id: String,
    #[serde(default)]
    names: Vec<String>,
    image: Option<String>,
    #[serde(default)]
    labels: Option<HashMap<String, String>>,
}

type AnyError = Box<dyn Error + Send + Sync>;

impl Engine {
    pub(crate) fn new(runtime: &str, socket: PathBuf) -> Self {
        Self {
            runtime: runtime.into(),
            socket,
        }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) async fn ask(&self, wanted: &WantedIds, timeout: Duration) -> Reply {
        if is_absent(&self.socket) {
            return Reply::absent();
        }
        let mut reply = Reply::default();
        let ids: Vec<&str> = wanted.open_containers().collect();
        for ids in ids.chunks(IDS_PER_REQUEST) {
            let listed = match tokio::time::timeout(timeout, self.list(ids)).await {
                Ok(Ok(listed)) => listed,
                Ok(Err(error)) => {
                    reply.fault = Some(fault(&*error));
                    return reply;
                }
                Err(_) => {
                    reply.fault = Some(Fault::Timeout);
                    return reply;
                }
            };
            reply.answer.answers += 1;
            for container in listed {
                if !wanted.contains(&container.id) {
                    continue;
                }
                reply.answer.add(FoundContainer {
                    id: container.id,
                    // Further names are those of Docker's links from other containers.
                    name: container.names.into_iter().next().unwrap_or_default(),
                    pod: None,
                    image: container.image,
                    labels: container.labels.unwrap_or_default(),
                    runtime: Arc::clone(&self.runtime),
                });
            }
        }
        reply
    }

    /// The containers with these ids that the engine knows, including ended ones.
    async fn list(&self, ids: &[&str]) -> Result<Vec<ListedContainer>, AnyError> {
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let uri = format!(
            "/containers/json?all=1&filters=%7B%22id%22%3A%5B%22{}%22%5D%7D",
            ids.join("%22%2C%22")
        );
        let request = Request::get(uri)
            .header(HOST, "localhost")
            .body(Empty::<Bytes>::new())?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            if !status.is_success() {
                return Err(AnyError::from(format!("it answered {status}")));
            }
            let body = Limited::new(response.into_body(), LARGEST)
                .collect()
                .await?;
            Ok(serde_json::from_slice(&body.to_bytes())?)
        };
        tokio::pin!(exchange);
        // The connection must be polled for the exchange to proceed. If it ends first, the exchange
        // has the answer or the error.
        tokio::select! {
            listed = &mut exchange => listed,
            _ = connection => exchange.await,
        }
    }
}
