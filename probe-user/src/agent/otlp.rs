//! Pushes every window to an OpenTelemetry collector, by a thread of its own.
//!
//! Sums are cumulative, so a window that is not sent loses only its gauges. Therefore a new window
//! replaces one that is still waiting, which is counted as lost.

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

use self::tls::ClientTls;
use super::{Config, config, privileges, published::PushCounters};
use crate::{
    derive::Report,
    emit::{OtlpEncoder, OtlpRequest},
};

/// The most time for an answer to a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a first failure. It doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Pushes to a collector: an encoder of reports, and the thread that sends them.
pub(super) struct Push {
    otlp: OtlpEncoder,
    exporter: Exporter,
}

impl Push {
    /// Starts to push, if the configuration names a collector.
    ///
    /// # Errors
    ///
    /// Those of [`Exporter::start`].
    pub(super) fn start(config: &Config, sent: &Arc<PushCounters>) -> io::Result<Option<Self>> {
        let Some(to) = config.otlp.endpoint.clone() else {
            return Ok(None);
        };
        Ok(Some(Self {
            otlp: OtlpEncoder::new(&config.series.labels),
            exporter: Exporter::start(to, &config.otlp, Arc::clone(sent), ANSWER_TIMEOUT)?,
        }))
    }

    /// Sends a report.
    pub(super) fn send(&self, report: &Report) {
        self.exporter.send(self.otlp.requests(report));
    }

    /// Waits until the last report is sent, at most for `within`.
    pub(super) fn finish(self, within: Duration) {
        self.exporter.finish(within);
    }
}

/// The window that waits to be sent.
#[derive(Default)]
struct PendingWindow {
    requests: Mutex<Option<Vec<OtlpRequest>>>,
    changed: Notify,
    /// Whether no further window will follow.
    closed: AtomicBool,
}

impl PendingWindow {
    /// Puts a window, and returns the waiting window that it replaces, if there is one.
    fn put(&self, requests: Vec<OtlpRequest>) -> Option<Vec<OtlpRequest>> {
        let mut waiting = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.replace(requests)
    }

    /// Waits until a window is pending, or until none can follow.
    async fn wait_for_next(&self) {
        let is_ready = || {
            let waiting = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.is_some() || self.closed.load(Relaxed)
        };
        // A notification may be of a window that was already taken.
        while !is_ready() {
            self.changed.notified().await;
        }
    }

    fn take(&self) -> Option<Vec<OtlpRequest>> {
        let mut waiting = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.take()
    }
}

/// A handle of the thread that sends windows.
struct Exporter {
    pending: Arc<PendingWindow>,
    sent: Arc<PushCounters>,
    ended: mpsc::Receiver<()>,
}

impl Exporter {
    /// Starts the thread that sends to an endpoint.
    ///
    /// # Errors
    ///
    /// If the address or a header is invalid ([`check`], [`headers`]), a file for TLS cannot be
    /// used, or the thread cannot be started.
    fn start(
        to: String,
        config: &config::Otlp,
        sent: Arc<PushCounters>,
        answer_timeout: Duration,
    ) -> io::Result<Self> {
        let headers = headers(&config.headers).map_err(io::Error::other)?;
        let tls = is_https(&to)
            .then(|| ClientTls::load(&config.tls))
            .transpose()?
            .map(Arc::new);
        // Keep-alives also notice, between windows, a peer that vanished without closing.
        let endpoint = Endpoint::from_shared(to.clone())
            .map_err(io::Error::other)?
            .connect_timeout(ANSWER_TIMEOUT)
            .http2_keep_alive_interval(answer_timeout)
            .keep_alive_timeout(answer_timeout)
            .keep_alive_while_idle(true);
        let pending = Arc::new(PendingWindow::default());
        let (end, ended) = mpsc::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (windows, counters) = (Arc::clone(&pending), Arc::clone(&sent));
        let run = move || {
            runtime.block_on(async {
                let mut thread = ExporterThread {
                    client: client(&endpoint, tls.as_ref()),
                    endpoint,
                    answer_timeout,
                    headers,
                    to,
                    tls,
                    sent: counters,
                    failing: false,
                };
                thread.send_all(&windows).await;
            });
            // Sending fails if the exporter was dropped without `finish`.
            let _ = end.send(());
        };
        privileges::run_without(|| thread::Builder::new().name("otlp".to_owned()).spawn(run))?;
        Ok(Self {
            pending,
            sent,
            ended,
        })
    }

    /// Queues a window for the thread, in place of one that is still pending.
    fn send(&self, requests: Vec<OtlpRequest>) {
        if self.pending.put(requests).is_some() {
            self.sent.lost_windows.fetch_add(1, Relaxed);
        }
        self.pending.changed.notify_one();
    }

    /// Waits until the last window is sent, at most for `within`.
    fn finish(self, within: Duration) {
        self.close();
        if self.ended.recv_timeout(within).is_err() {
            tracing::warn!("the last window was not sent to the collector");
        }
    }

    fn close(&self) {
        self.pending.closed.store(true, Relaxed);
        self.pending.changed.notify_one();
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread that sends windows.
struct ExporterThread {
    to: String,
    /// TLS to the collector, for an endpoint at `https://`.
    tls: Option<Arc<ClientTls>>,
    client: service::MetricsServiceClient<Channel>,
    endpoint: Endpoint,
    /// The most time for an answer to a request.
    answer_timeout: Duration,
    headers: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
    sent: Arc<PushCounters>,
    /// The last request failed, which was logged.
    failing: bool,
}

/// What became of a request.
enum Delivery {
    Accepted,
    /// The collector would refuse it again.
    Refused,
    /// It failed, and is not sent again: a newer window is pending, or none can follow.
    Outdated,
}

impl ExporterThread {
    /// Sends pending windows until none can follow.
    async fn send_all(&mut self, pending: &PendingWindow) {
        loop {
            if let Some(requests) = pending.take() {
                let mut is_lost = false;
                for request in requests {
                    match self.deliver(request, pending).await {
                        Delivery::Accepted => {}
                        // The window's other requests have other series, and are still sent.
                        Delivery::Refused => is_lost = true,
                        Delivery::Outdated => {
                            is_lost = true;
                            break;
                        }
                    }
                }
                self.sent
                    .lost_windows
                    .fetch_add(u64::from(is_lost), Relaxed);
            } else if pending.closed.load(Relaxed) {
                return;
            } else {
                pending.wait_for_next().await;
            }
        }
    }

    /// Sends a request until it is accepted, refused for good, or outdated.
    async fn deliver(&mut self, request: OtlpRequest, pending: &PendingWindow) -> Delivery {
        let mut pause = FIRST_PAUSE;
        loop {
            let Err(status) = self.send(request.clone()).await else {
                return Delivery::Accepted;
            };
            self.sent.failures.fetch_add(1, Relaxed);
            self.log_failure(&status);
            if !is_retryable(status.code()) {
                return Delivery::Refused;
            }
            // Retry only until a newer window is pending, or none can follow.
            tokio::select! {
                () = sleep(pause) => {}
                () = pending.wait_for_next() => return Delivery::Outdated,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn send(&mut self, request: OtlpRequest) -> Result<(), Status> {
        let mut request = tonic::Request::new(request);
        for (name, value) in &self.headers {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        let Ok(answer) = timeout(self.answer_timeout, self.client.export(request)).await else {
            // The peer may be gone. The kernel would retransmit on the old connection for a quarter
            // of an hour.
            self.client = client(&self.endpoint, self.tls.as_ref());
            let why = format!("no answer in {} s", self.answer_timeout.as_secs());
            return Err(Status::deadline_exceeded(why));
        };
        let answer = answer?;
        self.sent.requests.fetch_add(1, Relaxed);
        if self.failing {
            tracing::info!("{} takes metrics again", self.to);
            self.failing = false;
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

    /// Logs a failure once, until a request is accepted.
    fn log_failure(&mut self, status: &Status) {
        if self.failing {
            return;
        }
        self.failing = true;
        let tls_reason = self.tls.as_ref().and_then(|tls| tls.take_reason());
        tracing::warn!(
            "cannot send metrics to {}: {}; the newest window is sent as soon as that works",
            self.to,
            tls_reason.unwrap_or_else(|| why(status)),
        );
    }
}

/// A client that connects with its first request.
fn client(
    endpoint: &Endpoint,
    tls: Option<&Arc<ClientTls>>,
) -> service::MetricsServiceClient<Channel> {
    service::MetricsServiceClient::new(match tls {
        Some(tls) => tls.channel(endpoint),
        None => endpoint.connect_lazy(),
    })
}

/// Why a request failed, with the causes.
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

/// Whether the same request may succeed later: the codes that OTLP 1.x, "Failures", always retries,
/// and `Unknown`. `ResourceExhausted` is not among them, since it is also the answer to a request
/// that is too large; the next window has its counters.
fn is_retryable(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::Unknown
    )
}

/// Parses the headers of each request. The error names an invalid header, but never shows its
/// value.
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

/// Checks the address of a collector.
pub(super) fn check(endpoint: &str) -> Result<(), String> {
    let uri: Result<Uri, _> = endpoint.parse();
    // A user and password before an `@` would be in messages, and are not sent.
    let has_user = |uri: &Uri| uri.authority().is_some_and(|it| it.as_str().contains('@'));
    let is_address = |uri: &Uri| uri.host().is_some() && uri.path() == "/" && !has_user(uri);
    match uri.ok().filter(is_address) {
        Some(uri) if uri.scheme_str() == Some("http") => Ok(()),
        Some(uri) if uri.scheme_str() == Some("https") => tls::check_supported(),
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

/// Checks that the files for TLS can be used, if the endpoint is at `https://`.
pub(super) fn check_files(otlp: &config::Otlp) -> io::Result<()> {
    match &otlp.endpoint {
        Some(endpoint) if is_https(endpoint) => ClientTls::load(&otlp.tls).map(drop),
        _ => Ok(()),
    }
}

/// Checks that the keys for TLS fit together. The error is a key and what is wrong with it.
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
