//! TLS and passwords, by the web configuration file of Prometheus's exporters. It is read again
//! when it, or a file that it names, changes; a file that is wrong changes nothing.

mod file;
mod passwords;
#[cfg(test)]
mod tests;

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::{HeaderMap, header::AUTHORIZATION};
use tokio_rustls::TlsAcceptor;

pub use self::file::WebError;
use self::{file::Settings, passwords::Passwords};
use crate::sys::clock::now;

/// Files are looked at no more often than this.
const LOOK: Duration = Duration::from_secs(1);

/// What the file says now.
pub(super) struct Web {
    path: Option<PathBuf>,
    current: Mutex<Current>,
}

struct Current {
    settings: Arc<Loaded>,
    looked: Duration,
    stamps: Vec<Stamp>,
}

/// Settings that are in force.
#[derive(Default)]
struct Loaded {
    acceptor: Option<TlsAcceptor>,
    passwords: Option<Passwords>,
}

/// What tells that a file changed.
type Stamp = Option<(u64, i64, i64, u64)>;

impl Web {
    pub(super) fn load(path: Option<&PathBuf>) -> Result<Self, WebError> {
        let (settings, files) = match path {
            Some(path) => Loaded::read(path)?,
            None => (Loaded::default(), Vec::new()),
        };
        Ok(Self {
            path: path.cloned(),
            current: Mutex::new(Current {
                settings: Arc::new(settings),
                looked: now(),
                stamps: stamps(&files),
            }),
        })
    }

    pub(super) fn scheme(&self) -> &'static str {
        match self.settings().acceptor {
            Some(_) => "https",
            None => "http",
        }
    }

    /// Whether nobody can read what is served without a certificate or a password.
    pub(super) fn is_protected(&self) -> bool {
        self.settings().passwords.is_some() || self.settings().acceptor.is_some()
    }

    /// How TLS is spoken; None where it is not.
    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.settings().acceptor.clone()
    }

    /// Whether a request with these headers may be answered.
    pub(super) async fn admits(&self, headers: &HeaderMap) -> bool {
        let settings = self.settings();
        let Some(passwords) = &settings.passwords else {
            return true;
        };
        let given = headers.get(AUTHORIZATION);
        let given = given.and_then(|value| value.to_str().ok()).and_then(basic);
        match given {
            Some((user, password)) => passwords.admit(&user, password).await,
            None => false,
        }
    }

    fn settings(&self) -> Arc<Loaded> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &self.path
            && now().saturating_sub(current.looked) >= LOOK
        {
            current.looked = now();
            current.follow(path);
        }
        Arc::clone(&current.settings)
    }
}

impl Current {
    /// Reads the file again where it or one that it names changed.
    fn follow(&mut self, path: &Path) {
        let files =
            Settings::read(path).map_or_else(|_| vec![path.to_owned()], |it| it.files(path));
        let stamps = stamps(&files);
        if stamps == self.stamps {
            return;
        }
        self.stamps = stamps;
        match Loaded::read(path) {
            Ok((settings, _)) => {
                tracing::info!("read {} again", path.display());
                self.settings = Arc::new(settings);
            }
            Err(error) => {
                tracing::error!("TLS and passwords stay as they are: {error}");
            }
        }
    }
}

impl Loaded {
    /// With the files that they depend on.
    fn read(path: &Path) -> Result<(Self, Vec<PathBuf>), WebError> {
        let settings = Settings::read(path)?;
        let loaded = Self {
            acceptor: settings
                .tls(path)?
                .map(|tls| TlsAcceptor::from(Arc::new(tls))),
            passwords: Passwords::new(settings.users(path)?),
        };
        Ok((loaded, settings.files(path)))
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let data = fs::metadata(file).ok()?;
        Some((data.ino(), data.mtime(), data.mtime_nsec(), data.len()))
    };
    files.iter().map(stamp).collect()
}

/// User and password of a header `Authorization: Basic`.
fn basic(header: &str) -> Option<(String, Vec<u8>)> {
    let (scheme, given) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let given = BASE64_STANDARD.decode(given.trim()).ok()?;
    let colon = given.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8(given[..colon].to_vec()).ok()?;
    Some((user, given[colon + 1..].to_vec()))
}
