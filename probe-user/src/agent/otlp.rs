//! Pushes every window to an OpenTelemetry collector, by a thread of its own.
//!
//! Sums are cumulative: a window that could not be sent costs only its gauges. So the newest window
//! replaces one that still waits, which is counted.

#[cfg(test)]
mod tests;
mod tls;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client as service;
use tokio::{
    runtime::Builder,
    sync::Notify,
    time::{sleep, timeout},
};
use tonic::{
    Code, Status,
    metadata::{AsciiMetadataKey, AsciiMetadataValue},
    transport::{Channel, Endpoint, Uri},
};

use self::tls::Tls;
use super::{Config, config, published::Sent, rights};
use crate::{
    derive::Report,
    emit::{Otlp, Request},
};

/// How long a collector may take for a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long is waited after a failure, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Windows that are pushed to a collector.
pub(super) struct Push {
    otlp: Otlp,
    exporter: Exporter,
}

impl Push {
    /// Begins to push, where the configuration names a collector.
    ///
    /// # Errors
    ///
    /// As of [`Exporter::start`].
    pub(super) fn start(config: &Config, sent: &Arc<Sent>) -> io::Result<Option<Self>> {
        let Some(to) = config.otlp.endpoint.clone() else {
            return Ok(None);
        };
        Ok(Some(Self {
            otlp: Otlp::new(&config.series.labels),
            exporter: Exporter::start(to, &config.otlp, Arc::clone(sent), PATIENCE)?,
        }))
    }

    /// Sends a report.
    pub(super) fn send(&self, report: &Report) {
        self.exporter.send(self.otlp.requests(report));
    }

    /// Waits until the last report is sent, or for so long.
    pub(super) fn finish(self, within: Duration) {
        self.exporter.finish(within);
    }
}

/// The window that waits to be sent.
#[derive(Default)]
struct Waiting {
    requests: Mutex<Option<Vec<Request>>>,
    changed: Notify,
    /// No further one will come.
    closed: AtomicBool,
}

impl Waiting {
    fn put(&self, requests: Vec<Request>) -> Option<Vec<Request>> {
        let mut waiting = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.replace(requests)
    }

    /// Waits until a window waits, or none will.
    async fn newer(&self) {
        let there = || {
            let waiting = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.is_some() || self.closed.load(Relaxed)
        };
        // What was notified may have been taken already.
        while !there() {
            self.changed.notified().await;
        }
    }

    fn take(&self) -> Option<Vec<Request>> {
        let mut waiting = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.take()
    }
}

/// The windows on their way to a collector.
struct Exporter {
    waiting: Arc<Waiting>,
    sent: Arc<Sent>,
    ended: mpsc::Receiver<()>,
}

impl Exporter {
    /// Begins to send to an endpoint, which may take so long for a request.
    ///
    /// # Errors
    ///
    /// Where the address or a header is none ([`check`], [`headers`]), a file for TLS cannot be
    /// used, or there can be no thread.
    fn start(
        to: String,
        config: &config::Otlp,
        sent: Arc<Sent>,
        patience: Duration,
    ) -> io::Result<Self> {
        let headers = headers(&config.headers).map_err(io::Error::other)?;
        let tls = is_https(&to)
            .then(|| Tls::load(&config.tls))
            .transpose()?
            .map(Arc::new);
        let endpoint = Endpoint::from_shared(to.clone()).map_err(io::Error::other)?;
        // A peer that is gone without a word is found out between windows too.
        let endpoint = endpoint
            .connect_timeout(PATIENCE)
            .http2_keep_alive_interval(PATIENCE)
            .keep_alive_timeout(PATIENCE)
            .keep_alive_while_idle(true);
        let waiting = Arc::new(Waiting::default());
        let (end, ended) = mpsc::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (all, counts) = (Arc::clone(&waiting), Arc::clone(&sent));
        let run = move || {
            runtime.block_on(async {
                let mut sending = Sending {
                    client: client(&endpoint, tls.as_ref()),
                    endpoint,
                    patience,
                    headers,
                    to,
                    tls,
                    sent: counts,
                    fails: false,
                };
                sending.all(&all).await;
            });
            // Nobody waits where the exporter was dropped.
            let _ = end.send(());
        };
        rights::without(|| thread::Builder::new().name("otlp".to_owned()).spawn(run))?;
        Ok(Self {
            waiting,
            sent,
            ended,
        })
    }

    /// Sends a window, in place of one that waits.
    fn send(&self, requests: Vec<Request>) {
        if self.waiting.put(requests).is_some() {
            self.sent.lost_windows.fetch_add(1, Relaxed);
        }
        self.waiting.changed.notify_one();
    }

    /// Waits until the last window is sent, or for so long.
    fn finish(self, within: Duration) {
        self.close();
        if self.ended.recv_timeout(within).is_err() {
            tracing::warn!("the last window was not sent to the collector");
        }
    }

    fn close(&self) {
        self.waiting.closed.store(true, Relaxed);
        self.waiting.changed.notify_one();
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread's side.
struct Sending {
    to: String,
    /// How it is spoken to, at `https://`.
    tls: Option<Arc<Tls>>,
    client: service::MetricsServiceClient<Channel>,
    endpoint: Endpoint,
    /// How long a request may take.
    patience: Duration,
    headers: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
    sent: Arc<Sent>,
    /// The last request failed, and that was said.
    fails: bool,
}

impl Sending {
    async fn all(&mut self, waiting: &Waiting) {
        loop {
            if let Some(requests) = waiting.take() {
                for request in requests {
                    if !self.deliver(request, waiting).await {
                        self.sent.lost_windows.fetch_add(1, Relaxed);
                        break;
                    }
                }
            } else if waiting.closed.load(Relaxed) {
                return;
            } else {
                waiting.newer().await;
            }
        }
    }

    /// Sends a request until it is taken; false where it is refused for good, or a newer window
    /// waits.
    async fn deliver(&mut self, request: Request, waiting: &Waiting) -> bool {
        let mut pause = FIRST_PAUSE;
        loop {
            let Err(status) = self.send(request.clone()).await else {
                return true;
            };
            self.sent.failures.fetch_add(1, Relaxed);
            self.say(&status);
            if !may_pass(status.code()) {
                return false;
            }
            // A newer window is worth more; at the end there is no time.
            tokio::select! {
                () = sleep(pause) => {}
                () = waiting.newer() => return false,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn send(&mut self, request: Request) -> Result<(), Status> {
        let mut request = tonic::Request::new(request);
        for (name, value) in &self.headers {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        let Ok(answer) = timeout(self.patience, self.client.export(request)).await else {
            // Its peer may be gone: the kernel would send for a quarter of an hour.
            self.client = client(&self.endpoint, self.tls.as_ref());
            let why = format!("no answer in {} s", self.patience.as_secs());
            return Err(Status::deadline_exceeded(why));
        };
        let answer = answer?;
        self.sent.requests.fetch_add(1, Relaxed);
        if self.fails {
            tracing::info!("{} takes metrics again", self.to);
            self.fails = false;
        }
        if let Some(partial) = answer.into_inner().partial_success {
            let rejected = u64::try_from(partial.rejected_data_points).unwrap_or_default();
            let before = self.sent.rejected_points.fetch_add(rejected, Relaxed);
            if before == 0 && rejected > 0 {
                let why = partial.error_message;
                tracing::warn!("{} refused {rejected} data points: {why}", self.to);
            }
        }
        Ok(())
    }

    /// Says a failure once, until a request is taken.
    fn say(&mut self, status: &Status) {
        if self.fails {
            return;
        }
        self.fails = true;
        let of_tls = self.tls.as_ref().and_then(|tls| tls.reason());
        tracing::warn!(
            "cannot send metrics to {}: {}; the newest window is sent as soon as that works",
            self.to,
            of_tls.unwrap_or_else(|| why(status)),
        );
    }
}

/// A client that connects when it has something to send.
fn client(endpoint: &Endpoint, tls: Option<&Arc<Tls>>) -> service::MetricsServiceClient<Channel> {
    service::MetricsServiceClient::new(match tls {
        Some(tls) => tls.channel(endpoint),
        None => endpoint.connect_lazy(),
    })
}

/// Why a request failed.
fn why(status: &Status) -> String {
    let mut why = format!("{:?}, {}", status.code(), status.message());
    let mut source = std::error::Error::source(status);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !why.contains(&cause_text) {
            why = format!("{why}: {cause_text}");
        }
        source = cause.source();
    }
    why
}

/// Whether the same request may be taken later (OTLP 1.x, "Failures": the retryable codes).
fn may_pass(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted
            | Code::Unknown
    )
}

/// The headers of each request. The error names one that cannot be a header, and never its value.
pub(super) fn headers(
    headers: &BTreeMap<String, String>,
) -> Result<Vec<(AsciiMetadataKey, AsciiMetadataValue)>, String> {
    let header = |(name, value): (&String, &String)| {
        let key: AsciiMetadataKey = name
            .to_ascii_lowercase()
            .parse()
            .map_err(|_| format!("`{name}` cannot be the name of a header"))?;
        let value = value
            .parse()
            .map_err(|_| format!("the value of `{name}` cannot be that of a header"))?;
        Ok((key, value))
    };
    headers.iter().map(header).collect()
}

/// Checks an address of a collector.
pub(super) fn check(endpoint: &str) -> Result<(), String> {
    let uri: Result<Uri, _> = endpoint.parse();
    let whole = |uri: &Uri| uri.host().is_some() && uri.path() == "/";
    match uri.ok().filter(whole) {
        Some(uri) if uri.scheme_str() == Some("http") => Ok(()),
        Some(uri) if uri.scheme_str() == Some("https") => tls::is_there(),
        _ => Err(
            "is the address of a collector's gRPC port such as \"http://127.0.0.1:4317\""
                .to_owned(),
        ),
    }
}

fn is_https(endpoint: &str) -> bool {
    let uri: Result<Uri, _> = endpoint.parse();
    uri.is_ok_and(|uri| uri.scheme_str() == Some("https"))
}

/// Reads the files for TLS.
pub(super) fn check_files(otlp: &config::Otlp) -> io::Result<()> {
    match &otlp.endpoint {
        Some(endpoint) if is_https(endpoint) => Tls::load(&otlp.tls).map(drop),
        _ => Ok(()),
    }
}

/// Checks the keys for TLS together. The error begins with the key.
pub(super) fn check_tls(otlp: &config::Otlp) -> Result<(), (&'static str, String)> {
    let tls = &otlp.tls;
    let keys = [
        ("otlp.ca_file", &tls.ca_file),
        ("otlp.cert_file", &tls.cert_file),
        ("otlp.key_file", &tls.key_file),
    ];
    let mut set = keys.iter().filter(|(_, file)| file.is_some());
    match (otlp.endpoint.as_deref(), set.next()) {
        (Some(endpoint), Some((key, _))) if !is_https(endpoint) => {
            return Err((key, "needs an endpoint at https://".to_owned()));
        }
        _ => {}
    }
    match (&tls.cert_file, &tls.key_file) {
        (Some(_), None) => Err((keys[1].0, "needs otlp.key_file beside it".to_owned())),
        (None, Some(_)) => Err((keys[2].0, "needs otlp.cert_file beside it".to_owned())),
        _ => Ok(()),
    }
}
