//! TLS to a collector. The certificate files are read for each connection, so that a renewed
//! certificate takes effect with the next one. Invalid files are logged, and the last valid ones
//! stay in use.

mod reporting_stream;

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, AlertDescription, CertificateError, ClientConfig, RootCertStore,
        pki_types::ServerName,
    },
};
use tonic::transport::{Channel, Endpoint, Uri};

use self::reporting_stream::ReportingStream;
use crate::agent::{config::OtlpTls, pem};

/// The protocol of gRPC, as TLS names it.
const HTTP2: &[u8] = b"h2";

const NO_GRPC: &str =
    "what answers there speaks TLS and no gRPC: name the collector's gRPC port, 4317 as a rule";

/// Accepts an endpoint at `https://`.
pub(super) fn check_supported() -> Result<(), String> {
    Ok(())
}

/// Makes connections to a collector.
pub(super) struct ClientTls {
    files: OtlpTls,
    /// Settings from the last files that were all valid.
    current: Mutex<Arc<ClientConfig>>,
    /// Why the last connection failed or was closed, as a sentence without a period. It is kept
    /// since the error of the request itself depends on timing.
    last_reason: Mutex<Option<String>>,
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If a file cannot be used; the error names its key.
    pub(super) fn load(files: &OtlpTls) -> io::Result<Self> {
        let config = read(files).map_err(io::Error::other)?;
        Ok(Self {
            files: files.clone(),
            current: Mutex::new(Arc::new(config)),
            last_reason: Mutex::default(),
        })
    }

    /// A channel to an endpoint, which connects with its first request.
    pub(super) fn channel(self: &Arc<Self>, endpoint: &Endpoint) -> Channel {
        let tls = Arc::clone(self);
        endpoint.connect_with_connector_lazy(tower::service_fn(move |to: Uri| {
            let tls = Arc::clone(&tls);
            async move {
                tls.set_reason(None);
                match tls.connect(&to).await {
                    Ok(stream) => Ok(TokioIo::new(ReportingStream::new(stream, tls))),
                    Err(why) => {
                        tls.set_reason(Some(why.clone()));
                        Err(io::Error::other(why))
                    }
                }
            }
        }))
    }

    /// Takes the reason why the last connection failed or was closed; None if TLS has none.
    pub(super) fn take_reason(&self) -> Option<String> {
        let mut reason = self
            .last_reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        reason.take()
    }

    fn set_reason(&self, why: Option<String>) {
        let mut reason = self
            .last_reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *reason = why;
    }

    /// Keeps the reason of a connection's error: with TLS 1.3 a server refuses a client's
    /// certificate only after the handshake.
    fn on_error(&self, error: &io::Error) {
        if let Some(rustls::Error::AlertReceived(alert)) = tls_error(error) {
            self.set_reason(Some(alert_sentence(*alert)));
        }
    }

    async fn connect(&self, to: &Uri) -> Result<TlsStream<TcpStream>, String> {
        let config = self.config();
        let host = { to.host().unwrap_or_default() }
            .trim_start_matches('[')
            .trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host} is no name of a machine"))?;
        let stream = TcpStream::connect((host, to.port_u16().unwrap_or(443)))
            .await
            .map_err(|error| format!("no connection: {error}"))?;
        // Each request is written by one call, which Nagle's algorithm would only delay.
        let _ = stream.set_nodelay(true);
        let connected = TlsConnector::from(config).connect(name, stream).await;
        let stream = connected.map_err(|error| self.handshake_sentence(host, &error))?;
        match stream.get_ref().1.alpn_protocol() {
            Some(HTTP2) => Ok(stream),
            _ => Err(NO_GRPC.to_owned()),
        }
    }

    /// Reads the files again. If they are invalid, the last valid ones stay in use.
    fn config(&self) -> Arc<ClientConfig> {
        let read = read(&self.files);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(config) => *current = Arc::new(config),
            Err(why) => tracing::error!("certificates for the collector stay as they were: {why}"),
        }
        Arc::clone(&current)
    }

    /// Why a handshake failed, as a sentence.
    fn handshake_sentence(&self, host: &str, error: &io::Error) -> String {
        let Some(error) = tls_error(error) else {
            return format!("TLS began and did not get through: {error}");
        };
        match error {
            rustls::Error::InvalidCertificate(why) => self.certificate_sentence(host, why),
            rustls::Error::InvalidMessage(_) => {
                "what answers there speaks no TLS: name its port for TLS, or http:// in place of \
                 https://"
                    .to_owned()
            }
            rustls::Error::AlertReceived(alert) => alert_sentence(*alert),
            error => format!("no TLS: {error}"),
        }
    }

    /// Why the collector's certificate was refused, as a sentence.
    fn certificate_sentence(&self, host: &str, why: &CertificateError) -> String {
        match why {
            CertificateError::UnknownIssuer => match &self.files.ca_file {
                Some(file) => format!(
                    "its certificate was signed by no authority of {}: name the file of the one \
                     that did by otlp.ca_file",
                    file.display()
                ),
                None => "its certificate was signed by no authority that this machine knows: name \
                         the file of the one that did by otlp.ca_file"
                    .to_owned(),
            },
            CertificateError::NotValidForName => {
                format!(
                    "its certificate is not for {host}: use a name in otlp.endpoint that it has"
                )
            }
            CertificateError::NotValidForNameContext { presented, .. } => format!(
                "its certificate is for {} and not for {host}: use a name in otlp.endpoint that \
                 it has",
                dns_names(presented)
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired by the clock of this machine: renew it, or set the \
                 clock"
                    .to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet by the clock of this machine: set the clock, or \
                 wait"
                    .to_owned()
            }
            why => format!("its certificate cannot be used: {why}"),
        }
    }
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The alert with which the collector closed a connection, as a sentence.
fn alert_sentence(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "it asks for a certificate of this agent: name one by otlp.cert_file and otlp.key_file"
                .to_owned()
        }
        AlertDescription::NoApplicationProtocol => NO_GRPC.to_owned(),
        alert => format!(
            "it closed the connection with TLS's alert {alert:?}: it may refuse the certificate of \
             otlp.cert_file, or ask for one"
        ),
    }
}

/// The names of a certificate, joined. Each name comes as `DnsName("a.example")`.
fn dns_names(presented: &[String]) -> String {
    let names = presented
        .iter()
        .map(|name| name.split('"').nth(1).unwrap_or(name));
    names.collect::<Vec<_>>().join(", ")
}

/// Builds the settings of TLS from the files. The error names the key.
fn read(files: &OtlpTls) -> Result<ClientConfig, String> {
    let with_key = |key: &'static str| move |why: String| format!("otlp.{key}: {why}");
    let roots = match &files.ca_file {
        Some(file) => pem::authorities(file).map_err(with_key("ca_file"))?,
        None => system_roots()?,
    };
    let provider = Arc::new(rustls_graviola::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match (&files.cert_file, &files.key_file) {
        (Some(certificate), Some(key)) => {
            let certificates = pem::certificates(certificate).map_err(with_key("cert_file"))?;
            let key = pem::key(key).map_err(with_key("key_file"))?;
            let config = builder.with_client_auth_cert(certificates, key);
            config.map_err(|error| format!("otlp.key_file: does not go with cert_file: {error}"))?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(config)
}

/// The authorities that this machine trusts.
fn system_roots() -> Result<RootCertStore, String> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(loaded.certs);
    match added {
        0 => Err(
            "this machine has no certificates of authorities where they usually are: name a file \
             by otlp.ca_file"
                .to_owned(),
        ),
        _ => Ok(roots),
    }
}
