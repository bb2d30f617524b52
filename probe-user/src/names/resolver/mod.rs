//! Asks runtimes for the names of containers ([`Resolver`]), in its own thread, so that neither
//! counting nor a pull waits for a runtime.
//!
//! The thread gets the paths of cgroups, asks for all ids in them at once, and publishes the known
//! names. It keeps only containers and pods with a cgroup, even if a runtime answers with more.

mod clip;
mod files;
mod name_cache;
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

use self::name_cache::NameCache;
use super::RuntimeNames;

/// Labels to keep by default: the project and service of Compose.
pub const DEFAULT_LABELS: [&str; 2] = ["com.docker.compose.project", "com.docker.compose.service"];

/// Default timeout of a runtime's answer.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);

/// The runtimes to ask for names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RuntimeEndpoint {
    /// Every runtime at its usual path.
    #[default]
    Auto,
    /// No runtime: containers are shown by id.
    Off,
    /// The CRI socket at this path.
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

/// The format that [`FromStr`] reads.
impl fmt::Display for RuntimeEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Socket(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// The runtimes to ask, and the labels to keep.
#[derive(Clone, Debug)]
pub struct ResolverConfig {
    /// The runtimes to ask.
    pub runtime: RuntimeEndpoint,
    /// Directory to which the usual paths are relative: `/`, or in a pod the mount point of the
    /// host's root.
    pub root: PathBuf,
    /// Keys of the labels to keep.
    pub labels: Vec<String>,
    /// Timeout of a runtime's answer.
    pub timeout: Duration,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        Self {
            runtime: RuntimeEndpoint::Auto,
            root: "/".into(),
            labels: DEFAULT_LABELS.map(str::to_owned).into(),
            timeout: DEFAULT_TIMEOUT,
        }
    }
}

/// Statistics since the resolver, or the session that reports them, started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResolverHealth {
    /// Answers that were read completely.
    pub answers: u64,
    /// Requests that a runtime refused or answered with something unreadable.
    pub errors: u64,
    /// Requests that timed out.
    pub timeouts: u64,
    /// Containers with a known name.
    pub known: u64,
    /// Containers without a name yet.
    pub waiting: u64,
    /// Containers and pods of answers that were rejected: without a name, or with conflicting names
    /// for one id.
    pub refused: u64,
    /// Names and labels truncated because they were too long.
    pub cut: u64,
    /// Containers and pods that were not asked for because there were too many.
    pub not_asked: u64,
}

impl ResolverHealth {
    /// The counts since earlier ones. The numbers of known and waiting containers are those of now.
    pub(crate) fn since(self, earlier: &Self) -> Self {
        Self {
            answers: self.answers - earlier.answers,
            errors: self.errors - earlier.errors,
            timeouts: self.timeouts - earlier.timeouts,
            known: self.known,
            waiting: self.waiting,
            refused: self.refused - earlier.refused,
            cut: self.cut - earlier.cut,
            not_asked: self.not_asked - earlier.not_asked,
        }
    }
}

/// The thread that asks runtimes, and the known names. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Resolver {
    shared: Arc<SharedCache>,
}

#[derive(Debug)]
struct SharedCache {
    cache: Mutex<NameCache>,
    /// Notified after each answer and at the end of each round.
    changed: Condvar,
    /// Notified when `cache` has new ids to ask for.
    wake: Notify,
    /// Notified when the resolver is dropped.
    stop: Notify,
}

impl SharedCache {
    fn cache(&self) -> MutexGuard<'_, NameCache> {
        // A panic cannot leave an entry half changed.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolver {
    /// Starts the thread, with the current privileges of the caller.
    ///
    /// # Errors
    ///
    /// The kernel refuses a thread or its epoll.
    pub fn start(config: ResolverConfig) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::new(SharedCache {
            cache: Mutex::new(NameCache::new(config.labels.clone())),
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

    /// Requests the names of the containers and pods in these cgroup paths that are not known yet.
    pub fn request<'a>(&self, paths: impl IntoIterator<Item = &'a str>) {
        // Most cgroups of a machine belong to no container, and need no lock.
        let mut ids = paths.into_iter().flat_map(super::path_ids).peekable();
        if ids.peek().is_none() {
            return;
        }
        let mut cache = self.shared.cache();
        let mut has_new = false;
        for id in ids {
            has_new |= cache.request(&id, Instant::now());
        }
        drop(cache);
        if has_new {
            self.shared.wake.notify_one();
        }
    }

    /// Requests names as [`Self::request`] does, and drops the names of all cgroups that are not in
    /// `paths`. So `paths` must have all cgroups that can still have rows.
    pub fn request_only<'a>(&self, paths: impl Iterator<Item = &'a str> + Clone) {
        // First, so that dropped ids leave room for new ones.
        self.shared
            .cache()
            .retain(paths.clone().flat_map(super::path_ids));
        self.request(paths);
    }

    /// The names known so far.
    #[must_use]
    pub fn names(&self) -> Arc<RuntimeNames> {
        self.shared.cache().described()
    }

    /// Statistics since the start.
    #[must_use]
    pub fn health(&self) -> ResolverHealth {
        self.shared.cache().health()
    }

    /// Waits until all sources were asked once for the requested ids, but no longer than `limit`.
    pub fn wait_until_asked(&self, limit: Duration) {
        self.wait_while(limit, NameCache::has_unasked);
    }

    /// Waits while the condition holds; returns whether it ended within `limit`.
    fn wait_while(&self, limit: Duration, condition: impl Fn(&NameCache) -> bool) -> bool {
        let waited = self
            .shared
            .changed
            .wait_timeout_while(self.shared.cache(), limit, |cache| condition(cache));
        let (_cache, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }
}

impl Drop for Resolver {
    /// Tells the thread to end, without waiting for it, since a runtime's disk may hang.
    fn drop(&mut self) {
        self.shared.stop.notify_one();
    }
}
