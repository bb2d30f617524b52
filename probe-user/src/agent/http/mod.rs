//! The HTTP server of `/metrics`, on a thread of its own, so that no client delays a pull.

mod answer;
mod connections;
mod in_flight;
mod socket;
mod web;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, runtime::Builder};

pub use self::web::WebError;
use self::{
    answer::Answers,
    connections::Connections,
    in_flight::{ANSWER_TIMEOUT, Activity, CloseReason},
    socket::Socket,
    web::Web,
};
use super::{privileges, published::Published};
use crate::sys::clock::now;

/// The most open connections.
const CONNECTIONS: usize = 512;

/// The most time for the headers of a request, for a TLS handshake, and between two requests.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(15);

/// The most bytes of a request's headers.
const HEADER_BYTES: usize = 16 << 10;

/// The most headers of a request.
const HEADERS: usize = 64;

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It cannot listen at the address.
    #[error("cannot listen at {address}: {source}; choose another address by http.listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The web configuration file is invalid.
    #[error(transparent)]
    Web(#[from] WebError),
    /// Its thread cannot be started.
    #[error("cannot start the server: {0}")]
    Thread(io::Error),
}

/// Whether a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Granted,
    Denied,
    /// Too many passwords are waiting to be verified.
    Busy,
}

/// Checks that a server can start with this web configuration.
pub(super) fn check(web_config: Option<&PathBuf>) -> Result<(), ServerError> {
    Web::load(web_config)?;
    Ok(())
}

/// A server that listens, but does not answer yet.
pub(super) struct Server {
    listener: TcpListener,
    web: Web,
}

impl Server {
    /// Listens at the address, which must not be in use.
    pub(super) fn listen(
        address: SocketAddr,
        web_config: Option<&PathBuf>,
    ) -> Result<Self, ServerError> {
        let web = Web::load(web_config)?;
        let failed = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        tracing::info!("serving {}://{bound}/metrics", web.scheme());
        if !bound.ip().is_loopback() && !web.is_protected() {
            tracing::warn!(
                "{bound} can be reached from other machines, and nothing protects it: \
                 http.web_config adds TLS and passwords"
            );
        }
        Ok(Self { listener, web })
    }

    /// Starts the thread that answers, until this process ends.
    pub(super) fn answer(self, published: Arc<Published>) -> Result<(), ServerError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServerError::Thread)?;
        let thread = thread::Builder::new().name("http".to_owned());
        let run = move || runtime.block_on(self.accept(published));
        privileges::run_without(|| thread.spawn(run)).map_err(ServerError::Thread)?;
        Ok(())
    }

    async fn accept(self, published: Arc<Published>) {
        let Self { listener, web } = self;
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!("cannot serve /metrics: {error}"),
        };
        let web = Arc::new(web);
        let mut connections = Connections::new(CONNECTIONS);
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // If descriptors ran out, the connection that was idle longest is closed.
                    tracing::debug!("cannot accept a connection: {error}");
                    if !connections.close_longest_idle(&published) {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    continue;
                }
            };
            let (published, web) = (Arc::clone(&published), Arc::clone(&web));
            connections.spawn(&published.clone(), |activity| {
                serve(stream, activity, move |activity, socket| Answers {
                    published,
                    web,
                    activity,
                    socket,
                    peer: peer.ip(),
                })
            });
        }
    }
}

/// A connection that is being served. When dropped, it releases the memory of its answer.
struct ConnectionGuard(Arc<Activity>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.on_close();
    }
}

async fn serve(
    stream: TcpStream,
    activity: Arc<Activity>,
    answers: impl FnOnce(Arc<Activity>, Arc<Socket>) -> Answers,
) {
    // Dropped last, after the socket.
    let _guard = ConnectionGuard(Arc::clone(&activity));
    let socket = match Socket::new(&stream) {
        Ok(socket) => Arc::new(socket),
        Err(error) => return tracing::debug!("cannot serve a connection: {error}"),
    };
    let answers = Arc::new(answers(Arc::clone(&activity), Arc::clone(&socket)));
    let published = Arc::clone(&answers.published);
    let conversation = async {
        serve_stream(stream, answers).await;
        socket.drained(now() + ANSWER_TIMEOUT).await;
    };
    let reason = tokio::select! {
        () = conversation => return,
        reason = activity.must_close(&socket) => reason,
    };
    published.served.closed_connections.fetch_add(1, Relaxed);
    match reason {
        CloseReason::Overdue => tracing::debug!("a client did not take its answer in time"),
        CloseReason::MadeRoom => {
            tracing::debug!("a client did not take its answer before others asked");
        }
    }
}

async fn serve_stream(stream: TcpStream, answers: Arc<Answers>) {
    match answers.web.acceptor() {
        None => serve_http(TokioIo::new(stream), answers).await,
        Some(acceptor) => match tokio::time::timeout(CLIENT_TIMEOUT, acceptor.accept(stream)).await
        {
            Ok(Ok(stream)) => serve_http(TokioIo::new(stream), answers).await,
            Ok(Err(error)) => tracing::debug!("TLS: {error}"),
            Err(_) => tracing::debug!("TLS: the handshake took too long"),
        },
    }
}

async fn serve_http<I>(io: I, answers: Arc<Answers>)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    let service = service_fn(move |request| {
        let answers = Arc::clone(&answers);
        async move { answers.answer(&request).await }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CLIENT_TIMEOUT)
        .max_header_size(HEADER_BYTES)
        .max_headers(HEADERS)
        .serve_connection(io, service)
        .await;
    if let Err(error) = served {
        tracing::debug!("a connection ended: {error}");
    }
}
