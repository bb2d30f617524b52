//! TLS to a collector. Its files are read for each connection, so that a renewed certificate is in
//! force with the next one; files that are wrong by then change nothing.

mod watched;

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

use self::watched::Watched;
use crate::agent::{config::OtlpTls, pem};

/// The protocol of gRPC, as TLS names it.
const HTTP2: &[u8] = b"h2";

const NO_GRPC: &str =
    "what answers there speaks TLS and no gRPC: name the collector's gRPC port, 4317 as a rule";

/// An endpoint may be at `https://`.
pub(super) fn is_there() -> Result<(), String> {
    Ok(())
}

/// How connections to a collector are made.
pub(super) struct Tls {
    files: OtlpTls,
    /// As the files were when all of them were right.
    current: Mutex<Arc<ClientConfig>>,
    /// Why the last connection was not made, or was closed, as one sentence without its end. What a
    /// request is told depends on chance there.
    closed: Mutex<Option<String>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// Names the key whose file cannot be used.
    pub(super) fn load(files: &OtlpTls) -> io::Result<Self> {
        let config = read(files).map_err(io::Error::other)?;
        Ok(Self {
            files: files.clone(),
            current: Mutex::new(Arc::new(config)),
            closed: Mutex::default(),
        })
    }

    /// Connections to an endpoint, made when they are needed.
    pub(super) fn channel(self: &Arc<Self>, endpoint: &Endpoint) -> Channel {
        let tls = Arc::clone(self);
        endpoint.connect_with_connector_lazy(tower::service_fn(move |to: Uri| {
            let tls = Arc::clone(&tls);
            async move {
                tls.say(None);
                match tls.connect(&to).await {
                    Ok(stream) => Ok(TokioIo::new(Watched::new(stream, tls))),
                    Err(why) => {
                        tls.say(Some(why.clone()));
                        Err(io::Error::other(why))
                    }
                }
            }
        }))
    }

    /// Why the last connection was not made, or was closed, where TLS tells.
    pub(super) fn reason(&self) -> Option<String> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.take()
    }

    fn say(&self, why: Option<String>) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = why;
    }

    /// Looks at an error of a connection: with TLS 1.3 a server refuses a client's certificate
    /// after the handshake.
    fn fails(&self, error: &io::Error) {
        if let Some(rustls::Error::AlertReceived(alert)) = of_tls(error) {
            self.say(Some(of_alert(*alert)));
        }
    }

    async fn connect(&self, to: &Uri) -> Result<TlsStream<TcpStream>, String> {
        let config = self.config();
        let host = to.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| format!("{host} is no name of a machine"))?;
        let stream = TcpStream::connect((host, to.port_u16().unwrap_or(443))).await;
        let stream = stream.map_err(|error| format!("no connection: {error}"))?;
        // Requests are written at once.
        let _ = stream.set_nodelay(true);
        let connected = TlsConnector::from(config).connect(name, stream).await;
        let stream = connected.map_err(|error| self.sentence(host, &error))?;
        match stream.get_ref().1.alpn_protocol() {
            Some(HTTP2) => Ok(stream),
            _ => Err(NO_GRPC.to_owned()),
        }
    }

    /// The files as they are now.
    fn config(&self) -> Arc<ClientConfig> {
        let read = read(&self.files);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(config) => *current = Arc::new(config),
            Err(why) => tracing::error!("certificates for the collector stay as they were: {why}"),
        }
        Arc::clone(&current)
    }

    fn sentence(&self, host: &str, error: &io::Error) -> String {
        let Some(error) = of_tls(error) else {
            return format!("TLS began and did not get through: {error}");
        };
        match error {
            rustls::Error::InvalidCertificate(why) => self.of_certificate(host, why),
            rustls::Error::InvalidMessage(_) => {
                "what answers there speaks no TLS: name its port for TLS, or http:// in place of \
                 https://"
                    .to_owned()
            }
            rustls::Error::AlertReceived(alert) => of_alert(*alert),
            error => format!("no TLS: {error}"),
        }
    }

    fn of_certificate(&self, host: &str, why: &CertificateError) -> String {
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
                names(presented)
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

fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// What the collector said before it closed a connection.
fn of_alert(alert: AlertDescription) -> String {
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

/// The names of a certificate, which come as `DnsName("a.example")`.
fn names(presented: &[String]) -> String {
    let bare = presented
        .iter()
        .map(|name| name.split('"').nth(1).unwrap_or(name));
    bare.collect::<Vec<_>>().join(", ")
}

/// Settings by the files. The error names the key.
fn read(files: &OtlpTls) -> Result<ClientConfig, String> {
    let of = |key: &'static str| move |why: String| format!("otlp.{key}: {why}");
    let roots = match &files.ca_file {
        Some(file) => pem::authorities(file).map_err(of("ca_file"))?,
        None => known()?,
    };
    let provider = Arc::new(rustls_graviola::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match (&files.cert_file, &files.key_file) {
        (Some(certificate), Some(key)) => {
            let certificates = pem::certificates(certificate).map_err(of("cert_file"))?;
            let key = pem::key(key).map_err(of("key_file"))?;
            let own = builder.with_client_auth_cert(certificates, key);
            own.map_err(|error| format!("otlp.key_file: does not go with cert_file: {error}"))?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(config)
}

/// The authorities that this machine knows.
fn known() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    match added {
        0 => Err(
            "this machine has no certificates of authorities where they usually are: name a file \
             by otlp.ca_file"
                .to_owned(),
        ),
        _ => Ok(roots),
    }
}
