//! What the loop publishes, and the server shows: the last window as text, made once for each
//! format that somebody asks for.

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

/// A format is made with every window as long as somebody asked for it within so many.
const REMEMBERED: u64 = 32;

/// How long a request waits for its format to be made: a pull may be at work.
const PATIENCE: Duration = Duration::from_secs(5);

/// Windows follow each other no longer where the next one has not ended after so many intervals,
/// and after so long.
const LATE: u32 = 3;
const LATE_AT_LEAST: Duration = Duration::from_secs(5);

const DIALECTS: [Dialect; 2] = [Dialect::OpenMetrics, Dialect::Prometheus];

/// Shared by the loop and the server.
#[derive(Default)]
pub(super) struct Published {
    last: watch::Sender<Last>,
    /// A format is asked for that is not there yet.
    asked: Notify,
    /// By dialect: the window that was the last one when it was asked for, from 1 on.
    asked_at: [AtomicU64; 2],
    /// What the server counts.
    pub(super) served: Served,
    /// What was pushed to a collector.
    pub(super) sent: Arc<Sent>,
    /// Lines of JSON.
    pub(super) written: Arc<Written>,
}

/// Lines of JSON.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Those that were written.
    pub(super) lines: AtomicU64,
    /// Those that could not be.
    pub(super) lost: AtomicU64,
}

/// What was pushed to a collector.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Requests that it took.
    pub(super) requests: AtomicU64,
    /// Points that it refused in these.
    pub(super) rejected_points: AtomicU64,
    /// Requests that failed.
    pub(super) failures: AtomicU64,
    /// Windows of which at least one request was never taken.
    pub(super) lost_windows: AtomicU64,
}

/// What the server counts.
#[derive(Default)]
pub(super) struct Served {
    pub(super) scrapes: AtomicU64,
    pub(super) scrape_nanos: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) refused_requests: AtomicU64,
    pub(super) closed_connections: AtomicU64,
}

/// The last window.
#[derive(Clone, Default)]
struct Last {
    /// Its number, from 1 on; 0 before the first.
    number: u64,
    texts: [Option<Arc<Text>>; 2],
    /// When it was published, and how long after it the next one is late.
    times: (Duration, Duration),
    /// Why nothing is counted now.
    not_ready: Option<String>,
}

/// A window in a format.
pub(super) struct Text {
    pub(super) plain: Bytes,
    gzip: OnceLock<Bytes>,
}

impl Text {
    fn new(plain: Vec<u8>) -> Self {
        Self {
            plain: plain.into(),
            gzip: OnceLock::new(),
        }
    }

    /// The same, compressed once.
    pub(super) fn gzip(&self) -> Bytes {
        let make = || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            let written = encoder.write_all(&self.plain);
            let written = written.and_then(|()| encoder.finish());
            Bytes::from(written.expect("it goes into memory"))
        };
        self.gzip.get_or_init(make).clone()
    }
}

impl Published {
    /// Publishes a window; `write` makes its text in a format. The next one is due after
    /// `interval`.
    pub(super) fn window(&self, interval: Duration, write: impl Fn(Dialect) -> Vec<u8>) {
        let number = self.last.borrow().number + 1;
        let texts = [0, 1].map(|at: usize| {
            let asked = self.asked_at[at].load(Relaxed);
            let wanted = asked > 0 && number - asked < REMEMBERED;
            wanted.then(|| Arc::new(Text::new(write(DIALECTS[at]))))
        });
        self.last.send_modify(|last| {
            last.number = number;
            last.times = (now(), (interval * LATE).max(LATE_AT_LEAST));
            last.texts = texts;
        });
    }

    /// Makes the formats that are asked for and not there.
    pub(super) fn complete(&self, write: impl Fn(Dialect) -> Vec<u8>) {
        self.last.send_if_modified(|last| {
            let mut made = false;
            for (at, dialect) in DIALECTS.into_iter().enumerate() {
                let asked = self.asked_at[at].load(Relaxed);
                if asked == last.number && asked > 0 && last.texts[at].is_none() {
                    last.texts[at] = Some(Arc::new(Text::new(write(dialect))));
                    made = true;
                }
            }
            made
        });
    }

    /// Says whether windows follow each other, and why not.
    pub(super) fn say(&self, not_ready: Option<String>) {
        self.last.send_modify(|last| last.not_ready = not_ready);
    }

    /// Waits until a format is asked for.
    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Why nothing is counted now; None where windows follow each other.
    pub(super) fn not_ready(&self) -> Option<String> {
        let last = self.last.borrow();
        let starting = (last.number == 0).then(|| "the first window has not ended".to_owned());
        let (at, late) = last.times;
        let age = now().saturating_sub(at);
        let stuck = (last.number > 0 && age > late)
            .then(|| format!("the last window ended {} s ago", age.as_secs()));
        last.not_ready.clone().or(starting).or(stuck)
    }

    /// The last window in a format, or why there is none.
    pub(super) async fn text(&self, dialect: Dialect) -> Result<Arc<Text>, String> {
        let at = usize::from(dialect == Dialect::Prometheus);
        let mut changes = self.last.subscribe();
        let found = async {
            loop {
                {
                    let last = changes.borrow_and_update();
                    if last.number == 0 {
                        break Err(());
                    }
                    self.asked_at[at].store(last.number, Relaxed);
                    if let Some(text) = &last.texts[at] {
                        break Ok(Arc::clone(text));
                    }
                }
                self.asked.notify_one();
                if changes.changed().await.is_err() {
                    break Err(());
                }
            }
        };
        match timeout(PATIENCE, found).await {
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
    fn it_is_not_ready_where_windows_stop() {
        let published = Published::default();
        assert!(published.not_ready().is_some());
        published.window(Duration::from_secs(10), |_| Vec::new());
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
        published.window(Duration::from_millis(100), |_| Vec::new());
        assert_eq!(ended(4), None);
        assert!(ended(6).is_some());
    }
}
