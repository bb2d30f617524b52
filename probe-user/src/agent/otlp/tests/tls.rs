//! A collector behind TLS, with the certificates in `tests/fixtures/tls`: `ca.pem` signed
//! `server.pem` and `client.pem`; `other-ca.pem` signed `expired.pem` and `elsewhere.pem`, which
//! both have the key `server.key`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use hyper::server::conn::http2;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use tempfile::TempDir;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, server::WebPkiClientVerifier},
};

use super::*;
use crate::agent::{config::OtlpTls, pem};

fn fixture(name: &str) -> PathBuf {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/tls");
    Path::new(fixtures).join(name)
}

/// How a collector speaks TLS.
struct ServerTls {
    certificate: &'static str,
    asks_for_certificate: bool,
    protocol: &'static [u8],
}

const VALID: ServerTls = ServerTls {
    certificate: "server.pem",
    asks_for_certificate: false,
    protocol: b"h2",
};

type Received = mpsc::Receiver<(OtlpRequest, Option<String>)>;

/// The address of a collector behind TLS on its own port, and a channel that receives its requests.
fn behind_tls(server_tls: &ServerTls) -> (SocketAddr, Received) {
    let provider = Arc::new(rustls_graviola::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match server_tls.asks_for_certificate {
        false => builder.with_no_client_auth(),
        true => {
            let roots = Arc::new(pem::authorities(&fixture("ca.pem")).unwrap());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let certificate = pem::certificates(&fixture(server_tls.certificate)).unwrap();
    let key = pem::key(&fixture("server.key")).unwrap();
    let mut config = builder.with_single_cert(certificate, key).unwrap();
    config.alpn_protocols = vec![server_tls.protocol.to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));

    let (sender, received) = mpsc::channel();
    let service = MetricsServiceServer::new(Collector {
        script: Mutex::default(),
        sender,
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let service = Arc::new(service);
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, service) = (acceptor.clone(), (*service).clone());
            tokio::spawn(async move {
                // A client that does not trust the certificate closes the connection.
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = TowerToHyperService::new(service);
                let connection = http2::Builder::new(TokioExecutor::new());
                let _ = connection
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    };
    thread::spawn(|| {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(serve)
    });
    (address, received)
}

/// The agent's files, which may be renewed.
struct Files(TempDir);

impl Files {
    fn with_ca(ca: &str) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.renew("ca.crt", ca);
        files
    }

    fn renew(&self, name: &str, fixture_name: &str) {
        fs::copy(fixture(fixture_name), self.0.path().join(name)).unwrap();
    }

    fn config(&self) -> config::Otlp {
        let file = |name: &str| {
            let file = self.0.path().join(name);
            file.exists().then_some(file)
        };
        config::Otlp {
            tls: OtlpTls {
                ca_file: file("ca.crt"),
                cert_file: file("tls.crt"),
                key_file: file("tls.key"),
            },
            ..config::Otlp::default()
        }
    }
}

/// The result of one request to `to`.
fn push(to: &str, tls: ClientTls) -> Result<(), String> {
    let tls = Arc::new(tls);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(to.to_owned()).unwrap();
        let mut client = service::MetricsServiceClient::new(tls.channel(&endpoint));
        let [request] = window().try_into().unwrap();
        let answer = client.export(request).await;
        answer
            .map(drop)
            .map_err(|status| tls.take_reason().unwrap_or_else(|| why(&status)))
    })
}

/// Why a request to `to` fails. `D` stands for the directory of the agent's files.
fn refusal(to: &str, files: &Files) -> String {
    let why = push(to, ClientTls::load(&files.config().tls).unwrap()).unwrap_err();
    why.replace(&files.0.path().display().to_string(), "D")
}

#[test]
fn a_window_arrives_by_tls() {
    let (address, received) = behind_tls(&VALID);
    for host in ["localhost", "127.0.0.1"] {
        let to = format!("https://{host}:{}", address.port());
        let sent = Arc::new(PushCounters::default());
        let exporter = Exporter::start(
            to,
            &Files::with_ca("ca.pem").config(),
            Arc::clone(&sent),
            ANSWER_TIMEOUT,
        );
        let exporter = exporter.unwrap();
        exporter.send(window());
        assert_eq!([received.recv_timeout(LONG).unwrap().0], *window());
        exporter.finish(LONG);
        assert_eq!(sent.requests.load(Relaxed), 1);
        assert_eq!(sent.failures.load(Relaxed), 0);
    }
}

#[test]
fn a_refusal_is_one_sentence() {
    let refused = |server_tls: &ServerTls, ca: &str| {
        let (address, received) = behind_tls(server_tls);
        let to = format!("https://localhost:{}", address.port());
        let why = refusal(&to, &Files::with_ca(ca));
        assert!(received.try_recv().is_err());
        why
    };
    let with_certificate = |certificate| ServerTls {
        certificate,
        ..VALID
    };
    assert_eq!(
        refused(&VALID, "other-ca.pem"),
        "its certificate was signed by no authority of D/ca.crt: name the file of the one that \
         did by otlp.ca_file"
    );
    assert_eq!(
        refused(&with_certificate("expired.pem"), "other-ca.pem"),
        "its certificate has expired by the clock of this machine: renew it, or set the clock"
    );
    assert_eq!(
        refused(&with_certificate("elsewhere.pem"), "other-ca.pem"),
        "its certificate is for elsewhere.example and not for localhost: use a name in \
         otlp.endpoint that it has"
    );
    let http1_server = ServerTls {
        protocol: b"http/1.1",
        ..VALID
    };
    assert_eq!(
        refused(&http1_server, "ca.pem"),
        "what answers there speaks TLS and no gRPC: name the collector's gRPC port, 4317 as a rule"
    );
    let (plain, _received) = collector(Vec::new());
    let files = Files::with_ca("ca.pem");
    assert_eq!(
        refusal(&format!("https://{plain}"), &files),
        "what answers there speaks no TLS: name its port for TLS, or http:// in place of https://"
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let why = refusal(&format!("https://{address}"), &files);
    assert!(
        why.starts_with("no connection: Connection refused"),
        "{why}"
    );
}

/// With TLS 1.3, a server refuses a missing certificate only after the handshake.
#[test]
fn a_collector_may_ask_for_a_certificate() {
    let (address, received) = behind_tls(&ServerTls {
        asks_for_certificate: true,
        ..VALID
    });
    let to = format!("https://localhost:{}", address.port());
    let files = Files::with_ca("ca.pem");
    assert_eq!(
        refusal(&to, &files),
        "it asks for a certificate of this agent: name one by otlp.cert_file and otlp.key_file"
    );
    files.renew("tls.crt", "expired.pem");
    files.renew("tls.key", "server.key");
    let why = refusal(&to, &files);
    assert!(
        why.contains("it may refuse the certificate of otlp.cert_file"),
        "{why}"
    );
    files.renew("tls.crt", "client.pem");
    files.renew("tls.key", "client.key");
    let exporter = Exporter::start(to, &files.config(), Arc::default(), ANSWER_TIMEOUT).unwrap();
    exporter.send(window());
    received.recv_timeout(LONG).unwrap();
    exporter.finish(LONG);
}

/// Each connection reads the files again. If they are invalid, it uses the last valid files.
#[test]
fn renewed_files_are_used_by_the_next_connection() {
    let (address, received) = behind_tls(&VALID);
    let to = format!("https://localhost:{}", address.port());
    let files = Files::with_ca("other-ca.pem");
    let sent = Arc::new(PushCounters::default());
    let exporter = Exporter::start(
        to.clone(),
        &files.config(),
        Arc::clone(&sent),
        ANSWER_TIMEOUT,
    )
    .unwrap();
    exporter.send(window());
    while sent.failures.load(Relaxed) == 0 {
        thread::yield_now();
    }
    files.renew("ca.crt", "ca.pem");
    received.recv_timeout(LONG).unwrap();
    exporter.finish(LONG);

    let tls = ClientTls::load(&files.config().tls).unwrap();
    files.renew("ca.crt", "server.key");
    assert_eq!(push(&to, tls), Ok(()));
}

#[test]
fn invalid_files_are_named() {
    let files = Files::with_ca("ca.pem");
    let start = || {
        let started = Exporter::start(
            "https://a:1".to_owned(),
            &files.config(),
            Arc::default(),
            ANSWER_TIMEOUT,
        );
        started.err().unwrap().to_string()
    };
    files.renew("ca.crt", "server.key");
    let error = start();
    assert!(
        error.starts_with("otlp.ca_file: ") && error.ends_with("has no certificate"),
        "{error}"
    );
    files.renew("ca.crt", "ca.pem");
    files.renew("tls.crt", "client.pem");
    files.renew("tls.key", "client.pem");
    let error = start();
    assert!(error.starts_with("otlp.key_file: cannot use "), "{error}");
    files.renew("tls.key", "server.key");
    let error = start();
    assert!(
        error.starts_with("otlp.key_file: does not go with cert_file"),
        "{error}"
    );
}
