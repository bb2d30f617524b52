//! What runtimes call containers: asked by a thread of its own, so that neither counting nor a pull
//! waits for a runtime.
//!
//! It is told the paths of cgroups, asks for all ids in them at once, and publishes what it knows.
//! Only containers and pods that have a cgroup are kept, whatever a runtime answers.

mod book;
mod clip;
mod files;
mod sockets;
mod source;
#[cfg(test)]
mod tests;
mod worker;

use std::{
    fmt, io,
    path::PathBuf,
    str::FromStr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use self::book::Book;
use super::Described;

/// Labels that are kept if the user chooses no others: the project and service of Compose.
pub const DEFAULT_LABELS: [&str; 2] = ["com.docker.compose.project", "com.docker.compose.service"];

/// How long a runtime has for an answer, unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Whom to ask for names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RuntimeEndpoint {
    /// Every runtime in its usual place.
    #[default]
    Auto,
    /// Nobody: containers are shown by id.
    Off,
    /// This CRI socket.
    Socket(PathBuf),
}

impl FromStr for RuntimeEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("unix://").unwrap_or(text);
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ if !path.starts_with('/') => Err(format!(
                "{text} is none: give auto, off or the socket of a CRI runtime, such as \
                 unix:///run/containerd/containerd.sock"
            )),
            _ => Ok(Self::Socket(path.into())),
        }
    }
}

/// Shown as it is read.
impl fmt::Display for RuntimeEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Socket(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Whom to ask, and what to keep.
#[derive(Clone, Debug)]
pub struct ResolverConfig {
    /// Whom to ask.
    pub runtime: RuntimeEndpoint,
    /// Below which directory the usual places are: `/`, or where a pod has the host's root.
    pub root: PathBuf,
    /// Keys of the labels that are kept.
    pub labels: Vec<String>,
    /// How long a runtime has for an answer.
    pub timeout: Duration,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        Self {
            runtime: RuntimeEndpoint::Auto,
            root: "/".into(),
            labels: DEFAULT_LABELS.map(str::to_owned).into(),
            timeout: TIMEOUT,
        }
    }
}

/// How asking went since the resolver started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResolverHealth {
    /// Answers that were read to their end.
    pub answers: u64,
    /// Questions that a runtime refused or answered with something unreadable.
    pub errors: u64,
    /// Questions without an answer in time.
    pub timeouts: u64,
    /// Containers whose name is known now.
    pub known: u64,
    /// Containers that no runtime has named yet.
    pub waiting: u64,
    /// Parts of answers that were not believed: without a name, or two for one id.
    pub refused: u64,
    /// Names and labels that were too long, and were cut.
    pub cut: u64,
    /// Ids that were not asked for since there were too many.
    pub not_asked: u64,
}

/// The thread that asks, and what it knows. It ends when this is dropped.
#[derive(Debug)]
pub struct Resolver {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    book: Mutex<Book>,
    /// The book has changed.
    changed: Condvar,
    /// There are new ids.
    wake: Notify,
    /// The resolver is dropped.
    stop: Notify,
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        // Whoever panicked has changed whole entries only.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolver {
    /// Starts to ask. The thread has the rights that its caller has at this moment.
    ///
    /// # Errors
    ///
    /// The kernel refuses a thread or what it waits with.
    pub fn start(config: ResolverConfig) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            book: Mutex::new(Book::new(config.labels.clone())),
            changed: Condvar::new(),
            wake: Notify::new(),
            stop: Notify::new(),
        });
        let worker = Arc::clone(&shared);
        thread::Builder::new()
            .name("names".to_owned())
            .spawn(move || runtime.block_on(worker::run(&worker, &config)))?;
        Ok(Self { shared })
    }

    /// Asks for the containers and pods that these cgroup paths name, unless they are known.
    pub fn wanted<'a>(&self, paths: impl IntoIterator<Item = &'a str>) {
        // Most cgroups of a machine are none of a container: these cost no lock.
        let mut named = paths.into_iter().flat_map(super::named).peekable();
        if named.peek().is_none() {
            return;
        }
        let mut book = self.shared.book();
        let mut news = false;
        for named in named {
            news |= book.want(&named, Instant::now());
        }
        drop(book);
        if news {
            self.shared.wake.notify_one();
        }
    }

    /// The same, where these are all cgroups that can still have rows: names of others are
    /// forgotten.
    pub fn wanted_only<'a>(&self, paths: impl Iterator<Item = &'a str> + Clone) {
        self.wanted(paths.clone());
        self.shared.book().retain(paths.flat_map(super::named));
    }

    /// What is known by now.
    #[must_use]
    pub fn names(&self) -> Arc<Described> {
        self.shared.book().described()
    }

    /// How asking went.
    #[must_use]
    pub fn health(&self) -> ResolverHealth {
        self.shared.book().health()
    }

    /// Waits until everybody was asked once for what is wanted, but no longer than `limit`.
    pub fn settle(&self, limit: Duration) {
        self.wait_while(limit, Book::has_unasked);
    }

    /// Whether the condition has ended within `limit`.
    fn wait_while(&self, limit: Duration, condition: impl Fn(&Book) -> bool) -> bool {
        let waited = self
            .shared
            .changed
            .wait_timeout_while(self.shared.book(), limit, |book| condition(book));
        let (_book, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }
}

impl Drop for Resolver {
    /// Tells the thread to end. It is not waited for, since a runtime's disk may hang.
    fn drop(&mut self) {
        self.shared.stop.notify_one();
    }
}
