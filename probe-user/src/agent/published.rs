//! The last window as the server shows it: rendered once for each format that clients request.

use std::{
    io::Write as _,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use crate::{emit::Dialect, sys::clock::now};

/// A format is rendered with every window if it was requested within this many windows.
const RENDERED_WITHIN: u64 = 32;

/// How long a request waits for its format to be rendered: a pull may be in progress.
const RENDER_TIMEOUT: Duration = Duration::from_secs(5);

/// The last window is stale after this many intervals, but not before [`STALE_AT_LEAST`].
const STALE_INTERVALS: u32 = 3;

/// The least age of a stale window.
const STALE_AT_LEAST: Duration = Duration::from_secs(5);

const FORMATS: usize = Dialect::ALL.len();

/// What the agent's loop publishes, and the server reads.
#[derive(Default)]
pub(super) struct Published {
    last: watch::Sender<LastWindow>,
    /// Notified when a requested format is not rendered yet.
    requested: Notify,
    /// By dialect: the number of the window that was the last one when the dialect was last
    /// requested; 0 if it never was.
    requested_at: [AtomicU64; FORMATS],
    /// Counters of the HTTP server.
    pub(super) served: ServerCounters,
    /// Counters of pushes to a collector.
    pub(super) sent: Arc<PushCounters>,
    /// Counters of JSON lines.
    pub(super) written: Arc<JsonCounters>,
}

/// Counters of JSON lines.
#[derive(Debug, Default)]
pub(super) struct JsonCounters {
    /// Lines written.
    pub(super) lines: AtomicU64,
    /// Lines that could not be written.
    pub(super) lost: AtomicU64,
}

/// Counters of pushes to a collector.
#[derive(Debug, Default)]
pub(super) struct PushCounters {
    /// Accepted requests.
    pub(super) requests: AtomicU64,
    /// Points that the collector rejected in accepted requests.
    pub(super) rejected_points: AtomicU64,
    /// Failed requests.
    pub(super) failures: AtomicU64,
    /// Windows with at least one request that was never accepted.
    pub(super) lost_windows: AtomicU64,
}

/// Counters of the HTTP server.
#[derive(Default)]
pub(super) struct ServerCounters {
    pub(super) scrapes: AtomicU64,
    pub(super) scrape_nanos: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) refused_requests: AtomicU64,
    pub(super) closed_connections: AtomicU64,
}

/// The last window.
#[derive(Clone, Default)]
struct LastWindow {
    /// The window's number, from 1 on; 0 before the first window.
    number: u64,
    texts: [Option<Arc<RenderedText>>; FORMATS],
    /// When the window was published, and the age at which it is stale.
    times: (Duration, Duration),
    /// Why nothing is counted now; None while counting.
    not_ready: Option<String>,
}

/// A window rendered in one format.
pub(super) struct RenderedText {
    pub(super) plain: Bytes,
    gzip: OnceLock<Bytes>,
}

impl RenderedText {
    fn new(plain: Vec<u8>) -> Self {
        Self {
            plain: plain.into(),
            gzip: OnceLock::new(),
        }
    }

    /// The text compressed by gzip, which is done once.
    pub(super) fn gzip(&self) -> Bytes {
        let compress = || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            let written = encoder.write_all(&self.plain);
            let finished = written.and_then(|()| encoder.finish());
            Bytes::from(finished.expect("it goes into memory"))
        };
        self.gzip.get_or_init(compress).clone()
    }
}

/// The age at which a published window is stale, if the next one is due after `interval`.
fn stale_after(interval: Duration) -> Duration {
    (interval * STALE_INTERVALS).max(STALE_AT_LEAST)
}

impl Published {
    /// Publishes a window; `write` renders it in a format. The next one is due after `interval`.
    pub(super) fn publish(&self, interval: Duration, write: impl Fn(Dialect) -> Vec<u8>) {
        let number = self.last.borrow().number + 1;
        let texts = Dialect::ALL.map(|dialect| {
            let requested = self.requested_at[dialect as usize].load(Relaxed);
            let is_requested = requested > 0 && number - requested < RENDERED_WITHIN;
            is_requested.then(|| Arc::new(RenderedText::new(write(dialect))))
        });
        self.last.send_modify(|last| {
            last.number = number;
            last.times = (now(), stale_after(interval));
            last.texts = texts;
        });
    }

    /// Sets the time between the last window and the next one.
    pub(super) fn set_interval(&self, interval: Duration) {
        self.last
            .send_modify(|last| last.times.1 = stale_after(interval));
    }

    /// Renders the requested formats that the last window does not have yet.
    pub(super) fn render_requested(&self, write: impl Fn(Dialect) -> Vec<u8>) {
        self.last.send_if_modified(|last| {
            let mut rendered = false;
            for (at, dialect) in Dialect::ALL.into_iter().enumerate() {
                let requested = self.requested_at[at].load(Relaxed);
                if requested == last.number && requested > 0 && last.texts[at].is_none() {
                    last.texts[at] = Some(Arc::new(RenderedText::new(write(dialect))));
                    rendered = true;
                }
            }
            rendered
        });
    }

    /// Sets why nothing is counted; None while counting.
    pub(super) fn set_not_ready(&self, not_ready: Option<String>) {
        self.last.send_modify(|last| last.not_ready = not_ready);
    }

    /// Waits until a format is requested that is not rendered yet.
    pub(super) async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Why the agent is not ready; None while windows are counted in time.
    pub(super) fn not_ready(&self) -> Option<String> {
        let last = self.last.borrow();
        let starting = (last.number == 0).then(|| "the first window has not ended".to_owned());
        let (published_at, stale_after) = last.times;
        let age = now().saturating_sub(published_at);
        let stale = (last.number > 0 && age > stale_after)
            .then(|| format!("the last window ended {} s ago", age.as_secs()));
        last.not_ready.clone().or(starting).or(stale)
    }

    /// The last window in a format, or why there is none.
    pub(super) async fn text(&self, dialect: Dialect) -> Result<Arc<RenderedText>, String> {
        let at = dialect as usize;
        let mut changes = self.last.subscribe();
        let rendered = async {
            loop {
                {
                    let last = changes.borrow_and_update();
                    if last.number == 0 {
                        break Err(());
                    }
                    self.requested_at[at].store(last.number, Relaxed);
                    if let Some(text) = &last.texts[at] {
                        break Ok(Arc::clone(text));
                    }
                }
                self.requested.notify_one();
                if changes.changed().await.is_err() {
                    break Err(());
                }
            }
        };
        match timeout(RENDER_TIMEOUT, rendered).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(())) => Err(self.not_ready().unwrap_or_default()),
            Err(_) => Err("the agent is busy: try again".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_not_ready_once_windows_stop() {
        let published = Published::default();
        assert!(published.not_ready().is_some());
        published.publish(Duration::from_secs(10), |_| Vec::new());
        let ended = |ago: u64| {
            let ago = Duration::from_secs(ago);
            published
                .last
                .send_modify(|last| last.times.0 = now().saturating_sub(ago));
            published.not_ready()
        };
        assert_eq!(ended(29), None);
        let why = ended(31).unwrap();
        assert!(why.starts_with("the last window ended 31 s ago"), "{why}");
        published.set_interval(Duration::from_secs(80));
        assert_eq!(ended(239), None);
        assert!(ended(241).is_some());
        published.publish(Duration::from_millis(100), |_| Vec::new());
        assert_eq!(ended(4), None);
        assert!(ended(6).is_some());
    }
}
