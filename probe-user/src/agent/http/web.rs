//! TLS and passwords, by the web configuration file of Prometheus's exporters. It is read again
//! when it, or a file that it names, changes. Invalid files are logged, and the last valid settings
//! stay.

mod file;
mod passwords;
#[cfg(test)]
mod tests;

use std::{
    fs,
    net::IpAddr,
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
use super::Admission;
use crate::sys::clock::now;

/// The least time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The web configuration, which follows its files.
pub(super) struct Web {
    path: Option<PathBuf>,
    current: Mutex<CurrentSettings>,
}

struct CurrentSettings {
    settings: Arc<ActiveSettings>,
    checked_at: Duration,
    stamps: Vec<FileStamp>,
}

/// Settings in force.
#[derive(Default)]
struct ActiveSettings {
    acceptor: Option<TlsAcceptor>,
    /// Whether only clients with a certificate of the CA can connect.
    verifies_clients: bool,
    passwords: Option<Passwords>,
}

/// Inode, modification time (seconds, nanoseconds) and length of a file, to notice a change; None
/// if it cannot be read.
type FileStamp = Option<(u64, i64, i64, u64)>;

impl Web {
    pub(super) fn load(path: Option<&PathBuf>) -> Result<Self, WebError> {
        let (stamps, settings) = match path {
            // Stamps come first, so that a change while the files are read is noticed later.
            Some(path) => (stamps(path), ActiveSettings::read(path, None)?),
            None => (Vec::new(), ActiveSettings::default()),
        };
        Ok(Self {
            path: path.cloned(),
            current: Mutex::new(CurrentSettings {
                settings: Arc::new(settings),
                checked_at: now(),
                stamps,
            }),
        })
    }

    pub(super) fn scheme(&self) -> &'static str {
        match self.settings().acceptor {
            Some(_) => "https",
            None => "http",
        }
    }

    /// Whether clients need a certificate or a password.
    pub(super) fn is_protected(&self) -> bool {
        let settings = self.settings();
        settings.passwords.is_some() || settings.verifies_clients
    }

    /// Accepts TLS connections; None without TLS.
    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.settings().acceptor.clone()
    }

    /// Whether a request with these headers, from a client at this address, may be answered.
    pub(super) async fn admits(&self, headers: &HeaderMap, from: IpAddr) -> Admission {
        let settings = self.settings();
        let Some(passwords) = &settings.passwords else {
            return Admission::Granted;
        };
        match credentials(headers) {
            Some((user, password)) => passwords.admit(&user, password, from).await,
            None => Admission::Denied,
        }
    }

    /// Whether a request needs no password, or has one that was verified before. Verifies none
    /// itself, since that takes much CPU time.
    pub(super) fn already_admits(&self, headers: &HeaderMap) -> bool {
        self.settings().passwords.as_ref().is_none_or(|passwords| {
            credentials(headers)
                .is_some_and(|(user, password)| passwords.is_known(&user, &password))
        })
    }

    fn settings(&self) -> Arc<ActiveSettings> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &self.path
            && now().saturating_sub(current.checked_at) >= CHECK_INTERVAL
        {
            current.checked_at = now();
            current.reload_if_changed(path);
        }
        Arc::clone(&current.settings)
    }
}

impl CurrentSettings {
    /// Reads the file again if it, or a file that it names, changed.
    fn reload_if_changed(&mut self, path: &Path) {
        let stamps = stamps(path);
        if stamps == self.stamps {
            return;
        }
        self.stamps = stamps;
        match ActiveSettings::read(path, self.settings.passwords.as_ref()) {
            Ok(settings) => {
                tracing::info!("read {} again", path.display());
                self.settings = Arc::new(settings);
            }
            Err(error) => {
                tracing::error!("TLS and passwords stay as they are: {error}");
            }
        }
    }
}

impl ActiveSettings {
    /// Reads the settings. Passwords that were verified `before` stay verified.
    fn read(path: &Path, before: Option<&Passwords>) -> Result<Self, WebError> {
        let settings = Settings::read(path)?;
        Ok(Self {
            acceptor: settings
                .tls(path)?
                .map(|tls| TlsAcceptor::from(Arc::new(tls))),
            verifies_clients: settings.verifies_clients(),
            passwords: Passwords::new(settings.users(path)?, before),
        })
    }
}

/// The stamps of the file, and of the files that it names.
fn stamps(path: &Path) -> Vec<FileStamp> {
    let files = Settings::read(path).map_or_else(|_| vec![path.to_owned()], |it| it.files(path));
    let stamp = |file: &PathBuf| {
        let data = fs::metadata(file).ok()?;
        Some((data.ino(), data.mtime(), data.mtime_nsec(), data.len()))
    };
    files.iter().map(stamp).collect()
}

/// User and password of a request.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    basic_auth(headers.get(AUTHORIZATION)?.to_str().ok()?)
}

/// User and password of a header `Authorization: Basic`.
fn basic_auth(header: &str) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((user, decoded[colon + 1..].to_vec()))
}
