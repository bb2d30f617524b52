//! The web configuration file: <https://prometheus.io/docs/prometheus/latest/configuration/https/>.
//! Settings that pmuscope does not support are refused by name.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use serde_saphyr::Spanned;
use tokio_rustls::rustls::{
    ServerConfig, SupportedProtocolVersion,
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};

use crate::agent::pem;

/// An invalid web configuration file.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}{}: {what}; nothing is served without it: correct the file, or leave out http.web_config",
    path.display(),
    line.map_or_else(String::new, |line| format!(":{line}"))
)]
pub struct WebError {
    path: PathBuf,
    line: Option<u64>,
    /// The mistake, with its key.
    what: String,
}

/// The settings of the file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    tls_server_config: Option<WebTls>,
    basic_auth_users: BTreeMap<String, Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebTls {
    cert_file: Spanned<PathBuf>,
    key_file: Spanned<PathBuf>,
    client_auth_type: Option<Spanned<String>>,
    client_ca_file: Option<Spanned<PathBuf>>,
    min_version: Option<Spanned<String>>,
    max_version: Option<Spanned<String>>,
}

/// A mistake at the line of a value.
fn line_error<T>(value: &Spanned<T>, what: String) -> (Option<u64>, String) {
    (Some(value.referenced.line()), what)
}

/// A line of the file, if it is known, and the mistake there.
type LineError = (Option<u64>, String);

impl Settings {
    pub(super) fn read(path: &Path) -> Result<Self, WebError> {
        let error = |line, what| WebError {
            path: path.to_owned(),
            line,
            what,
        };
        let text = fs::read_to_string(path)
            .map_err(|source| error(None, format!("cannot be read: {source}")))?;
        // An empty file has no settings.
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(&text).map_err(|source| {
            let line = source.location().map(|location| location.line());
            let what = source
                .without_snippet()
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned();
            error(line, what)
        })
    }

    /// The files that the settings depend on, the file itself first.
    pub(super) fn files(&self, path: &Path) -> Vec<PathBuf> {
        let named_files = { self.tls_server_config.iter() }
            .flat_map(|tls| {
                let both = [&tls.cert_file, &tls.key_file].into_iter();
                both.chain(&tls.client_ca_file)
            })
            .map(|file| resolve_path(path, &file.value));
        std::iter::once(path.to_owned())
            .chain(named_files)
            .collect()
    }

    /// Users and the hashes of their passwords.
    pub(super) fn users(&self, path: &Path) -> Result<BTreeMap<String, String>, WebError> {
        let user = |(name, hash): (&String, &Spanned<String>)| match hash
            .value
            .parse::<bcrypt::HashParts>()
        {
            Ok(parts) if (4..=31).contains(&parts.get_cost()) => {
                Ok((name.clone(), hash.value.clone()))
            }
            _ => Err(line_error(
                hash,
                format!(
                    "basic_auth_users.{name}: is a password hashed by bcrypt (`htpasswd -nBC 10 \
                         \"\"` makes one)"
                ),
            )),
        };
        let users = self.basic_auth_users.iter().map(user);
        users
            .collect::<Result<_, _>>()
            .map_err(|error| in_file(path, error))
    }

    /// Whether clients need a certificate.
    pub(super) fn verifies_clients(&self) -> bool {
        let clients = self.tls_server_config.as_ref().map(WebTls::client_auth);
        matches!(clients, Some(Ok(ClientAuth::Verified { always: true })))
    }

    /// The settings of TLS; None without TLS.
    pub(super) fn tls(&self, path: &Path) -> Result<Option<ServerConfig>, WebError> {
        let tls = self.tls_server_config.as_ref();
        let config = tls.map(|tls| tls.config(path)).transpose();
        config.map_err(|error| in_file(path, error))
    }
}

/// Adds the path of the file to a mistake.
fn in_file(path: &Path, (line, what): LineError) -> WebError {
    WebError {
        path: path.to_owned(),
        line,
        what,
    }
}

/// Resolves a path that the file names. It is relative to the file's directory.
fn resolve_path(path: &Path, named: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).join(named)
}

impl WebTls {
    fn config(&self, path: &Path) -> Result<ServerConfig, LineError> {
        let key = "tls_server_config";
        let with_key = |name, file| move |what| line_error(file, format!("{key}.{name}: {what}"));
        let certificates = pem::certificates(&resolve_path(path, &self.cert_file.value))
            .map_err(with_key("cert_file", &self.cert_file))?;
        let private_key = pem::key(&resolve_path(path, &self.key_file.value))
            .map_err(with_key("key_file", &self.key_file))?;
        let provider = Arc::new(rustls_graviola::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&self.versions()?)
            .map_err(|error| line_error(&self.cert_file, format!("{key}: {error}")))?;
        let roots = match &self.client_ca_file {
            None => None,
            Some(file) => {
                let roots = pem::authorities(&resolve_path(path, &file.value));
                Some((file, roots.map_err(with_key("client_ca_file", file))?))
            }
        };
        let builder = match (self.client_auth()?, roots) {
            (ClientAuth::Any, None) => builder.with_no_client_auth(),
            (ClientAuth::Any, Some((file, _))) => {
                return Err(line_error(
                    file,
                    format!(
                        "{key}.client_ca_file: has no meaning without client_auth_type: \
                         RequireAndVerifyClientCert or VerifyClientCertIfGiven"
                    ),
                ));
            }
            (ClientAuth::Verified { .. }, None) => {
                let at = self.client_auth_type.as_ref();
                let line = at.map(|at| at.referenced.line());
                return Err((
                    line,
                    format!("{key}.client_auth_type: needs client_ca_file"),
                ));
            }
            (ClientAuth::Verified { always }, Some((file, roots))) => {
                let strict = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let chosen = match always {
                    true => strict,
                    false => strict.allow_unauthenticated(),
                };
                let verifier = chosen
                    .build()
                    .map_err(|error| line_error(file, format!("{key}.client_ca_file: {error}")))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        builder
            .with_single_cert(certificates, private_key)
            .map_err(|error| {
                line_error(
                    &self.key_file,
                    format!("{key}.key_file: does not go with cert_file: {error}"),
                )
            })
    }

    fn client_auth(&self) -> Result<ClientAuth, LineError> {
        let Some(kind) = &self.client_auth_type else {
            return Ok(ClientAuth::Any);
        };
        match kind.value.as_str() {
            "NoClientCert" => Ok(ClientAuth::Any),
            "RequireAndVerifyClientCert" => Ok(ClientAuth::Verified { always: true }),
            "VerifyClientCertIfGiven" => Ok(ClientAuth::Verified { always: false }),
            other => Err(line_error(
                kind,
                format!(
                    "tls_server_config.client_auth_type: `{other}` is not known here; it is \
                     NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert"
                ),
            )),
        }
    }

    fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, LineError> {
        let number = |key, given: &Option<Spanned<String>>, default| match given {
            None => Ok(default),
            Some(given) => match given.value.as_str() {
                "TLS12" => Ok(2),
                "TLS13" => Ok(3),
                other => Err(line_error(
                    given,
                    format!(
                        "tls_server_config.{key}: `{other}` is not known here; it is TLS12 or TLS13"
                    ),
                )),
            },
        };
        let least = number("min_version", &self.min_version, 2)?;
        let most = number("max_version", &self.max_version, 3)?;
        let all = [(2, &TLS12), (3, &TLS13)];
        let wanted = all
            .iter()
            .filter(|(number, _)| (least..=most).contains(number));
        Ok(wanted.map(|(_, version)| *version).collect())
    }
}

/// Which clients may connect.
enum ClientAuth {
    Any,
    /// Clients with a certificate of the CA. Unless `always`, also clients without any certificate.
    Verified {
        always: bool,
    },
}
